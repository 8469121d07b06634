//! Accepting connections from anyone who can reach the port.
//!
//! Until a connection has proved that it knows the job's secret, it belongs to a stranger. Strangers must neither
//! end the accepting thread nor delay workers: each connection authenticates on a thread of its own, at most
//! [`MAX_UNPROVEN`] at once. One more ends the oldest, since an honest handshake takes milliseconds. If the system
//! has no more threads or files, the connection is dropped, and the next one may succeed.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::dataflow::index::WorkerIx;
use crate::protocol::message::Peer;
use crate::sync::lock;
use crate::transport::handshake::{CONTROLLER, handshake};
use crate::transport::mesh::Mesh;

/// Maximum number of connections that have not proved that they know the secret.
const MAX_UNPROVEN: usize = 64;

/// Pause after a failure to accept. Without it, the thread would spin while no file descriptor is free.
const PAUSE: Duration = Duration::from_millis(50);

/// Pause after a refused connection. Strangers that connect again at once then take a few percent of a core at most,
/// and every connection has time to prove itself: it is the oldest only after [`MAX_UNPROVEN`] others.
const REFUSAL_PAUSE: Duration = Duration::from_millis(5);

/// Minimum time between two messages about refused connections.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(1);

/// The accepting side of a mesh.
struct Acceptor {
    mesh: Arc<Mesh>,
    /// Numbered connections in a handshake, the oldest first.
    unproven: Mutex<VecDeque<(u64, Arc<TcpStream>)>>,
    refusals: Mutex<Refusals>,
    /// True if a connection was refused since the last one was accepted.
    refused: AtomicBool,
}

/// Messages about refused connections, limited in rate.
struct Refusals {
    show: fn(String),
    last: Option<Instant>,
    /// Number of messages suppressed since the last one.
    suppressed: u64,
}

impl Refusals {
    fn add(&mut self, message: String) {
        if self.last.is_some_and(|last| last.elapsed() < MESSAGE_INTERVAL) {
            self.suppressed += 1;
            return;
        }
        self.last = Some(Instant::now());
        (self.show)(match std::mem::take(&mut self.suppressed) {
            0 => message,
            more => format!("{message} ({more} more connections were refused before)"),
        });
    }
}

impl Mesh {
    /// Accepts connections on a separate thread until the process ends or [`Mesh::close`] is called. Peers that fail
    /// the handshake are dropped, and the reason is passed to `refused`, at most once per second.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn accept(self: &Arc<Self>, listener: TcpListener, refused: fn(String)) -> Result<(), String> {
        let acceptor = Arc::new(Acceptor {
            mesh: Arc::clone(self),
            unproven: Mutex::default(),
            refusals: Mutex::new(Refusals { show: refused, last: None, suppressed: 0 }),
            refused: AtomicBool::new(false),
        });
        let started = Builder::new().spawn(move || acceptor.run(&listener));
        started.map(drop).map_err(|error| format!("cannot start a thread to accept connections: {error}"))
    }
}

impl Acceptor {
    fn run(self: &Arc<Self>, listener: &TcpListener) {
        for (number, stream) in (0..).zip(listener.incoming()) {
            if self.mesh.closed.load(Ordering::Acquire) {
                return;
            }
            match stream {
                Ok(stream) => {
                    self.begin(number, stream);
                    if self.refused.swap(false, Ordering::AcqRel) {
                        std::thread::sleep(REFUSAL_PAUSE);
                    }
                }
                Err(error) => {
                    lock(&self.refusals).add(format!("cannot accept a connection: {error}"));
                    // Strangers must not keep the last file descriptors until their deadline.
                    let count = lock(&self.unproven).len();
                    self.end_oldest(count.div_ceil(2));
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Starts the handshake of a connection.
    fn begin(self: &Arc<Self>, number: u64, stream: TcpStream) {
        let stream = Arc::new(stream);
        let mut unproven = lock(&self.unproven);
        unproven.push_back((number, stream.clone()));
        let excess = unproven.len().saturating_sub(MAX_UNPROVEN);
        drop(unproven);
        self.end_oldest(excess);
        let acceptor = Arc::clone(self);
        let started = Builder::new().spawn(move || acceptor.authenticate(number, stream));
        if let Err(error) = started {
            self.forget(number);
            lock(&self.refusals).add(format!("cannot start a thread for a connection: {error}"));
        }
    }

    /// Ends the oldest unproven connections: their threads fail to read.
    fn end_oldest(&self, count: usize) {
        let mut unproven = lock(&self.unproven);
        let count = count.min(unproven.len());
        for (_, stream) in unproven.drain(..count) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Removes a connection from the unproven ones.
    fn forget(&self, number: u64) {
        lock(&self.unproven).retain(|(other, _)| *other != number);
    }

    fn authenticate(&self, number: u64, stream: Arc<TcpStream>) {
        let from = stream.peer_addr().map_or("?".into(), |address| address.to_string());
        let result = handshake(&stream, &self.mesh.identity(), false);
        self.forget(number);
        // None: the connection was the oldest of too many.
        let added = match (result, Arc::into_inner(stream)) {
            (Ok((peer, _)), _) if peer.rank == CONTROLLER => Err("a worker cannot be a controller".into()),
            (Ok((peer, tunnel)), Some(stream)) => {
                let sends = self.mesh.rank == CONTROLLER;
                self.mesh.add(Peer::Worker(WorkerIx(peer.rank)), peer.address, stream, tunnel, sends)
            }
            (Ok(_), None) => Err("too many connections wait for authentication".into()),
            (Err(error), _) => Err(error),
        };
        if let Err(error) = added {
            self.refused.store(true, Ordering::Release);
            lock(&self.refusals).add(format!("connection from {from} was refused: {error}"));
        }
    }
}
