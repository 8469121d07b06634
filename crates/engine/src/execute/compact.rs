//! Batches in the form in which an exchange keeps them.
//!
//! Most keys, dates and amounts differ by less than their types allow: a column of whole numbers is kept as its least value
//! and the differences to it, in as few bytes as the largest one needs. Its values are the same bits when they come back.
//! The tables of joins keep their columns like this too, and rows are taken from them one by one.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, MAX_INLINE_VIEW_LEN, PrimitiveArray, make_array,
};
use datafusion::arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::{
    ArrowNativeType, DataType, SchemaRef, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};

/// A batch that takes less memory, where it can.
#[derive(Clone)]
pub(crate) struct Compact {
    schema: SchemaRef,
    rows: usize,
    columns: Vec<Column>,
    /// Memory of this form.
    pub bytes: u64,
    /// Memory of the batch.
    pub batch_bytes: u64,
}

/// A column that takes less memory, where it can.
#[derive(Clone)]
pub(crate) enum Column {
    Array(ArrayRef),
    Differences(Narrow),
}

/// A column of whole numbers.
#[derive(Clone)]
pub(crate) struct Narrow {
    data_type: DataType,
    least: Number,
    differences: Differences,
    nulls: Option<NullBuffer>,
}

/// A value by the width of its type.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    Of4(i32),
    Of8(i64),
    Of16(i128),
}

#[derive(Clone)]
enum Differences {
    Of1(ScalarBuffer<u8>),
    Of2(ScalarBuffer<u16>),
    Of4(ScalarBuffer<u32>),
    Of8(ScalarBuffer<u64>),
}

impl Compact {
    pub(crate) fn of(batch: RecordBatch) -> Self {
        let (schema, arrays, rows) = batch.into_parts();
        let (mut bytes, mut batch_bytes) = (0, 0);
        let mut column = |array: ArrayRef| {
            let (column, of_column, of_array) = Column::of(array);
            (bytes, batch_bytes) = (bytes + of_column, batch_bytes + of_array);
            column
        };
        let columns = arrays.into_iter().map(&mut column).collect();
        Self { schema, rows, columns, bytes, batch_bytes }
    }

    /// Returns the columns in this form, each with its least value if it has differences.
    pub(crate) fn columns(&self) -> Vec<(ArrayRef, Option<Number>)> {
        self.columns.iter().map(Column::stored).collect()
    }

    /// Returns the batch of `rows` rows that [`Compact::columns`] came from.
    ///
    /// # Errors
    /// Returns an error if the columns are not those of a batch with this schema.
    pub(crate) fn restore(
        schema: &SchemaRef,
        rows: usize,
        columns: impl Iterator<Item = (ArrayRef, Option<Number>)>,
    ) -> Result<RecordBatch, ArrowError> {
        let restored = |(at, (array, least)): (usize, (ArrayRef, Option<Number>))| match least {
            Some(least) => {
                let nulls = array.nulls().cloned();
                let data_type = schema.field(at).data_type().clone();
                Narrow { data_type, least, differences: Differences::of(&array)?, nulls }.array()
            }
            None => Ok(array),
        };
        let columns = columns.enumerate().map(restored).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
    }

    /// Splits it into batches of about `max_bytes`.
    pub(crate) fn split(self, max_bytes: u64) -> Vec<Self> {
        let parts = self.batch_bytes.div_ceil(max_bytes.max(1)).clamp(1, self.rows.max(1) as u64) as usize;
        if parts == 1 {
            return vec![self];
        }
        let of_each = self.rows.div_ceil(parts);
        let part = |from: usize| {
            let rows = of_each.min(self.rows - from);
            let share = |bytes: u64| bytes * rows as u64 / self.rows as u64;
            let columns = self.columns.iter().map(|column| column.slice(from, rows)).collect();
            let (bytes, batch_bytes) = (share(self.bytes), share(self.batch_bytes));
            Self { schema: Arc::clone(&self.schema), rows, columns, bytes, batch_bytes }
        };
        (0..self.rows).step_by(of_each).map(part).collect()
    }

