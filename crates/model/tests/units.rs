//! Checks the text of quantities against `units.tsv`, which also tests the page's JavaScript
//! (`tests/trace/test_units.py`).

use pellucid_model::units;

#[test]
fn quantities_have_the_text_of_the_table() {
    let rows = include_str!("units.tsv").lines().filter(|row| !row.starts_with('#'));
    for row in rows {
        let [function, argument, expected] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three columns: {row}")
        };
        let value: f64 = argument.parse().expect("a number");
        let text = match function {
            "time" => units::time(value),
            "size" => units::size(value),
            "percent" => units::percent(value),
            "used" => units::used(value),
            "grouped" => units::grouped(value as u64),
            other => panic!("unknown function {other}"),
        };
        assert_eq!(text, expected, "{function}({argument})");
    }
}
