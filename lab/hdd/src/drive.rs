//! The time a spinning disk takes for a request: a pure model on a virtual clock.
//!
//! A request of n bytes takes n ÷ rate plus the positioning time P. P is 0 if the request follows the last one.
//! Otherwise it is the smaller of two: letting the gap pass under the head (forwards only), or
//! seek0 + (seekfull − seek0) · √(distance ÷ span) + R, where R is half a turn or follows from the platter's
//! angle. The head takes the cheapest of the `depth` oldest requests, unless the oldest has waited longer than
//! `expire`. An idle drive reads ahead up to 2 MiB, like drives with a buffer.
//!
//! The parameters are data sheet figures of drives at 7,200 turns a minute. None is fitted to a result.

/// A time on the drive's clock, or a duration.
pub type Nanos = u64;

/// The time until the sector is under the head after a seek.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rotation {
    /// Always half a turn.
    Mean,
    /// From the angle of the platter, which turns all the time; a track holds the bytes of one turn.
    Angle,
}

/// The cost of moving the head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seek {
    /// To the next track.
    pub min_ns: f64,
    /// From one edge to the other.
    pub full_ns: f64,
    pub rotation: Rotation,
}

/// A kind of disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    pub name: &'static str,
    /// Bytes per second under the head; `None` for memory speed, to fill a disk.
    pub rate: Option<f64>,
    pub seek: Option<Seek>,
}

const TURN_NS: f64 = 60e9 / 7200.0;
/// Bytes that a full seek spans; the image covers the first of them.
const SPAN_BYTES: f64 = 200e9;
/// Number of requests among which the head chooses.
const DEPTH: usize = 32;
const EXPIRE_NS: Nanos = 500_000_000;
const READ_AHEAD_BYTES: f64 = (2 << 20) as f64;

const fn seek(rotation: Rotation) -> Option<Seek> {
    Some(Seek { min_ns: 1e6, full_ns: 16e6, rotation })
}

/// All kinds: a drive with command queueing, the same paying half a turn for every seek, drives without seeks, and no drive
/// at all.
pub const KINDS: [Parameters; 6] = [
    Parameters { name: "H150R", rate: Some(150e6), seek: seek(Rotation::Angle) },
    Parameters { name: "H150", rate: Some(150e6), seek: seek(Rotation::Mean) },
    Parameters { name: "SSD50", rate: Some(50e6), seek: None },
    Parameters { name: "SSD100", rate: Some(100e6), seek: None },
    Parameters { name: "SSD200", rate: Some(200e6), seek: None },
    Parameters { name: "memory", rate: None, seek: None },
];

/// A requested transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    pub offset: u64,
    pub bytes: u64,
    pub write: bool,
    pub arrived_ns: Nanos,
}

/// The state of a drive.
#[derive(Debug, Clone)]
pub struct Drive {
    pub kind: Parameters,
    /// The offset at which the last transfer ended.
    head: u64,
    /// When it ended. The drive has its own clock, so that a late thread does not slow it down.
    free_ns: Nanos,
    read_last: bool,
}

/// When a request was served, and how much of that time went into positioning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    pub begin_ns: Nanos,
    pub end_ns: Nanos,
    pub positioning_ns: Nanos,
    /// Transfer time saved, because the idle drive had already read these bytes.
    pub ahead_ns: Nanos,
}

impl Drive {
    pub fn new(kind: Parameters) -> Drive {
        Drive { kind, head: 0, free_ns: 0, read_last: false }
    }

