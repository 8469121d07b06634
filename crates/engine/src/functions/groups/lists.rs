//! Functions of lists: aggregates of their elements, and lambdas.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, ListArray, UInt32Array, UInt64Array, new_null_array,
};
use datafusion::arrow::compute::{cast, concat, interleave, take, take_arrays};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::utils::{adjust_offsets_for_slice, list_values, list_values_row_number};
use datafusion::common::{Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaParametersProgress, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, ValueOrLambda, Volatility,
};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::PhysicalExpr;

/// Returns the functions that need the aggregates of the session.
pub(crate) fn all(state: &SessionState) -> Vec<ScalarUDF> {
    let aggregates = state.aggregate_functions().clone();
    let signature = Signature::user_defined(Volatility::Immutable);
    vec![ScalarUDF::new_from_impl(ListAggregate { aggregates, signature })]
}

/// Returns the functions that take lambdas.
pub(crate) fn of_lambdas() -> Vec<HigherOrderUDF> {
    let signature = || HigherOrderSignature::user_defined(Volatility::Immutable);
    vec![
        HigherOrderUDF::new_from_impl(Transform { signature: signature() }),
        HigherOrderUDF::new_from_impl(Reduce { signature: signature() }),
    ]
}

/// `list_aggregate(list, 'sum')`: an aggregate of the elements of each list.
#[derive(Debug)]
struct ListAggregate {
    aggregates: HashMap<String, Arc<AggregateUDF>>,
    signature: Signature,
}

impl PartialEq for ListAggregate {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ListAggregate {}

impl Hash for ListAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        "list_aggregate".hash(state);
    }
}

/// An aggregate with the types of its arguments.
struct Call {
    aggregate: Arc<AggregateUDF>,
    fields: Vec<FieldRef>,
    result: FieldRef,
}

impl ListAggregate {
    fn call(&self, name: Option<&ScalarValue>, list: &DataType, more: &[DataType]) -> Result<Call> {
        let Some(Some(Some(name))) = name.map(ScalarValue::try_as_str) else {
            return plan_err!(
                "cannot call list_aggregate: its second argument must be the name of an aggregate in quotes"
            );
        };
        let DataType::List(element) = list else {
            return plan_err!("cannot call list_{name}: its argument is {list}; it must be a list");
        };
        let known = match name.to_lowercase().as_str() {
            "approx_count_distinct" => "approx_distinct".to_string(),
            "first" => "first_value".to_string(),
            "last" => "last_value".to_string(),
            "list" => "array_agg".to_string(),
            "variance" => "var_samp".to_string(),
            "stddev_samp" => "stddev".to_string(),
            "listagg" | "group_concat" => "string_agg".to_string(),
            other => other.to_string(),
        };
        let aggregate = self.aggregates.get(&known).ok_or_else(|| {
            plan_datafusion_err!(
                "cannot find aggregate {name} for list_aggregate; use sum, avg, min, max or count"
            )
        })?;
        let mut kinds = vec![element.data_type().clone()];
        kinds.extend(more.iter().cloned());
        if known == "string_agg" {
            kinds[0] = DataType::Utf8;
            kinds.resize(2, DataType::Utf8);
        }
        let fields: Vec<FieldRef> = kinds
            .iter()
            .enumerate()
            .map(|(n, kind)| Arc::new(Field::new(format!("x{n}"), kind.clone(), true)) as FieldRef)
            .collect();
        let fields = fields_with_udf(&fields, aggregate.as_ref())?;
        let result = aggregate.return_field(&fields)?;
        Ok(Call { aggregate: Arc::clone(aggregate), fields, result })
    }
}

