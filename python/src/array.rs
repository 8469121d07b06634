//! Partitions: typed arrays in memory, with numpy's types and shapes.
//!
//! Arrays passed from Python are borrowed if no stage writes them, and otherwise copied on the worker that
//! holds the partition. Kernels access the memory directly. A [`View`] exposes the same memory to Python, where
//! numpy wraps it without copying. A view keeps the memory alive but does not protect it from being written by
//! kernels: it is meant for a single call, and for results.

use std::cell::UnsafeCell;
use std::hash::{DefaultHasher, Hasher};
use std::ops::{Add, BitOr};
use std::sync::Arc;

use pellucid_iterate::{Data, DataError};
use pellucid_iterate_apps::kernels::pages::Pages;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

/// Size from which an array has its own mapping, on huge pages if available.
const LARGE_BYTES: usize = 2 << 20;

/// Maximum number of dimensions of an array.
pub const MAX_DIMENSIONS: usize = 8;

/// The supported types, by their names in numpy's array interface.
const TYPES: [&str; 11] = ["<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1"];

/// An element type: an index into [`TYPES`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Type(u8);

impl Type {
    fn of(name: &str) -> Option<Self> {
        TYPES.iter().position(|known| *known == name).map(|at| Type(at as u8))
    }

    fn name(self) -> &'static str {
        TYPES[self.0 as usize]
    }

    /// Returns the size of an element, the last character of the name.
    fn bytes(self) -> usize {
        usize::from(self.name().as_bytes()[2] - b'0')
    }
}

/// The memory of an array.
enum Memory {
    /// Small arrays, stored in words so that any type is aligned.
    Small(Box<[UnsafeCell<u64>]>),
    Large {
        start: *mut u8,
        _pages: Pages<u64>,
    },
    /// Memory of a Python object, which is kept alive and only read.
    Borrowed {
        start: *const u8,
        _owner: Py<PyAny>,
    },
}

// SAFETY: the engine gives a partition's memory either to one task that writes it, or to tasks that read it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn zeroed(bytes: usize) -> std::io::Result<Self> {
        let words = bytes.div_ceil(8);
        if bytes >= LARGE_BYTES {
            let mut pages = Pages::<u64>::zeroed(words)?;
            return Ok(Memory::Large { start: pages.as_mut_ptr().cast(), _pages: pages });
        }
        Ok(Memory::Small((0..words).map(|_| UnsafeCell::new(0)).collect()))
    }

    fn start(&self) -> *mut u8 {
        match self {
            Memory::Small(words) => words.as_ptr().cast_mut().cast(),
            Memory::Large { start, .. } => *start,
            Memory::Borrowed { start, .. } => start.cast_mut(),
        }
    }
}

/// The content of a partition or chunk.
pub struct Array {
    type_: Type,
    shape: Arc<[usize]>,
    memory: Arc<Memory>,
}

impl Array {
    /// Borrows the memory of a Python object through its `__array_interface__`.
    pub fn borrow(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let interface = object.getattr("__array_interface__")?.cast_into::<PyDict>()?;
        let get = |key: &str| {
            let value = interface.get_item(key)?;
            value.ok_or_else(|| {
                PyValueError::new_err(format!("the array interface has no {key}; pass a numpy array"))
            })
        };
        let name: String = get("typestr")?.extract()?;
        let type_ = Type::of(&name).ok_or_else(|| {
            PyTypeError::new_err(format!(
                "arrays of type {name} cannot be partitions; convert them to a numeric type such as float64"
            ))
        })?;
        let strides = interface.get_item("strides")?;
        if strides.is_some_and(|strides| !strides.is_none()) {
            return Err(PyValueError::new_err("the array is not contiguous; use numpy.ascontiguousarray"));
        }
        let shape: Vec<usize> = get("shape")?.extract()?;
        if shape.len() > MAX_DIMENSIONS {
            let dimensions = shape.len();
            return Err(PyValueError::new_err(format!(
                "the array has {dimensions} dimensions; use at most {MAX_DIMENSIONS}"
            )));
        }
        let (start, _): (usize, bool) = get("data")?.extract()?;
        let memory = Memory::Borrowed { start: start as *const u8, _owner: object.clone().unbind() };
        Ok(Array { type_, shape: shape.into(), memory: Arc::new(memory) })
    }

