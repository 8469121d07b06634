//! Indexes of the parts of a plan, each with a type of its own, and the tables that they are indexes of.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};

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
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub(crate) struct $name(pub u32);

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
    StatementIx
);
index!(
    /// Index of a group of datasets.
    GroupIx
);
index!(
    /// Index of a bundle, counted over all groups in order.
    BundleIx
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

    /// Returns the index of the first element that `is` true for.
    #[cfg(test)]
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