impl ScalarUDFImpl for ListAggregate {
    fn name(&self) -> &str {
        "list_aggregate"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.len() < 2 {
            return plan_err!("cannot call list_aggregate: write list_aggregate(list, 'name')");
        }
        let list = match &types[0] {
            DataType::FixedSizeList(field, _) | DataType::LargeList(field) => {
                DataType::List(Arc::clone(field))
            }
            // `[]` has no type.
            DataType::Null => DataType::new_list(DataType::Int64, true),
            DataType::List(field) if field.data_type().is_null() => DataType::new_list(DataType::Int64, true),
            other => other.clone(),
        };
        Ok([list, DataType::Utf8].into_iter().chain(types[2..].iter().cloned()).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of list_aggregate depends on the name of its aggregate")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let kinds: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let name = args.scalar_arguments.get(1).copied().flatten();
        let call = self.call(name, &kinds[0], &kinds[2..])?;
        let kind = match call.aggregate.name() {
            // DataFusion's gives the type that only JSON has here.
            "string_agg" => DataType::Utf8,
            _ => call.result.data_type().clone(),
        };
        Ok(Arc::new(Field::new(self.name(), kind, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = match &args.args[1] {
            ColumnarValue::Scalar(name) => Some(name),
            ColumnarValue::Array(_) => None,
        };
        let kinds: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        let call = self.call(name, &kinds[0], &kinds[2..])?;
        let mut more: Vec<ScalarValue> = Vec::new();
        for value in &args.args[2..] {
            match value {
                ColumnarValue::Scalar(value) => more.push(value.clone()),
                ColumnarValue::Array(_) => {
                    return plan_err!("cannot call list_aggregate: its third argument must be a constant");
                }
            }
        }
        if call.fields.len() == 2 && more.is_empty() {
            more.push(ScalarValue::from(","));
        }
        let schema = Schema::new(call.fields.clone());
        let mut exprs: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(Column::new("x0", 0))];
        for (value, field) in more.iter().zip(&call.fields[1..]) {
            exprs.push(Arc::new(Literal::new(value.cast_to(field.data_type())?)));
        }
        let list = args.args[0].to_array(args.number_rows)?;
        let list = list.as_list::<i32>();
        let mut results = Vec::with_capacity(list.len());
        for row in 0..list.len() {
            if list.is_null(row) {
                results.push(ScalarValue::try_from(args.return_type())?);
                continue;
            }
            let values = cast(&list.value(row), call.fields[0].data_type())?;
            let mut columns = vec![Arc::clone(&values)];
            for (value, field) in more.iter().zip(&call.fields[1..]) {
                columns.push(value.cast_to(field.data_type())?.to_array_of_size(values.len())?);
            }
            let mut accumulator = call.aggregate.accumulator(AccumulatorArgs {
                return_field: Arc::clone(&call.result),
                schema: &schema,
                ignore_nulls: call.aggregate.name() == "any_value",
                order_bys: &[],
                is_reversed: false,
                name: "x",
                is_distinct: false,
                exprs: &exprs,
                expr_fields: &call.fields,
            })?;
            accumulator.update_batch(&columns)?;
            let value = accumulator.evaluate()?;
            results.push(match value.data_type() == *args.return_type() {
                true => value,
                false => value.cast_to(args.return_type())?,
            });
        }
        if results.is_empty() {
            return Ok(ColumnarValue::Array(new_null_array(args.return_type(), 0)));
        }
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(results)?))
    }
}

/// The type of a list's elements.
fn element(name: &str, field: Option<&ValueOrLambda<FieldRef, Option<FieldRef>>>) -> Result<FieldRef> {
    match field {
        Some(ValueOrLambda::Value(list)) => match list.data_type() {
            DataType::List(element) => Ok(Arc::new(element.as_ref().clone().with_nullable(true))),
            other => plan_err!("cannot call {name}: its first argument is {other}; it must be a list"),
        },
        _ => plan_err!("cannot call {name}: its first argument must be a list"),
    }
}

fn coerced_list(name: &str, types: &[DataType]) -> Result<Vec<DataType>> {
    let list = match types.first() {
        Some(DataType::FixedSizeList(field, _) | DataType::LargeList(field) | DataType::List(field)) => {
            DataType::List(Arc::clone(field))
        }
        Some(DataType::Null) => DataType::new_list(DataType::Null, true),
        Some(other) => {
            return plan_err!("cannot call {name}: its first argument is {other}; it must be a list");
        }
        None => return plan_err!("cannot call {name}: write {name}(list, x -> …)"),
    };
    Ok([list].into_iter().chain(types[1..].iter().cloned()).collect())
}

/// `list_transform(list, (x, i) -> …)`: `i` counts from 1.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Transform {
    signature: HigherOrderSignature,
}

impl HigherOrderUDFImpl for Transform {
    fn name(&self) -> &str {
        "array_transform"
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        coerced_list("list_transform", types)
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let index = Arc::new(Field::new("index", DataType::Int64, true));
        Ok(LambdaParametersProgress::Complete(vec![vec![element("list_transform", fields.first())?, index]]))
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs) -> Result<FieldRef> {
        let [ValueOrLambda::Value(_), ValueOrLambda::Lambda(made)] = args.arg_fields else {
            return plan_err!("cannot call list_transform: write list_transform(list, x -> …)");
        };
        Ok(Arc::new(Field::new("", DataType::new_list(made.data_type().clone(), true), true)))
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let [ValueOrLambda::Value(list), ValueOrLambda::Lambda(lambda)] = &args.args[..] else {
            return plan_err!("cannot call list_transform: write list_transform(list, x -> …)");
        };
        let DataType::List(field) = args.return_type() else {
            return plan_err!("list_transform returns a list");
        };
        let array = list.to_array(args.number_rows)?;
        let lists = array.as_list::<i32>();
        if lists.null_count() == lists.len() {
            return Ok(ColumnarValue::Array(new_null_array(args.return_type(), lists.len())));
        }
        let values = list_values(&array)?;
        let offsets = adjust_offsets_for_slice(lists);
        let indices: Int64Array =
            offsets.windows(2).flat_map(|pair| 1..=i64::from(pair[1] - pair[0])).collect();
        let indices: ArrayRef = Arc::new(indices);
        let made = lambda
            .evaluate(&[&|| Ok(Arc::clone(&values)), &|| Ok(Arc::clone(&indices))], |captured| {
                Ok(take_arrays(captured, &list_values_row_number(&array)?, None)?)
            })?
            .into_array(values.len())?;
        let made = ListArray::try_new(Arc::clone(field), offsets, made, lists.nulls().cloned())?;
        Ok(ColumnarValue::Array(Arc::new(made)))
    }
}

