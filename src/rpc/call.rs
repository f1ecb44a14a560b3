//! Calls: query, answer, error or miss. All of it computes on mapped bytes, and nothing waits.

use std::sync::Arc;

use neve_jsonrpc::{
    Kind, Message, Method, NoQuery, Query, RpcError, Subscription, envelope, excerpt,
};

use super::caches::Caches;
use super::caller::{Caller, Transport};
use super::missing::{Missing, Unanswered, missing, missing_data, range_json};
use crate::body::BodyBuilder;
use crate::config::settings::{Limits, MissPolicy};
use crate::rpc::cursors::{Filters, Replays, SubscriptionRefused, UndoLog};
use crate::rpc::methods::{Below, Fetched, Miss, QueryContext, QueryError, execute, fresh};
use crate::shared::{
    MemoryBudget, Meter, MethodLabel, MissReason, Outcome, Serving, Status, ThreadCounters, Work,
};

/// Parts that an answer to a body needs, for one thread.
#[derive(Clone)]
pub(crate) struct Rpc {
    pub(crate) serving: Arc<Serving>,
    pub(crate) status: Arc<Status>,
    pub(crate) filters: Arc<Filters>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) limits: Limits,
    /// Budget of the memory of clients.
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) counters: Arc<ThreadCounters>,
    /// Turns of this thread's subscribers that replay.
    pub(crate) replays: Replays,
    /// Treatment of misses: refused or relayed, and batches with one whole or split.
    pub(crate) misses: MissPolicy,
    /// Heights below the served range, if there are any.
    pub(crate) below: Option<Arc<dyn Below>>,
    /// Values and heights that were fetched for the body.
    pub(crate) fetched: Fetched,
}

impl Rpc {
    /// Appends the answer to one message. Returns the length of its result, 0 for an error.
    pub(super) fn message(
        &self,
        message: &Message<'_>,
        caller: &mut Caller<'_>,
        out: &mut BodyBuilder,
    ) -> Result<usize, Unanswered> {
        match message.kind() {
            Kind::Call => self.call(message, caller, out),
            Kind::Notification => self.notification(message, caller),
            // The node drops responses that a client sends.
            Kind::Response => Err(Unanswered::Silent),
            Kind::Invalid => {
                envelope::error(out.text(), message.id(), &RpcError::INVALID_REQUEST);
                Ok(0)
            }
        }
    }

    fn call(
        &self,
        message: &Message<'_>,
        caller: &mut Caller<'_>,
        out: &mut BodyBuilder,
    ) -> Result<usize, Unanswered> {
        if matches!(caller.over, Transport::Socket(_))
            && let Some(asked) = message.subscription(self.serving.rules()).transpose()
        {
            return self.subscribe(message, asked, caller, out);
        }
        match message.query(self.serving.rules()) {
            Ok((method, query)) if self.leaves_out(method, &query) => {
                Err(not_served(message, caller))
            }
            Ok((method, query)) => self.ask(message, method, query, caller, out),
            // A node that lacks the method does not look at its parameters.
            Err(_) if self.is_switched_off(message) => Err(not_served(message, caller)),
            Err(why) => without_query(message, why, caller, out),
        }
    }

    /// True if neve does not serve a query: the method is switched off, or is about the pool of transactions, which neve
    /// does not have.
    fn leaves_out(&self, method: Method, query: &Query) -> bool {
        (method.is_debug_raw() && !self.limits.debug_raw)
            || matches!(query, Query::NewPendingTransactionFilter)
    }

    /// True if the node has the method only if it is told to, and neve was not.
    fn is_switched_off(&self, message: &Message<'_>) -> bool {
        !self.limits.debug_raw && message.served().is_some_and(Method::is_debug_raw)
    }

