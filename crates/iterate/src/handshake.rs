//! Mutual authentication: both ends of a connection prove that they know the job's secret.
//!
//! Each end sends a nonce, and answers the other's with an HMAC over both under the secret, which itself is
//! never sent. Protocol version and program are compared too, so that a mismatch is reported as such. A
//! connection is authenticated once; later messages carry a checksum but are not encrypted. Between machines,
//! use a trusted network.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// First bytes of every connection, ending with the protocol version.
const MAGIC: [u8; 8] = *b"PLCDITR3";

/// Timeout of each step of a handshake.
const LIMIT: Duration = Duration::from_secs(5);

/// The rank that a controller presents in a handshake.
pub(crate) const CONTROLLER: u32 = u32::MAX;

/// The identity that this end presents.
pub(crate) struct Identity<'a> {
    pub secret: &'a [u8],
    pub fingerprint: u64,
    pub rank: u32,
    /// Address that it listens on; empty if it does not listen.
    pub address: &'a str,
}

/// The identity that the other end presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub rank: u32,
    pub address: String,
}

/// Authenticates both ends over a blocking stream. `dialled` is true if this end opened the connection.
///
/// # Errors
/// If authentication fails or the versions or programs differ, with a message for the user.
pub(crate) fn handshake(stream: &mut TcpStream, me: &Identity<'_>, dialled: bool) -> Result<Peer, String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            format!("no answer within {} s; is this a worker or controller of this job?", LIMIT.as_secs())
        }
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => {
            "the other end closed the connection: its secret, version or program differs".to_string()
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
        // HMAC accepts keys of any length.
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
        .map_err(|_| "it does not know the job's secret; start both ends with the same secret".to_string())?;
    stream.set_read_timeout(None).map_err(failed)?;
    stream.set_write_timeout(None).map_err(failed)?;
    let rank = u32::from_le_bytes([theirs[32], theirs[33], theirs[34], theirs[35]]);
    let address = String::from_utf8_lossy(&theirs[37..]).into_owned();
    Ok(Peer { rank, address })
}

/// Builds the first message: magic, program, nonce, rank, address.
fn hello(me: &Identity<'_>) -> std::io::Result<Vec<u8>> {
    let mut nonce = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    let mut hello = Vec::with_capacity(64);
    hello.extend_from_slice(&MAGIC);
    hello.extend_from_slice(&me.fingerprint.to_le_bytes());
    hello.extend_from_slice(&nonce);
    hello.extend_from_slice(&me.rank.to_le_bytes());
    let address = &me.address.as_bytes()[..me.address.len().min(255)];
    hello.push(address.len() as u8);
    hello.extend_from_slice(address);
    Ok(hello)
}

/// Reads the other end's first message. Fails with a message for the user, or with an error of the stream.
fn read_hello(stream: &mut TcpStream, fingerprint: u64) -> Result<Vec<u8>, Result<String, std::io::Error>> {
    let mut hello = vec![0; 37];
    stream.read_exact(&mut hello[..8]).map_err(Err)?;
    if hello[..7] != MAGIC[..7] {
        return Err(Ok("it does not speak this protocol; check the address".into()));
    }
    if hello[7] != MAGIC[7] {
        return Err(
            Ok("it runs another version of the protocol; start both ends from the same build".into()),
        );
    }
    stream.read_exact(&mut hello[8..]).map_err(Err)?;
    if hello[8..16] != fingerprint.to_le_bytes() {
        return Err(Ok("it runs another program or another version; start both ends from the same build \
                       with the same options"
            .into()));
    }
    let length = usize::from(hello[36]);
    hello.resize(37 + length, 0);
    stream.read_exact(&mut hello[37..]).map_err(Err)?;
    Ok(hello)
}
