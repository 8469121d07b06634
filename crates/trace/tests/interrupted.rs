//! Tests the end of a process that exits at once; alone, since it affects all outputs of the process.

use pellucid_trace::whole::{WholeFile, WholeFolder, discard_all};

#[test]
fn discard_all_removes_every_temporary_file_and_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = WholeFile::create(&folder.path().join("page.html")).expect("created");
    let tables = WholeFolder::create(&folder.path().join("tables")).expect("created");
    std::fs::write(tables.path().join("jobs.parquet"), "").expect("written");
    let done = WholeFile::create(&folder.path().join("done.csv")).expect("created");
    done.publish().expect("published");
    discard_all();
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().collect();
    assert!(left.len() == 1 && left[0].file_name() == "done.csv", "{left:?}");
    drop((file, tables));
}