    /// Returns some of its columns.
    ///
    /// # Errors
    /// Returns an error if it has fewer.
    pub(crate) fn project(&self, columns: &[usize]) -> Result<Self, ArrowError> {
        let schema = Arc::new(self.schema.project(columns)?);
        let columns: Vec<Column> = columns.iter().map(|&at| self.columns[at].clone()).collect();
        let (bytes, batch_bytes) =
            columns.iter().map(Column::bytes).fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1));
        Ok(Self { schema, rows: self.rows, columns, bytes, batch_bytes })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the batch.
    ///
    /// # Errors
    /// Currently none: the columns are those of a batch.
    pub(crate) fn batch(&self) -> Result<RecordBatch, ArrowError> {
        let columns = self.columns.iter().map(Column::array).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

impl Column {
    /// Returns a column, its memory, and that of the array.
    pub(crate) fn of(array: ArrayRef) -> (Self, u64, u64) {
        if let Some(narrow) = differences(&array) {
            let (bytes, of_array) = narrow.bytes();
            return (Column::Differences(narrow), bytes, of_array);
        }
        let bytes = array_bytes(&array);
        (Column::Array(without_rest(array, bytes)), bytes, bytes)
    }

    /// Returns its memory, and that of the array.
    fn bytes(&self) -> (u64, u64) {
        match self {
            Column::Array(array) => (array_bytes(array), array_bytes(array)),
            Column::Differences(narrow) => narrow.bytes(),
        }
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        match self {
            Column::Array(array) => array.nulls(),
            Column::Differences(narrow) => narrow.nulls.as_ref(),
        }
    }

    fn slice(&self, from: usize, rows: usize) -> Self {
        match self {
            Column::Array(array) => Column::Array(array.slice(from, rows)),
            Column::Differences(narrow) => Column::Differences(Narrow {
                data_type: narrow.data_type.clone(),
                least: narrow.least,
                differences: narrow.differences.slice(from, rows),
                nulls: narrow.nulls.as_ref().map(|nulls| nulls.slice(from, rows)),
            }),
        }
    }

    /// Returns the column as an array of its differences, with the least value, or as it is.
    fn stored(&self) -> (ArrayRef, Option<Number>) {
        match self {
            Column::Array(array) => (Arc::clone(array), None),
            Column::Differences(narrow) => {
                let nulls = narrow.nulls.clone();
                let array: ArrayRef = match narrow.differences.clone() {
                    Differences::Of1(differences) => {
                        Arc::new(PrimitiveArray::<UInt8Type>::new(differences, nulls))
                    }
                    Differences::Of2(differences) => {
                        Arc::new(PrimitiveArray::<UInt16Type>::new(differences, nulls))
                    }
                    Differences::Of4(differences) => {
                        Arc::new(PrimitiveArray::<UInt32Type>::new(differences, nulls))
                    }
                    Differences::Of8(differences) => {
                        Arc::new(PrimitiveArray::<UInt64Type>::new(differences, nulls))
                    }
                };
                (array, Some(narrow.least))
            }
        }
    }

    fn array(&self) -> Result<ArrayRef, ArrowError> {
        match self {
            Column::Array(array) => Ok(Arc::clone(array)),
            Column::Differences(narrow) => narrow.array(),
        }
    }
}

/// Returns rows of one column of several tables, each by its table and its place there.
///
/// # Errors
/// Returns an error if the columns have different types.
pub(crate) fn interleaved(columns: &[&Column], rows: &[(usize, usize)]) -> Result<ArrayRef, ArrowError> {
    let mut narrow = columns.iter().filter_map(|column| match column {
        Column::Differences(narrow) => Some(narrow),
        Column::Array(_) => None,
    });
    let Some(one) = narrow.next() else {
        let array = |column: &&Column| column.array();
        let arrays = columns.iter().map(array).collect::<Result<Vec<_>, _>>()?;
        return interleave(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>(), rows);
    };
    let values = match one.least {
        Number::Of4(_) => values_of::<i32>(columns, rows),
        Number::Of8(_) => values_of::<i64>(columns, rows),
        Number::Of16(_) => values_of::<i128>(columns, rows),
    };
    let nulls: Vec<Option<&NullBuffer>> = columns.iter().map(|column| column.nulls()).collect();
    let valid = |&(table, row): &(usize, usize)| nulls[table].is_none_or(|nulls| nulls.is_valid(row));
    let nulls = nulls.iter().any(Option::is_some).then(|| rows.iter().map(valid).collect::<NullBuffer>());
    let data = ArrayData::builder(one.data_type.clone()).len(rows.len()).add_buffer(values);
    Ok(make_array(data.nulls(nulls).build()?))
}

/// The values of a column.
enum Values<T: ArrowNativeType> {
    Whole(ScalarBuffer<T>),
    Differences(T, Differences),
}

fn values_of<T: Whole>(columns: &[&Column], rows: &[(usize, usize)]) -> Buffer {
    let of_column = |column: &&Column| match column {
        Column::Array(array) => {
            let data = array.to_data();
            Values::Whole(ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len()))
        }
        Column::Differences(narrow) => Values::Differences(T::of(narrow.least), narrow.differences.clone()),
    };
    let tables: Vec<Values<T>> = columns.iter().map(of_column).collect();
    let value = |&(table, row): &(usize, usize)| match &tables[table] {
        Values::Whole(values) => values[row],
        Values::Differences(least, Differences::Of1(differences)) => least.plus(differences[row].into()),
        Values::Differences(least, Differences::Of2(differences)) => least.plus(differences[row].into()),
        Values::Differences(least, Differences::Of4(differences)) => least.plus(differences[row].into()),
        Values::Differences(least, Differences::Of8(differences)) => least.plus(differences[row]),
    };
    rows.iter().map(value).collect::<Vec<T>>().into()
}

