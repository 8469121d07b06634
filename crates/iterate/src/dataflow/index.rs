//! Indexes of the parts of a plan and of workers, each with a type of its own, and the tables that they are indexes of.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{BitOr, BitOrAssign, Deref, DerefMut, Index, IndexMut};

use serde::{Deserialize, Serialize};

/// An index into a [`Table`].
pub(crate) trait Ix: Copy {
    fn of(place: usize) -> Self;
    fn place(self) -> usize;

    /// Returns the first `count` indexes.
    fn first(count: usize) -> impl DoubleEndedIterator<Item = Self> {
        (0..count).map(Self::of)
    }
}

macro_rules! index {
    ($(#[$doc:meta])* $vis:vis $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        $vis struct $name(pub u32);

        impl Ix for $name {
            fn of(place: usize) -> Self {
                Self(place as u32)
            }

            fn place(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

index!(
    /// Index of a statement of a plan.
    pub(crate) StatementIx
);
index!(
    /// Index of a group of datasets.
    pub(crate) GroupIx
);
index!(
    /// Index of a bundle, counted over all groups in order.
    pub(crate) BundleIx
);
index!(
    /// Index of a dataset of a program. Public because the traits of lists of datasets are.
    pub DatasetIx
);

index!(
    /// Index of a worker of a job: the rank that it was started with.
    pub(crate) WorkerIx
);

impl StatementIx {
    /// Returns the statement that follows in the table: of a scatter, its gather.
    pub fn after(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the statement before this one in the table: of a gather, its scatter.
    pub fn before(self) -> Self {
        Self(self.0 - 1)
    }
}

/// A set of datasets, with one bit for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DatasetSet(pub u64);

impl DatasetSet {
    /// Returns the set of one dataset. It is empty for a dataset beyond the maximum number; such a program is refused.
    pub fn of(dataset: DatasetIx) -> Self {
        Self(1u64.checked_shl(dataset.0).unwrap_or(0))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, dataset: DatasetIx) -> bool {
        self.meets(Self::of(dataset))
    }

    /// Returns whether the sets have a dataset in common.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the first dataset of a set that is not empty.
    pub fn first(self) -> DatasetIx {
        DatasetIx(self.0.trailing_zeros())
    }
}

impl BitOr for DatasetSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for DatasetSet {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl FromIterator<Self> for DatasetSet {
    /// Returns the union of sets.
    fn from_iter<S: IntoIterator<Item = Self>>(sets: S) -> Self {
        sets.into_iter().fold(Self::default(), Self::bitor)
    }
}

/// A vector whose elements have indexes of one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Table<I, T> {
    items: Vec<T>,
    index: PhantomData<fn(I) -> I>,
}

impl<I: Ix, T> Table<I, T> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Vec::new().into()
    }

    /// Creates a table of equal elements.
    pub fn filled(count: usize, item: T) -> Self
    where
        T: Clone,
    {
        vec![item; count].into()
    }

    /// Adds an element and returns its index.
    pub fn push(&mut self, item: T) -> I {
        let at = self.end();
        self.items.push(item);
        at
    }

    /// Returns the index that the next element will have.
    pub fn end(&self) -> I {
        I::of(self.items.len())
    }

    pub fn get(&self, at: I) -> Option<&T> {
        self.items.get(at.place())
    }

    pub fn get_mut(&mut self, at: I) -> Option<&mut T> {
        self.items.get_mut(at.place())
    }

    /// Returns the indexes.
    pub fn indexes(&self) -> impl DoubleEndedIterator<Item = I> + use<I, T> {
        I::first(self.items.len())
    }

    /// Returns the elements with their indexes.
    pub fn entries(&self) -> impl Iterator<Item = (I, &T)> {
        self.indexes().zip(&self.items)
    }

    /// Returns the elements with their indexes, to change them.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.indexes().zip(&mut self.items)
    }

    /// Returns the elements with their indexes, by value.
    pub fn into_entries(self) -> impl Iterator<Item = (I, T)> {
        self.indexes().zip(self.items)
    }

    /// Returns the index of the first element that `is` true for.
    pub fn find(&self, is: impl FnMut(&T) -> bool) -> Option<I> {
        self.items.iter().position(is).map(I::of)
    }
}

impl<I: Ix, T> Index<I> for Table<I, T> {
    type Output = T;

    fn index(&self, at: I) -> &T {
        &self.items[at.place()]
    }
}

impl<I: Ix, T> IndexMut<I> for Table<I, T> {
    fn index_mut(&mut self, at: I) -> &mut T {
        &mut self.items[at.place()]
    }
}

impl<I, T> Deref for Table<I, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<I, T> DerefMut for Table<I, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<I, T> From<Vec<T>> for Table<I, T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, index: PhantomData }
    }
}

impl<I, T> FromIterator<T> for Table<I, T> {
    fn from_iter<S: IntoIterator<Item = T>>(items: S) -> Self {
        Vec::from_iter(items).into()
    }
}
