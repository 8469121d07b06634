//! Resolves the location of a table (a path, a folder, a pattern or a URL) to its files.
//!
//! It differs from DataFusion's own path handling in three ways:
//!
//! - DataFusion treats every path that contains `*`, `?` or `[` as a pattern. Here, a path that
//!   exists is taken literally.
//! - DataFusion requires URLs to be percent-encoded and does not match patterns in them. Here,
//!   `s3://bucket/a b/*.csv` is taken as written, as the stores' own tools do.
//! - `*` does not match a `/`.

use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::datasource::physical_plan::FileOutputMode;
use object_store::ObjectMeta;
use object_store::path::Path;
use url::Url;

/// Characters that make a path a pattern.
const PATTERN: [char; 3] = ['*', '?', '['];

fn failed(message: String) -> DataFusionError {
    DataFusionError::Execution(message)
}

/// Returns true for a location in a remote store.
pub(crate) fn is_remote(place: &str) -> bool {
    place.contains("://") && !place.starts_with("file://")
}

/// Returns true for a URL of a web server.
pub(crate) fn is_web(place: &str) -> bool {
    let scheme = place.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// Parses the location of a table.
///
/// # Errors
/// Returns an error if `place` is not a valid path, URL or pattern.
pub(crate) fn parse(place: &str) -> Result<ListingTableUrl> {
    if is_web(place) {
        return web(place);
    }
    if is_remote(place) {
        return remote(place);
    }
    if !place.contains("://") && place.contains(PATTERN) && std::fs::exists(place)? {
        let path = std::path::absolute(place)?;
        let url = if path.is_dir() { Url::from_directory_path(&path) } else { Url::from_file_path(&path) };
        let url =
            url.map_err(|()| failed(format!("{place}: cannot convert the path to a URL; rename it")))?;
        return ListingTableUrl::try_new(url, None);
    }
    ListingTableUrl::parse(place).map_err(|e| failed(format!("{place}: {e}; check the path and the pattern")))
}

/// Returns the target of an output, escaped so that DataFusion does not treat it as a pattern.
///
/// # Errors
/// Returns an error if `place` is not a valid URL.
pub(crate) fn target(place: &str) -> Result<String> {
    if is_remote(place) {
        // Patterns have no meaning here: the key is taken literally.
        let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        return literal_url(&format!("{scheme}://{authority}/"), key, place);
    }
    if place.contains("://") || !place.contains(PATTERN) {
        return Ok(place.to_string());
    }
    let path = std::path::absolute(place)?;
    // `absolute` drops the trailing slash that marks a folder.
    let folder = if place.ends_with('/') { "/" } else { "" };
    literal_url("file:///", &format!("{}{folder}", path.display().to_string().trim_matches('/')), place)
}

/// Returns true if `COPY … TO` writes a folder to a [`target`]: one that ends in a slash or has no
/// extension.
///
/// # Errors
/// Returns an error if `target` is not a valid URL.
pub(crate) fn is_folder(target: &str) -> Result<bool> {
    let url = ListingTableUrl::parse(target)?;
    Ok(!FileOutputMode::Automatic.single_file_output(&url))
}

/// Returns the URL of `key` in the store `root`, with pattern characters escaped.
fn literal_url(root: &str, key: &str, place: &str) -> Result<String> {
    let wrong = |why: String| failed(format!("{place}: {why}; check the output's path"));
    let mut url = Url::parse(root).map_err(|e| wrong(e.to_string()))?;
    url.path_segments_mut()
        .map_err(|()| wrong("the URL has no path".to_string()))?
        .clear()
        .extend(key.split('/'));
    // `Url` leaves these pattern characters unescaped.
    Ok(url.to_string().replace('*', "%2A").replace('[', "%5B").replace(']', "%5D"))
}

/// Parses a remote URL whose path is not percent-encoded and may contain a pattern.
fn remote(place: &str) -> Result<ListingTableUrl> {
    let wrong = |why: &str| {
        let place = pellucid_storage::shown(place);
        failed(format!("{place}: {why}; write it like s3://BUCKET/FOLDER/*.parquet"))
    };
    let (scheme, rest) = place.split_once("://").ok_or_else(|| wrong("not a URL"))?;
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    let mut url = Url::parse(&format!("{scheme}://{authority}/")).map_err(|e| wrong(&e.to_string()))?;
    let segments: Vec<&str> = key.split('/').collect();
    let literal = segments.iter().position(|s| s.contains(PATTERN)).unwrap_or(segments.len());
    {
        let mut path = url.path_segments_mut().map_err(|()| wrong("the URL has no path"))?;
        path.clear().extend(&segments[..literal]);
        if literal < segments.len() {
            // The trailing slash marks a folder.
            path.push("");
        }
    }
    let url = ListingTableUrl::try_new(url, None)?;
    if literal == segments.len() { Ok(url) } else { url.with_glob(&segments[literal..].join("/")) }
}

/// Parses the URL of a file on a web server, which may have a query.
fn web(place: &str) -> Result<ListingTableUrl> {
    let wrong = |why: &str| failed(format!("cannot read {}: {why}", pellucid_storage::shown(place)));
    let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
    let rest = rest.split('#').next().unwrap_or(rest);
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = (&rest[..authority_end], rest[authority_end..].trim_start_matches('/'));
    let (path, has_query) = target.split_once('?').map_or((target, false), |(path, _)| (path, true));
    if authority.contains('@') {
        return Err(wrong("a user and a password are not sent; download the file, and read it"));
    }
    if path.contains(['*', '[']) {
        return Err(wrong(
            "web servers do not list their files, so a pattern cannot match; list the files: read_csv(['URL', 'URL'])",
        ));
    }
    if !has_query && (path.is_empty() || path.ends_with('/')) {
        return Err(wrong("web servers do not list their folders; write the URL of a file"));
    }
    let mut url = Url::parse(&format!("{scheme}://{authority}/"))
        .map_err(|error| wrong(&format!("{error}; write it like https://HOST/PATH/FILE.parquet")))?;
    url.path_segments_mut()
        .map_err(|()| wrong("the URL has no path"))?
        .clear()
        .extend(pellucid_storage::web::location(target).split('/'));
    ListingTableUrl::try_new(url, None)
}

/// Returns the path segments of a file below the folder of `url`; none for a file outside it.
fn segments<'a>(url: &'a ListingTableUrl, location: &'a Path) -> Vec<&'a str> {
    url.strip_prefix(location).map(Iterator::collect).unwrap_or_default()
}

/// Returns those of `files` that match the pattern of `url` segment by segment, end in `extension`
/// and are not hidden.
///
/// # Errors
/// Returns an error if the pattern is invalid; `url` was parsed before, so it is not.
pub(crate) fn matching_files<'a>(
    url: &ListingTableUrl,
    files: &'a [ObjectMeta],
    extension: &str,
) -> Result<Vec<&'a ObjectMeta>> {
    let filter = FileFilter::new(url, extension)?;
    Ok(files.iter().filter(|f| !url.is_collection() || filter.matches(&f.location)).collect())
}