    /// Returns the index of the next request among those waiting, which are in order of arrival.
    pub fn choose<'r>(&self, now_ns: Nanos, waiting: impl Iterator<Item = &'r Request>) -> Option<usize> {
        let mut waiting = waiting.take(DEPTH).enumerate().peekable();
        let (_, oldest) = waiting.peek()?;
        if now_ns.saturating_sub(oldest.arrived_ns) > EXPIRE_NS {
            return Some(0);
        }
        let at_ns = now_ns.max(self.free_ns);
        let cost = |request: &Request| self.positioning_ns(at_ns, request.offset);
        waiting.min_by(|a, b| cost(a.1).total_cmp(&cost(b.1))).map(|(place, _)| place)
    }

    /// Serves a request and returns its times.
    pub fn serve(&mut self, request: &Request) -> Served {
        let begin_ns = self.free_ns.max(request.arrived_ns);
        let Some(rate) = self.kind.rate else {
            let at_ns = request.arrived_ns;
            return Served { begin_ns: at_ns, end_ns: at_ns, positioning_ns: 0, ahead_ns: 0 };
        };
        let positioning_ns = self.positioning_ns(begin_ns, request.offset);
        let follows = request.offset == self.head && !request.write && self.read_last;
        let idle_ns = (begin_ns - self.free_ns) as f64;
        let transfer_ns = request.bytes as f64 / rate * 1e9;
        let ahead_ns =
            if follows { idle_ns.min(READ_AHEAD_BYTES / rate * 1e9).min(transfer_ns) } else { 0.0 };
        let end_ns = begin_ns + (positioning_ns + transfer_ns - ahead_ns) as Nanos;
        self.head = request.offset + request.bytes;
        self.free_ns = end_ns;
        self.read_last = !request.write;
        Served { begin_ns, end_ns, positioning_ns: positioning_ns as Nanos, ahead_ns: ahead_ns as Nanos }
    }

    /// Returns P for a head that starts to move at this time.
    fn positioning_ns(&self, at_ns: Nanos, offset: u64) -> f64 {
        let (Some(seek), Some(rate)) = (self.kind.seek, self.kind.rate) else { return 0.0 };
        if offset == self.head {
            return 0.0;
        }
        let distance = offset.abs_diff(self.head) as f64;
        let moving = seek.min_ns + (seek.full_ns - seek.min_ns) * (distance / SPAN_BYTES).sqrt().min(1.0);
        let turning = match seek.rotation {
            Rotation::Mean => TURN_NS / 2.0,
            Rotation::Angle => {
                // The sector's angle and the platter's, in turns.
                let track_bytes = rate * TURN_NS / 1e9;
                let there = (offset as f64 / track_bytes).fract();
                let now = ((at_ns as f64 + moving) / TURN_NS).fract();
                (there - now).rem_euclid(1.0) * TURN_NS
            }
        };
        let by_seek = moving + turning;
        if offset > self.head { by_seek.min(distance / rate * 1e9) } else { by_seek }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn kind(name: &str) -> Parameters {
        *KINDS.iter().find(|kind| kind.name == name).expect(name)
    }

    fn read(offset: u64, bytes: u64, arrived_ns: Nanos) -> Request {
        Request { offset, bytes, write: false, arrived_ns }
    }

    /// Returns MB/s of `streams` distant readers, each with one request of 128 KiB at a time. A reader pauses briefly
    /// between requests, so the head must choose among the others.
    fn rate_of(kind: Parameters, streams: u64) -> f64 {
        const PAUSE_NS: Nanos = 100_000;
        let mut drive = Drive::new(kind);
        let mut pending: Vec<Request> = (0..streams).map(|n| read(n * (200 << 20), 128 << 10, 0)).collect();
        let (mut now, mut moved) = (0, 0);
        while moved < 256 * MIB {
            now = now.max(
                pending.iter().map(|request| request.arrived_ns).min().expect("a request is always pending"),
            );
            pending.sort_by_key(|request| request.arrived_ns);
            let waiting = pending.iter().take_while(|request| request.arrived_ns <= now);
            let place = drive.choose(now, waiting).expect("at least one request waits");
            let done = pending.remove(place);
            now = drive.serve(&done).end_ns.max(now);
            moved += done.bytes;
            pending.push(read(done.offset + done.bytes, done.bytes, now + PAUSE_NS));
        }
        moved as f64 / now as f64 * 1000.0
    }

    #[test]
    fn one_stream_reaches_the_rate() {
        for (name, expected) in [("H150R", 150.0), ("H150", 150.0), ("SSD50", 50.0)] {
            let rate = rate_of(kind(name), 1);
            assert!((rate / expected - 1.0).abs() < 0.01, "{name}: {rate}");
        }
    }

    #[test]
    fn many_streams_slow_only_spinning_disks() {
        for name in ["H150R", "H150"] {
            let (one, many) = (rate_of(kind(name), 1), rate_of(kind(name), 32));
            assert!(many < 0.6 * one, "{name}: {one} and {many}");
        }
        assert!((rate_of(kind("SSD50"), 32) - 50.0).abs() < 1.0);
    }

    #[test]
    fn angle_is_faster_than_mean_rotation() {
        let (angle, mean) = (rate_of(kind("H150R"), 16), rate_of(kind("H150"), 16));
        assert!(angle > mean, "{angle} and {mean}");
    }

    #[test]
    fn expired_request_goes_first() {
        let drive = Drive::new(kind("H150"));
        let waiting = [read(100 << 30, 4096, 0), read(0, 4096, 1)];
        assert_eq!(drive.choose(1000, waiting.iter()), Some(1), "nearest to the head");
        assert_eq!(drive.choose(EXPIRE_NS + 1, waiting.iter()), Some(0));
        assert_eq!(drive.choose(0, [].iter()), None);
    }

    #[test]
    fn idle_drive_reads_ahead() {
        let mut drive = Drive::new(kind("H150"));
        let first = drive.serve(&read(0, MIB, 0));
        let later = first.end_ns + 1_000_000_000;
        let next = drive.serve(&read(MIB, MIB, later));
        assert_eq!(next.end_ns, later, "already read ahead");
        let write = Request { write: true, ..read(2 * MIB, MIB, later) };
        assert!(drive.serve(&write).end_ns > later + 6_000_000, "writes gain nothing from read-ahead");
    }

    #[test]
    fn full_seek_costs_its_time_and_half_a_turn() {
        let mut drive = Drive::new(kind("H150"));
        drive.serve(&read(0, 0, 0));
        let served = drive.serve(&read(200_000_000_000, 0, 0));
        assert_eq!(served.positioning_ns, 16_000_000 + (TURN_NS / 2.0) as u64);
        let back = drive.serve(&read(200_000_000_000 - 1, 0, 0));
        assert!(back.positioning_ns > 5_000_000, "the previous sector is most of a turn away");
    }

    #[test]
    fn memory_costs_nothing() {
        let mut drive = Drive::new(kind("memory"));
        let served = drive.serve(&read(5, 1 << 30, 77));
        assert_eq!((served.begin_ns, served.end_ns), (77, 77));
    }
}
