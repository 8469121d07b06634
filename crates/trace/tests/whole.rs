//! Tests of files and folders that appear whole or not at all.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use pellucid_trace::whole::{WholeFile, WholeFolder, is_special, same_file};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    file.write_all(text.as_bytes())?;
    file.publish()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it exists").mode() & 0o7777
}

#[test]
fn file_appears_when_published() {
    let folder = folder();
    let path = folder.path().join("out.csv");
    let mut file = WholeFile::create(&path).expect("created");
    file.write_all(b"new").expect("written");
    let [temporary] = &names(folder.path())[..] else { panic!("one file") };
    assert!(temporary.starts_with(".out.csv.") && temporary.ends_with(".partial"), "{temporary}");
    file.publish().expect("published");
    file.publish().expect("a second call has no effect");
    file.discard();
    drop(file);
    assert_eq!(names(folder.path()), ["out.csv"]);
    assert_eq!(fs::read(&path).expect("it exists"), b"new");
}

#[test]
fn new_file_grows_in_place_and_one_with_content_stays_until_published() {
    let folder = folder();
    let path = folder.path().join("q.trace");
    let read = || fs::read_to_string(&path).expect("it exists");
    for (older, while_written) in [("", "new"), ("old", "old")] {
        fs::write(&path, older).expect("written");
        let mut file = WholeFile::growing(&path).expect("created");
        file.write_all(b"new").expect("written");
        assert_eq!(read(), while_written);
        file.publish().expect("published");
        drop(file);
        assert_eq!((names(folder.path()), read()), (vec!["q.trace".into()], "new".into()));
    }
    drop(WholeFile::growing(&path).expect("created"));
    assert_eq!(read(), "new");
    // Nothing but a regular file is replaced.
    assert!(WholeFile::growing(folder.path()).is_err() && WholeFile::growing(Path::new("..")).is_err());
    WholeFile::growing(Path::new("/dev/null")).and_then(|file| file.publish()).expect("written directly");
}

#[test]
fn dropped_file_leaves_the_target_unchanged() {
    let folder = folder();
    let path = folder.path().join("out.csv");
    fs::write(&path, "old").expect("written");
    drop(WholeFile::create(&path).expect("created"));
    assert_eq!(
        (names(folder.path()), fs::read(&path).expect("there")),
        (vec!["out.csv".into()], b"old".into())
    );
    let file = WholeFile::create(&path).expect("created");
    file.discard();
    assert!(file.publish().expect_err("it is gone").to_string().contains("discarded"));
}

#[test]
fn temporary_names_differ_and_fit() {
    let folder = folder();
    let path = folder.path().join("ä".repeat(127));
    let (one, other) =
        (WholeFile::create(&path).expect("created"), WholeFile::create(&path).expect("created"));
    assert_eq!(names(folder.path()).len(), 2);
    one.publish().expect("published");
    other.publish().expect("published");
    assert_eq!(names(folder.path()), ["ä".repeat(127)]);
}

#[test]
fn mode_of_the_replaced_file_is_kept() {
    let folder = folder();
    let path = folder.path().join("out.csv");
    for kept in [0o600, 0o640, 0o444, 0o666] {
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(kept)).expect("set");
        write(&path, "new").expect("written");
        assert_eq!((mode(&path), fs::read(&path).ok()), (kept, Some(b"new".into())), "{kept:o}");
        fs::remove_file(&path).expect("removed");
    }
    let out = folder.path().join("tables");
    DirBuilder::new().mode(0o700).create(&out).expect("made");
    WholeFolder::create(&out).and_then(|folder| folder.publish()).expect("published");
    assert_eq!(mode(&out), 0o700);
}

#[test]
fn owner_is_kept_by_root() {
    let folder = folder();
    let path = folder.path().join("out.csv");
    fs::write(&path, "old").expect("written");
    if std::os::unix::fs::chown(&path, Some(1234), Some(2345)).is_err() {
        return eprintln!("skipped: only root may give a file away");
    }
    write(&path, "new").expect("written");
    let found = fs::metadata(&path).expect("it exists");
    assert_eq!((found.uid(), found.gid()), (1234, 2345));
}

