//! What a partition holds and what travels between partitions.
//!
//! A type that implements [`Data`] can be a partition of a dataset and a chunk of an exchange: it can be
//! written into bytes (migration, snapshots, messages to another process) and read back, and it knows
//! its size. Within a process nothing is encoded: partitions stay where they are and chunks are shared.
//!
//! Encodings are little-endian and carry no type: both ends run the same program, which is checked when
//! they connect.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Bytes that are not what a [`Data`] type encodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataError(String);

impl DataError {
    /// An error with what was expected and what was found.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DataError {}

/// A partition's content, or a chunk's.
pub trait Data: Send + Sync + Sized + 'static {
    /// Appends the value to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// The value that [`Data::encode`] wrote: `bytes` is exactly that.
    ///
    /// # Errors
    /// Bytes of another length or form.
    fn decode(bytes: &[u8]) -> Result<Self, DataError>;

    /// Memory that the value takes, in bytes; placement and balance go by it.
    fn size_bytes(&self) -> u64;
}

/// [`Data`] whose type is known to the program only.
pub(crate) trait AnyData: Any + Send + Sync {
    fn encode_any(&self, out: &mut Vec<u8>);
    fn size_any(&self) -> u64;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Data> AnyData for T {
    fn encode_any(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    fn size_any(&self) -> u64 {
        self.size_bytes()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// A chunk on its way: shared as it is within a process, bytes from another.
#[derive(Clone)]
pub(crate) enum Chunk {
    Typed(Arc<dyn AnyData>),
    Encoded(bytes::Bytes),
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typed(data) => write!(f, "chunk of {} bytes", data.size_any()),
            Self::Encoded(bytes) => write!(f, "chunk of {} encoded bytes", bytes.len()),
        }
    }
}

impl Chunk {
    /// A copy of a value, as bytes.
    pub fn encoded(value: &dyn AnyData) -> Self {
        let mut bytes = Vec::with_capacity(value.size_any() as usize + 16);
        value.encode_any(&mut bytes);
        Self::Encoded(bytes.into())
    }

    /// Appends the chunk's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Typed(data) => data.encode_any(out),
            Self::Encoded(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// The value: unshared, where this is the last use of it.
    pub fn take<T: Data>(self) -> Result<Result<T, Arc<T>>, DataError> {
        match self {
            Self::Encoded(bytes) => T::decode(&bytes).map(Ok),
            Self::Typed(data) => match data.into_any().downcast::<T>() {
                Ok(data) => Ok(Arc::try_unwrap(data)),
                Err(_) => Err(DataError::new(format!("it holds no {}", std::any::type_name::<T>()))),
            },
        }
    }
}

/// Numbers of a fixed width, and vectors of them.
macro_rules! number {
    ($($t:ty),*) => {$(
        impl Data for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(bytes: &[u8]) -> Result<Self, DataError> {
                let bytes = bytes.try_into().map_err(|_| wrong_length(stringify!($t), bytes.len()))?;
                Ok(<$t>::from_le_bytes(bytes))
            }

            fn size_bytes(&self) -> u64 {
                size_of::<$t>() as u64
            }
        }

        impl Data for Vec<$t> {
            fn encode(&self, out: &mut Vec<u8>) {
                out.reserve(size_of_val(self.as_slice()));
                for number in self {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }

            fn decode(bytes: &[u8]) -> Result<Self, DataError> {
                let (numbers, rest) = bytes.as_chunks();
                if !rest.is_empty() {
                    return Err(wrong_length(concat!("vector of ", stringify!($t)), bytes.len()));
                }
                Ok(numbers.iter().map(|number| <$t>::from_le_bytes(*number)).collect())
            }

            fn size_bytes(&self) -> u64 {
                (size_of::<Self>() + self.capacity() * size_of::<$t>()) as u64
            }
        }
    )*};
}

number!(u8, u16, u32, u64, i32, i64, f32, f64);

fn wrong_length(what: &str, length: usize) -> DataError {
    DataError::new(format!("{length} bytes are no {what}"))
}

impl Data for () {
    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        if bytes.is_empty() { Ok(()) } else { Err(wrong_length("empty value", bytes.len())) }
    }

    fn size_bytes(&self) -> u64 {
        0
    }
}

impl Data for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(DataError::new("neither 0 nor 1 is no boolean")),
        }
    }

    fn size_bytes(&self) -> u64 {
        1
    }
}

impl Data for String {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        String::from_utf8(bytes.to_vec()).map_err(|error| DataError::new(format!("no text: {error}")))
    }

    fn size_bytes(&self) -> u64 {
        (size_of::<Self>() + self.capacity()) as u64
    }
}

/// The first part's length comes before it; the last takes the rest.
impl<A: Data, B: Data> Data for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&[0; 8]);
        self.0.encode(out);
        let length = (out.len() - at - 8) as u64;
        out[at..at + 8].copy_from_slice(&length.to_le_bytes());
        self.1.encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        let (length, rest) = bytes.split_first_chunk().ok_or_else(|| wrong_length("pair", bytes.len()))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (first, second) =
            rest.split_at_checked(length).ok_or_else(|| wrong_length("pair", bytes.len()))?;
        Ok((A::decode(first)?, B::decode(second)?))
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes() + self.1.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Data + PartialEq + fmt::Debug>(value: T) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(T::decode(&bytes).unwrap(), value);
        bytes.extend_from_slice(b"more");
        assert!(T::decode(&bytes[..bytes.len() - 1]).map_or(true, |other| other != value));
    }

    #[test]
    fn values_come_back() {
        round_trip(vec![1.5f64, -0.0, f64::INFINITY]);
        round_trip((vec![7u32], (3u64, "text".to_string())));
        round_trip((Vec::<f32>::new(), true));
        round_trip(42i64);
    }

    #[test]
    fn bytes_of_another_form_are_an_error() {
        assert_eq!(Vec::<f64>::decode(&[1, 2, 3]).unwrap_err().to_string(), "3 bytes are no vector of f64");
        assert!(<(Vec<u8>, u8)>::decode(&[255; 8]).is_err());
        assert!(bool::decode(&[2]).is_err());
    }

    #[test]
    fn a_chunk_is_taken_as_what_it_is_only() {
        let chunk = Chunk::Typed(Arc::new(5u64));
        assert!(chunk.clone().take::<f32>().is_err());
        assert_eq!(*chunk.clone().take::<u64>().unwrap().unwrap_err(), 5);
        drop(chunk);
        assert_eq!(Chunk::Typed(Arc::new(5u64)).take::<u64>().unwrap().unwrap(), 5);
    }
}
