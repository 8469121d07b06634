//! Connections between the processes of a job, over TCP.
//!
//! A worker dials the controller when it starts, and another worker when it first has something for
//! it; whoever is dialled only listens on that connection, but for the controller, which answers on it.
//! Sending never waits: what the kernel does not take is queued and goes out while threads are idle;
//! when much is queued ([`Mesh::is_full`]), tasks that would add to it wait. Reading goes on all the while,
//! so that two workers never wait for each other. Whoever is idle reads; there is no thread for it, since
//! waking one takes longer than a message.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::bundle::Arrival;
use crate::cell::lock;
use crate::handshake::{CONTROLLER, Identity, shake};
use crate::message::{Envelope, Message, Peer};
use crate::sampling::Kept;
use crate::wire::{self, Frame};
use crate::worker::Network;

/// Bytes queued from which on tasks wait.
const FULL: usize = 64 << 20;

/// How long a worker waits for a controller that does not listen yet: a launcher may start them in any order.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that are read at once: first as many as most messages have, since room for more has to be zeroed, which
/// takes longer than the message; then, while there is more, as many as this.
const READ: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;

/// See the [module](self).
pub(crate) struct Mesh {
    secret: Vec<u8>,
    fingerprint: u64,
    rank: u32,
    /// Where this process listens.
    pub address: String,
    /// For sending.
    links: RwLock<BTreeMap<Peer, Arc<Link>>>,
    /// Where the others listen.
    addresses: RwLock<BTreeMap<u32, String>>,
    /// Workers at the same address as this, by what was told last.
    here: AtomicUsize,
    /// For whoever reads.
    reading: Mutex<Vec<Arc<Link>>>,
    /// Connections that are new to whoever reads.
    added: Mutex<Vec<Arc<Link>>>,
    queued: AtomicUsize,
    /// Workers to which something could not be sent.
    unreached: Mutex<Vec<u32>>,
    /// When the controller was last heard of.
    heard: Mutex<Instant>,
    wake: OwnedFd,
    closed: AtomicBool,
    /// Counts what is sent for stages.
    pub kept: OnceLock<Arc<Kept>>,
}

struct Link {
    peer: Peer,
    address: String,
    stream: TcpStream,
    out: Mutex<BytesMut>,
    input: Mutex<BytesMut>,
    dead: AtomicBool,
}

/// What a round of reading found, besides messages.
pub(crate) enum News {
    Message(Peer, Envelope),
    /// A worker connected, and listens there.
    Joined(u32, String),
    /// A connection ended.
    Lost(Peer, String),
}

impl Mesh {
    /// Listens at `bind`; connections are accepted once [`Mesh::accept`] was called.
    ///
    /// # Errors
    /// An address that cannot be listened at.
    pub fn new(
        bind: &str,
        secret: &str,
        fingerprint: u64,
        rank: u32,
    ) -> Result<(Arc<Self>, TcpListener), String> {
        let listener =
            TcpListener::bind(bind).map_err(|error| format!("cannot listen at {bind}: {error}"))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?.to_string();
        // SAFETY: a new descriptor, which is owned from here on.
        let wake = unsafe {
            let wake = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
            if wake < 0 {
                return Err(std::io::Error::last_os_error().to_string());
            }
            OwnedFd::from_raw_fd(wake)
        };
        let mesh = Self {
            secret: secret.as_bytes().to_vec(),
            fingerprint,
            rank,
            address,
            links: RwLock::default(),
            addresses: RwLock::default(),
            here: AtomicUsize::new(1),
            reading: Mutex::default(),
            added: Mutex::default(),
            queued: AtomicUsize::new(0),
            unreached: Mutex::default(),
            heard: Mutex::new(Instant::now()),
            wake,
            closed: AtomicBool::new(false),
            kept: OnceLock::new(),
        };
        Ok((Arc::new(mesh), listener))
    }

