//! TCP connections between the processes of a job.
//!
//! A worker connects to the controller at startup, and to another worker when it first has a message for
//! it. The accepting side only receives on a connection, except for the controller, which also sends.
//! Sending never blocks: bytes that the kernel does not accept are queued and sent while threads are idle.
//! When many bytes are queued ([`Mesh::is_full`]), tasks that would send more wait. Receiving continues
//! meanwhile, so two workers never wait for each other. Idle threads receive; a dedicated thread would be
//! slower, because waking it takes longer than a message.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::dataflow::index::WorkerIx;
use crate::dataflow::plan::Plan;
use crate::protocol::message::{Envelope, Message, Peer};
use crate::protocol::ports::Network;
use crate::protocol::records::Arrival;
use crate::sync::lock;
use crate::tracing::sampling::SampleBuffer;
use crate::transport::handshake::{CONTROLLER, Identity, handshake};
use crate::transport::secret::check_secret;
use crate::transport::tunnel::{Encryption, Tunnel};
use crate::transport::wire;

/// Number of queued bytes above which tasks wait.
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// Maximum memory that is reserved for a frame before its bytes arrive.
const MAX_RESERVED_BYTES: usize = 64 << 20;

/// The cause of a [`MeshEvent::Lost`] if the other end closed the connection in order.
pub(crate) const CLOSED: &str = "its connection closed";

/// Maximum time to wait for a controller that does not listen yet: a launcher may start processes in any order.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes per read. The first read is small, since the buffer must be zeroed, which takes longer than receiving
/// a typical message; reads that fill it are followed by larger ones.
const READ_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;

/// See the [module](self).
pub(crate) struct Mesh {
    plan: Arc<Plan>,
    secret: Vec<u8>,
    /// `None` does not encrypt connections.
    encryption: Option<Encryption>,
    pub rank: u32,
    /// Address that this process listens on.
    pub address: String,
    /// Connections for sending.
    links: RwLock<BTreeMap<Peer, Arc<Link>>>,
    /// Addresses that the other workers listen on.
    addresses: RwLock<BTreeMap<WorkerIx, String>>,
    /// Number of workers on the same host, by the latest list of addresses.
    local_workers: AtomicUsize,
    /// Connections for receiving, used by one thread at a time.
    reading: Mutex<Vec<Arc<Link>>>,
    /// Connections that [`Mesh::poll`] has not seen yet.
    added: Mutex<Vec<Arc<Link>>>,
    queued: AtomicUsize,
    /// Workers to which a message could not be sent.
    unreachable: Mutex<Vec<WorkerIx>>,
    /// Time of the last message from the controller.
    last_heard: Mutex<Instant>,
    wake: OwnedFd,
    pub closed: AtomicBool,
    /// Counters of messages and bytes sent per stage.
    pub samples: OnceLock<Arc<SampleBuffer>>,
}

struct Link {
    peer: Peer,
    address: String,
    stream: TcpStream,
    /// The encryption of `stream`, if any. Locked after `out` and `input`.
    tunnel: Option<Mutex<Tunnel>>,
    /// Bytes to send, encrypted if there is a tunnel.
    out: Mutex<BytesMut>,
    input: Mutex<BytesMut>,
    dead: AtomicBool,
}

impl Link {
    /// Appends a frame to the bytes to send. Returns false if it cannot be encrypted.
    fn put(&self, frame: &[u8], out: &mut BytesMut) -> bool {
        match &self.tunnel {
            Some(tunnel) => lock(tunnel).seal(frame, out).is_ok(),
            None => {
                out.extend_from_slice(frame);
                true
            }
        }
    }

    /// Receives bytes, like [`Read::read`]. Fills `into` unless there are no more at present.
    fn receive(&self, into: &mut [u8]) -> std::io::Result<usize> {
        match &self.tunnel {
            Some(tunnel) => lock(tunnel).read(&self.stream, into),
            None => (&self.stream).read(into),
        }
    }
}

/// An event found by [`Mesh::poll`].
pub(crate) enum MeshEvent {
    Message(Peer, Envelope),
    /// A worker connected; it listens on this address.
    Joined(WorkerIx, String),
    /// A connection ended, with the cause.
    Lost(Peer, String),
}

