//! Selects the bytes that a probe reads, from its own objects or from existing ones.
//!
//! A store may serve objects that were just written from memory, faster than its disks could; a job
//! that reads last week's data waits for the disks. A probe can therefore read existing objects. It
//! reads each of their bytes at most once, since a second read would be served from memory, too. Once
//! all bytes have been read, the remaining measurements are left out.

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, Result};
use pellucid_trace::probe::Pattern;

use super::folder::{SEGMENTS, is_probe_folder};

/// Bytes of one object that is read, and of one sequential request.
pub(super) const OBJECT_BYTES: u64 = 8 << 20;

/// The start of a request: object and byte offset.
pub(super) type Place = (Path, u64);

/// Pieces of [`OBJECT_BYTES`] of several objects.
pub(super) struct Pieces {
    all: Vec<Place>,
    /// Number of used pieces.
    used: usize,
    /// True if no byte is read twice.
    once: bool,
}

impl Pieces {
    /// Returns the pieces of the probe's own objects, one per object; they may be read repeatedly.
    pub fn written(objects: &[Path]) -> Pieces {
        Pieces { all: objects.iter().map(|at| (at.clone(), 0)).collect(), used: 0, once: false }
    }

    /// Returns the whole pieces of all objects below a folder. Excludes segments of uploads, which are bytes of another
    /// object, and objects of probes, which are short-lived.
    pub async fn existing(store: &dyn ObjectStore, folder: &Path) -> Result<Pieces> {
        let mut objects: Vec<ObjectMeta> = match store.list(Some(folder)).try_collect().await {
            // Stores with directories report a missing one; others return an empty listing.
            Err(Error::NotFound { .. }) => Vec::new(),
            objects => objects?,
        };
        let is_other = |object: &ObjectMeta| {
            let mut parts = object.location.parts();
            let is_part = parts.next().is_some_and(|first| first.as_ref() == SEGMENTS);
            is_part || object.location.parts().any(|part| is_probe_folder(part.as_ref()))
        };
        objects.retain(|object| !is_other(object));
        objects.sort_by(|a, b| a.location.cmp(&b.location));
        let cut = |object: &ObjectMeta| {
            let at = object.location.clone();
            (0..object.size / OBJECT_BYTES).map(move |i| (at.clone(), i * OBJECT_BYTES)).collect::<Vec<_>>()
        };
        Ok(Pieces { all: objects.iter().flat_map(cut).collect(), used: 0, once: true })
    }

    /// Returns true if the list of pieces is empty.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if no byte is read twice.
    pub fn read_once(&self) -> bool {
        self.once
    }

    /// Returns the probe's own objects, which may be evicted from caches.
    pub fn own(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().filter(|_| !self.once).map(|(at, _)| at)
    }

    /// Returns the places for one level of concurrency with at least `min_requests` requests; `None`
    /// if too few bytes are left. Sequential reads leave a quarter of the existing objects to later
    /// measurements. The first level uses whatever is available.
    pub fn level(
        &mut self,
        pattern: Pattern,
        bytes: u64,
        min_requests: u64,
        first: bool,
    ) -> Option<Vec<Place>> {
        let count = self.all.len();
        let (share, kept) = match pattern {
            Pattern::Sequential => ((count * 3 / 16).max(8), count / 4),
            Pattern::Random => ((count / 64).max(1), 0),
        };
        let few = (share as u64 * (OBJECT_BYTES / bytes)) < min_requests || count - self.used < share + kept;
        let places = if self.once && few && !first { Vec::new() } else { self.take(share, bytes) };
        (!places.is_empty()).then_some(places)
    }

    /// Takes up to `pieces` pieces and cuts them into requests of `bytes`, in an order that defeats
    /// read-ahead. Always uses all of the probe's own objects.
    pub fn take(&mut self, pieces: usize, bytes: u64) -> Vec<Place> {
        let some = if self.once {
            let from = self.used;
            self.used = self.all.len().min(from.saturating_add(pieces));
            &self.all[from..self.used]
        } else {
            &self.all[..]
        };
        let within = |(at, from): &Place| {
            let (at, from) = (at.clone(), *from);
            (0..OBJECT_BYTES / bytes).map(move |i| (at.clone(), from + i * bytes))
        };
        let mut requests: Vec<Place> = some.iter().flat_map(within).collect();
        // Fisher-Yates shuffle with a multiplicative hash as the random source, so the order is deterministic.
        for last in (1..requests.len()).rev() {
            let drawn = (last as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            requests.swap(last, drawn as usize % (last + 1));
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn existing_bytes_are_read_at_most_once() {
        let store = InMemory::new();
        let pieces = futures::executor::block_on(async {
            for (name, bytes) in [("a", 2 * OBJECT_BYTES + 5), ("b", OBJECT_BYTES), ("c", 100)] {
                let at = Path::from(format!("data/{name}"));
                store.put(&at, vec![0; bytes as usize].into()).await?;
            }
            Pieces::existing(&store, &Path::from("data")).await
        });
        let mut pieces = pieces.unwrap();
        assert!(pieces.read_once() && pieces.own().next().is_none());
        let mut all: Vec<Place> = pieces.take(1, OBJECT_BYTES);
        assert_eq!(all.len(), 1);
        all.extend(pieces.take(9, OBJECT_BYTES / 2));
        assert_eq!(all.len(), 5);
        assert!(pieces.take(1, OBJECT_BYTES).is_empty());
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn existing_bytes_are_shared_among_levels() {
        let all: Vec<Place> = (0..96).map(|i| (Path::from("a"), i * OBJECT_BYTES)).collect();
        let mut pieces = Pieces { all, used: 0, once: true };
        let mut levels = [1, 2, 4, 8, 16].map(|n: u64| {
            pieces.level(Pattern::Sequential, OBJECT_BYTES, 2 * n.max(4), n == 1).map(|places| places.len())
        });
        assert_eq!(levels, [Some(18), Some(18), Some(18), Some(18), None]);
        levels = [1, 2, 4, 8, 16].map(|n| {
            pieces.level(Pattern::Random, 64 << 10, 2 * n.max(4), n == 1).map(|places| places.len())
        });
        assert_eq!(levels, [Some(128); 5]);
        assert_eq!(pieces.take(usize::MAX, 1 << 20).len(), 19 * 8);
        // A single piece yields one request.
        let mut few = Pieces { all: vec![(Path::from("a"), 0)], used: 0, once: true };
        assert_eq!(few.level(Pattern::Sequential, OBJECT_BYTES, 8, true).map(|places| places.len()), Some(1));
        assert_eq!(few.level(Pattern::Sequential, OBJECT_BYTES, 8, false), None);
    }

    #[test]
    fn own_objects_are_all_read_repeatedly_in_shuffled_order() {
        let objects: Vec<Path> = (0..20).map(|i| Path::from(format!("{i:02}"))).collect();
        let mut pieces = Pieces::written(&objects);
        let first = pieces.take(1, OBJECT_BYTES);
        assert_eq!(first, pieces.take(1, OBJECT_BYTES));
        assert!(first.len() == 20 && !first.is_sorted() && pieces.own().eq(&objects));
        assert_eq!(pieces.level(Pattern::Random, OBJECT_BYTES / 4, 8, false).map(|p| p.len()), Some(80));
    }
}