/// Selects the files of a URL.
struct FileFilter<'a> {
    url: &'a ListingTableUrl,
    extension: &'a str,
    /// The pattern by segments; `None` is `**` and matches any number of segments.
    pattern: Option<Vec<Option<ListingTableUrl>>>,
}

impl<'a> FileFilter<'a> {
    fn new(url: &'a ListingTableUrl, extension: &'a str) -> Result<Self> {
        let segment =
            |part: &str| if part == "**" { Ok(None) } else { url.clone().with_glob(part).map(Some) };
        let pattern = url.get_glob().as_ref().map(|glob| glob.as_str().split('/').map(segment).collect());
        Ok(Self { url, extension, pattern: pattern.transpose()? })
    }

    fn matches(&self, location: &Path) -> bool {
        let names = segments(self.url, location);
        let hidden = |name: &&str| name.starts_with('.') || (name.starts_with('_') && !name.contains('='));
        location.as_ref().ends_with(self.extension)
            && !names.iter().any(hidden)
            && self.pattern.as_ref().is_none_or(|pattern| segments_match(pattern, &names))
    }
}

/// Matches a path against a pattern, segment by segment.
fn segments_match(pattern: &[Option<ListingTableUrl>], names: &[&str]) -> bool {
    match (pattern.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((None, rest)), _) => (0..=names.len()).any(|n| segments_match(rest, &names[n..])),
        (Some((Some(one), rest)), Some((name, names))) => {
            one.get_glob().as_ref().is_some_and(|glob| glob.matches(name)) && segments_match(rest, names)
        }
        _ => false,
    }
}

/// Returns `url` as a folder, with a trailing slash.
pub(crate) fn folder(url: &ListingTableUrl) -> Result<ListingTableUrl> {
    let mut folder = AsRef::<Url>::as_ref(url).clone();
    folder
        .path_segments_mut()
        .map_err(|()| failed(format!("{}: the URL has no path; check it", url.as_str())))?
        .pop_if_empty()
        .push("");
    ListingTableUrl::try_new(folder, None)
}

/// Returns the name of a file as a user would write it: a path, or a URL with its bucket.
pub(crate) fn name(url: &ListingTableUrl, location: &Path) -> String {
    match url.scheme() {
        "file" => format!("/{location}"),
        "http" | "https" => {
            format!("{}{}", url.object_store().as_str(), pellucid_storage::web::path(location.as_ref()))
        }
        _ => format!("{}{location}", url.object_store().as_str()),
    }
}

