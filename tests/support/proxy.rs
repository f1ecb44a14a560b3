//! A connection that can be cut: what lies between a client and a server.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Hands bytes on, both ways.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
    over: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts it in front of `server`, an address with port.
    pub(crate) fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let proxy = Self { address, open: Arc::default(), over: Arc::default() };
        let (open, over) = (Arc::clone(&proxy.open), Arc::clone(&proxy.over));
        let server = server.to_owned();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                // A server that is gone is a client's connection that closes.
                let _ = join(client, &server, &open);
            }
        });
        proxy
    }

    /// Ends every connection, without a closing frame.
    pub(crate) fn cut(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the listener
        self.cut();
    }
}

fn join(client: TcpStream, server: &str, open: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let both = [client.try_clone()?, server.try_clone()?];
    open.lock().unwrap_or_else(PoisonError::into_inner).extend(both);
    let (mut from_client, mut to_client) = (client.try_clone()?, client);
    let (mut from_server, mut to_server) = (server.try_clone()?, server);
    let copy = |from: &mut TcpStream, to: &mut TcpStream| {
        let _ = io::copy(from, to);
        let _ = to.shutdown(Shutdown::Both);
    };
    thread::spawn(move || copy(&mut from_client, &mut to_server));
    thread::spawn(move || copy(&mut from_server, &mut to_client));
    Ok(())
}
