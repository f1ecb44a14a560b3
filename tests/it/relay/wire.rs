//! A wire between neve and a node that remembers what neve sends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) struct Wire {
    address: SocketAddr,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Wire {
    /// Starts it in front of a node. Its threads end with the connections of neve.
    pub(crate) fn start(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let wire = Self { address: listener.local_addr().expect("bound"), sent: Arc::default() };
        let sent = Arc::clone(&wire.sent);
        thread::spawn(move || {
            for neve in listener.incoming().map_while(Result::ok) {
                let Ok(node) = TcpStream::connect(node) else { return };
                let both = [&neve, &node].map(|stream| stream.try_clone().expect("a descriptor"));
                let [from_neve, to_node] = both;
                let sent = Arc::clone(&sent);
                thread::spawn(move || {
                    let note = |read: &[u8]| sent.lock().expect("no panic").extend_from_slice(read);
                    copy(from_neve, to_node, note);
                });
                thread::spawn(move || copy(node, neve, |_| {}));
            }
        });
        wire
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All that neve sent.
    pub(crate) fn sent(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().expect("no panic")).into_owned()
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut note: impl FnMut(&[u8])) {
    let mut room = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut room) {
        note(&room[..len]);
        if to.write_all(&room[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