impl Mesh {
    /// Listens on `bind`. Connections are accepted after a call to [`Mesh::accept`].
    ///
    /// # Errors
    /// If the secret is too short or the address cannot be bound.
    pub fn new(
        bind: &str,
        secret: &str,
        encrypted: bool,
        plan: Arc<Plan>,
        rank: u32,
    ) -> Result<(Arc<Self>, TcpListener), String> {
        check_secret(secret)?;
        let listener =
            TcpListener::bind(bind).map_err(|error| format!("cannot listen on {bind}: {error}"))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?.to_string();
        // SAFETY: a new descriptor that nothing else owns.
        let wake = unsafe {
            let wake = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
            if wake < 0 {
                return Err(std::io::Error::last_os_error().to_string());
            }
            OwnedFd::from_raw_fd(wake)
        };
        let mesh = Self {
            secret: secret.as_bytes().to_vec(),
            encryption: encrypted.then(Encryption::new).transpose()?,
            plan,
            rank,
            address,
            links: RwLock::default(),
            addresses: RwLock::default(),
            local_workers: AtomicUsize::new(1),
            reading: Mutex::default(),
            added: Mutex::default(),
            queued: AtomicUsize::new(0),
            unreachable: Mutex::default(),
            last_heard: Mutex::new(Instant::now()),
            wake,
            closed: AtomicBool::new(false),
            samples: OnceLock::new(),
        };
        Ok((Arc::new(mesh), listener))
    }

    /// Connects to the controller.
    ///
    /// # Errors
    /// If the controller is unreachable or the handshake fails.
    pub fn dial_controller(&self, address: &str) -> Result<(), String> {
        self.dial(Peer::Controller, address, Instant::now() + CONNECT_TIMEOUT)
    }

    /// Returns the number of workers on this host, including this one, according to their addresses.
    pub fn local_workers(&self) -> usize {
        self.local_workers.load(Ordering::Relaxed)
    }

    /// Returns the time since the last message from the controller.
    pub fn controller_silence(&self) -> Duration {
        lock(&self.last_heard).elapsed()
    }

