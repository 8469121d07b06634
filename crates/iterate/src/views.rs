//! Typed views of partitions: what a kernel's closure is handed.
//!
//! A stage names the datasets that it reads and those that it writes; its kernel gets `&T` of the
//! former and `&mut T` of the latter, for one partition. `()`, one `&Dataset<T>`, tuples of up to six,
//! and arrays of datasets of one type, of which some may be missing, are such lists. That no dataset is named twice in a stage, and that all of a stage have the same
//! partitioning, is checked when the program is built; both are what makes the views sound.

use std::marker::PhantomData;

use crate::data::{AnyData, Data};

/// A dataset of a program, divided into partitions that hold a `T` each.
///
/// A handle: the data are in the partitions. It is for the program that made it.
pub struct Dataset<T> {
    pub(crate) index: u32,
    pub(crate) partitions: u32,
    /// Which program made it: its index means nothing, and would be unsound, in another.
    pub(crate) program: u32,
    pub(crate) holds: PhantomData<fn() -> T>,
}

impl<T> Dataset<T> {
    /// How many partitions it has.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }
}

impl<T> Clone for Dataset<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Dataset<T> {}

impl<T> std::fmt::Debug for Dataset<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "dataset {} of {} partitions", self.index, self.partitions)
    }
}

/// The pointer that views are made from: partitions of one index, by dataset; `None` where a dataset's is
/// not among them.
#[derive(Clone, Copy)]
pub struct Partitions(pub(crate) *mut Option<Box<dyn AnyData>>);

impl Partitions {
    /// # Safety
    /// The dataset's partition is there, of type `T`, and nobody else has a mutable view of it.
    unsafe fn read<'a, T: Data>(self, dataset: u32) -> &'a T {
        unsafe { &*self.pointer(dataset) }
    }

    /// # Safety
    /// As [`Partitions::read`], and nobody else has any view of it.
    unsafe fn write<'a, T: Data>(self, dataset: u32) -> &'a mut T {
        unsafe { &mut *self.pointer(dataset) }
    }

    unsafe fn pointer<T: Data>(self, dataset: u32) -> *mut T {
        unsafe {
            let state = &mut *self.0.add(dataset as usize);
            let state: *mut dyn AnyData = &mut **state.as_mut().unwrap_unchecked();
            state.cast()
        }
    }
}

/// Datasets that a stage reads.
pub trait Reads: Copy + Send + Sync + 'static {
    /// `&T` of each.
    type Views<'a>;
    /// Indexes of the datasets, with the program that made them.
    #[doc(hidden)]
    fn datasets(&self) -> Vec<(u32, u32)>;
    #[doc(hidden)]
    /// # Safety
    /// See [`Partitions::read`].
    unsafe fn views<'a>(self, partitions: Partitions) -> Self::Views<'a>;
}

/// Datasets that a stage writes; it may read them too.
pub trait Writes: Copy + Send + Sync + 'static {
    /// `&mut T` of each.
    type Views<'a>;
    /// Indexes of the datasets, with the program that made them.
    #[doc(hidden)]
    fn datasets(&self) -> Vec<(u32, u32)>;
    #[doc(hidden)]
    /// # Safety
    /// See [`Partitions::write`].
    unsafe fn views<'a>(self, partitions: Partitions) -> Self::Views<'a>;
}

macro_rules! single {
    ($list:ident, $method:ident, $($view:tt)+) => {
        impl<T: Data> $list for Dataset<T> {
            type Views<'a> = $($view)+ T;

            fn datasets(&self) -> Vec<(u32, u32)> {
                vec![(self.index, self.program)]
            }

            unsafe fn views<'a>(self, partitions: Partitions) -> Self::Views<'a> {
                unsafe { partitions.$method(self.index) }
            }
        }

        impl $list for () {
            type Views<'a> = ();

            fn datasets(&self) -> Vec<(u32, u32)> {
                Vec::new()
            }

            unsafe fn views<'a>(self, _: Partitions) -> Self::Views<'a> {}
        }
    };
}

single!(Reads, read, &'a);
single!(Writes, write, &'a mut);

macro_rules! arrays {
    ($list:ident, $method:ident, $($view:tt)+) => {
        /// For programs that are put together at run time: as many as there are, the rest `None`.
        impl<T: Data, const N: usize> $list for [Option<Dataset<T>>; N] {
            type Views<'a> = [Option<$($view)+ T>; N];

            fn datasets(&self) -> Vec<(u32, u32)> {
                self.iter().flatten().map(|dataset| (dataset.index, dataset.program)).collect()
            }

            unsafe fn views<'a>(self, partitions: Partitions) -> Self::Views<'a> {
                self.map(|dataset| dataset.map(|dataset| unsafe { partitions.$method(dataset.index) }))
            }
        }
    };
}

arrays!(Reads, read, &'a);
arrays!(Writes, write, &'a mut);

macro_rules! tuples {
    ($list:ident: $($name:ident)+) => {
        impl<$($name: $list),+> $list for ($($name,)+) {
            type Views<'a> = ($($name::Views<'a>,)+);

            #[allow(non_snake_case)]
            fn datasets(&self) -> Vec<(u32, u32)> {
                let ($($name,)+) = self;
                [$($name.datasets()),+].concat()
            }

            #[allow(non_snake_case)]
            unsafe fn views<'a>(self, partitions: Partitions) -> Self::Views<'a> {
                let ($($name,)+) = self;
                unsafe { ($($name.views(partitions),)+) }
            }
        }
    };
}

tuples!(Reads: A);
tuples!(Reads: A B);
tuples!(Reads: A B C);
tuples!(Reads: A B C D);
tuples!(Reads: A B C D E);
tuples!(Reads: A B C D E F);
tuples!(Writes: A);
tuples!(Writes: A B);
tuples!(Writes: A B C);
tuples!(Writes: A B C D);
tuples!(Writes: A B C D E);
tuples!(Writes: A B C D E F);
