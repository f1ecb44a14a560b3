//! Recorded exchanges of real nodes: whatever does not depend on blocks must come out to the byte.

use neve_jsonrpc::{Kind, Message, NoQuery, Query, Request, RpcError, Rules, envelope, parse};

use crate::recorded;

/// A server that knows its head and nothing else. `None`: it would have to look into blocks.
struct Server {
    rules: Rules,
    head: &'static str,
}

impl Server {
    fn answer(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match parse(body) {
            Request::Empty => {}
            Request::Malformed => envelope::error(&mut out, b"null", &RpcError::PARSE),
            Request::Single(message) => {
                self.message(&mut out, &message)?;
                if !out.is_empty() {
                    out.extend_from_slice(envelope::NEWLINE);
                }
            }
            Request::Batch(messages) => self.batch(&mut out, &messages)?,
        }
        Some(out)
    }

    fn batch(&self, out: &mut Vec<u8>, messages: &[Message<'_>]) -> Option<()> {
        if messages.is_empty() {
            envelope::error(out, b"null", &RpcError::EMPTY_BATCH);
            return Some(());
        }
        if messages.len() > 1000 {
            let call = messages.iter().find(|message| message.kind() == Kind::Call);
            out.push(b'[');
            envelope::error(out, call.map_or(b"null", Message::id), &RpcError::BATCH_TOO_LARGE);
            out.push(b']');
            return Some(());
        }
        let mut answers = Vec::new();
        for message in messages {
            let mut answer = Vec::new();
            self.message(&mut answer, message)?;
            answers.extend((!answer.is_empty()).then_some(answer));
        }
        if !answers.is_empty() {
            out.push(b'[');
            out.extend(answers.join(&b','));
            out.extend(b"]\n");
        }
        Some(())
    }

    fn message(&self, out: &mut Vec<u8>, message: &Message<'_>) -> Option<()> {
        match message.kind() {
            Kind::Invalid => envelope::error(out, message.id(), &RpcError::INVALID_REQUEST),
            Kind::Call => self.call(out, message)?,
            Kind::Notification | Kind::Response => {}
        }
        Some(())
    }

    fn call(&self, out: &mut Vec<u8>, message: &Message<'_>) -> Option<()> {
        let result = match message.query(self.rules) {
            Ok((_, Query::BlockNumber)) => self.head,
            Ok((_, Query::ChainId)) => "\"0xa868\"",
            Ok((_, Query::NetVersion)) => "\"43112\"",
            Ok((_, Query::Listening)) => "true",
            Ok((_, Query::Syncing)) => "false",
            Err(NoQuery::Null) => "null",
            Err(NoQuery::Error(error)) => {
                envelope::error(out, message.id(), &error);
                return Some(());
            }
            Ok(_) | Err(NoQuery::NotServed) => return None,
        };
        envelope::write_prefix(out, message.id());
        out.extend(result.bytes());
        out.extend(envelope::SUFFIX);
        Some(())
    }
}

/// Replays `files`; returns how many rows were answered and how many would need more.
fn replay(server: &Server, files: &[&str]) -> (usize, usize) {
    let (mut answered, mut beyond) = (0, 0);
    for row in files.iter().flat_map(|file| recorded::corpus(file)) {
        let Some(answer) = server.answer(row.request.as_bytes()) else {
            beyond += 1;
            continue;
        };
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(answer, row.answer, "{}\n  > {}", row.name, row.request);
        answered += 1;
    }
    (answered, beyond)
}

#[test]
fn before_helicon() {
    let server = Server { rules: Rules::BeforeHelicon, head: "\"0x153\"" };
    let (answered, beyond) = replay(&server, &["v1.14.2/main/errors"]);
    println!("{answered} answered, {beyond} need blocks or other methods");
    assert!(answered > 300, "{answered} rows only");
}

#[test]
fn since_helicon() {
    let server = Server { rules: Rules::Helicon, head: "\"0x17d\"" };
    let (answered, beyond) = replay(&server, &["v1.15.0/errors"]);
    println!("{answered} answered, {beyond} need blocks or other methods");
    assert!(answered > 300, "{answered} rows only");
}
