//! Rows of numbers as kernels want them: cut into blocks of one [`Line`]'s lanes, column by column
//! within a block.
//!
//! Lane `l` of line `b × columns + j` is column `j` of row `b × LANES + l`. So a kernel reads memory in
//! one direct stream, computes a whole block of rows without moving anything between lanes, and needs no
//! column count that a register divides. The last block is filled up with zeros; kernels weigh its rows
//! with [`Rows::tail`].

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
    /// Zeros.
    ///
    /// # Errors
    /// Where there is no memory for them.
    pub fn zeroed(rows: usize, columns: usize) -> io::Result<Self> {
        let lines = rows.div_ceil(T::LANES).saturating_mul(columns);
        Ok(Rows { lines: Pages::zeroed(lines)?, rows, columns })
    }

    /// Rows, without those that fill up the last block.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All lines, block by block.
    pub fn lines(&self) -> &[Line<T>] {
        &self.lines
    }

    /// As [`Rows::lines`], to fill them.
    pub fn lines_mut(&mut self) -> &mut [Line<T>] {
        &mut self.lines
    }

    /// The lines of whole blocks, and those of a last one that is not.
    pub fn split(&self) -> (&[Line<T>], &[Line<T>]) {
        self.lines.split_at(self.rows / T::LANES * self.columns)
    }

    /// 1 for each row of the block that is not whole, 0 for what fills it up.
    pub fn tail(&self) -> Line<T> {
        let mut line = Line::splat(T::of(0.0));
        line.lanes_mut()[..self.rows % T::LANES].fill(T::of(1.0));
        line
    }

    /// One value. For tests and single rows; kernels go by [`Rows::lines`].
    pub fn get(&self, row: usize, column: usize) -> T {
        self.lines[row / T::LANES * self.columns + column][row % T::LANES]
    }

    /// Sets one value.
    pub fn set(&mut self, row: usize, column: usize, value: T) {
        self.lines[row / T::LANES * self.columns + column][row % T::LANES] = value;
    }

    /// Bytes of memory that a kernel reads in one pass.
    pub fn bytes(&self) -> usize {
        std::mem::size_of_val(self.lines())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_own_place() -> io::Result<()> {
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