#[test]
fn links_stay_and_their_target_is_replaced() {
    let folder = folder();
    let (real, link) = (folder.path().join("data/real.csv"), folder.path().join("link.csv"));
    fs::create_dir(folder.path().join("data")).expect("made");
    symlink("data/real.csv", folder.path().join("middle")).expect("linked");
    symlink("middle", &link).expect("linked");
    for text in ["made", "replaced"] {
        write(&link, text).expect("written");
        assert_eq!(fs::read_to_string(&real).expect("it exists"), text);
    }
    assert_eq!(names(folder.path()), ["data", "link.csv", "middle"]);
    assert_eq!(names(&folder.path().join("data")), ["real.csv"]);
    let round = folder.path().join("round");
    symlink("round", &round).expect("linked");
    assert_eq!(write(&round, "x").expect_err("a loop").raw_os_error(), Some(libc::ELOOP));
}

#[test]
fn devices_are_written_directly() {
    let folder = folder();
    let link = folder.path().join("null.csv");
    symlink("/dev/null", &link).expect("linked");
    write(&link, "anything").expect("written");
    assert_eq!(names(folder.path()), ["null.csv"]);
    assert!(is_special(&link) && WholeFile::create(&link).expect("opened").target().is_none());
    assert!(!is_special(folder.path()));
}

#[test]
fn open_file_is_appended_to() {
    let folder = folder();
    let path = folder.path().join("stdout");
    fs::write(&path, "one ").expect("written");
    let open = File::options().append(true).open(&path).expect("opened");
    let number = std::os::fd::AsRawFd::as_raw_fd(&open);
    write(Path::new(&format!("/proc/self/fd/{number}")), "two").expect("written");
    assert_eq!(fs::read_to_string(&path).expect("it exists"), "one two");
    assert_eq!(names(folder.path()), ["stdout"]);
}

#[test]
fn folder_is_refused_as_a_file() {
    let folder = folder();
    let refused = WholeFile::create(folder.path()).expect_err("a folder");
    assert_eq!(refused.kind(), io::ErrorKind::IsADirectory);
    assert_eq!(WholeFile::create(Path::new("..")).expect_err("no name").kind(), io::ErrorKind::InvalidInput);
    let missing = WholeFile::create(&folder.path().join("none/x.csv")).expect_err("no folder");
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

#[test]
fn folder_appears_whole() {
    let folder = folder();
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    symlink("real", &link).expect("linked");
    let out = WholeFolder::create(&link).expect("created");
    fs::write(out.path().join("a"), "1").expect("written");
    assert!(!real.exists());
    out.publish().expect("published");
    assert_eq!((names(folder.path()), names(&real)), (vec!["link".into(), "real".into()], vec!["a".into()]));
    let occupied = WholeFolder::create(&link).expect("created");
    occupied.publish().expect_err("the target is not empty");
    drop(occupied);
    assert_eq!(names(folder.path()), ["link", "real"]);
}

#[test]
fn same_file_is_seen_through_links() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a"), "").expect("written");
    fs::write(at("b"), "").expect("written");
    fs::hard_link(at("a"), at("hard")).expect("linked");
    symlink("a", at("soft")).expect("linked");
    symlink("absent", at("dangling")).expect("linked");
    for (one, other) in
        [("a", "a"), ("a", "hard"), ("soft", "hard"), ("new", "./new"), ("dangling", "absent")]
    {
        assert!(same_file(&at(one), &at(other)), "{one} {other}");
    }
    for (one, other) in [("a", "b"), ("a", "new"), ("new", "newer"), (".", "."), ("none/x", "none/x")] {
        assert!(!same_file(&at(one), &at(other)), "{one} {other}");
    }
    assert!(!same_file(Path::new("/dev/null"), Path::new("/dev/null")));
}