impl Differences {
    fn slice(&self, from: usize, rows: usize) -> Self {
        match self {
            Self::Of1(differences) => Self::Of1(differences.slice(from, rows)),
            Self::Of2(differences) => Self::Of2(differences.slice(from, rows)),
            Self::Of4(differences) => Self::Of4(differences.slice(from, rows)),
            Self::Of8(differences) => Self::Of8(differences.slice(from, rows)),
        }
    }

    /// Returns the values of an array of differences.
    fn of(array: &ArrayRef) -> Result<Self, ArrowError> {
        fn values<T: ArrowPrimitiveType>(array: &ArrayRef) -> ScalarBuffer<T::Native> {
            array.as_primitive::<T>().values().clone()
        }
        Ok(match array.data_type() {
            DataType::UInt8 => Self::Of1(values::<UInt8Type>(array)),
            DataType::UInt16 => Self::Of2(values::<UInt16Type>(array)),
            DataType::UInt32 => Self::Of4(values::<UInt32Type>(array)),
            DataType::UInt64 => Self::Of8(values::<UInt64Type>(array)),
            other => return Err(ArrowError::SchemaError(format!("differences of type {other}"))),
        })
    }
}

impl Narrow {
    /// Returns its memory, and that of the array.
    fn bytes(&self) -> (u64, u64) {
        let (values, width) = match &self.differences {
            Differences::Of1(differences) => (differences.len(), 1),
            Differences::Of2(differences) => (differences.len(), 2),
            Differences::Of4(differences) => (differences.len(), 4),
            Differences::Of8(differences) => (differences.len(), 8),
        };
        let of_value = match self.least {
            Number::Of4(_) => 4,
            Number::Of8(_) => 8,
            Number::Of16(_) => 16,
        };
        let nulls = if self.nulls.is_some() { values.div_ceil(8) } else { 0 };
        ((values * width + nulls) as u64, (values * of_value + nulls) as u64)
    }

    fn array(&self) -> Result<ArrayRef, ArrowError> {
        let (values, length) = match &self.differences {
            Differences::Of1(differences) => (added(self.least, differences), differences.len()),
            Differences::Of2(differences) => (added(self.least, differences), differences.len()),
            Differences::Of4(differences) => (added(self.least, differences), differences.len()),
            Differences::Of8(differences) => (added(self.least, differences), differences.len()),
        };
        let data = ArrayData::builder(self.data_type.clone()).len(length).add_buffer(values);
        Ok(make_array(data.nulls(self.nulls.clone()).build()?))
    }
}

