//! Who may talk to whom: both ends of a connection prove that they know the job's secret.
//!
//! Each sends a number that was never used, and answers the other's with an HMAC over both under the
//! secret; the secret itself never travels. Version and program are compared too, so that a peer of
//! another version is told apart from a stranger. A connection is authenticated once; what follows is
//! checksummed, not encrypted: between machines, use a network that you trust.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Begins every connection, with the version of the protocol.
const MAGIC: [u8; 8] = *b"PLCDITR2";

/// Each step of a handshake, at most.
const LIMIT: Duration = Duration::from_secs(5);

/// A controller's rank in a handshake.
pub(crate) const CONTROLLER: u32 = u32::MAX;

/// What one end says of itself.
pub(crate) struct Identity<'a> {
    pub secret: &'a [u8],
    pub fingerprint: u64,
    pub rank: u32,
    /// Where it listens; empty where it does not.
    pub address: &'a str,
}

/// What the other end said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub rank: u32,
    pub address: String,
}

/// Proves both ends to each other, over a blocking stream. `dialled`: this end opened the connection.
///
/// # Errors
/// Whatever is not as it should be, in words for whoever started the job.
pub(crate) fn shake(stream: &mut TcpStream, me: &Identity<'_>, dialled: bool) -> Result<Peer, String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            format!("no answer within {} s; is this a worker or controller of this job?", LIMIT.as_secs())
        }
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => {
            "the other end closed the connection: its secret, version or program is another".to_string()
        }
        _ => error.to_string(),
    };
    stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
    stream.set_write_timeout(Some(LIMIT)).map_err(failed)?;
    let mine = hello(me).map_err(failed)?;
    stream.write_all(&mine).map_err(failed)?;
    let theirs = read_hello(stream, me.fingerprint).map_err(|error| error.unwrap_or_else(failed))?;
    let (first, second) = if dialled { (&mine, &theirs) } else { (&theirs, &mine) };
    let proof = |who: &[u8]| {
        // A key of any length is one for HMAC.
        let mut mac = Hmac::<Sha256>::new_from_slice(me.secret).map_err(|error| error.to_string())?;
        [who, first, second].iter().for_each(|part| mac.update(part));
        Ok::<_, String>(mac)
    };
    let (own, other): (&[u8], &[u8]) =
        if dialled { (b"dialled", b"accepted") } else { (b"accepted", b"dialled") };
    stream.write_all(&proof(own)?.finalize().into_bytes()).map_err(failed)?;
    let mut answer = [0; 32];
    stream.read_exact(&mut answer).map_err(failed)?;
    proof(other)?
        .verify_slice(&answer)
        .map_err(|_| "it does not know the job's secret; start both with the same".to_string())?;
    stream.set_read_timeout(None).map_err(failed)?;
    stream.set_write_timeout(None).map_err(failed)?;
    let rank = u32::from_le_bytes([theirs[32], theirs[33], theirs[34], theirs[35]]);
    let address = String::from_utf8_lossy(&theirs[37..]).into_owned();
    Ok(Peer { rank, address })
}

/// Magic, program, number, rank, address.
fn hello(me: &Identity<'_>) -> std::io::Result<Vec<u8>> {
    let mut number = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut number)?;
    let mut hello = Vec::with_capacity(64);
    hello.extend_from_slice(&MAGIC);
    hello.extend_from_slice(&me.fingerprint.to_le_bytes());
    hello.extend_from_slice(&number);
    hello.extend_from_slice(&me.rank.to_le_bytes());
    let address = &me.address.as_bytes()[..me.address.len().min(255)];
    hello.push(address.len() as u8);
    hello.extend_from_slice(address);
    Ok(hello)
}

/// The other's hello; an error in words, or one of the stream.
fn read_hello(stream: &mut TcpStream, fingerprint: u64) -> Result<Vec<u8>, Result<String, std::io::Error>> {
    let mut hello = vec![0; 37];
    stream.read_exact(&mut hello[..8]).map_err(Err)?;
    if hello[..7] != MAGIC[..7] {
        return Err(Ok("it speaks another protocol: a stranger".into()));
    }
    if hello[7] != MAGIC[7] {
        return Err(Ok("it is of another version; start both from the same build".into()));
    }
    stream.read_exact(&mut hello[8..]).map_err(Err)?;
    if hello[8..16] != fingerprint.to_le_bytes() {
        return Err(Ok("it runs another program, or another version; start both from the same build \
                       with the same options"
            .into()));
    }
    let length = usize::from(hello[36]);
    hello.resize(37 + length, 0);
    stream.read_exact(&mut hello[37..]).map_err(Err)?;
    Ok(hello)
}
