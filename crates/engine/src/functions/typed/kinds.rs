//! `typeof` and `pg_typeof`: the name of a value's type, also of one that is stored as text.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::types::names::name_of;

/// Returns the functions, for registration.
pub(crate) fn all() -> [ScalarUDF; 2] {
    ["typeof", "pg_typeof"].map(|name| {
        ScalarUDF::new_from_impl(TypeOf { name, signature: Signature::any(1, Volatility::Immutable) })
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeOf {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let kind = name_of(&args.arg_fields[0]);
        // PostgreSQL's names are in lower case.
        let kind = if self.name == "typeof" { kind } else { kind.to_lowercase() };
        Ok(ColumnarValue::Scalar(ScalarValue::from(kind)))
    }
}
