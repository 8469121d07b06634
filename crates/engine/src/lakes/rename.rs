//! Renames the fields of nested columns, from the names in files to those of the table.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StructArray};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// A function that gives the fields of a value other names.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RenamedFields {
    to: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for RenamedFields {
    fn name(&self) -> &str {
        "renamed_fields"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let array = arrays.first().ok_or_else(|| exec_datafusion_err!("renamed_fields has no argument"))?;
        renamed(array, &self.to).map(ColumnarValue::Array)
    }
}

/// Returns `value` with the names of `to`, whose types are the same.
pub(super) fn expression(
    value: Arc<dyn PhysicalExpr>,
    to: &FieldRef,
    options: &Arc<ConfigOptions>,
) -> Arc<dyn PhysicalExpr> {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = ScalarUDF::from(RenamedFields { to: to.data_type().clone(), signature });
    let name = format!("renamed_fields({})", to.name());
    Arc::new(ScalarFunctionExpr::new(
        &name,
        Arc::new(function),
        vec![value],
        Arc::clone(to),
        Arc::clone(options),
    ))
}

/// Returns `array` with the names of `to`.
fn renamed(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    let nulls = array.nulls().cloned();
    Ok(match (array.data_type(), to) {
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let columns = array.as_struct().columns().iter().zip(fields);
            let columns = columns.map(|(c, f)| renamed(c, f.data_type())).collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len())?)
        }
        (DataType::List(_), DataType::List(element)) => {
            let list = array.as_list::<i32>();
            let values = renamed(list.values(), element.data_type())?;
            Arc::new(ListArray::try_new(Arc::clone(element), list.offsets().clone(), values, nulls)?)
        }
        (DataType::Map(..), DataType::Map(entry, sorted)) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            let entries = renamed(&entries, entry.data_type())?.as_struct().clone();
            Arc::new(MapArray::try_new(Arc::clone(entry), map.offsets().clone(), entries, nulls, *sorted)?)
        }
        (from, to) => {
            return Err(exec_datafusion_err!("cannot rename the fields of {from} to those of {to}"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::Int32Array;
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::datatypes::Field;

    #[test]
    fn fields_within_lists_are_renamed() {
        let nested = |name: &str| {
            let field = Arc::new(Field::new(name, DataType::Int32, true));
            Arc::new(Field::new("element", DataType::Struct(vec![field].into()), true))
        };
        let DataType::Struct(fields) = nested("a").data_type().clone() else { unreachable!() };
        let values =
            StructArray::new(fields, vec![Arc::new(Int32Array::from(vec![1, 2, 3])) as ArrayRef], None);
        let offsets = OffsetBuffer::from_lengths([2, 1]);
        let list: ArrayRef = Arc::new(ListArray::new(nested("a"), offsets, Arc::new(values), None));
        let to = DataType::List(nested("b"));
        let renamed = renamed(&list, &to).unwrap();
        assert_eq!((renamed.data_type(), renamed.len()), (&to, 2));
        assert!(super::renamed(&list, &DataType::Int32).is_err());
    }
}
