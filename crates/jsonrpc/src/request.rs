//! From a request body to messages, by the rules of `libevm/rpc` (json.go, handler.go).

use std::borrow::Cow;

use crate::json::{Malformed, SyntaxScanner, decode, inside, is_key};
use crate::method::Method;

/// A body, split.
#[derive(Debug)]
pub enum Request<'a> {
    /// Nothing but white space: answered with an empty body.
    Empty,
    /// Not JSON: answered with a parse error.
    Malformed,
    /// A single message, which is no batch.
    Single(Message<'a>),
    /// An array of messages.
    Batch(Messages<'a>),
}

/// The messages of a batch, in order.
pub type Messages<'a> = Vec<Message<'a>>;

/// Space for as many is made at once.
const MESSAGES_ROOM: usize = 128;
/// Hardly a message is shorter.
const MESSAGE_BYTES: usize = 64;

/// A message: what may be a call. Everything is borrowed from the body.
#[derive(Debug, Clone, Default)]
pub struct Message<'a> {
    /// True if `jsonrpc` is `"2.0"`.
    version: bool,
    id: Option<&'a [u8]>,
    /// The method's name, as it came; empty if there is none.
    method: &'a [u8],
    params: Option<&'a [u8]>,
    /// True if it has a `result` or an `error`, as an answer does.
    answers: bool,
    error: bool,
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Wants an answer.
    Call,
    /// Wants none: it has no id.
    Notification,
    /// A response without a request of neve: dropped.
    Response,
    /// Nothing that can be understood.
    Invalid,
}

/// Splits `body`. Only its first JSON value counts, as in Go; what follows is ignored.
pub fn parse(body: &[u8]) -> Request<'_> {
    parse_at_most(body, usize::MAX)
}

/// Parses a body whose batch of more than `max` messages will be refused: all of it is looked
/// through, and kept are one more than so many, and the first call wherever it is. A message takes
/// two bytes there and 56 here.
pub fn parse_at_most(body: &[u8], max: usize) -> Request<'_> {
    let mut scanner = SyntaxScanner::new(body);
    let request = match scanner.peek() {
        None => return Request::Empty,
        Some(b'[') => {
            // Bounded: the length of a body is the client's, and need not be of messages.
            let room = (body.len() / MESSAGE_BYTES).min(MESSAGES_ROOM);
            batch(&mut scanner, max, room).map(Request::Batch)
        }
        Some(_) => message(&mut scanner, 0).map(Request::Single),
    };
    request.unwrap_or(Request::Malformed)
}

fn batch<'a>(
    scanner: &mut SyntaxScanner<'a>,
    max: usize,
    room: usize,
) -> Result<Messages<'a>, Malformed> {
    scanner.expect(b'[')?;
    if scanner.take(b']') {
        return Ok(Vec::new());
    }
    let (mut messages, mut has_call) = (Vec::with_capacity(room), None);
    loop {
        let message = message(scanner, 1)?;
        if messages.len() <= max {
            messages.push(message);
        // Looked for only beyond the limit: batches within it do not pay.
        } else if !*has_call.get_or_insert_with(|| messages.iter().any(Message::is_call))
            && message.is_call()
        {
            messages.push(message);
            has_call = Some(true);
        }
        if !scanner.take(b',') {
            return scanner.expect(b']').map(|()| messages);
        }
    }
}

fn message<'a>(scanner: &mut SyntaxScanner<'a>, depth: usize) -> Result<Message<'a>, Malformed> {
    let mut message = Message::default();
    if !scanner.take(b'{') {
        scanner.value(depth)?;
        return Ok(message); // not an object: nothing of it can be understood
    }
    if scanner.take(b'}') {
        return Ok(message);
    }
    loop {
        let member = member(scanner)?;
        message.set(member, scanner.value(depth + 1)?);
        if !scanner.take(b',') {
            return scanner.expect(b'}').map(|()| message);
        }
    }
}