/// Returns a column of whole numbers as differences, if these are narrower than its type.
fn differences(array: &ArrayRef) -> Option<Narrow> {
    let data_type = array.data_type();
    let whole = data_type.is_integer()
        || data_type.is_temporal()
        || matches!(data_type, DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..));
    let width = data_type.primitive_width().filter(|_| whole && !array.is_empty())?;
    let data = array.to_data();
    let nulls = data.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
    let buffer = || data.buffers()[0].clone();
    let (at, length) = (data.offset(), data.len());
    let (least, differences) = match width {
        4 => narrow(&ScalarBuffer::<i32>::new(buffer(), at, length), nulls.as_ref())?,
        8 => narrow(&ScalarBuffer::<i64>::new(buffer(), at, length), nulls.as_ref())?,
        16 => narrow(&ScalarBuffer::<i128>::new(buffer(), at, length), nulls.as_ref())?,
        _ => return None,
    };
    Some(Narrow { data_type: data_type.clone(), least, differences, nulls })
}

/// A whole number, signed or not: differences wrap around, so that they are right for both.
trait Whole: ArrowNativeType + Ord {
    fn number(self) -> Number;
    /// Returns the lower bits of a number, which is all of it if it has this width.
    fn of(number: Number) -> Self;
    /// Returns `self - least` if it fits.
    fn over(self, least: Self) -> Option<u64>;
    /// Returns the lower bits of `self - least`.
    fn low(self, least: Self) -> u64;
    fn plus(self, difference: u64) -> Self;
}

macro_rules! whole {
    ($type:ty, $unsigned:ty, $number:ident) => {
        impl Whole for $type {
            fn number(self) -> Number {
                Number::$number(self)
            }

            fn of(number: Number) -> Self {
                match number {
                    Number::Of4(number) => number as $type,
                    Number::Of8(number) => number as $type,
                    Number::Of16(number) => number as $type,
                }
            }

            fn over(self, least: Self) -> Option<u64> {
                u64::try_from(self.wrapping_sub(least) as $unsigned).ok()
            }

            fn low(self, least: Self) -> u64 {
                self.wrapping_sub(least) as $unsigned as u64
            }

            fn plus(self, difference: u64) -> Self {
                self.wrapping_add(difference as $unsigned as $type)
            }
        }
    };
}

whole!(i32, u32, Of4);
whole!(i64, u64, Of8);
whole!(i128, u128, Of16);

fn narrow<T: Whole>(values: &[T], nulls: Option<&NullBuffer>) -> Option<(Number, Differences)> {
    let (least, most) = match nulls {
        None => values
            .iter()
            .fold((values[0], values[0]), |(least, most), &value| (least.min(value), most.max(value))),
        // The value below a NULL may be anything.
        Some(nulls) => {
            let mut valid = nulls.valid_indices().map(|at| values[at]);
            let first = valid.next().unwrap_or(values[0]);
            valid.fold((first, first), |(least, most), value| (least.min(value), most.max(value)))
        }
    };
    let low = values.iter().map(|value| value.low(least));
    let differences = match most.over(least)? {
        0..=0xff => Differences::Of1(low.map(|low| low as u8).collect()),
        0x100..=0xffff => Differences::Of2(low.map(|low| low as u16).collect()),
        0x1_0000..=0xffff_ffff if size_of::<T>() > 4 => Differences::Of4(low.map(|low| low as u32).collect()),
        _ if size_of::<T>() > 8 => Differences::Of8(low.collect()),
        _ => return None,
    };
    Some((least.number(), differences))
}

fn added<D: ArrowNativeType + Into<u64>>(least: Number, differences: &ScalarBuffer<D>) -> Buffer {
    fn values<T: Whole, D: ArrowNativeType + Into<u64>>(least: T, differences: &[D]) -> Buffer {
        differences.iter().map(|&difference| least.plus(difference.into())).collect::<Vec<T>>().into()
    }
    match least {
        Number::Of4(least) => values(least, differences),
        Number::Of8(least) => values(least, differences),
        Number::Of16(least) => values(least, differences),
    }
}

/// Returns the memory of the values of a batch. Values that batches share count in each of them.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(array_bytes).sum()
}

/// Returns the memory of an array, like [`batch_bytes`].
pub(crate) fn array_bytes(array: &ArrayRef) -> u64 {
    let data = array.to_data();
    let bytes = data.get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size()) as u64;
    bytes + viewed_bytes(&data)
}