    fn ask(
        &self,
        message: &Message<'_>,
        method: Method,
        query: Query,
        caller: &mut Caller<'_>,
        out: &mut BodyBuilder,
    ) -> Result<usize, Unanswered> {
        let start = out.text().len();
        envelope::write_prefix(out.text(), message.id());
        let before = out.len();
        let answered = self.execute(query, caller, out);
        let Some(outcome) = self.outcome_of(&answered) else { return Err(Unanswered::Cold) };
        caller.calls.note(method.into(), outcome);
        match answered {
            Ok(()) => {
                let len = out.len() - before;
                out.text().extend_from_slice(envelope::SUFFIX);
                Ok(len)
            }
            Err(why) => without_result(message, why, start, out),
        }
    }

    /// Appends the result of a query, and keeps what the query changed.
    fn execute(
        &self,
        query: Query,
        caller: &mut Caller<'_>,
        out: &mut BodyBuilder,
    ) -> Result<(), QueryError> {
        let context = self.context(caller.work, &caller.memory);
        let answered = match caller.work.ended() {
            Some(_) => Err(caller.work.error().into()), // its deadline passed while it waited
            None => execute::result(&context, query, out),
        };
        // Before any return: what a call changed until it failed may have to be undone, too.
        caller.changes.add(context.changes);
        answered
    }

    /// Outcome of a call to count; `None` if another thread repeats the call.
    fn outcome_of(&self, answered: &Result<(), QueryError>) -> Option<Outcome> {
        Some(match answered {
            Ok(()) => Outcome::Hit,
            Err(QueryError::Error(_)) => Outcome::Error,
            Err(QueryError::Cold) => return None,
            Err(QueryError::Miss(miss)) => Outcome::Miss(miss.reason(self.serving.head())),
            Err(QueryError::NoMemory) => Outcome::Miss(MissReason::NoMemory),
        })
    }

    fn context<'a>(&'a self, work: &'a Work<'a>, memory: &'a Meter<'a>) -> QueryContext<'a> {
        QueryContext {
            serving: &self.serving,
            status: &self.status,
            filters: &self.filters,
            fees: &self.caches.fees,
            limits: &self.limits,
            work,
            memory,
            changes: UndoLog::default(),
            below: self.below.as_deref(),
            fetched: &self.fetched,
        }
    }

    /// Opens or ends a subscription, and counts the call.
    fn subscribe(
        &self,
        message: &Message<'_>,
        asked: Result<Subscription, NoQuery>,
        caller: &mut Caller<'_>,
        out: &mut BodyBuilder,
    ) -> Result<usize, Unanswered> {
        let answered = self.change_subscriptions(message, asked, caller, out);
        let outcome = match &answered {
            Ok(0) => Outcome::Error,
            Ok(_) => Outcome::Hit,
            Err(Unanswered::Missed(Missing::Data(miss))) => {
                Outcome::Miss(miss.reason(self.serving.head()))
            }
            Err(_) => return answered, // counted as not served
        };
        caller.calls.note(MethodLabel::of(message), outcome);
        answered
    }

    fn change_subscriptions(
        &self,
        message: &Message<'_>,
        asked: Result<Subscription, NoQuery>,
        caller: &mut Caller<'_>,
        out: &mut BodyBuilder,
    ) -> Result<usize, Unanswered> {
        let Transport::Socket(subscriptions) = &mut caller.over else {
            return Err(not_served(message, caller));
        };
        let opened = match asked {
            Ok(Subscription::Unsubscribe(id)) if subscriptions.close(&id) => {
                return Ok(short(message, "true", out));
            }
            Ok(Subscription::Unsubscribe(_)) => {
                Err(SubscriptionRefused::Error(RpcError::SUBSCRIPTION_NOT_FOUND))
            }
            // A subscriber would wait for heads that do not come; another server may have them.
            Ok(wanted) => {
                fresh(&self.serving).map_err(|miss| Unanswered::Missed(Missing::Data(miss)))?;
                subscriptions.open(wanted, self.serving.reader.range(), caller.memory.account())
            }
            Err(NoQuery::Error(error)) => Err(SubscriptionRefused::Error(error)),
            Err(_) => return Err(not_served(message, caller)),
        };
        match opened {
            Ok(id) => Ok(short(message, &format!("\"{id}\""), out)),
            Err(SubscriptionRefused::Error(error)) => {
                envelope::error(out.text(), message.id(), &error);
                Ok(0)
            }
            Err(SubscriptionRefused::Missing(height)) => {
                Err(Unanswered::Missed(Missing::Data(Miss::Height(height))))
            }
        }
    }

    /// Executes a notification that changes a filter or a subscription, and ignores one that reads. Any other one may
    /// have an effect at a full node.
    fn notification(
        &self,
        message: &Message<'_>,
        caller: &mut Caller<'_>,
    ) -> Result<usize, Unanswered> {
        let rules = self.serving.rules();
        let mut unsent = BodyBuilder::new(1, caller.accepts());
        if matches!(caller.over, Transport::Socket(_))
            && let Some(asked) = message.subscription(rules).transpose()
        {
            let Ok(asked) = asked else { return Err(Unanswered::Silent) };
            return silent(self.subscribe(message, Ok(asked), caller, &mut unsent));
        }
        match message.query(rules) {
            Err(NoQuery::NotServed) => Err(not_served(message, caller)),
            // A new filter is left out: without a response no client would learn its id.
            Ok((method, query @ (Query::FilterChanges(_) | Query::UninstallFilter(_)))) => {
                silent(self.ask(message, method, query, caller, &mut unsent))
            }
            _ => Err(Unanswered::Silent),
        }
    }

    /// Makes the error of a miss, and its data. Routers know by its words ("header not found",
    /// "requested data is not available") that another upstream may have the data. The node's error
    /// for an unknown method would make a router or library give the method up for good.
    pub(super) fn refusal(&self, why: &Missing) -> (RpcError, String) {
        let range = self.serving.reader.range();
        let error = match why {
            Missing::Method(name) => {
                missing(&format!("the method {name} is not served"), range.as_ref())
            }
            Missing::Data(miss) => missing_data(*miss, range.as_ref()),
        };
        (error, range_json(range.as_ref()))
    }
}