    pub fn identity(&self) -> Identity<'_> {
        Identity {
            secret: &self.secret,
            fingerprint: self.plan.fingerprint(),
            rank: self.rank,
            address: &self.address,
            encryption: self.encryption.as_ref(),
        }
    }

    fn dial(&self, peer: Peer, address: &str, until: Instant) -> Result<(), String> {
        let limit = Duration::from_secs(5);
        let mut found = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
        let to = found.next().ok_or_else(|| format!("{address} does not resolve to an address"))?;
        let stream = loop {
            match TcpStream::connect_timeout(&to, limit) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                stream => break stream.map_err(|error| format!("cannot connect to {address}: {error}"))?,
            }
        };
        let (_, tunnel) = handshake(&stream, &self.identity(), true)?;
        self.add(peer, address.into(), stream, tunnel, true)
    }

    /// Adds an authenticated connection.
    ///
    /// # Errors
    /// If the worker is already connected, or the stream cannot be set up.
    pub fn add(
        &self,
        peer: Peer,
        address: String,
        stream: TcpStream,
        tunnel: Option<Tunnel>,
        sends: bool,
    ) -> Result<(), String> {
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        stream.set_nonblocking(true).map_err(|error| error.to_string())?;
        let link = Arc::new(Link {
            peer,
            address,
            stream,
            tunnel: tunnel.map(Mutex::new),
            out: Mutex::default(),
            input: Mutex::default(),
            dead: AtomicBool::new(false),
        });
        if sends {
            let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
            if self.rank == CONTROLLER && links.contains_key(&peer) {
                return Err(
                    "a worker with this rank is already connected; give each worker its own rank".into()
                );
            }
            links.insert(peer, link.clone());
        }
        lock(&self.added).push(link);
        self.interrupt();
        Ok(())
    }

    /// Wakes a thread that waits in [`Mesh::poll`].
    pub fn interrupt(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes of a local variable; the descriptor is open as long as `self`.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Sends the queued bytes, for up to `limit`. Call before the process ends.
    pub fn flush_all(&self, limit: Duration) {
        let until = std::time::Instant::now() + limit;
        while self.queued.load(Ordering::Acquire) > 0 && std::time::Instant::now() < until {
            self.poll(Some(Duration::from_millis(1)), |_| Ok(()));
        }
    }

    /// Stops accepting connections.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Wakes the accepting thread, which then sees the flag.
        let _ = TcpStream::connect(&self.address);
    }

    /// Closes the sending connection to a peer and discards the bytes queued for it.
    pub fn cut(&self, peer: Peer) {
        let link = self.links.write().unwrap_or_else(PoisonError::into_inner).remove(&peer);
        let Some(link) = link else { return };
        link.dead.store(true, Ordering::Release);
        let waited = std::mem::take(&mut *lock(&link.out)).len();
        self.queued.fetch_sub(waited, Ordering::AcqRel);
        let _ = link.stream.shutdown(Shutdown::Both);
        self.interrupt();
    }

    /// Sends a peer the addresses of all workers.
    pub fn send_addresses(&self, to: Peer, addresses: &BTreeMap<WorkerIx, String>) {
        let mut frame = Vec::new();
        let message = Message::Addresses(addresses.clone().into_iter().collect());
        wire::encode(&Envelope { generation: 0, message }, &mut frame);
        self.send_frame(to, &frame);
    }

    /// Sends or queues a frame. Returns false if the peer is unreachable.
    fn send_frame(&self, to: Peer, frame: &[u8]) -> bool {
        let found = self.links.read().unwrap_or_else(PoisonError::into_inner).get(&to).cloned();
        let link = found.or_else(|| {
            let Peer::Worker(rank) = to else { return None };
            let address =
                self.addresses.read().unwrap_or_else(PoisonError::into_inner).get(&rank).cloned()?;
            // One attempt: the controller decides whether an unreachable worker is lost.
            self.dial(to, &address, Instant::now()).ok()?;
            self.links.read().unwrap_or_else(PoisonError::into_inner).get(&to).cloned()
        });
        let Some(link) = if_alive(link) else { return false };
        let mut out = lock(&link.out);
        let before = out.len();
        let put = link.put(frame, &mut out);
        self.flush(&link, &mut out, before);
        put
    }

    /// Writes as many bytes as the kernel accepts. `before` is the number of bytes already counted as queued.
    fn flush(&self, link: &Link, out: &mut BytesMut, before: usize) {
        while !out.is_empty() {
            match (&link.stream).write(out) {
                Ok(0) => break,
                Ok(written) => drop(out.split_to(written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    // The next read reports the cause.
                    link.dead.store(true, Ordering::Release);
                    out.clear();
                }
            }
        }
        if out.len() >= before {
            self.queued.fetch_add(out.len() - before, Ordering::AcqRel);
        } else {
            self.queued.fetch_sub(before - out.len(), Ordering::AcqRel);
        }
    }

    /// Receives pending events, waiting up to `wait` for the first. Returns false if there were none, or if another
    /// thread is polling. An error from `on_event` for a message ends the connection.
    pub fn poll(
        &self,
        wait: Option<Duration>,
        mut on_event: impl FnMut(MeshEvent) -> Result<(), String>,
    ) -> bool {
        let Ok(mut links) = self.reading.try_lock() else { return false };
        // Unlocked again before the loop: handlers of messages may add connections.
        let added = std::mem::take(&mut *lock(&self.added));
        for link in added {
            if let Peer::Worker(rank) = link.peer {
                let _ = on_event(MeshEvent::Joined(rank, link.address.clone()));
            }
            // Messages that followed the handshake closely may be in the tunnel already.
            self.read(&link, &mut on_event);
            links.push(link);
        }
        for worker in std::mem::take(&mut *lock(&self.unreachable)) {
            let _ = on_event(MeshEvent::Lost(Peer::Worker(worker), "no connection could be made".into()));
        }
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut entries = vec![entry(self.wake.as_raw_fd(), libc::POLLIN)];
        for link in links.iter() {
            let writes = if lock(&link.out).is_empty() { 0 } else { libc::POLLOUT };
            entries.push(entry(link.stream.as_raw_fd(), libc::POLLIN | writes));
        }
        let limit = wait.map_or(0, |wait| wait.as_millis().max(1) as libc::c_int);
        // SAFETY: the pointer and length are those of `entries`.
        let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, limit) };
        if ready <= 0 {
            return false;
        }
        if entries[0].revents != 0 {
            let mut count = [0u8; 8];
            // SAFETY: as in `interrupt`.
            unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        }
        for (link, entry) in links.iter().zip(&entries[1..]) {
            if entry.revents & libc::POLLOUT != 0 {
                let mut out = lock(&link.out);
                let before = out.len();
                self.flush(link, &mut out, before);
            }
            if entry.revents & !libc::POLLOUT != 0 {
                self.read(link, &mut on_event);
            }
        }
        links.retain(|link| !link.dead.load(Ordering::Acquire));
        true
    }

    fn read(&self, link: &Link, on_event: &mut impl FnMut(MeshEvent) -> Result<(), String>) {
        let mut input = lock(&link.input);
        let mut room = *READ_BYTES.start();
        let ended = loop {
            let filled = input.len();
            input.resize(filled + room, 0);
            let read = link.receive(&mut input[filled..]);
            input.truncate(filled + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) => break Some(CLOSED.to_string()),
                Ok(read) if read < room => break None,
                Ok(_) => room = *READ_BYTES.end(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Some(error.to_string()),
            }
        };
        if link.peer == Peer::Controller {
            *lock(&self.last_heard) = Instant::now();
        }
        let wrong = self.take_frames(link.peer, &mut input, on_event).err();
        if let Some(cause) = wrong.or(ended) {
            link.dead.store(true, Ordering::Release);
            let _ = link.stream.shutdown(Shutdown::Both);
            let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
            if links.get(&link.peer).is_some_and(|other| std::ptr::eq(&raw const **other, link)) {
                links.remove(&link.peer);
            }
            drop(links);
            let _ = on_event(MeshEvent::Lost(link.peer, cause));
        }
    }

    fn take_frames(
        &self,
        peer: Peer,
        input: &mut BytesMut,
        on_event: &mut impl FnMut(MeshEvent) -> Result<(), String>,
    ) -> Result<(), String> {
        while let Some(head) = input.first_chunk::<{ wire::HEAD }>().copied() {
            let length = wire::length(&head)?;
            if input.len() < wire::HEAD + length {
                // Bounded, since the length is only a claim until the bytes arrive.
                input.reserve((wire::HEAD + length - input.len()).min(MAX_RESERVED_BYTES));
                return Ok(());
            }
            let frame = input.split_to(wire::HEAD + length).freeze().split_off(wire::HEAD);
            let envelope = wire::decode(&head, frame)?;
            let checked = envelope.message.check(&self.plan, peer);
            let handled = checked.and_then(|()| match envelope.message {
                Message::Addresses(addresses) => {
                    self.learn_addresses(addresses);
                    Ok(())
                }
                message => on_event(MeshEvent::Message(peer, Envelope { message, ..envelope })),
            });
            handled.map_err(|cause| format!("it sent an invalid message: {cause}"))?;
        }
        Ok(())
    }

    fn learn_addresses(&self, addresses: Vec<(WorkerIx, String)>) {
        let own = host(&self.address);
        let here = addresses.iter().filter(|(_, address)| host(address) == own).count();
        self.local_workers.store(here.max(1), Ordering::Relaxed);
        let mut known = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        known.extend(addresses);
    }
}

fn if_alive(link: Option<Arc<Link>>) -> Option<Arc<Link>> {
    link.filter(|link| !link.dead.load(Ordering::Acquire))
}

impl Network for Mesh {
    fn send(&self, to: Peer, envelope: Envelope) {
        let mut frame = Vec::with_capacity(256);
        wire::encode(&envelope, &mut frame);
        let sent = self.send_frame(to, &frame);
        if let (false, Peer::Worker(worker)) = (sent, to) {
            lock(&self.unreachable).push(worker);
        }
        if let (Some(samples), true) = (self.samples.get(), sent)
            && let Message::Deliver { arrival: Arrival::Chunk { gather, .. }, .. } = &envelope.message
        {
            // In the table, a gather follows its scatter.
            samples.exchanged(gather.statement.before(), frame.len());
        }
    }

    fn is_full(&self) -> bool {
        self.queued.load(Ordering::Acquire) > MAX_QUEUED_BYTES
    }

    fn forget(&self, worker: WorkerIx) {
        self.cut(Peer::Worker(worker));
    }
}

/// Returns the host part of an address.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}
