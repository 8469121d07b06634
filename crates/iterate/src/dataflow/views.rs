//! Typed views of partitions: the arguments of a kernel's closure.
//!
//! A stage names the datasets that it reads and those that it writes. Its kernel receives `&T` of the former
//! and `&mut T` of the latter, for one partition. A list of datasets can be `()`, a `Dataset<T>`, a tuple of
//! up to six lists, or an array of optional datasets of one type. Building the program checks that a stage
//! names no dataset twice and that all of its datasets have the same partitioning; both make the views sound.

use std::any::Any;
use std::marker::PhantomData;

use crate::dataflow::data::{AnyData, Data};
use crate::dataflow::index::{DatasetIx, Ix, Table};

/// A handle to a dataset of a program, divided into partitions that hold a `T` each.
///
/// A dataset is only valid in the program that created it.
pub struct Dataset<T> {
    pub(crate) index: DatasetIx,
    pub(crate) partitions: u32,
    /// The program that created the dataset: using the index in another program would be unsound.
    pub(crate) program: u32,
    pub(crate) holds: PhantomData<fn() -> T>,
}

impl<T> Dataset<T> {
    /// Returns the number of partitions.
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

/// The partitions of one index, by dataset. `None` if a dataset has no partition there, or it is not loaded.
pub(crate) type States = Table<DatasetIx, Option<Box<dyn AnyData>>>;

/// A pointer to the [`States`] of one index, from which views are made.
#[derive(Clone, Copy)]
pub struct Partitions(*mut Option<Box<dyn AnyData>>);

impl Partitions {
    pub(crate) fn of(states: &mut States) -> Self {
        Self(states.as_mut_ptr())
    }

    /// # Safety
    /// The dataset's partition must be present and of type `T`, with no mutable view of it.
    unsafe fn read<'a, T: Data>(self, dataset: DatasetIx) -> &'a T {
        unsafe { &*self.pointer(dataset) }
    }

    /// # Safety
    /// As for [`Partitions::read`], and there must be no other view of the partition.
    unsafe fn write<'a, T: Data>(self, dataset: DatasetIx) -> &'a mut T {
        unsafe { &mut *self.pointer(dataset) }
    }

    unsafe fn pointer<T: Data>(self, dataset: DatasetIx) -> *mut T {
        unsafe {
            let state = &mut *self.0.add(dataset.place());
            let state: *mut dyn AnyData = &mut **state.as_mut().unwrap_unchecked();
            debug_assert!((&*state as &dyn Any).is::<T>(), "dataset {dataset} has another type");
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
    fn datasets(&self) -> Vec<(DatasetIx, u32)>;
    #[doc(hidden)]
    /// # Safety
    /// See [`Partitions::read`].
    unsafe fn views<'a>(self, partitions: Partitions) -> Self::Views<'a>;
}

/// Datasets that a stage writes, and may read.
pub trait Writes: Copy + Send + Sync + 'static {
    /// `&mut T` of each.
    type Views<'a>;
    /// Indexes of the datasets, with the program that made them.
    #[doc(hidden)]
    fn datasets(&self) -> Vec<(DatasetIx, u32)>;
    #[doc(hidden)]
    /// # Safety
    /// See [`Partitions::write`].
    unsafe fn views<'a>(self, partitions: Partitions) -> Self::Views<'a>;
}

macro_rules! single {
    ($list:ident, $method:ident, $($view:tt)+) => {
        impl<T: Data> $list for Dataset<T> {
            type Views<'a> = $($view)+ T;

            fn datasets(&self) -> Vec<(DatasetIx, u32)> {
                vec![(self.index, self.program)]
            }

            unsafe fn views<'a>(self, partitions: Partitions) -> Self::Views<'a> {
                unsafe { partitions.$method(self.index) }
            }
        }

        impl $list for () {
            type Views<'a> = ();

            fn datasets(&self) -> Vec<(DatasetIx, u32)> {
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
        /// For programs assembled at run time; unused elements are `None`.
        impl<T: Data, const N: usize> $list for [Option<Dataset<T>>; N] {
            type Views<'a> = [Option<$($view)+ T>; N];

            fn datasets(&self) -> Vec<(DatasetIx, u32)> {
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
            fn datasets(&self) -> Vec<(DatasetIx, u32)> {
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