/// Answers a call without a query as the node does.
fn without_query(
    message: &Message<'_>,
    why: NoQuery,
    caller: &mut Caller<'_>,
    out: &mut BodyBuilder,
) -> Result<usize, Unanswered> {
    match why {
        NoQuery::NotServed => Err(not_served(message, caller)),
        NoQuery::Error(error) => {
            caller.calls.note(MethodLabel::of(message), Outcome::Error);
            envelope::error(out.text(), message.id(), &error);
            Ok(0)
        }
        // The node returns null for these parameters without a look at its data.
        NoQuery::Null => {
            caller.calls.note(MethodLabel::of(message), Outcome::Error);
            Ok(short(message, "null", out))
        }
    }
}

/// Takes the prefix of a response back to `start`, and appends the node's error if it has one.
fn without_result(
    message: &Message<'_>,
    why: QueryError,
    start: usize,
    out: &mut BodyBuilder,
) -> Result<usize, Unanswered> {
    match why {
        QueryError::Error(error) => {
            out.text().truncate(start); // removes the prefix; no result follows it
            envelope::error(out.text(), message.id(), &error);
            Ok(0)
        }
        QueryError::Miss(miss) => {
            out.text().truncate(start); // a split batch goes on with its next call
            Err(Unanswered::Missed(Missing::Data(miss)))
        }
        QueryError::NoMemory => Err(Unanswered::NoMemory),
        QueryError::Cold => Err(Unanswered::Cold),
    }
}

/// Drops an answer that is not sent.
fn silent(answered: Result<usize, Unanswered>) -> Result<usize, Unanswered> {
    answered.and(Err(Unanswered::Silent))
}

fn not_served(message: &Message<'_>, caller: &mut Caller<'_>) -> Unanswered {
    caller.calls.note(MethodLabel::of(message), Outcome::Miss(MissReason::NotServed));
    Unanswered::Missed(Missing::Method(excerpt(&message.method()).into_owned()))
}

/// Appends a response with a short result.
fn short(message: &Message<'_>, result: &str, out: &mut BodyBuilder) -> usize {
    envelope::write_prefix(out.text(), message.id());
    out.text().extend_from_slice(result.as_bytes());
    out.text().extend_from_slice(envelope::SUFFIX);
    result.len()
}