/// Returns the path of a file as the user would write it: it begins as `place` does, up to the pattern.
pub(crate) fn shown(place: &str, url: &ListingTableUrl, location: &Path) -> String {
    if is_remote(place) {
        return name(url, location);
    }
    let Ok(path) = pellucid_storage::LocalStore::default().path(location) else {
        return format!("/{location}");
    };
    let typed = place.strip_prefix("file://").unwrap_or(place);
    if std::path::absolute(typed).is_ok_and(|absolute| absolute == path) {
        return typed.to_string();
    }
    // The folder before the pattern, as it was typed.
    let literal = if std::path::Path::new(typed).is_dir() {
        typed
    } else {
        let before = &typed[..typed.find(PATTERN).unwrap_or(typed.len())];
        before.rsplit_once('/').map_or("", |(folder, _)| &before[..folder.len() + 1])
    };
    let folder = std::path::absolute(if literal.is_empty() { "." } else { literal });
    let below = folder.ok().and_then(|folder| Some(path.strip_prefix(folder).ok()?.display().to_string()));
    match below {
        Some(below) if literal.is_empty() || literal.ends_with('/') => format!("{literal}{below}"),
        Some(below) => format!("{literal}/{below}"),
        None => path.display().to_string(),
    }
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
    fn url_is_taken_literally() {
        let url = parse("s3://bucket/a b/50%/x#1.parquet").unwrap();
        assert_eq!(url.prefix().as_ref(), "a b/50%/x#1.parquet");
        assert!(url.get_glob().is_none() && !url.is_collection());
        assert!(parse("s3://bucket/folder/").unwrap().is_collection());
        assert!(parse("s3://bucket").unwrap().is_collection());
    }

    #[test]
    fn web_url_is_a_file_with_a_query() {
        let url = parse("HTTPS://h:1/a%20b/c.csv?x=*&y=a//b#top").unwrap();
        assert!(url.get_glob().is_none() && !url.is_collection());
        assert_eq!((url.scheme(), url.prefix().filename()), ("https", Some("c.csv")));
        assert_eq!(name(&url, url.prefix()), "https://h:1/a%20b/c.csv");
        assert_eq!(parse("http://h/a%20b.csv").unwrap().prefix().as_ref(), "a%20b.csv");
        for (place, why) in [
            ("http://h/*.csv", "pattern"),
            ("http://h/a/", "folders"),
            ("http://h", "folders"),
            ("http://u:hunter2@h/a.csv", "password"),
        ] {
            let error = parse(place).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn url_may_contain_a_pattern() {
        let url = parse("s3://bucket/a b/*/x?.csv").unwrap();
        assert_eq!((url.prefix().as_ref(), url.get_glob().as_ref().unwrap().as_str()), ("a b", "*/x?.csv"));
        assert!(url.contains(&Path::from("a b/c/x1.csv"), false));
        assert!(!url.contains(&Path::from("a b/c/y1.csv"), false));
    }

    #[test]
    fn existing_path_is_not_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a[1]?.csv");
        std::fs::write(&path, "x").unwrap();
        let url = parse(path.to_str().unwrap()).unwrap();
        assert!(url.get_glob().is_none() && url.prefix().as_ref().ends_with("a[1]?.csv"));
        assert!(parse(folder.path().join("b[1].csv").to_str().unwrap()).unwrap().get_glob().is_some());
    }

    #[test]
    fn target_is_not_a_pattern() {
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

    fn chosen(place: &str, files: &[&str], extension: &str) -> Result<Vec<String>> {
        let files: Vec<ObjectMeta> = files.iter().map(|f| meta(f)).collect();
        let matching = matching_files(&parse(place)?, &files, extension)?.into_iter();
        Ok(matching.map(|file| file.location.to_string()).collect())
    }

    #[test]
    fn pattern_may_select_partitions() {
        let files = ["t/y=1/m=2/a.csv", "t/y=2/m=2/a.csv", "t/y=2/m=2/b.csv"];
        let over = |place| chosen(place, &files, ".csv").unwrap();
        assert_eq!(over("s3://b/t/*/*/a.csv"), files[..2]);
        assert_eq!(over("s3://b/t/**/*.csv"), files);
        assert_eq!(over("s3://b/t/y=[1]/*/a.csv"), files[..1]);
    }

    #[test]
    fn star_does_not_match_slash_and_hidden_files_are_skipped() {
        let files = ["t/a.csv", "t/b.csv", "t/sub/c.csv", "t/.d.csv", "t/_tmp/e.csv", "t/f.txt"];
        assert_eq!(chosen("s3://b/t/*.csv", &files, ".csv").unwrap(), ["t/a.csv", "t/b.csv"]);
        assert_eq!(chosen("s3://b/t/*/*.csv", &files, ".csv").unwrap(), ["t/sub/c.csv"]);
        assert_eq!(chosen("s3://b/t/", &files, ".csv").unwrap(), ["t/a.csv", "t/b.csv", "t/sub/c.csv"]);
    }
}
