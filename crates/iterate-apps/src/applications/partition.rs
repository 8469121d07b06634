//! Encodings of the kernels' partitions, equal to their bytes in memory.

use crate::kernels::kmeans::Candidate;
use crate::kernels::pagerank::Tiles;
use crate::kernels::rows::Rows;
use crate::kernels::simd::Real;
use pellucid_iterate::{Data, DataError};
use std::sync::Arc;

impl<T: Real> Data for Rows<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes() + 16);
        out.extend_from_slice(&(self.rows() as u64).to_le_bytes());
        out.extend_from_slice(&(self.columns() as u64).to_le_bytes());
        for lane in self.lines().iter().flat_map(|line| line.lanes()) {
            lane.put(out);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        let broken = || DataError::new(format!("invalid rows of {} bytes", bytes.len()));
        let (rows, rest) = bytes.split_first_chunk().ok_or_else(broken)?;
        let (columns, rest) = rest.split_first_chunk().ok_or_else(broken)?;
        let [rows, columns] = [rows, columns].map(|number| u64::from_le_bytes(*number) as usize);
        let width = size_of::<T>();
        let lanes = rows.div_ceil(T::LANES).checked_mul(columns).and_then(|lines| lines.checked_mul(64));
        if lanes != Some(rest.len()) {
            return Err(broken());
        }
        let mut table = Rows::zeroed(rows, columns).map_err(|e| DataError::new(e.to_string()))?;
        let lanes = table.lines_mut().iter_mut().flat_map(|line| line.lanes_mut());
        for (lane, bytes) in lanes.zip(rest.chunks_exact(width)) {
            *lane = T::take(bytes);
        }
        Ok(table)
    }

    fn size_bytes(&self) -> u64 {
        self.bytes() as u64
    }
}

impl Data for Candidate {
    fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        self.values.encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        let numbers = Vec::<f64>::decode(bytes)?;
        match numbers.split_first() {
            Some((key, values)) => Ok(Candidate { key: *key, values: values.to_vec() }),
            None => Err(DataError::new("invalid candidate of 0 bytes")),
        }
    }

    fn size_bytes(&self) -> u64 {
        8 + self.values.size_bytes()
    }
}

/// An immutable partition with shared ownership; cloning does not copy it.
#[derive(Debug)]
pub(super) struct Shared<T>(pub Arc<T>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T> std::ops::Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Data> Data for Shared<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        T::decode(bytes).map(|value| Shared(Arc::new(value)))
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
}

impl Data for Tiles {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.sources() as u64).encode(out);
        (self.destinations() as u64).encode(out);
        for (source, destination) in self.iter() {
            source.encode(out);
            destination.encode(out);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        let broken = || DataError::new(format!("invalid edges of {} bytes", bytes.len()));
        let (sources, rest) = bytes.split_first_chunk().ok_or_else(broken)?;
        let (destinations, rest) = rest.split_first_chunk().ok_or_else(broken)?;
        let [sources, destinations] =
            [sources, destinations].map(|number| u64::from_le_bytes(*number) as usize);
        let numbers = Vec::<u32>::decode(rest)?;
        let edges: Vec<(u32, u32)> = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let inside = |(a, b): &(u32, u32)| (*a as usize) < sources && (*b as usize) < destinations;
        if numbers.len() % 2 != 0 || !edges.iter().all(inside) {
            return Err(broken());
        }
        Tiles::new(sources, destinations, edges).map_err(|e| DataError::new(e.to_string()))
    }

    fn size_bytes(&self) -> u64 {
        self.edges() as u64 * 4
    }
}