    fn zeroed(type_: Type, shape: Arc<[usize]>) -> std::io::Result<Self> {
        let memory = Arc::new(Memory::zeroed(shape.iter().product::<usize>() * type_.bytes())?);
        Ok(Array { type_, shape, memory })
    }

    /// Returns another handle to the same memory.
    pub fn share(&self) -> Self {
        Array { type_: self.type_, shape: self.shape.clone(), memory: self.memory.clone() }
    }

    /// Returns a copy with its own memory.
    pub fn copied(&self) -> std::io::Result<Self> {
        let copy = Array::zeroed(self.type_, self.shape.clone())?;
        // SAFETY: newly allocated memory of the same size.
        unsafe { self.start().copy_to_nonoverlapping(copy.start(), self.len_bytes()) };
        Ok(copy)
    }

    /// Returns a pointer to the first element.
    pub fn start(&self) -> *mut u8 {
        self.memory.start()
    }

    /// Returns the lengths of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the type and the number of dimensions, for which a kernel is compiled.
    pub fn signature(&self) -> (Type, usize) {
        (self.type_, self.shape.len())
    }

    /// Checks that the array has the type and shape of another, since compiled kernels rely on both.
    pub fn check_form(&self, expected: &Self) -> Result<(), DataError> {
        if self.type_ == expected.type_ && self.shape == expected.shape {
            return Ok(());
        }
        let form = |array: &Self| format!("{} {:?}", array.type_.name(), array.shape);
        Err(DataError::new(format!(
            "it is an array of {}, but the dataset has {}",
            form(self),
            form(expected)
        )))
    }

    fn len_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.type_.bytes()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory has this many bytes, by construction or by the array interface.
        unsafe { std::slice::from_raw_parts(self.start(), self.len_bytes()) }
    }

    /// Returns the array's identity: type, shape, and a hash of its elements.
    pub fn identity(&self) -> (&'static str, &[usize], u64) {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.bytes());
        (self.type_.name(), self.shape(), hasher.finish())
    }

    /// Returns whether any byte is nonzero; false for an empty array.
    pub fn is_set(&self) -> bool {
        self.bytes().iter().any(|byte| *byte != 0)
    }

    /// Returns the first element, for progress.
    pub fn first(&self) -> f64 {
        let bytes = self.bytes();
        macro_rules! first {
            ($type:ty) => {
                bytes.first_chunk().map_or(f64::NAN, |bytes| <$type>::from_le_bytes(*bytes) as f64)
            };
        }
        match self.type_.name() {
            "<f8" => first!(f64),
            "<f4" => first!(f32),
            "<i8" => first!(i64),
            "<i4" => first!(i32),
            "<i2" => first!(i16),
            "|i1" => first!(i8),
            "<u8" => first!(u64),
            "<u4" => first!(u32),
            "<u2" => first!(u16),
            _ => first!(u8),
        }
    }

    /// Combines each element with that of another array of the same type and shape.
    pub fn combine(&mut self, next: &Self, operation: Operation) {
        if self.type_ != next.type_ || self.shape != next.shape {
            std::panic::resume_unwind(Box::new("arrays of different types or shapes".to_string()));
        }
        let length = self.shape.iter().product();
        macro_rules! combine {
            ($type:ty, $add:expr) => {{
                // SAFETY: elements of that type, aligned by this memory and by numpy. This task owns the first
                // array exclusively, and the second is another partition's copy.
                let (into, from) = unsafe {
                    (
                        std::slice::from_raw_parts_mut(self.start().cast::<$type>(), length),
                        std::slice::from_raw_parts(next.start().cast::<$type>().cast_const(), length),
                    )
                };
                match operation {
                    Operation::Sum => into.iter_mut().zip(from).for_each(|(a, b)| *a = $add(*a, *b)),
                    Operation::Min => {
                        into.iter_mut().zip(from).for_each(|(a, b)| *a = if *b < *a { *b } else { *a })
                    }
                    Operation::Max => {
                        into.iter_mut().zip(from).for_each(|(a, b)| *a = if *b > *a { *b } else { *a })
                    }
                }
            }};
        }
        match self.type_.name() {
            "<f8" => combine!(f64, Add::add),
            "<f4" => combine!(f32, Add::add),
            "<i8" => combine!(i64, i64::wrapping_add),
            "<i4" => combine!(i32, i32::wrapping_add),
            "<i2" => combine!(i16, i16::wrapping_add),
            "|i1" => combine!(i8, i8::wrapping_add),
            "<u8" => combine!(u64, u64::wrapping_add),
            "<u4" => combine!(u32, u32::wrapping_add),
            "<u2" => combine!(u16, u16::wrapping_add),
            "|u1" => combine!(u8, u8::wrapping_add),
            _ => combine!(u8, BitOr::bitor),
        }
    }

    /// Returns a numpy array over this memory.
    pub fn view<'py>(&self, py: Python<'py>, readonly: bool) -> PyResult<Bound<'py, PyAny>> {
        static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let view = View { array: self.share(), readonly };
        ASARRAY.import(py, "numpy", "asarray")?.call1((Bound::new(py, view)?,))
    }
}

