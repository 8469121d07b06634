//! Where a table's files are, from what a person wrote: a path, a folder, a pattern, a URL.
//!
//! DataFusion's own reading of a path has four traps that are closed here. A file whose name
//! holds `*`, `?` or `[` is taken for a pattern: here what exists is meant as it is. A URL
//! must be percent-encoded and cannot be a pattern: here `s3://bucket/a b/*.csv` is read as
//! it is written, like the store's own tools do. A pattern never meets the folders of a
//! Hive-partitioned table (`year=2020`): here it may, as long as it leaves none of them
//! out. And `*` does not reach into folders below.

use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::datasource::physical_plan::FileOutputMode;
use object_store::ObjectMeta;
use object_store::path::Path;
use url::Url;

/// What makes a path a pattern.
const PATTERN: [char; 3] = ['*', '?', '['];

fn failed(words: String) -> DataFusionError {
    DataFusionError::Execution(words)
}

/// True for a place that is not on this machine.
pub(crate) fn is_remote(place: &str) -> bool {
    place.contains("://") && !place.starts_with("file://")
}

/// The files that `place` names.
///
/// # Errors
/// Not a path, a URL or a pattern.
pub(crate) fn parse(place: &str) -> Result<ListingTableUrl> {
    if is_remote(place) {
        return remote(place);
    }
    if !place.contains("://") && place.contains(PATTERN) && std::fs::exists(place)? {
        let path = std::path::absolute(place)?;
        let url = if path.is_dir() { Url::from_directory_path(&path) } else { Url::from_file_path(&path) };
        let url = url.map_err(|()| failed(format!("{place}: not a path that a URL can hold")))?;
        return ListingTableUrl::try_new(url, None);
    }
    ListingTableUrl::parse(place).map_err(|e| failed(format!("{place}: {e}; check the path and the pattern")))
}

/// The target of an output, so that DataFusion takes no name for a pattern.
///
/// # Errors
/// A URL that is none.
pub(crate) fn target(place: &str) -> Result<String> {
    if is_remote(place) {
        // As it is written, stars and all.
        let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        return exactly(&format!("{scheme}://{authority}/"), key, place);
    }
    if place.contains("://") || !place.contains(PATTERN) {
        return Ok(place.to_string());
    }
    let path = std::path::absolute(place)?;
    // An absolute path has lost the slash that makes it a folder.
    let folder = if place.ends_with('/') { "/" } else { "" };
    exactly("file:///", &format!("{}{folder}", path.display().to_string().trim_matches('/')), place)
}

/// Whether `COPY … TO` makes a folder of files of a [`target`]: by a slash at its end, or no ending.
///
/// # Errors
/// A URL that is none.
pub(crate) fn is_folder(target: &str) -> Result<bool> {
    let url = ListingTableUrl::parse(target)?;
    Ok(!FileOutputMode::Automatic.single_file_output(&url))
}

/// The URL of `key` in the store `root`.
fn exactly(root: &str, key: &str, place: &str) -> Result<String> {
    let wrong = |why: String| failed(format!("{place}: {why}; check the output's path"));
    let mut url = Url::parse(root).map_err(|e| wrong(e.to_string()))?;
    url.path_segments_mut()
        .map_err(|()| wrong("not a place in a store".to_string()))?
        .clear()
        .extend(key.split('/'));
    // Letters of a pattern that a URL may hold as they are.
    Ok(url.to_string().replace('*', "%2A").replace('[', "%5B").replace(']', "%5D"))
}

/// A URL whose path is meant as it is written, up to the first segment that is a pattern.
fn remote(place: &str) -> Result<ListingTableUrl> {
    let wrong = |why: &str| failed(format!("{place}: {why}; write it like s3://BUCKET/FOLDER/*.parquet"));
    let (scheme, rest) = place.split_once("://").ok_or_else(|| wrong("not a URL"))?;
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    let mut url = Url::parse(&format!("{scheme}://{authority}/")).map_err(|e| wrong(&e.to_string()))?;
    let segments: Vec<&str> = key.split('/').collect();
    let literal = segments.iter().position(|s| s.contains(PATTERN)).unwrap_or(segments.len());
    {
        let mut path = url.path_segments_mut().map_err(|()| wrong("not a place in a store"))?;
        path.clear().extend(&segments[..literal]);
        if literal < segments.len() {
            // A folder: its name ends in a slash.
            path.push("");
        }
    }
    let url = ListingTableUrl::try_new(url, None)?;
    if literal == segments.len() { Ok(url) } else { url.with_glob(&segments[literal..].join("/")) }
}

