//! The layout of rows of numbers for kernels: blocks of as many rows as a [`Line`] has lanes, stored column by
//! column within a block.
//!
//! Lane `l` of line `b × columns + j` is column `j` of row `b × LANES + l`. A kernel thus reads memory in one
//! sequential stream and computes a whole block of rows without moving data between lanes, for any number of
//! columns. The last block is padded with zeros; kernels weight its rows with [`Rows::tail`].

use super::pages::Pages;
use super::simd::{Line, Real};
use std::io;

/// A partition's rows.
#[derive(Debug)]
pub struct Rows<T: Real> {
    lines: Pages<Line<T>>,
    rows: usize,
    columns: usize,
}

impl<T: Real> Rows<T> {
    /// Creates rows of zeros.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn zeroed(rows: usize, columns: usize) -> io::Result<Self> {
        let lines = rows.div_ceil(T::LANES).saturating_mul(columns);
        Ok(Rows { lines: Pages::zeroed(lines)?, rows, columns })
    }

    /// Returns the number of rows, without padding.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns all lines, block by block.
    pub fn lines(&self) -> &[Line<T>] {
        &self.lines
    }

    /// Returns all lines, mutably.
    pub fn lines_mut(&mut self) -> &mut [Line<T>] {
        &mut self.lines
    }

    /// Returns the lines of the full blocks, and those of the padded last block.
    pub fn split(&self) -> (&[Line<T>], &[Line<T>]) {
        self.lines.split_at(self.rows / T::LANES * self.columns)
    }

    /// Returns the weights of the padded block's rows: 1 for each row, 0 for padding.
    pub fn tail(&self) -> Line<T> {
        let mut line = Line::splat(T::of(0.0));
        line.lanes_mut()[..self.rows % T::LANES].fill(T::of(1.0));
        line
    }

    /// Returns one value. For tests and single rows; kernels use [`Rows::lines`].
    pub fn get(&self, row: usize, column: usize) -> T {
        self.lines[row / T::LANES * self.columns + column][row % T::LANES]
    }

    /// Sets one value.
    pub fn set(&mut self, row: usize, column: usize, value: T) {
        self.lines[row / T::LANES * self.columns + column][row % T::LANES] = value;
    }

    /// Returns the number of bytes that a kernel reads in one pass.
    pub fn bytes(&self) -> usize {
        std::mem::size_of_val(self.lines())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_own_location() -> io::Result<()> {
        for (rows, columns) in [(0, 3), (1, 1), (8, 2), (17, 5), (33, 20)] {
            let mut table = Rows::<f32>::zeroed(rows, columns)?;
            for row in 0..rows {
                for column in 0..columns {
                    assert_eq!(table.get(row, column), 0.0);
                    table.set(row, column, (row * columns + column + 1) as f32);
                }
            }
            for row in 0..rows {
                for column in 0..columns {
                    assert_eq!(table.get(row, column), (row * columns + column + 1) as f32);
                }
            }
            let sum: f64 = table.lines().iter().map(Line::sum).sum();
            let values = rows * columns;
            assert_eq!(sum, (values * (values + 1) / 2) as f64);
            let (whole, rest) = table.split();
            assert_eq!((whole.len() + rest.len()) * 64, table.bytes());
            assert_eq!(table.tail().sum() as usize, rows % 16);
        }
        Ok(())
    }
}
