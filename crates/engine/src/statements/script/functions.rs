//! Functions that read the state of a session: `getvariable`, `nextval`, `currval`.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::Int64Array;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::statements::script::state::Sequence;
use crate::sync::lock;

type Variables = Arc<Mutex<HashMap<String, ScalarValue>>>;
type Sequences = Arc<Mutex<HashMap<String, Sequence>>>;

/// Returns the functions.
pub(crate) fn all(variables: &Variables, sequences: &Sequences) -> Vec<ScalarUDF> {
    let sequence = |name: &'static str| SequenceValue {
        name,
        sequences: Arc::clone(sequences),
        signature: Signature::string(1, Volatility::Volatile),
    };
    let variable =
        Variable { variables: Arc::clone(variables), signature: Signature::string(1, Volatility::Stable) };
    vec![
        ScalarUDF::new_from_impl(variable),
        ScalarUDF::new_from_impl(sequence("nextval")),
        ScalarUDF::new_from_impl(sequence("currval")),
    ]
}

/// Returns the text of a literal argument.
fn literal(value: Option<&ScalarValue>) -> Option<String> {
    value.and_then(|value| value.try_as_str().flatten().map(str::to_lowercase))
}

/// `getvariable('name')`: the value of SET VARIABLE; NULL if there is none.
#[derive(Debug)]
struct Variable {
    variables: Variables,
    signature: Signature,
}

impl PartialEq for Variable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Variable {}

impl Hash for Variable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        "getvariable".hash(state);
    }
}

impl Variable {
    fn get(&self, name: Option<String>) -> ScalarValue {
        name.and_then(|name| lock(&self.variables).get(&name).cloned()).unwrap_or(ScalarValue::Null)
    }
}

impl ScalarUDFImpl for Variable {
    fn name(&self) -> &str {
        "getvariable"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("getvariable needs the name of a variable in single quotes")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let Some(name) = literal(args.scalar_arguments.first().copied().flatten()) else {
            return plan_err!("getvariable needs the name of a variable in single quotes");
        };
        Ok(Arc::new(Field::new(self.name(), self.get(Some(name)).data_type(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = match args.args.first() {
            Some(ColumnarValue::Scalar(value)) => literal(Some(value)),
            _ => None,
        };
        Ok(ColumnarValue::Scalar(self.get(name)))
    }
}

/// `nextval('sequence')` and `currval('sequence')`.
#[derive(Debug)]
struct SequenceValue {
    name: &'static str,
    sequences: Sequences,
    signature: Signature,
}

impl PartialEq for SequenceValue {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SequenceValue {}

impl Hash for SequenceValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for SequenceValue {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = match args.args.first() {
            Some(ColumnarValue::Scalar(value)) => literal(Some(value)).unwrap_or_default(),
            _ => return exec_err!("{} needs the name of a sequence in single quotes", self.name),
        };
        let mut sequences = lock(&self.sequences);
        let Some(sequence) = sequences.get_mut(&name) else {
            return exec_err!("cannot find sequence {name}; create it with CREATE SEQUENCE {name}");
        };
        if self.name == "currval" {
            return match sequence.last {
                Some(last) => Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(last)))),
                None => exec_err!(
                    "cannot read sequence {name}: it has no value yet; call nextval('{name}') first"
                ),
            };
        }
        let mut values = Vec::with_capacity(args.number_rows);
        for _ in 0..args.number_rows {
            match sequence.next() {
                Ok(value) => values.push(value),
                Err(name) => {
                    return exec_err!(
                        "cannot read sequence {name}: it has reached its end; create it with CYCLE or a larger MAXVALUE"
                    );
                }
            }
        }
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(values))))
    }
}