/// The URLs that together name just the files that a person [`meant`] by `url`: those of
/// `files` (all that are in its folder) whose names match its pattern, folder by folder, end
/// in `ending` and are not hidden.
///
/// DataFusion's own comparison lets `*` match a `/` and leaves the folders of partitions out;
/// what it finds is used where it is the same.
///
/// # Errors
/// A choice among the folders of a partition that DataFusion cannot make.
pub(crate) fn choose(
    place: &str,
    url: &ListingTableUrl,
    files: &[ObjectMeta],
    ending: &str,
) -> Result<Vec<ListingTableUrl>> {
    if !url.is_collection() {
        return Ok(vec![url.clone()]);
    }
    let meant = meant(url, files, ending)?;
    let finds_them = |candidate: &ListingTableUrl| {
        let found =
            |f: &&ObjectMeta| f.location.as_ref().ends_with(ending) && candidate.contains(&f.location, false);
        files.iter().filter(found).count() == meant.len() && meant.iter().all(found)
    };
    if finds_them(url) {
        return Ok(vec![url.clone()]);
    }
    let partitions: Vec<Vec<bool>> =
        meant.iter().map(|f| segments(url, &f.location).iter().map(|s| s.contains('=')).collect()).collect();
    if !partitions.iter().flatten().any(|p| *p) {
        return meant.iter().map(|f| file(url, &f.location)).collect();
    }
    if let Some((glob, first)) = url.get_glob().as_ref().zip(partitions.first()) {
        let kept: Vec<&str> = glob
            .as_str()
            .split('/')
            .zip(first)
            .filter(|(_, partition)| !**partition)
            .map(|(p, _)| p)
            .collect();
        let without = url.clone().with_glob(&kept.join("/"))?;
        if finds_them(&without) {
            return Ok(vec![without]);
        }
    }
    Err(failed(format!(
        "{place}: some files below the folders of a partition are left out by the pattern or are hidden; name the \
         whole folder, and choose its partitions with WHERE"
    )))
}

/// The names below the folder of `url` on the way to a file; none for a file outside it.
fn segments<'a>(url: &'a ListingTableUrl, location: &'a Path) -> Vec<&'a str> {
    url.strip_prefix(location).map(Iterator::collect).unwrap_or_default()
}

/// Those of `files` that a person means by `url` and whose names end in `ending`.
///
/// # Errors
/// None today: the pattern was read once before.
pub(crate) fn meant<'a>(
    url: &ListingTableUrl,
    files: &'a [ObjectMeta],
    ending: &str,
) -> Result<Vec<&'a ObjectMeta>> {
    let meant = Meant::new(url, ending)?;
    Ok(files.iter().filter(|f| !url.is_collection() || meant.holds(&f.location)).collect())
}

/// Which files a person means by a URL.
struct Meant<'a> {
    url: &'a ListingTableUrl,
    ending: &'a str,
    /// The pattern, a segment each; `None` stands for any number of them (`**`).
    pattern: Option<Vec<Option<ListingTableUrl>>>,
}

impl<'a> Meant<'a> {
    fn new(url: &'a ListingTableUrl, ending: &'a str) -> Result<Self> {
        let segment =
            |part: &str| if part == "**" { Ok(None) } else { url.clone().with_glob(part).map(Some) };
        let pattern = url.get_glob().as_ref().map(|glob| glob.as_str().split('/').map(segment).collect());
        Ok(Self { url, ending, pattern: pattern.transpose()? })
    }

    fn holds(&self, location: &Path) -> bool {
        let names = segments(self.url, location);
        let hidden = |name: &&str| name.starts_with('.') || (name.starts_with('_') && !name.contains('='));
        location.as_ref().ends_with(self.ending)
            && !names.iter().any(hidden)
            && self.pattern.as_ref().is_none_or(|pattern| matches(pattern, &names))
    }
}

/// Compares a pattern with a path, segment by segment.
fn matches(pattern: &[Option<ListingTableUrl>], names: &[&str]) -> bool {
    match (pattern.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((None, rest)), _) => (0..=names.len()).any(|n| matches(rest, &names[n..])),
        (Some((Some(one), rest)), Some((name, names))) => {
            one.get_glob().as_ref().is_some_and(|glob| glob.matches(name)) && matches(rest, names)
        }
        _ => false,
    }
}

/// The folder of that name.
pub(crate) fn folder(url: &ListingTableUrl) -> Result<ListingTableUrl> {
    let mut folder = AsRef::<Url>::as_ref(url).clone();
    folder
        .path_segments_mut()
        .map_err(|()| failed(format!("{}: not a place in a store", url.as_str())))?
        .pop_if_empty()
        .push("");
    ListingTableUrl::try_new(folder, None)
}

/// A file as a person would write it: a path, or a URL with its bucket.
pub(crate) fn name(url: &ListingTableUrl, location: &Path) -> String {
    match url.scheme() {
        "file" => format!("/{location}"),
        _ => format!("{}{location}", url.object_store().as_str()),
    }
}