/// An element-wise reduction.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Sum; for booleans, logical or.
    Sum,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
}

impl Clone for Array {
    /// Copies the memory, since partitions must not share memory that is written.
    fn clone(&self) -> Self {
        match self.copied() {
            Ok(copy) => copy,
            Err(error) => std::panic::resume_unwind(Box::new(error.to_string())),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        if self.type_ == source.type_
            && self.shape == source.shape
            && !matches!(*self.memory, Memory::Borrowed { .. })
        {
            // SAFETY: the same length, and memory of another partition.
            unsafe { source.start().copy_to(self.start(), self.len_bytes()) };
        } else {
            *self = source.clone();
        }
    }
}

impl Data for Array {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend([self.type_.0, self.shape.len() as u8]);
        for length in self.shape.iter() {
            out.extend((*length as u64).to_le_bytes());
        }
        out.extend_from_slice(self.bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        let wrong = || DataError::new(format!("invalid array of {} bytes", bytes.len()));
        let (&[type_, dimensions], rest) = bytes.split_first_chunk::<2>().ok_or_else(wrong)?;
        let (shape, content) = rest.split_at_checked(usize::from(dimensions) * 8).ok_or_else(wrong)?;
        let (lengths, _) = shape.as_chunks();
        let shape: Arc<[usize]> = lengths.iter().map(|length| u64::from_le_bytes(*length) as usize).collect();
        let numbers =
            shape.iter().try_fold(1usize, |all, length| all.checked_mul(*length)).ok_or_else(wrong)?;
        if usize::from(type_) >= TYPES.len()
            || numbers.checked_mul(Type(type_).bytes()) != Some(content.len())
        {
            return Err(wrong());
        }
        let array = Array::zeroed(Type(type_), shape).map_err(|error| DataError::new(error.to_string()))?;
        // SAFETY: newly allocated memory of exactly this size.
        unsafe { array.start().copy_from_nonoverlapping(content.as_ptr(), content.len()) };
        Ok(array)
    }

    fn size_bytes(&self) -> u64 {
        (size_of::<Self>() + self.len_bytes()) as u64
    }
}

/// An array's memory, exposed to numpy.
#[pyclass(frozen, module = "pellucid._native")]
pub struct View {
    array: Array,
    readonly: bool,
}

#[pymethods]
impl View {
    /// Returns numpy's array interface, version 3.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.array.type_.name())?;
        interface.set_item("shape", PyTuple::new(py, self.array.shape())?)?;
        interface.set_item("data", (self.array.start() as usize, self.readonly))?;
        Ok(interface)
    }
}
