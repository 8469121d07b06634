//! The content of partitions and of chunks sent between them.
//!
//! A type that implements [`Data`] can be a partition of a dataset and a chunk of an exchange. It can be
//! encoded to bytes and decoded (for migration, snapshots, and messages to another process), and it knows
//! its size. Within a process nothing is encoded: partitions stay in place and chunks are shared.
//!
//! Encodings are little-endian and carry no type information: both ends run the same program, which is
//! checked when they connect.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// An error in decoding a [`Data`] type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataError(String);

impl DataError {
    /// Creates an error with a message, which should name the expected and the actual content.
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

/// The content of a partition or chunk.
pub trait Data: Send + Sync + Sized + 'static {
    /// Appends the value to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes a value from exactly the bytes that [`Data::encode`] appended.
    ///
    /// # Errors
    /// If the bytes have the wrong length or form.
    fn decode(bytes: &[u8]) -> Result<Self, DataError>;

    /// Returns the memory that the value takes, in bytes; used for placement and load balancing.
    fn size_bytes(&self) -> u64;
}

/// A type-erased [`Data`] value; only the program knows its type.
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

/// A chunk in transit: a shared value within a process, encoded bytes from another.
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
    /// Encodes a copy of a value.
    pub fn encoded(value: &dyn AnyData) -> Self {
        let mut bytes = Vec::with_capacity(value.size_any() as usize + 16);
        value.encode_any(&mut bytes);
        Self::Encoded(bytes.into())
    }

    /// Appends the chunk's encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Typed(data) => data.encode_any(out),
            Self::Encoded(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Returns the value, or the shared pointer to it if it is still used elsewhere.
    pub fn take<T: Data>(self) -> Result<Result<T, Arc<T>>, DataError> {
        match self {
            Self::Encoded(bytes) => T::decode(&bytes).map(Ok),
            Self::Typed(data) => match data.into_any().downcast::<T>() {
                Ok(data) => Ok(Arc::try_unwrap(data)),
                Err(_) => Err(DataError::new(format!("it is not of type {}", std::any::type_name::<T>()))),
            },
        }
    }
}

/// Implements [`Data`] for fixed-width numbers and vectors of them.
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

fn wrong_length(expected: &str, length: usize) -> DataError {
    DataError::new(format!("invalid length of {length} bytes for {expected}"))
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
            _ => Err(DataError::new("invalid boolean; expected one byte, 0 or 1")),
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
        String::from_utf8(bytes.to_vec()).map_err(|error| DataError::new(format!("invalid string: {error}")))
    }

    fn size_bytes(&self) -> u64 {
        (size_of::<Self>() + self.capacity()) as u64
    }
}

/// Encoded as the length of the first part, the first part, and the second part.
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
    fn values_survive_a_round_trip() {
        round_trip(vec![1.5f64, -0.0, f64::INFINITY]);
        round_trip((vec![7u32], (3u64, "text".to_string())));
        round_trip((Vec::<f32>::new(), true));
        round_trip(42i64);
    }

    #[test]
    fn decoding_malformed_bytes_fails() {
        assert_eq!(
            Vec::<f64>::decode(&[1, 2, 3]).unwrap_err().to_string(),
            "invalid length of 3 bytes for vector of f64"
        );
        assert!(<(Vec<u8>, u8)>::decode(&[255; 8]).is_err());
        assert!(bool::decode(&[2]).is_err());
    }

    #[test]
    fn chunk_is_taken_only_as_its_own_type() {
        let chunk = Chunk::Typed(Arc::new(5u64));
        assert!(chunk.clone().take::<f32>().is_err());
        assert_eq!(*chunk.clone().take::<u64>().unwrap().unwrap_err(), 5);
        drop(chunk);
        assert_eq!(Chunk::Typed(Arc::new(5u64)).take::<u64>().unwrap().unwrap(), 5);
    }
}