/// Returns the bytes of the values that views refer to, at most those of all values in their buffers.
fn viewed_bytes(data: &ArrayData) -> u64 {
    let of_children = data.child_data().iter().map(viewed_bytes).sum::<u64>();
    let [views, values @ ..] = data.buffers() else { return of_children };
    if !matches!(data.data_type(), DataType::Utf8View | DataType::BinaryView) {
        return of_children;
    }
    let views = &views.typed_data::<u128>()[data.offset()..][..data.len()];
    // The lower half of a view is the length of its value, which is in the view itself if it is short.
    let lengths = views.iter().map(|view| *view as u32).filter(|length| *length > MAX_INLINE_VIEW_LEN);
    let all = values.iter().map(|values| values.len() as u64).sum();
    lengths.map(u64::from).sum::<u64>().min(all)
}

/// Returns an array of views with one buffer of its own, instead of those of all arrays that its values come from.
pub(crate) fn with_own_values(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => array,
    }
}

/// Returns an array of `bytes` without what its buffers have besides. A coalescer makes room for a whole batch, and the
/// last one of a multitask may have a few rows. A few views may refer to the values of a whole table.
fn without_rest(array: ArrayRef, bytes: u64) -> ArrayRef {
    if array.get_buffer_memory_size() as u64 <= 2 * bytes {
        return array;
    }
    let mut array = with_own_values(array);
    array.shrink_to_fit();
    array
}