/// `list_reduce(list, (a, b) -> …)`, with a first value as third argument if given.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Reduce {
    signature: HigherOrderSignature,
}

impl HigherOrderUDFImpl for Reduce {
    fn name(&self) -> &str {
        "list_reduce"
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        coerced_list(self.name(), types)
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let element = element(self.name(), fields.first())?;
        // The type of the first value, then that of the lambda.
        let so_far = match (fields.get(1), fields.get(2)) {
            (Some(ValueOrLambda::Lambda(Some(made))), _) => Arc::clone(made),
            (_, Some(ValueOrLambda::Value(first))) => Arc::clone(first),
            _ => Arc::clone(&element),
        };
        let index = Arc::new(Field::new("index", DataType::Int64, true));
        let parameters = vec![Arc::new(so_far.as_ref().clone().with_nullable(true)), element, index];
        Ok(match fields.get(1) {
            Some(ValueOrLambda::Lambda(None)) => LambdaParametersProgress::Partial(vec![Some(parameters)]),
            _ => LambdaParametersProgress::Complete(vec![parameters]),
        })
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields.get(1) {
            Some(ValueOrLambda::Lambda(made)) => Ok(Arc::new(Field::new("", made.data_type().clone(), true))),
            _ => plan_err!("cannot call list_reduce: write list_reduce(list, (a, b) -> …)"),
        }
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let [ValueOrLambda::Value(list), ValueOrLambda::Lambda(lambda), more @ ..] = &args.args[..] else {
            return plan_err!("cannot call list_reduce: write list_reduce(list, (a, b) -> …)");
        };
        let result = args.return_type();
        let array = cast(&list.to_array(args.number_rows)?, &list.data_type())?;
        let lists = array.as_list::<i32>();
        let start = match more {
            [ValueOrLambda::Value(first)] => Some(cast(&first.to_array(args.number_rows)?, result)?),
            _ => None,
        };
        let length = |row: usize| if lists.is_null(row) { 0 } else { lists.value_length(row) as usize };
        let offset = |row: usize, at: usize| lists.value_offsets()[row] as u64 + at as u64;
        let longest = (0..lists.len()).map(length).max().unwrap_or(0);
        let mut first = 0;
        let mut so_far = match start {
            Some(start) => start,
            None => {
                first = 1;
                let firsts: UInt64Array =
                    (0..lists.len()).map(|row| (length(row) > 0).then(|| offset(row, 0))).collect();
                cast(&take(lists.values(), &firsts, None)?, result)?
            }
        };
        for at in first..longest {
            // The rows whose list has an element here.
            let rows: Vec<usize> = (0..lists.len()).filter(|row| length(*row) > at).collect();
            let chosen: UInt32Array = rows.iter().map(|row| u32::try_from(*row).ok()).collect();
            let elements: UInt64Array = rows.iter().map(|row| Some(offset(*row, at))).collect();
            let (a, b) = (take(&so_far, &chosen, None)?, take(lists.values(), &elements, None)?);
            let index: ArrayRef = Arc::new(Int64Array::from(vec![at as i64 + 1 - first as i64; rows.len()]));
            let made = lambda
                .evaluate(
                    &[&|| Ok(Arc::clone(&a)), &|| Ok(Arc::clone(&b)), &|| Ok(Arc::clone(&index))],
                    |captured| Ok(take_arrays(captured, &chosen, None)?),
                )?
                .into_array(rows.len())?;
            let made = cast(&made, result)?;
            let mut places: Vec<(usize, usize)> = (0..so_far.len()).map(|row| (0, row)).collect();
            for (place, row) in rows.iter().enumerate() {
                places[*row] = (1, place);
            }
            so_far = interleave(&[so_far.as_ref(), made.as_ref()], &places)?;
        }
        let nulls: UInt32Array =
            (0..lists.len()).map(|row| lists.is_valid(row).then_some(row as u32)).collect();
        let made = take(&so_far, &nulls, None)?;
        Ok(ColumnarValue::Array(concat(&[made.as_ref()])?))
    }
}
