//! Typed indices, and vectors that are read by one kind of index.
//!
//! A trace refers to its records by number, and so do the schedules made of it. A number of one kind of
//! record must not be taken for one of another.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};

/// An index of one kind of record.
pub(crate) trait Ix: Copy {
    /// Returns the index of a position.
    fn new(position: usize) -> Self;
    /// Returns the position.
    fn at(self) -> usize;
}

macro_rules! indices {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
        pub(crate) struct $name(pub u32);

        impl Ix for $name {
            fn new(position: usize) -> Self {
                $name(position as u32)
            }

            fn at(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

indices! {
    /// A job of the trace.
    JobIx;
    /// A stage of the trace.
    StageIx;
    /// A machine.
    MachineIx;
    /// A resource of the trace, or one that a what-if adds.
    ResourceIx;
    /// A multitask.
    MultitaskIx;
    /// A monotask of the trace.
    MonotaskIx;
    /// A pipelined task, in launch order.
    TaskIx;
    /// A slot of an executor, in the order of first use.
    SlotIx;
    /// An executor of a replay.
    ExecutorIx;
}

/// A vector that is read by one kind of index.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table<I, T> {
    rows: Vec<T>,
    index: PhantomData<I>,
}

impl<I: Ix, T> Table<I, T> {
    /// Returns a table of equal rows.
    pub fn filled(rows: usize, row: T) -> Table<I, T>
    where
        T: Clone,
    {
        vec![row; rows].into()
    }

    /// Adds a row, and returns its index.
    pub fn push(&mut self, row: T) -> I {
        self.rows.push(row);
        I::new(self.rows.len() - 1)
    }

    /// Adds equal rows up to a number of rows, or removes those after it.
    pub fn resize(&mut self, rows: usize, row: T)
    where
        T: Clone,
    {
        self.rows.resize(rows, row);
    }

    /// Returns a row, if there is one.
    pub fn get(&self, ix: I) -> Option<&T> {
        self.rows.get(ix.at())
    }

    /// Returns a row to change, if there is one.
    pub fn get_mut(&mut self, ix: I) -> Option<&mut T> {
        self.rows.get_mut(ix.at())
    }

    /// Returns all indices, ascending.
    pub fn indices(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.rows.len()).map(I::new)
    }

    /// Returns the rows with their indices.
    pub fn rows(&self) -> impl Iterator<Item = (I, &T)> {
        self.indices().zip(&self.rows)
    }
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Table<I, T> {
        Table::from(Vec::new())
    }
}

impl<I, T> From<Vec<T>> for Table<I, T> {
    fn from(rows: Vec<T>) -> Table<I, T> {
        Table { rows, index: PhantomData }
    }
}

impl<I, T> FromIterator<T> for Table<I, T> {
    fn from_iter<R: IntoIterator<Item = T>>(rows: R) -> Table<I, T> {
        Vec::from_iter(rows).into()
    }
}

impl<I, T> Deref for Table<I, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.rows
    }
}

impl<I, T> DerefMut for Table<I, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.rows
    }
}

impl<I: Ix, T> Index<I> for Table<I, T> {
    type Output = T;

    fn index(&self, ix: I) -> &T {
        &self.rows[ix.at()]
    }
}

impl<I: Ix, T> IndexMut<I> for Table<I, T> {
    fn index_mut(&mut self, ix: I) -> &mut T {
        &mut self.rows[ix.at()]
    }
}

impl<'t, I, T> IntoIterator for &'t Table<I, T> {
    type Item = &'t T;
    type IntoIter = std::slice::Iter<'t, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl<'t, I, T> IntoIterator for &'t mut Table<I, T> {
    type Item = &'t mut T;
    type IntoIter = std::slice::IterMut<'t, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter_mut()
    }
}

impl<I, T> IntoIterator for Table<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

impl<I, T> Extend<T> for Table<I, T> {
    fn extend<R: IntoIterator<Item = T>>(&mut self, rows: R) {
        self.rows.extend(rows);
    }
}