/// The URL of one file in the store of `url`.
fn file(url: &ListingTableUrl, location: &Path) -> Result<ListingTableUrl> {
    let store = url.object_store();
    let mut whole: Url = <ListingTableUrl as AsRef<Url>>::as_ref(url).clone();
    whole
        .path_segments_mut()
        .map_err(|()| failed(format!("{}: not a place in a store", store.as_str())))?
        .clear()
        .extend(location.as_ref().split('/'));
    ListingTableUrl::try_new(whole, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(location: &str) -> ObjectMeta {
        ObjectMeta {
            location: Path::from(location),
            last_modified: Default::default(),
            size: 1,
            e_tag: None,
            version: None,
        }
    }

    #[test]
    fn a_url_is_meant_as_it_is_written() {
        let url = parse("s3://bucket/a b/50%/x#1.parquet").unwrap();
        assert_eq!(url.prefix().as_ref(), "a b/50%/x#1.parquet");
        assert!(url.get_glob().is_none() && !url.is_collection());
        assert!(parse("s3://bucket/folder/").unwrap().is_collection());
        assert!(parse("s3://bucket").unwrap().is_collection());
    }

    #[test]
    fn a_url_may_be_a_pattern() {
        let url = parse("s3://bucket/a b/*/x?.csv").unwrap();
        assert_eq!((url.prefix().as_ref(), url.get_glob().as_ref().unwrap().as_str()), ("a b", "*/x?.csv"));
        assert!(url.contains(&Path::from("a b/c/x1.csv"), false));
        assert!(!url.contains(&Path::from("a b/c/y1.csv"), false));
    }

    #[test]
    fn what_exists_is_no_pattern() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a[1]?.csv");
        std::fs::write(&path, "x").unwrap();
        let url = parse(path.to_str().unwrap()).unwrap();
        assert!(url.get_glob().is_none() && url.prefix().as_ref().ends_with("a[1]?.csv"));
        assert!(parse(folder.path().join("b[1].csv").to_str().unwrap()).unwrap().get_glob().is_some());
    }

    #[test]
    fn a_target_is_no_pattern() {
        assert_eq!(target("/a/b.csv").unwrap(), "/a/b.csv");
        let parsed = |place: &str| ListingTableUrl::parse(target(place).unwrap()).unwrap();
        for place in ["/a b/q?m*[x]%20.csv", "s3://bucket/a b/q?m*[x]%20.csv"] {
            let url = parsed(place);
            let key = if is_remote(place) { &place["s3://bucket/".len()..] } else { &place[1..] };
            assert_eq!((url.prefix().as_ref(), url.get_glob().is_some()), (key, false), "{place}");
        }
        let folders = ["/a*/", "/a*", "/a.csv/", "/a", "s3://b/a/", "/a.csv", "s3://b/a*.csv"];
        let is_folder = folders.map(|place| is_folder(&target(place).unwrap()).unwrap());
        assert_eq!(is_folder, [true, true, true, true, true, false, false]);
        assert!(parsed("/a*/").is_collection() && parsed("s3://bucket/a/").is_collection());
    }

    fn chosen(place: &str, files: &[&str], ending: &str) -> Result<Vec<String>> {
        let files: Vec<ObjectMeta> = files.iter().map(|f| meta(f)).collect();
        let urls = choose(place, &parse(place)?, &files, ending)?;
        let glob =
            |u: &ListingTableUrl| u.get_glob().as_ref().map_or(String::new(), |g| format!(" {}", g.as_str()));
        Ok(urls.iter().map(|u| format!("{}{}", u.prefix(), glob(u))).collect())
    }

    #[test]
    fn a_pattern_over_all_partitions_is_one_without_them() {
        let files = ["t/y=1/m=2/a.csv", "t/y=2/m=2/a.csv", "t/y=2/m=2/b.csv"];
        let over = |place| chosen(place, &files, ".csv");
        assert_eq!(over("s3://b/t/*/*/a.csv").unwrap(), ["t a.csv"]);
        assert_eq!(over("s3://b/t/y=*/m=2/*.csv").unwrap(), ["t *.csv"]);
        assert_eq!(over("s3://b/t/**/*.csv").unwrap(), ["t **/*.csv"]);
        let some = over("s3://b/t/y=[1]/*/a.csv").unwrap_err().to_string();
        assert!(some.contains("WHERE"), "{some}");
    }

    #[test]
    fn a_star_ends_at_a_folder_and_hidden_files_are_left_out() {
        let files = ["t/a.csv", "t/b.csv", "t/sub/c.csv", "t/.d.csv", "t/_tmp/e.csv", "t/f.txt"];
        assert_eq!(chosen("s3://b/t/*.csv", &files, ".csv").unwrap(), ["t/a.csv", "t/b.csv"]);
        assert_eq!(chosen("s3://b/t/*/*.csv", &files, ".csv").unwrap(), ["t/sub/c.csv"]);
        assert_eq!(chosen("s3://b/t/", &files, ".csv").unwrap(), ["t/a.csv", "t/b.csv", "t/sub/c.csv"]);
        assert_eq!(chosen("s3://b/t/", &files[..3], ".csv").unwrap(), ["t"]);
    }
}
