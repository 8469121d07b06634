//! Functions of text and of the digits of numbers.

use std::borrow::Cow;
use std::collections::HashSet;

use icu_normalizer::ComposingNormalizerBorrowed;
use sha1::{Digest, Sha1};

use crate::functions::rows::Kind::{Any, Blob, Boolean, Double, Integer, Text, Texts};
use crate::functions::rows::format::pad;
use crate::functions::rows::{Function, Value};

/// Letters with an accent, each before the letter without it.
const ACCENTS: &str = "ÀAÁAÂAÃAÄAÅAÇCÈEÉEÊEËEÌIÍIÎIÏIÑNÒOÓOÔOÕOÖOÙUÚUÛUÜUÝYàaáaâaãaäaåaçcèeéeêeëeìiíiîiïiñnòoóoôoõoöoùuúuûuüuýyÿyĀAāaĂAăaĄAąa\
ĆCćcĈCĉcĊCċcČCčcĎDďdĒEēeĔEĕeĖEėeĘEęeĚEěeĜGĝgĞGğgĠGġgĢGģgĤHĥhĨIĩiĪIīiĬIĭiĮIįiİIĴJĵjĶKķkĹLĺlĻLļlĽLľlŃNńnŅNņnŇNňnŌOōoŎOŏoŐOőo\
ŔRŕrŖRŗrŘRřrŚSśsŜSŝsŞSşsŠSšsŢTţtŤTťtŨUũuŪUūuŬUŭuŮUůuŰUűuŲUųuŴWŵwŶYŷyŸYŹZźzŻZżzŽZžzȘSșsȚTțt";

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::new(&["damerau_levenshtein"], &[Text, Text], Integer, |_, v| {
        Ok(count(strsim::damerau_levenshtein(v[0].text(), v[1].text())))
    }),
    Function::new(&["hamming", "mismatches"], &[Text, Text], Integer, |_, v| {
        let found = strsim::hamming(v[0].text(), v[1].text());
        found.map(count).map_err(|_| "the texts must have the same length".to_string())
    }),
    Function::new(&["jaccard"], &[Text, Text], Double, |_, v| {
        let [a, b]: [HashSet<char>; 2] = [v[0].text().chars().collect(), v[1].text().chars().collect()];
        if a.is_empty() || b.is_empty() {
            return Err("a text must not be empty".to_string());
        }
        Ok(Value::Double(a.intersection(&b).count() as f64 / a.union(&b).count() as f64))
    }),
    Function::new(&["jaro_similarity"], &[Text, Text], Double, |_, v| {
        Ok(Value::Double(strsim::jaro(v[0].text(), v[1].text())))
    }),
    Function::new(&["jaro_winkler_similarity"], &[Text, Text], Double, |_, v| {
        Ok(Value::Double(strsim::jaro_winkler(v[0].text(), v[1].text())))
    }),
    Function::new(
        &["string_split", "str_split", "string_to_array", "split"],
        &[Text, Text],
        Texts,
        |_, v| {
            let Value::Text(text) = &v[0] else { return Ok(Value::Null) };
            let parts: Vec<String> = match &v[1] {
                Value::Text(by) if by.is_empty() => text.chars().map(String::from).collect(),
                Value::Text(by) => text.split(by.as_ref()).map(str::to_string).collect(),
                _ => vec![text.to_string()],
            };
            Ok(Value::Texts(parts.into_iter().map(Some).collect()))
        },
    )
    .with_nulls(),
    Function::new(&["split_part"], &[Text, Text, Integer], Text, |_, v| {
        let by = v[1].text();
        let text = v[0].text();
        let parts: Vec<&str> = match by {
            "" => text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]).collect(),
            by => text.split(by).collect(),
        };
        let at = v[2].integer();
        let at = if at < 0 { parts.len() as i64 + at } else { at - 1 };
        Ok(usize::try_from(at).ok().and_then(|at| parts.get(at)).map_or("", |part| *part).to_string().into())
    }),
    // Positions before the first character count, as in DuckDB.
    Function::new(&["pellucid_substr"], &[Text, Integer, Integer], Text, |_, v| {
        let characters: Vec<char> = v[0].text().chars().collect();
        let length = characters.len() as i64;
        let start = v[1].integer();
        let from = if start < 0 { length + start } else { start - 1 };
        let (from, to) = match v.get(2).map(Value::integer) {
            None => (from, length),
            Some(more) if more < 0 => (from.saturating_add(more), from),
            Some(more) => (from, from.saturating_add(more)),
        };
        Ok(part(&characters, from, to).into())
    })
    .optional(1),
    // The characters from one position to another; NULL is the start or the end.
    Function::new(&["pellucid_slice"], &[Text, Integer, Integer], Text, |_, v| {
        let Value::Text(text) = &v[0] else { return Ok(Value::Null) };
        let characters: Vec<char> = text.chars().collect();
        let length = characters.len() as i64;
        let position = |value: &Value<'_>, none: i64| match value {
            Value::Integer(at) if *at < 0 => length + at + 1,
            Value::Integer(at) => *at,
            _ => none,
        };
        Ok(part(&characters, position(&v[1], 1) - 1, position(&v[2], length)).into())
    })
    .with_nulls(),
    Function::new(&["pellucid_hex"], &[Any], Text, |_, v| match &v[0] {
        Value::Integer(number) => Ok(format!("{number:X}").into()),
        Value::Text(text) => Ok(text.bytes().map(|byte| format!("{byte:02X}")).collect::<String>().into()),
        _ => Err("the argument must be a whole number, text or binary data".to_string()),
    }),
    Function::new(&["bin", "to_binary"], &[Any], Text, |_, v| match &v[0] {
        Value::Integer(number) => Ok(format!("{number:b}").into()),
        Value::Text(text) => Ok(text.bytes().map(|byte| format!("{byte:08b}")).collect::<String>().into()),
        _ => Err("the argument must be a whole number or text".to_string()),
    }),
    Function::new(&["to_base"], &[Integer, Integer, Integer], Text, |_, v| {
        let (mut number, radix) = (v[0].integer(), v[1].integer());
        if number < 0 || !(2..=36).contains(&radix) {
            return Err("the number must not be negative, and the base from 2 to 36".to_string());
        }
        let mut digits = Vec::new();
        while number > 0 || digits.is_empty() {
            let digit = char::from_digit((number % radix) as u32, 36).unwrap_or('0');
            digits.push(digit.to_ascii_uppercase());
            number /= radix;
        }
        let text: String = digits.iter().rev().collect();
        Ok(pad(&text, usize::try_from(v.get(2).map_or(0, Value::integer)).unwrap_or(0)).into())
    })
    .optional(1),
    Function::new(&["url_encode"], &[Text], Text, |_, v| {
        let encoded = |byte: u8| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        };
        Ok(v[0].text().bytes().map(encoded).collect::<String>().into())
    }),
    Function::new(&["url_decode"], &[Text], Text, |_, v| {
        let mut bytes = Vec::new();
        let mut rest = v[0].text().bytes();
        while let Some(byte) = rest.next() {
            let ahead = rest.clone().take(2).map(char::from).collect::<String>();
            match u8::from_str_radix(&ahead, 16) {
                Ok(decoded) if byte == b'%' && ahead.len() == 2 => {
                    bytes.push(decoded);
                    rest.nth(1);
                }
                _ => bytes.push(byte),
            }
        }
        String::from_utf8(bytes).map(Value::from).map_err(|_| "the bytes are not UTF-8".to_string())
    }),
    Function::new(&["strip_accents"], &[Text], Text, |_, v| {
        let plain = |c: char| {
            let accents = || ACCENTS.chars().step_by(2).zip(ACCENTS.chars().skip(1).step_by(2));
            if c.is_ascii() {
                c
            } else {
                accents().find(|(with, _)| *with == c).map_or(c, |(_, plain)| plain)
            }
        };
        Ok(v[0].text().chars().map(plain).collect::<String>().into())
    }),
    Function::new(&["bar"], &[Double, Double, Double, Double], Text, |_, v| {
        let (x, min, max) = (v[0].double(), v[1].double(), v[2].double());
        let width = v.get(3).map_or(80.0, Value::double);
        if !(1.0..=1000.0).contains(&width) || max <= min {
            return Err("the width must be from 1 to 1000, and the maximum above the minimum".to_string());
        }
        let eighths = ((x.clamp(min, max) - min) / (max - min) * width * 8.0) as usize;
        let mut text = "█".repeat(eighths / 8);
        text.extend(" ▏▎▍▌▋▊▉".chars().nth(eighths % 8).filter(|c| *c != ' '));
        let missing = (width as usize).saturating_sub(text.chars().count());
        Ok((text + &" ".repeat(missing)).into())
    })
    .optional(1),
    Function::new(&["format_bytes", "pg_size_pretty", "formatreadablesize"], &[Integer], Text, |_, v| {
        Ok(size(v[0].integer(), 1024.0, &["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]).into())
    }),
    Function::new(&["formatreadabledecimalsize"], &[Integer], Text, |_, v| {
        Ok(size(v[0].integer(), 1000.0, &["kB", "MB", "GB", "TB", "PB", "EB"]).into())
    }),
    Function::new(&["parse_filename"], &[Text, Boolean], Text, |_, v| {
        let name = v[0].text().rsplit('/').next().unwrap_or_default();
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let bare = matches!(v.get(1), Some(Value::Boolean(true)));
        Ok((if bare { stem } else { name }).to_string().into())
    })
    .optional(1),
    Function::new(&["parse_dirname"], &[Text], Text, |_, v| {
        Ok(v[0].text().split_once('/').map_or("", |(first, _)| first).to_string().into())
    }),
    Function::new(&["parse_dirpath"], &[Text], Text, |_, v| {
        Ok(v[0].text().rsplit_once('/').map_or("", |(folder, _)| folder).to_string().into())
    }),
    Function::new(&["parse_path"], &[Text], Texts, |_, v| {
        let root = v[0].text().starts_with('/').then(|| "/".to_string());
        let parts = v[0].text().split('/').filter(|part| !part.is_empty()).map(str::to_string);
        Ok(Value::Texts(root.into_iter().chain(parts).map(Some).collect()))
    }),
    Function::new(&["unicode", "ord"], &[Text], Integer, |_, v| {
        Ok(Value::Integer(v[0].text().chars().next().map_or(-1, |c| i64::from(u32::from(c)))))
    }),
    Function::new(&["pellucid_bytes"], &[Blob], Integer, |_, v| match &v[0] {
        Value::Blob(bytes) => Ok(count(bytes.len())),
        _ => Ok(Value::Null),
    }),
    Function::new(&["pellucid_shown"], &[Any], Text, |_, v| {
        Ok(match &v[0] {
            Value::Text(text) => Value::Text(Cow::Owned(text.to_string())),
            Value::Integer(number) => number.to_string().into(),
            Value::Boolean(is) => is.to_string().into(),
            Value::Decimal(text) => text.clone().into(),
            other => crate::functions::rows::format::shortest(other.double()).into(),
        })
    }),
    Function::new(&["pellucid_sqrt"], &[Double], Double, |_, v| match v[0].double() {
        x if x < 0.0 => Err("cannot compute the square root of a negative number".to_string()),
        x => Ok(Value::Double(x.sqrt())),
    }),
    Function::new(&["pellucid_ln"], &[Double], Double, |_, v| positive(&v[0], f64::ln)),
    Function::new(&["pellucid_log2"], &[Double], Double, |_, v| positive(&v[0], f64::log2)),
    Function::new(&["pellucid_log10"], &[Double], Double, |_, v| positive(&v[0], f64::log10)),
    Function::new(&["gamma"], &[Double], Double, |_, v| match v[0].double() {
        0.0 => Err("the argument must not be zero".to_string()),
        x => Ok(Value::Double(libm::tgamma(x))),
    }),
    Function::new(&["lgamma"], &[Double], Double, |_, v| match v[0].double() {
        0.0 => Err("the argument must not be zero".to_string()),
        x => Ok(Value::Double(libm::lgamma(x))),
    }),
    Function::new(&["nextafter"], &[Double, Double], Double, |_, v| {
        let (x, to) = (v[0].double(), v[1].double());
        Ok(Value::Double(match x.partial_cmp(&to) {
            Some(std::cmp::Ordering::Less) => x.next_up(),
            Some(std::cmp::Ordering::Greater) => x.next_down(),
            _ => to,
        }))
    }),
    Function::new(&["signbit"], &[Double], Boolean, |_, v| {
        Ok(Value::Boolean(v[0].double().is_sign_negative()))
    }),
    Function::new(&["error"], &[Text], Text, |_, v| Err(v[0].text().to_string())),
    Function::new(&["sha1"], &[Blob], Text, |_, v| {
        let Value::Blob(bytes) = &v[0] else { return Ok(Value::Null) };
        Ok(Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
    }),
    Function::new(&["unbin", "from_binary"], &[Text], Blob, |_, v| {
        let digits = v[0].text();
        let wrong = || format!("`{digits}` has characters other than 0 and 1");
        let bits = digits.chars().map(|c| c.to_digit(2).ok_or_else(wrong)).collect::<Result<Vec<_>, _>>()?;
        let bytes =
            bits.rchunks(8).rev().map(|bits| bits.iter().fold(0, |byte, bit| (byte << 1) | *bit as u8));
        Ok(Value::Blob(Cow::Owned(bytes.collect())))
    }),
    Function::new(&["nfc_normalize"], &[Text], Text, |_, v| {
        Ok(ComposingNormalizerBorrowed::new_nfc().normalize(v[0].text()).into_owned().into())
    }),
    Function::new(&["bit_count"], &[Integer], Integer, |_, v| {
        Ok(Value::Integer(v[0].integer().count_ones().into()))
    }),
];

fn positive<'a>(x: &Value<'_>, logarithm: fn(f64) -> f64) -> Result<Value<'a>, String> {
    match x.double() {
        0.0 => Err("cannot compute the logarithm of zero".to_string()),
        x if x < 0.0 => Err("cannot compute the logarithm of a negative number".to_string()),
        x => Ok(Value::Double(logarithm(x))),
    }
}

fn count(number: usize) -> Value<'static> {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Returns the characters from one index to another, as far as they exist.
fn part(characters: &[char], from: i64, to: i64) -> String {
    let within = |at: i64| usize::try_from(at).unwrap_or(0).min(characters.len());
    let (from, to) = (within(from), within(to));
    if from < to { characters[from..to].iter().collect() } else { String::new() }
}

/// Formats a number of bytes with one decimal, cut off.
fn size(bytes: i64, base: f64, units: &[&str]) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    let mut amount = bytes.unsigned_abs() as f64;
    if amount < base {
        return format!("{sign}{amount} {}", if amount == 1.0 { "byte" } else { "bytes" });
    }
    let mut unit = 0;
    amount /= base;
    while amount >= base && unit + 1 < units.len() {
        amount /= base;
        unit += 1;
    }
    format!("{sign}{:.1} {}", (amount * 10.0).trunc() / 10.0, units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_decimal() {
        let binary = |bytes| size(bytes, 1024.0, &["KiB", "MiB"]);
        assert_eq!(
            [binary(1), binary(1023), binary(1024), binary(1_234_567)].join(" "),
            "1 byte 1023 bytes 1.0 KiB 1.1 MiB"
        );
    }

    #[test]
    fn accents_are_pairs_of_letters() {
        assert_eq!(ACCENTS.chars().count() % 2, 0);
        let plain = ACCENTS.chars().skip(1).step_by(2);
        assert!(plain.clone().all(|c| c.is_ascii()), "{:?}", plain.collect::<String>());
    }
}
