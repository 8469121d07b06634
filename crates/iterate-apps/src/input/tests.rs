//! Tests of reading tables and graphs, and of the errors for invalid ones.

use super::*;
use crate::kernels::random::Random;
use arrow::array::{ArrayRef, Float64Array, Int32Array, StringArray};
use std::sync::Arc;
use tempfile::TempDir;

fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).expect("a file for a test");
    path
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder for a test")
}

fn read(table: &Table, rows: Range<usize>, columns: &[&str]) -> Result<Vec<Vec<f64>>, InputError> {
    let columns: Vec<String> = columns.iter().map(|name| name.to_string()).collect();
    let mut out = vec![vec![f64::NAN; columns.len()]; rows.len()];
    table.read(rows, &columns, &mut |row, column, value| out[row][column] = value)?;
    Ok(out)
}

fn message<T>(result: Result<T, InputError>) -> String {
    match result {
        Ok(_) => panic!("bad input was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn all_formats_return_the_same_rows_for_any_range() -> Result<(), InputError> {
    let folder = folder();
    let mut random = Random::new(4);
    let rows: Vec<[f64; 3]> =
        (0..10_000).map(|_| [random.normal(), random.below(9) as f64, random.unit()]).collect();
    let text: String = rows.iter().map(|[a, b, c]| format!("{a},{b},x,{c}\r\n")).collect();
    let csv = Table::open(&file(&folder, "a.csv", &format!("a, \"b\" ,text,c\n{text}")))?;
    let parts = folder.path().join("parts");
    fs::create_dir(&parts).expect("a folder for a test");
    for (number, rows) in rows.chunks(3_001).enumerate() {
        let column =
            |at: usize| Arc::new(rows.iter().map(|row| row[at]).collect::<Float64Array>()) as ArrayRef;
        let b = Arc::new(rows.iter().map(|row| row[1] as i32).collect::<Int32Array>()) as ArrayRef;
        let texts = Arc::new(StringArray::from(vec!["x"; rows.len()])) as ArrayRef;
        let columns = vec![("a", column(0)), ("b", b), ("text", texts), ("c", column(2))];
        results::write(&parts.join(format!("{number}.parquet")), [columns].into_iter())?;
    }
    let parquet = Table::open(&parts)?;
    for table in [&csv, &parquet] {
        assert_eq!(
            (table.rows(), table.numeric_columns()),
            (10_000, vec!["a".into(), "b".into(), "c".into()])
        );
        for _ in 0..50 {
            let (x, y) = (random.below(10_001) as usize, random.below(10_001) as usize);
            let range = x.min(y)..x.max(y);
            let expected: Vec<Vec<f64>> =
                rows[range.clone()].iter().map(|[a, b, c]| vec![*c, *a, *b]).collect();
            assert_eq!(read(table, range, &["c", "a", "b"])?, expected);
        }
    }
    Ok(())
}

#[test]
fn patterns_expand_to_matching_files() -> Result<(), InputError> {
    let folder = folder();
    for (name, text) in [("a1.csv", "x\n1\n"), ("a2.csv", "x\n2\n3\n"), ("b.csv", "y\n4\n")] {
        file(&folder, name, text);
    }
    let table = Table::open(&folder.path().join("a*.csv"))?;
    assert_eq!(read(&table, 0..3, &["x"])?, [[1.0], [2.0], [3.0]]);
    let none = message(Table::open(&folder.path().join("c*.csv")));
    assert!(none.contains("c*.csv: no file matches it"), "{none}");
    file(&folder, "1.el", "1 2\n");
    file(&folder, "2.el", "2 3\n");
    assert_eq!(edges::read(&folder.path().join("?.el"), None)?.vertices, [2, 1, 3]);
    assert!(message(edges::read(&folder.path().join("*.none"), None)).contains("no file matches"));
    Ok(())
}

#[test]
fn partitions_cover_each_row_once() -> Result<(), InputError> {
    let folder = folder();
    let table = Table::open(&file(&folder, "a.csv", &"1\n".repeat(1000)))?;
    assert_eq!(table.numeric_columns(), ["c1"]);
    for partitions in [1, 3, 7, 1000] {
        let ranges: Vec<Range<usize>> = (0..partitions).map(|at| table.range(at, partitions)).collect();
        assert!(ranges.iter().all(|range| !range.is_empty()));
        assert_eq!(ranges.into_iter().flatten().collect::<Vec<_>>(), (0..1000).collect::<Vec<_>>());
    }
    assert_eq!(table.partitions(None)?, 1);
    let refused = message(table.partitions(Some(1001)));
    assert!(refused.contains("1000 rows") && refused.contains("--partitions 1000"), "{refused}");
    Ok(())
}

#[test]
fn invalid_tables_are_rejected_with_location() -> Result<(), InputError> {
    let folder = folder();
    let table = Table::open(&file(&folder, "a.csv", "radius,label,note\n1,0,a\n2,NaN,b\n3,,c\nx,1,d\n4\n"))?;
    let bad = |rows, column| message(read(&table, rows, &[column]));
    assert!(bad(0..2, "label").contains("a.csv, row 2: column label is NaN"));
    assert!(bad(2..3, "label").contains("a.csv, line 4, column 2: the value is missing"));
    assert!(bad(3..4, "radius").contains("line 5, column 1: \"x\" is not a number"));
    assert!(bad(4..5, "label").contains("line 6, column 2: the line has too few columns (1)"));
    assert!(bad(0..1, "lable").contains("has no column lable; nearest names: label"));
    assert!(bad(0..1, "note").contains("holds text"));
    assert!(message(Table::open(&file(&folder, "b.csv", "a,b\n"))).contains("has no rows"));
    assert!(message(Table::open(&file(&folder, "b.csv", ""))).contains("has no rows"));
    assert!(message(Table::open(&folder.path().join("none.csv"))).contains("check the path"));
    assert!(message(Table::open(&file(&folder, "c.xlsx", "1"))).contains(".parquet, .csv or .tsv"));
    assert!(message(Table::open(&file(&folder, "d.parquet", "1"))).contains("as Parquet"));
    let nulls = Arc::new(Float64Array::from(vec![Some(1.0), None])) as ArrayRef;
    results::write(&folder.path().join("e.parquet"), [vec![("x", nulls)]].into_iter())?;
    let table = Table::open(&folder.path().join("e.parquet"))?;
    assert!(message(read(&table, 0..2, &["x"])).contains("row 2: column x is NULL"));
    Ok(())
}

#[test]
fn text_and_tables_give_the_same_graph() -> Result<(), InputError> {
    let folder = folder();
    let text = file(&folder, "a.el", "# a comment\n7 100\n7 3 0.5\n\n100 7\r\n3\t7\n");
    let csv = file(&folder, "a.csv", "weight,dst,src\n1,100,7\n1,3,7\n1,7,100\n1,7,3\n");
    for path in [text, csv] {
        let graph = edges::read(&path, None)?;
        assert_eq!(graph.vertices, [7, 3, 100]);
        assert_eq!(graph.edges, [(0, 2), (0, 1), (2, 0), (1, 0)]);
        assert_eq!(graph.out_degrees, [2, 1, 1]);
        let all = edges::read(&path, Some(101))?;
        assert_eq!((all.vertices.len(), all.edges[0]), (101, (0, 2)));
        assert!(
            message(edges::read(&path, Some(100)))
                .contains("vertex 100 is out of range: with --vertices 100")
        );
    }
    let far = edges::read(&file(&folder, "b.el", "9007199254740993 5\n5 1\n"), None)?;
    assert_eq!(far.vertices, [5, 1, 9_007_199_254_740_993]);
    Ok(())
}

#[test]
fn invalid_graphs_are_rejected_with_location() {
    let folder = folder();
    let bad = |text: &str| message(edges::read(&file(&folder, "a.el", text), None));
    assert!(bad("1 2\n3 x\n").contains("a.el, line 2: \"x\" is not a vertex"));
    assert!(bad("1 2\n3\n").contains("line 2: \"\" is not a vertex"));
    assert!(bad("-1 2\n").contains("line 1: \"-1\" is not a vertex"));
    assert!(bad("# nothing\n").contains("has no edges"));
    let csv = message(edges::read(&file(&folder, "b.csv", "src,dst\n1,2\n1,2.5\n"), None));
    assert!(csv.contains("b.csv, row 2: 2.5 is not a vertex"), "{csv}");
}

#[test]
fn results_are_written_atomically() {
    let folder = folder();
    let path = folder.path().join("a.parquet");
    assert!(results::check(&path).is_ok());
    assert!(message(results::check(&folder.path().join("a.csv"))).contains("ends in .parquet"));
    assert!(message(results::check(&folder.path().join("none/a.parquet"))).contains("is not a folder"));
    let url = message(results::check(Path::new("s3://bucket/a.parquet")));
    assert!(url.contains("s3://bucket/a.parquet") && url.contains("local files only"), "{url}");
    assert!(message(results::write(&path, std::iter::empty())).contains("nothing to write"));
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn results_follow_no_planted_link_and_keep_the_mode() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = folder();
    let path = file(&folder, "a.parquet", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    let victim = file(&folder, "victim", "mine");
    let planted = folder.path().join(format!(".a.parquet.{}.partial", std::process::id()));
    symlink(&victim, planted).expect("linked");
    let column = || -> ArrayRef { Arc::new(Float64Array::from(vec![1.0])) };
    results::write(&path, [vec![("x", column())]].into_iter()).expect("written");
    assert_eq!(fs::read(&victim).expect("it exists"), b"mine");
    let metadata = fs::symlink_metadata(&path).expect("it exists");
    assert!(metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o600);
    assert!(fs::read(&path).expect("it exists").starts_with(b"PAR1"));
}

#[test]
fn panic_of_the_library_is_an_error_that_names_the_file() {
    let panics = || -> Result<(), InputError> { panic!("index out of bounds") };
    let error = message(parquet::caught(Path::new("a.parquet"), panics));
    assert_eq!(error, "cannot read a.parquet as Parquet: its content is malformed; write the file again");
}

/// The Parquet library panics on some damaged Arrow schemas, which files carry in text.
#[test]
fn arrow_schema_in_parquet_is_not_used() -> Result<(), InputError> {
    let folder = folder();
    let path = folder.path().join("a.parquet");
    let column = Arc::new((0..9).map(f64::from).collect::<Float64Array>()) as ArrayRef;
    results::write(&path, [vec![("a", column)]].into_iter())?;
    let whole = fs::read(&path).expect("a file");
    let key = b"ARROW:schema";
    let schema = whole.windows(key.len()).position(|bytes| bytes == key).expect("a schema") + key.len() + 4;
    for at in schema..whole.len().min(schema + 250) {
        for byte in [b'E', b'_'] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            fs::write(&path, damaged).expect("a file");
            // The text may end before, at fields of the footer that matter.
            let _ = Table::open(&path).and_then(|table| read(&table, 0..9, &["a"]));
        }
    }
    Ok(())
}

#[test]
fn parquet_with_a_false_number_of_rows_is_refused() {
    let folder = folder();
    let path = folder.path().join("a.parquet");
    let column = Arc::new((0..9).map(f64::from).collect::<Float64Array>()) as ArrayRef;
    results::write(&path, [vec![("a", column)]].into_iter()).expect("a file");
    let whole = fs::read(&path).expect("a file");
    let footer = whole.len()
        - 8
        - u32::from_le_bytes(*whole[..whole.len() - 4].last_chunk().expect("a length")) as usize;
    let mut errors = Vec::new();
    // The footer encodes 9 as 18, which becomes 20.
    for at in (footer..whole.len() - 8).filter(|at| whole[*at] == 18) {
        let mut damaged = whole.clone();
        damaged[at] = 20;
        fs::write(&path, damaged).expect("a file");
        let rows = Table::open(&path).and_then(|table| read(&table, 0..table.rows(), &["a"]));
        errors.extend(rows.err().map(|error| error.to_string()));
    }
    let expected = "a.parquet as Parquet: its row groups do not have the rows that its footer claims";
    assert!(errors.iter().any(|error| error.contains(expected)), "{errors:?}");
}
