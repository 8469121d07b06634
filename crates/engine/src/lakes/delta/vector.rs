//! The places of deletion vectors.

use datafusion::common::Result;

use super::actions::VectorAction;
use crate::lakes::Root;
use crate::lakes::files::{Vector, VectorPlace};

/// Characters of a UUID in base 85.
const UUID_CHARACTERS: usize = 20;
/// The digits of base 85, as ZeroMQ has them.
const DIGITS: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Parses the place of a deletion vector.
///
/// # Errors
/// Returns an error if the description is damaged, or of an unknown kind.
pub(super) fn parse(root: &Root, action: &VectorAction) -> Result<Vector> {
    let invalid = || {
        root.error(format!(
            "its log has an invalid deletion vector ({} {}); restore it from a copy",
            action.storage_type, action.path_or_inline_dv
        ))
    };
    let number = |value: i64| u64::try_from(value).map_err(|_| invalid());
    let (bytes, count) = (number(action.size_in_bytes)?, number(action.cardinality)?);
    let stored = |file| {
        let offset = number(action.offset.unwrap_or(0))?;
        Ok::<_, datafusion::common::DataFusionError>(VectorPlace::Stored { file, offset, bytes })
    };
    let text = action.path_or_inline_dv.as_str();
    let place = match action.storage_type.as_str() {
        "i" => {
            let mut vector = decode(text).ok_or_else(invalid)?;
            if (vector.len() as u64) < bytes {
                return Err(invalid());
            }
            // The text is padded.
            vector.truncate(bytes as usize);
            VectorPlace::Inline(vector)
        }
        "u" => {
            let at = text.len().checked_sub(UUID_CHARACTERS).filter(|at| text.is_char_boundary(*at));
            let (prefix, uuid) = text.split_at(at.ok_or_else(invalid)?);
            let uuid = uuid_of(uuid).ok_or_else(invalid)?;
            let slash = if prefix.is_empty() { "" } else { "/" };
            stored(root.below(&format!("{prefix}{slash}deletion_vector_{uuid}.bin"))?)?
        }
        "p" => stored(super::place(root, text)?)?,
        _ => return Err(invalid()),
    };
    Ok(Vector { place, count })
}

/// Decodes base 85.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 5 * 4);
    for digits in text.as_bytes().chunks(5) {
        if digits.len() < 5 {
            return None;
        }
        let mut word = 0u64;
        for digit in digits {
            word = word * 85 + DIGITS.iter().position(|known| known == digit)? as u64;
        }
        bytes.extend(u32::try_from(word).ok()?.to_be_bytes());
    }
    Some(bytes)
}

/// Returns the usual text of a UUID in base 85.
fn uuid_of(text: &str) -> Option<String> {
    let hex: String = decode(text)?.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range| hex.get(range);
    Some(format!("{}-{}-{}-{}-{}", part(0..8)?, part(8..12)?, part(12..16)?, part(16..20)?, part(20..32)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lakes::root::tests::root;

    #[test]
    fn examples_of_the_specification() {
        let action = |storage_type: &str, text: &str| VectorAction {
            storage_type: storage_type.to_string(),
            path_or_inline_dv: text.to_string(),
            offset: Some(4),
            size_in_bytes: 40,
            cardinality: 6,
        };
        let vector = parse(&root(), &action("u", "ab^-aqEH.-t@S}K{vb[*k^")).unwrap();
        let VectorPlace::Stored { file, offset, bytes } = vector.place else { panic!("{vector:?}") };
        assert_eq!(file.as_ref(), "w/t/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin");
        assert_eq!((offset, bytes, vector.count), (4, 40, 6));
        let inline = action("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L");
        let VectorPlace::Inline(bytes) = parse(&root(), &inline).unwrap().place else { panic!() };
        assert_eq!(crate::lakes::bitmap::native_values(&bytes[4..]).unwrap(), [3, 4, 7, 11, 18, 29]);
        for bad in [action("i", "wi5b"), action("u", "short"), action("x", ""), action("i", "\"\"\"\"\"")] {
            assert!(parse(&root(), &bad).is_err(), "{bad:?}");
        }
    }
}
