//! Types that are stored as text (UUID, JSON, BIT, ENUM) and bytes, from text.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BinaryBuilder, StringViewArray, StringViewBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;

use crate::types::cast::{How, arrow, quoted};
use crate::types::json::Json;

/// Checks texts against a type that is stored as text, and gives them their usual form.
pub(super) fn convert(texts: &StringViewArray, kind: &str, to: &DataType, how: &How) -> Result<ArrayRef> {
    let members = members(kind);
    let one = |text: &str| match kind {
        "UUID" => uuid(text),
        "JSON" => Json::parse(text).is_ok().then(|| text.to_string()),
        "BIT" => {
            (!text.is_empty() && text.bytes().all(|b| matches!(b, b'0' | b'1'))).then(|| text.to_string())
        }
        _ => members.iter().any(|member| member == text).then(|| text.to_string()),
    };
    let reason = match kind {
        "UUID" => "it is not 32 hexadecimal digits",
        "JSON" => "it is not valid JSON",
        "BIT" => "it has characters other than 0 and 1",
        _ => "it is not one of the values",
    };
    let mut values = StringViewBuilder::with_capacity(texts.len());
    for text in texts.iter() {
        values.append_option(match text {
            None => None,
            Some(text) => match one(text) {
                Some(value) => Some(value),
                None => how.misfit(&quoted(text), to, reason)?,
            },
        });
    }
    arrow(&(Arc::new(values.finish()) as ArrayRef), to, how)
}

/// Returns the values of `ENUM('a', 'b')`.
pub(in crate::types) fn members(kind: &str) -> Vec<String> {
    let Some(list) = kind.strip_prefix("ENUM('").and_then(|rest| rest.strip_suffix("')")) else {
        return Vec::new();
    };
    list.split("', '").map(|member| member.replace("''", "'")).collect()
}

/// Returns a UUID in its usual form.
fn uuid(text: &str) -> Option<String> {
    let inner = text.strip_prefix('{').map_or(Some(text), |rest| rest.strip_suffix('}'))?;
    let digits: String = inner.chars().filter(|c| *c != '-').collect::<String>().to_ascii_lowercase();
    if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    Some(parts.join("-"))
}

/// Converts text to bytes; `\xAB` is one byte, and other characters must be ASCII.
pub(super) fn bytes(texts: &StringViewArray, to: &DataType, how: &How) -> Result<ArrayRef> {
    const REASON: &str = "bytes beyond ASCII are written as \\xAB; use encode(…, 'utf-8') for text";
    let one = |text: &str| {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if c == '\\' {
                let digits = rest.strip_prefix("\\x")?.get(..2)?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[4..];
            } else {
                bytes.push(u8::try_from(c).ok().filter(u8::is_ascii)?);
                rest = &rest[1..];
            }
        }
        Some(bytes)
    };
    let mut values = BinaryBuilder::new();
    for text in texts.iter() {
        values.append_option(match text {
            None => None,
            Some(text) => match one(text) {
                Some(value) => Some(value),
                None => how.misfit(&quoted(text), to, REASON)?,
            },
        });
    }
    arrow(&(Arc::new(values.finish()) as ArrayRef), to, how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_one_form() {
        let form = Some("550e8400-e29b-41d4-a716-446655440000".to_string());
        assert_eq!(uuid("550E8400-e29b-41d4-a716-446655440000"), form);
        assert_eq!(uuid("{550e8400e29b41d4a716446655440000}"), form);
        assert_eq!(uuid("xx"), None);
    }
}
