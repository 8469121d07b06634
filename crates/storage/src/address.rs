//! Addresses in messages, traces and reports, without credentials.

use url::Url;

/// Returns the name of a store as a resource: scheme and authority, without credentials.
pub fn name(url: &Url) -> String {
    let user = match url.username() {
        container if has_container(url.scheme()) && !container.is_empty() => format!("{container}@"),
        _ => String::new(),
    };
    match url.port() {
        Some(port) => format!("{}://{user}{}:{port}", url.scheme(), url.host_str().unwrap_or("")),
        None => format!("{}://{user}{}", url.scheme(), url.host_str().unwrap_or("")),
    }
}

/// Returns true for the scheme of Azure's data lakes, in whose URLs the user is the container.
fn has_container(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("abfss")
}

/// Returns a URL without user, password, query and fragment, for messages and reports. Returns paths
/// unchanged.
///
/// Text that is not a valid URL loses everything before its last `@`, since a password may contain `/`.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| !scheme.contains('/')) else {
        return url.to_string();
    };
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    // Clients skip additional slashes before the host of a web address.
    let rest = if is_web { rest.trim_start_matches(['/', '\\']) } else { rest };
    let authority_end = match Url::parse(url) {
        Ok(_) => rest.find(['/', '?', '#']).unwrap_or(rest.len()),
        Err(_) => rest.len(),
    };
    let user_end = rest[..authority_end].rfind('@').map_or(0, |at| at + 1);
    let user = rest[..user_end].trim_end_matches('@').split(':').next().filter(|_| has_container(scheme));
    let user = user.filter(|user| !user.is_empty()).map_or(String::new(), |user| format!("{user}@"));
    let rest = &rest[user_end..];
    format!("{scheme}://{user}{}", rest.split(['?', '#']).next().unwrap_or_default())
}

/// Returns the error for a redirect that a client does not follow because its request carries credentials.
pub fn refused_redirect(from: &str, location: &str) -> String {
    let from_url = Url::parse(from).ok();
    let to = match &from_url {
        Some(base) => base.join(location).ok(),
        None => Url::parse(location).ok(),
    };
    let host = |url: Option<Url>, text: &str| url.map_or_else(|| shown(text), |url| name(&url));
    format!(
        "{} redirects to {}, and credentials are sent to configured addresses only; configure the final address",
        host(from_url, from),
        host(to, location)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_contains_no_credentials() {
        let url = Url::parse("s3://key:secret@bucket/path/to?x=1").unwrap();
        assert_eq!(name(&url), "s3://bucket");
        let url = Url::parse("abfss://box:hunter2@account.test/path").unwrap();
        assert_eq!(name(&url), "abfss://box@account.test");
    }

    #[test]
    fn shown_has_no_user_query_or_fragment() {
        for (url, expected) in [
            ("http://u:hunter2@h:18080/a%20b/c?X-Amz-Signature=hunter2#hunter2", "http://h:18080/a%20b/c"),
            ("http://hunter2@h", "http://h"),
            ("http:///u:hunter2@h/a", "http://h/a"),
            ("HTTPS://u:hun@ter2@h?x", "HTTPS://h"),
            ("s3://KEY:hunter2@bucket/a@b/c", "s3://bucket/a@b/c"),
            ("s3://KEY:hun/ter2@bucket/a", "s3://bucket/a"),
            ("foo://u:hunter2@h/x", "foo://h/x"),
            ("abfss://box@account.test/x?hunter2", "abfss://box@account.test/x"),
            ("abfss://box:hunter2@account.test/x", "abfss://box@account.test/x"),
            ("s3://bucket/logs/app-*", "s3://bucket/logs/app-*"),
            ("file:///a@b/c", "file:///a@b/c"),
            ("logs/app-1?", "logs/app-1?"),
            ("/a/b://c@d", "/a/b://c@d"),
        ] {
            assert_eq!(shown(url), expected, "{url}");
        }
    }

    #[test]
    fn refused_redirect_names_both_hosts_only() {
        for (location, to) in [
            ("https://u:hunter2@other:9/x?hunter2", "https://other:9,"),
            ("/else?hunter2", "http://h:1,"),
            ("http://[", "http://[,"),
        ] {
            let error = refused_redirect("http://u:hunter2@h:1/a?hunter2", location);
            assert!(error.starts_with(&format!("http://h:1 redirects to {to}")), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