/// Takes a key and the colon behind it; returns what it means, if anything.
fn member(scanner: &mut SyntaxScanner<'_>) -> Result<Option<Member>, Malformed> {
    // Nearly all clients write keys without escapes and spaces: one comparison reads them.
    if let Some(member) = Member::take_usual(scanner) {
        return Ok(Some(member));
    }
    let member = Member::of(scanner.string()?);
    scanner.expect(b':')?;
    Ok(member)
}

/// A member that means something.
#[derive(Debug, Clone, Copy)]
enum Member {
    Version,
    Id,
    Method,
    Params,
    Result,
    Error,
}

impl Member {
    const NAMES: [(&'static str, Self); 6] = [
        ("jsonrpc", Self::Version),
        ("id", Self::Id),
        ("method", Self::Method),
        ("params", Self::Params),
        ("result", Self::Result),
        ("error", Self::Error),
    ];

    /// The next key, if it is written as nearly everybody writes it.
    fn take_usual(scanner: &mut SyntaxScanner<'_>) -> Option<Self> {
        scanner.peek();
        if scanner.take_text(b"\"jsonrpc\":") {
            return Some(Self::Version);
        }
        if scanner.take_text(b"\"id\":") {
            return Some(Self::Id);
        }
        if scanner.take_text(b"\"method\":") {
            return Some(Self::Method);
        }
        scanner.take_text(b"\"params\":").then_some(Self::Params)
    }

    fn of(key: &[u8]) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| is_key(key, name)).map(|(_, member)| *member)
    }
}

impl<'a> Message<'a> {
    /// Takes one member, as Go fills a struct: the last of a name wins, a value of another type
    /// leaves the field as it was, and so does null where a string is wanted.
    fn set(&mut self, member: Option<Member>, value: &'a [u8]) {
        let is_string = value.first() == Some(&b'"');
        match member {
            Some(Member::Version) if is_string => {
                self.version = value == b"\"2.0\"" || decode(value) == "2.0";
            }
            Some(Member::Method) if is_string => self.method = value,
            Some(Member::Id) => self.id = Some(value),
            Some(Member::Params) => self.params = Some(value),
            // Go keeps the text of a result, null too, but a null error is a nil pointer.
            Some(Member::Result) => self.answers = true,
            Some(Member::Error) => self.error = value != b"null",
            Some(Member::Version | Member::Method) | None => {}
        }
    }

    /// Kind of the message.
    pub fn kind(&self) -> Kind {
        let named = inside(self.method).is_some_and(|name| !name.is_empty());
        // To libevm a response has no parameters (json.go).
        let answers = self.params.is_none() && (self.answers || self.error);
        match (self.version, self.id) {
            (true, None) if named => Kind::Notification,
            (true, Some(_)) if named && self.has_valid_id() => Kind::Call,
            (true, Some(_)) if answers && !named && self.has_valid_id() => Kind::Response,
            _ => Kind::Invalid,
        }
    }

    fn is_call(&self) -> bool {
        self.kind() == Kind::Call
    }

    fn has_valid_id(&self) -> bool {
        // libevm looks at the first byte: neither an object nor a list is an id.
        self.id.is_some_and(|id| !matches!(id.first(), Some(b'{' | b'[')))
    }

    /// The id to send back: as it came if it is one, else `null`.
    pub fn id(&self) -> &'a [u8] {
        self.id.filter(|_| self.has_valid_id()).unwrap_or(b"null")
    }

    /// The id as it came, of whatever kind; `None` if there is none.
    pub fn raw_id(&self) -> Option<&'a [u8]> {
        self.id
    }

    /// The method's name; empty if there is none.
    pub fn method(&self) -> Cow<'a, str> {
        decode(self.method)
    }

    /// The method, if it is served.
    pub fn served(&self) -> Option<Method> {
        let name = inside(self.method)?;
        Method::from_name(name).or_else(|| {
            // Escapes are as good as what they stand for. Without one the name is as it came.
            name.contains(&b'\\').then(|| self.method()).and_then(|name| Method::from_name(&*name))
        })
    }

    /// The raw parameters.
    pub fn params(&self) -> Option<&'a [u8]> {
        self.params
    }
}
