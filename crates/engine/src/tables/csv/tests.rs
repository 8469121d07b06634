//! Tests of CSV files: dialects, types, damaged and ragged lines.

use bytes::Bytes;

use super::CsvOptions;
use super::sniff::sniff;
use crate::tables::text::sample::Sample;
use crate::types::names;

/// Returns the separators, the names with their types, and the text before the first record.
fn sniffed(text: &str, options: &CsvOptions) -> (String, String, usize) {
    let sample = Sample { head: Bytes::from(text.to_string()), whole: true, blocks: Vec::new() };
    let found = sniff("f.csv", &sample, options).unwrap();
    let columns = found.names.iter().zip(&found.guesses);
    let columns: Vec<String> =
        columns.map(|(name, guess)| format!("{name} {}", names::name(&guess.decide().0))).collect();
    let delimiter = String::from_utf8(found.separators.delimiter).unwrap();
    (delimiter, columns.join(", "), usize::try_from(found.first_record).unwrap())
}

#[test]
fn dialect_header_and_types_are_found() {
    for (text, delimiter, columns, first) in [
        ("a,b\n1,x\n", ",", "a BIGINT, b VARCHAR", 4),
        ("id|name\n1|Ann\n", "|", "id BIGINT, name VARCHAR", 8),
        ("a;b\n1,5;2\n2,5;3\n", ";", "a VARCHAR, b BIGINT", 4),
        ("a\tb\n1\tx, y\n2\tz\n", "\t", "a BIGINT, b VARCHAR", 4),
        ("2024-01-01,x\n2024-01-02,y\n", ",", "column0 DATE, column1 VARCHAR", 0),
        ("1,2\n", ",", "column0 BIGINT, column1 BIGINT", 0),
        ("a,b\nc,d\n", ",", "a VARCHAR, b VARCHAR", 4),
        ("a,b\n", ",", "a VARCHAR, b VARCHAR", 4),
        ("id,\n1,2\n", ",", "id BIGINT, column1 BIGINT", 4),
        ("a,A,a\n1,2,3\n", ",", "a BIGINT, A_1 BIGINT, a_2 BIGINT", 6),
        ("a,a,a_1\n1,2,3\n", ",", "a BIGINT, a_1 BIGINT, a_1_1 BIGINT", 8),
        ("\u{feff}k,w\na,1\n", ",", "k VARCHAR, w BIGINT", 7),
        ("some report\n\na,b\n1,2\n3,4\n", ",", "a BIGINT, b BIGINT", 17),
        ("# x\na,b\n1,2\n# y\n3,4\n", ",", "a BIGINT, b BIGINT", 8),
        ("a,b\n'x, y',1\n'z',2\n", ",", "a VARCHAR, b BIGINT", 4),
        ("a,b\n\"x \\\"y\\\"\",1\n\"z\",2\n", ",", "a VARCHAR, b BIGINT", 4),
        ("City\nLyon\nOslo\n", ",", "City VARCHAR", 5),
        ("a,b\n1,2\n3\n4,5\n", ",", "a BIGINT, b BIGINT", 4),
    ] {
        let expected = (delimiter.to_string(), columns.to_string(), first);
        assert_eq!(sniffed(text, &CsvOptions::default()), expected, "{text:?}");
    }
}

#[test]
fn options_take_precedence() {
    let options = CsvOptions { header: Some(false), names: vec!["q".to_string()], ..CsvOptions::default() };
    assert_eq!(sniffed("a,b\n1,2\n", &options).1, "q VARCHAR, column1 VARCHAR");
    let options = CsvOptions { skip: Some(1), nulls: vec![b"NA".to_vec()], ..CsvOptions::default() };
    assert_eq!(sniffed("x\nv\n1\nNA\n", &options).1, "v BIGINT");
    let options = CsvOptions { normalize_names: true, ..CsvOptions::default() };
    assert_eq!(
        sniffed("First Name,1st,select\n1,2,3\n", &options).1,
        "first_name BIGINT, _1st BIGINT, _select BIGINT"
    );
}

#[test]
fn text_in_another_encoding_is_refused_with_its_line() {
    let sample = Sample { head: Bytes::from_static(b"a\nM\xfcller\n"), whole: true, blocks: Vec::new() };
    let error = sniff("f.csv", &sample, &CsvOptions::default()).unwrap_err().to_string();
    assert!(error.contains("cannot read f.csv, line 2") && error.contains("encoding"), "{error}");
}