    /// Accepts connections on a thread of its own until the process ends or [`Mesh::close`]. Who does not
    /// prove to belong here is dropped, and why is told to `refused`.
    pub fn accept(self: &Arc<Self>, listener: TcpListener, refused: fn(String)) {
        let mesh = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if mesh.closed.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(mut stream), mesh) = (stream, Arc::clone(&mesh)) else { continue };
                // A stranger who says nothing holds up nobody else.
                std::thread::spawn(move || {
                    let from = stream.peer_addr().map_or("?".into(), |address| address.to_string());
                    match shake(&mut stream, &mesh.identity(), false) {
                        Ok(peer) => {
                            let is_controller = mesh.rank == CONTROLLER;
                            let peer_name = Peer::Worker(peer.rank);
                            if let Err(error) = mesh.add(peer_name, peer.address, stream, is_controller) {
                                refused(format!("connection from {from}: {error}"));
                            }
                        }
                        Err(error) => refused(format!("connection from {from} was refused: {error}")),
                    }
                });
            }
        });
    }

    /// Connects to the controller.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn dial_controller(&self, address: &str) -> Result<(), String> {
        self.dial(Peer::Controller, address, Instant::now() + PATIENCE)
    }

    /// Workers on this machine, this one included, as far as addresses tell.
    pub fn workers_here(&self) -> usize {
        self.here.load(Ordering::Relaxed)
    }

    /// For how long the controller has said nothing.
    pub fn silence(&self) -> Duration {
        lock(&self.heard).elapsed()
    }

    fn identity(&self) -> Identity<'_> {
        let address = &self.address;
        Identity { secret: &self.secret, fingerprint: self.fingerprint, rank: self.rank, address }
    }

    fn dial(&self, peer: Peer, address: &str, until: Instant) -> Result<(), String> {
        let limit = Duration::from_secs(5);
        let mut found = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
        let to = found.next().ok_or_else(|| format!("{address} is no address"))?;
        let mut stream = loop {
            match TcpStream::connect_timeout(&to, limit) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                stream => break stream.map_err(|error| format!("cannot connect to {address}: {error}"))?,
            }
        };
        shake(&mut stream, &self.identity(), true)?;
        self.add(peer, address.into(), stream, true)
    }

    fn add(&self, peer: Peer, address: String, stream: TcpStream, sends: bool) -> Result<(), String> {
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        stream.set_nonblocking(true).map_err(|error| error.to_string())?;
        let link = Arc::new(Link {
            peer,
            address,
            stream,
            out: Mutex::default(),
            input: Mutex::default(),
            dead: AtomicBool::new(false),
        });
        if sends {
            let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
            if self.rank == CONTROLLER && links.contains_key(&peer) {
                return Err("there is a worker of this rank already".into());
            }
            links.insert(peer, link.clone());
        }
        lock(&self.added).push(link);
        self.interrupt();
        Ok(())
    }

    /// Ends a wait in [`Mesh::poll`].
    pub fn interrupt(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes of a local, to a descriptor that is open as long as `self`.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Sends what is queued, for at most `limit`: before a process ends.
    pub fn drain(&self, limit: Duration) {
        let until = std::time::Instant::now() + limit;
        while self.queued.load(Ordering::Acquire) > 0 && std::time::Instant::now() < until {
            self.poll(Some(Duration::from_millis(1)), |_| {});
        }
    }

    /// Accepts and sends nothing more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // The thread that accepts looks once more, at this.
        let _ = TcpStream::connect(&self.address);
    }

    /// Ends the connection on which a peer is sent to, with all that waits there.
    pub fn cut(&self, peer: Peer) {
        let link = self.links.write().unwrap_or_else(PoisonError::into_inner).remove(&peer);
        let Some(link) = link else { return };
        link.dead.store(true, Ordering::Release);
        let waited = std::mem::take(&mut *lock(&link.out)).len();
        self.queued.fetch_sub(waited, Ordering::AcqRel);
        let _ = link.stream.shutdown(Shutdown::Both);
        self.interrupt();
    }

    /// Tells a peer where workers listen.
    pub fn tell_addresses(&self, to: Peer, addresses: &BTreeMap<u32, String>) {
        let mut frame = Vec::new();
        wire::encode_addresses(addresses.clone().into_iter().collect(), &mut frame);
        self.send_frame(to, &frame);
    }

    /// Whether there was a way.
    fn send_frame(&self, to: Peer, frame: &[u8]) -> bool {
        let found = self.links.read().unwrap_or_else(PoisonError::into_inner).get(&to).cloned();
        let link = found.or_else(|| {
            let Peer::Worker(rank) = to else { return None };
            let address =
                self.addresses.read().unwrap_or_else(PoisonError::into_inner).get(&rank).cloned()?;
            // A worker that cannot be reached is dead, or soon found to be: the controller decides.
            self.dial(to, &address, Instant::now()).ok()?;
            self.links.read().unwrap_or_else(PoisonError::into_inner).get(&to).cloned()
        });
        let Some(link) = found_alive(link) else { return false };
        let mut out = lock(&link.out);
        let before = out.len();
        out.extend_from_slice(frame);
        self.flush(&link, &mut out, before);
        true
    }

    /// Writes what the kernel takes; `before`: of the queued bytes, those that were counted.
    fn flush(&self, link: &Link, out: &mut BytesMut, before: usize) {
        while !out.is_empty() {
            match (&link.stream).write(out) {
                Ok(0) => break,
                Ok(written) => drop(out.split_to(written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    // Reading it says why.
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

    /// Takes in what is there, for at most `wait` if nothing is. False: nothing came, or somebody else is
    /// at it.
    pub fn poll(&self, wait: Option<Duration>, mut take: impl FnMut(News)) -> bool {
        let Ok(mut links) = self.reading.try_lock() else { return false };
        for link in std::mem::take(&mut *lock(&self.added)) {
            if let Peer::Worker(rank) = link.peer {
                take(News::Joined(rank, link.address.clone()));
            }
            links.push(link);
        }
        for worker in std::mem::take(&mut *lock(&self.unreached)) {
            take(News::Lost(Peer::Worker(worker), "it cannot be reached".into()));
        }
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut entries = vec![entry(self.wake.as_raw_fd(), libc::POLLIN)];
        for link in links.iter() {
            let writes = if lock(&link.out).is_empty() { 0 } else { libc::POLLOUT };
            entries.push(entry(link.stream.as_raw_fd(), libc::POLLIN | writes));
        }
        let limit = wait.map_or(0, |wait| wait.as_millis().max(1) as libc::c_int);
        // SAFETY: as many entries as are said.
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
                self.read(link, &mut take);
            }
        }
        links.retain(|link| !link.dead.load(Ordering::Acquire));
        true
    }

    fn read(&self, link: &Link, take: &mut impl FnMut(News)) {
        let mut input = lock(&link.input);
        let mut room = *READ.start();
        let ended = loop {
            let filled = input.len();
            input.resize(filled + room, 0);
            let read = (&link.stream).read(&mut input[filled..]);
            input.truncate(filled + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) => break Some("its connection ended".to_string()),
                Ok(read) if read < room => break None,
                Ok(_) => room = *READ.end(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Some(error.to_string()),
            }
        };
        if link.peer == Peer::Controller {
            *lock(&self.heard) = Instant::now();
        }
        let wrong = self.take_frames(link.peer, &mut input, take).err();
        if let Some(cause) = wrong.or(ended) {
            link.dead.store(true, Ordering::Release);
            let _ = link.stream.shutdown(Shutdown::Both);
            let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
            if links.get(&link.peer).is_some_and(|other| std::ptr::eq(&raw const **other, link)) {
                links.remove(&link.peer);
            }
            drop(links);
            take(News::Lost(link.peer, cause));
        }
    }

    fn take_frames(
        &self,
        peer: Peer,
        input: &mut BytesMut,
        take: &mut impl FnMut(News),
    ) -> Result<(), String> {
        while let Some(head) = input.first_chunk::<{ wire::HEAD }>().copied() {
            let length = wire::length(&head)?;
            if input.len() < wire::HEAD + length {
                input.reserve(wire::HEAD + length - input.len());
                return Ok(());
            }
            let frame = input.split_to(wire::HEAD + length).freeze().split_off(wire::HEAD);
            match wire::decode(&head, frame)? {
                Frame::Envelope(envelope) => take(News::Message(peer, envelope)),
                Frame::Addresses(addresses) => {
                    let own = host(&self.address);
                    let here = addresses.iter().filter(|(_, address)| host(address) == own).count();
                    self.here.store(here.max(1), Ordering::Relaxed);
                    let mut known = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
                    known.extend(addresses);
                }
            }
        }
        Ok(())
    }
}

fn found_alive(link: Option<Arc<Link>>) -> Option<Arc<Link>> {
    link.filter(|link| !link.dead.load(Ordering::Acquire))
}

impl Network for Mesh {
    fn send(&self, to: Peer, envelope: Envelope) {
        let mut frame = Vec::with_capacity(256);
        wire::encode(&envelope, &mut frame);
        let sent = self.send_frame(to, &frame);
        if let (false, Peer::Worker(worker)) = (sent, to) {
            lock(&self.unreached).push(worker);
        }
        if let (Some(kept), true) = (self.kept.get(), sent)
            && let Message::Deliver { arrival: Arrival::Chunk { gather, .. }, .. } = &envelope.message
        {
            // A gather follows its scatter in the table.
            kept.exchanged(gather.statement - 1, frame.len());
        }
    }

    fn is_full(&self) -> bool {
        self.queued.load(Ordering::Acquire) > FULL
    }

    fn forget(&self, worker: u32) {
        self.cut(Peer::Worker(worker));
    }
}

/// The part of an address that names a machine.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}