/// Returns a batch without what its buffers have besides its values.
///
/// # Errors
/// Currently none: the columns are those of a batch.
pub(crate) fn batch_without_rest(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let (schema, arrays, rows) = batch.into_parts();
    let array = |array: ArrayRef| {
        let bytes = array_bytes(&array);
        without_rest(array, bytes)
    };
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, arrays.into_iter().map(array).collect(), &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{
        Date32Array, Decimal128Array, Float64Array, Int64Array, StringViewArray, TimestampMicrosecondArray,
        UInt32Array, UInt64Array,
    };
    use datafusion::arrow::compute::concat_batches;

    /// Returns the bytes of an array when compact, and checks that it comes back, also from its middle.
    fn bytes(array: impl Array + 'static) -> u64 {
        let array: ArrayRef = Arc::new(array);
        for array in [Arc::clone(&array), array.slice(1, array.len() - 1)] {
            let batch = RecordBatch::try_from_iter([("a", array)]).unwrap();
            let compact = Compact::of(batch.clone());
            assert_eq!(compact.batch().unwrap(), batch);
            let columns = compact.columns().into_iter();
            assert_eq!(Compact::restore(&batch.schema(), batch.num_rows(), columns).unwrap(), batch);
            let parts = compact.clone().split(compact.batch_bytes.div_ceil(2));
            let parts: Vec<RecordBatch> = parts.iter().map(|part| part.batch().unwrap()).collect();
            assert_eq!(parts.len(), 2.min(batch.num_rows()));
            assert_eq!(concat_batches(&batch.schema(), &parts).unwrap(), batch);
            assert_eq!(compact.batch_bytes, batch_bytes(&compact.batch().unwrap()));
        }
        Compact::of(RecordBatch::try_from_iter([("a", array)]).unwrap()).bytes
    }

    #[test]
    fn whole_numbers_take_the_bytes_of_their_range() {
        let numbers = |range: i64| Int64Array::from_iter_values((0..100).map(|i| i64::MAX - i * range / 99));
        assert_eq!([0xff, 0x100, 0xffff, 0x1_0000].map(numbers).map(bytes), [100, 200, 200, 400]);
        assert_eq!(bytes(numbers(0xffff_ffff)), 400);
        assert_eq!(bytes(numbers(0x1_0000_0000)), 800);
        assert_eq!(bytes(Int64Array::from(vec![i64::MIN, i64::MAX])), 16);
        assert_eq!(bytes(UInt64Array::from(vec![u64::MAX, u64::MAX - 9, 1 << 63])), 24);
        assert_eq!(bytes(UInt64Array::from(vec![u64::MAX, u64::MAX - 9])), 2);
        assert_eq!(bytes(UInt32Array::from(vec![0, u32::MAX])), 2);
        assert_eq!(bytes(Date32Array::from_iter_values(10_000..10_300)), 600);
    }

    #[test]
    fn types_keep_their_parameters_and_nulls() {
        let amounts = Decimal128Array::from(vec![Some(-5), None, Some(i128::MAX)]);
        assert_eq!(bytes(amounts.with_precision_and_scale(38, 7).unwrap()), 48 + 1);
        let amounts = Decimal128Array::from(vec![Some(1 << 40), None, Some(1 << 41)]);
        assert_eq!(bytes(amounts.with_precision_and_scale(15, 2).unwrap()), 24 + 1);
        let zoned = TimestampMicrosecondArray::from(vec![Some(1 << 50), None, Some((1 << 50) + 5)]);
        assert_eq!(bytes(zoned.with_timezone("Europe/Berlin")), 3 + 1);
        assert_eq!(bytes(Int64Array::from(vec![None, None, None])), 3 + 1);
    }

    #[test]
    fn rows_of_tables_come_back_from_any_width() {
        let check = |arrays: &[ArrayRef]| {
            let columns: Vec<Column> = arrays.iter().map(|array| Column::of(Arc::clone(array)).0).collect();
            let rows: Vec<(usize, usize)> =
                (0..5).flat_map(|i| (0..arrays.len()).map(move |t| (t, (i * 7 + t) % 3))).collect();
            let expected: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
            let found = interleaved(&columns.iter().collect::<Vec<_>>(), &rows).unwrap();
            assert_eq!(&found, &interleave(&expected, &rows).unwrap());
        };
        let numbers =
            |range: i64| Arc::new(Int64Array::from(vec![Some(7 - range), None, Some(7)])) as ArrayRef;
        check(&[numbers(9), numbers(999), numbers(99_999), numbers(i64::MAX)]);
        check(&[numbers(i64::MAX), numbers(9).slice(0, 3)]);
        let amount = |range: i128| -> ArrayRef {
            let values = Decimal128Array::from_iter_values([range, 1, 0]);
            Arc::new(values.with_precision_and_scale(38, 2).unwrap())
        };
        check(&[amount(1 << 40), amount(1 << 100), amount(3)]);
        check(&[Arc::new(StringViewArray::from(vec!["a", "b", "a text of some letters"]))]);
    }

    #[test]
    fn few_views_keep_few_values() {
        let texts = (0..1000).map(|i| format!("a text that is longer than a view: {i:05}"));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let some = RecordBatch::try_from_iter([("a", texts.slice(7, 10))]).unwrap();
        assert_eq!((array_bytes(&texts), batch_bytes(&some)), (1000 * (16 + 40), 10 * (16 + 40)));
        let compact = Compact::of(some.clone());
        assert_eq!((compact.bytes, compact.batch().unwrap()), (10 * (16 + 40), some.clone()));
        for kept in [compact.batch().unwrap(), batch_without_rest(some.clone()).unwrap()] {
            assert_eq!(kept, some);
            assert!(kept.column(0).get_buffer_memory_size() <= 2 * 10 * (16 + 40));
        }
        // A thousand values of one text have its bytes once.
        let one = texts.as_string_view();
        let views = ScalarBuffer::from(vec![one.views()[0]; 1000]);
        let buffer = Buffer::from(one.value(0).as_bytes());
        let repeated: ArrayRef = Arc::new(StringViewArray::try_new(views, [buffer], None).unwrap());
        assert_eq!(array_bytes(&repeated), 1000 * 16 + 40);
        assert_eq!(Compact::of(RecordBatch::try_from_iter([("a", repeated)]).unwrap()).bytes, 1000 * 16 + 40);
    }

    #[test]
    fn other_columns_stay_as_they_are() {
        assert_eq!(bytes(Float64Array::from(vec![-0.0, 0.0, f64::NAN])), 24);
        assert_eq!(bytes(StringViewArray::from(vec!["a", "b", "c"])), 48);
        assert_eq!(bytes(StringViewArray::from(vec!["a text of 19 letters", "b"])), 2 * 16 + 20);
        let empty = RecordBatch::new_empty(Arc::new(datafusion::arrow::datatypes::Schema::empty()));
        assert_eq!(Compact::of(empty.clone()).batch().unwrap(), empty);
    }
}
