//! Which bytes a probe reads: of the objects that it wrote, or of objects that were there.
//!
//! What was written a moment ago a store may still hold in memory, and hands out faster than
//! its disks could; a job that reads what was written last week waits for the disks. So a probe
//! can be told where to read. Of objects that were there no byte is read twice: the second time
//! it would come out of memory, too. Where all have been read, what is not measured by then is not.

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, Result};

use super::folder::{SEGMENTS, is_ours};
use super::{OBJECT_BYTES, Pattern};

/// Where a request begins: the object, and the byte.
pub(super) type Place = (Path, u64);

/// Pieces of [`OBJECT_BYTES`] of several objects.
pub(super) struct Pieces {
    all: Vec<Place>,
    /// Pieces that are used up.
    used: usize,
    /// No byte twice.
    once: bool,
}

impl Pieces {
    /// Of objects of one piece each that the probe wrote: they may be read again and again.
    pub fn written(objects: &[Path]) -> Pieces {
        Pieces { all: objects.iter().map(|at| (at.clone(), 0)).collect(), used: 0, once: false }
    }

    /// Of all objects below a folder that are large enough; the rest of each is left out. Parts of uploads are
    /// bytes of another object, and what a probe wrote is soon gone.
    pub async fn existing(store: &dyn ObjectStore, folder: &Path) -> Result<Pieces> {
        let mut objects: Vec<ObjectMeta> = match store.list(Some(folder)).try_collect().await {
            // What has folders says that this one is not there; what has none finds nothing in it.
            Err(Error::NotFound { .. }) => Vec::new(),
            objects => objects?,
        };
        let is_other = |object: &ObjectMeta| {
            let mut parts = object.location.parts();
            let is_part = parts.next().is_some_and(|first| first.as_ref() == SEGMENTS);
            is_part || object.location.parts().any(|part| is_ours(part.as_ref()))
        };
        objects.retain(|object| !is_other(object));
        objects.sort_by(|a, b| a.location.cmp(&b.location));
        let cut = |object: &ObjectMeta| {
            let at = object.location.clone();
            (0..object.size / OBJECT_BYTES).map(move |i| (at.clone(), i * OBJECT_BYTES)).collect::<Vec<_>>()
        };
        Ok(Pieces { all: objects.iter().flat_map(cut).collect(), used: 0, once: true })
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether no byte is read twice.
    pub fn once(&self) -> bool {
        self.once
    }

    /// Objects that the probe wrote, and whose bytes this machine may drop.
    pub fn own(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().filter(|_| !self.once).map(|(at, _)| at)
    }

    /// For one number of requests at once, of which `least` are to be sent: where they are; `None`
    /// where too few bytes are left. A quarter of objects that were there is left to what comes after
    /// their sequential reading. The first is measured with what there is.
    pub fn level(&mut self, pattern: Pattern, bytes: u64, least: u64, first: bool) -> Option<Vec<Place>> {
        let count = self.all.len();
        let (share, kept) = match pattern {
            Pattern::Sequential => ((count * 3 / 16).max(8), count / 4),
            Pattern::Random => ((count / 64).max(1), 0),
        };
        let few = (share as u64 * (OBJECT_BYTES / bytes)) < least || count - self.used < share + kept;
        let places = if self.once && few && !first { Vec::new() } else { self.take(share, bytes) };
        (!places.is_empty()).then_some(places)
    }

    /// So many pieces cut into requests of `bytes`, in an order that no read-ahead guesses; fewer
    /// where fewer are left. Of objects that the probe wrote always all.
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
        // Fisher and Yates, with a multiplicative hash for chance: the same order each time.
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
    use crate::clock::Virtual;

    #[test]
    fn of_objects_that_were_there_no_byte_is_read_twice() {
        let store = InMemory::new();
        let pieces = Virtual::default().run(async {
            for (name, bytes) in [("a", 2 * OBJECT_BYTES + 5), ("b", OBJECT_BYTES), ("c", 100)] {
                let at = Path::from(format!("data/{name}"));
                store.put(&at, vec![0; bytes as usize].into()).await?;
            }
            Pieces::existing(&store, &Path::from("data")).await
        });
        let mut pieces = pieces.unwrap().unwrap();
        assert!(pieces.once() && pieces.own().next().is_none());
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
    fn what_is_there_is_shared_among_what_is_measured() {
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
        // Of a single piece there is one request.
        let mut few = Pieces { all: vec![(Path::from("a"), 0)], used: 0, once: true };
        assert_eq!(few.level(Pattern::Sequential, OBJECT_BYTES, 8, true).map(|places| places.len()), Some(1));
        assert_eq!(few.level(Pattern::Sequential, OBJECT_BYTES, 8, false), None);
    }

    #[test]
    fn of_objects_of_its_own_a_probe_reads_all_in_no_order_and_again() {
        let objects: Vec<Path> = (0..20).map(|i| Path::from(format!("{i:02}"))).collect();
        let mut pieces = Pieces::written(&objects);
        let first = pieces.take(1, OBJECT_BYTES);
        assert_eq!(first, pieces.take(1, OBJECT_BYTES));
        assert!(first.len() == 20 && !first.is_sorted() && pieces.own().eq(&objects));
        assert_eq!(pieces.level(Pattern::Random, OBJECT_BYTES / 4, 8, false).map(|p| p.len()), Some(80));
    }
}
