//! Storage backends whose clients bring dozens of crates of their own: HDFS and OpenStack Swift.
//!
//! [`register`] makes [`pellucid_storage::open`] understand `hdfs://` and `swift://`. Nothing else of the
//! workspace depends on this crate, except for the command (with its feature `backends`) and the Python
//! module: a build without it compiles nothing else differently.

mod hdfs;
mod segments;
mod swift;

use pellucid_storage::{Backend, register as add};

/// Registers the backends of this crate. Calling it again has no effect.
pub fn register() {
    add(Backend {
        scheme: "swift",
        example: "swift://CONTAINER/KEY",
        settings: "the account comes from ST_AUTH, ST_USER and ST_KEY, or from OS_STORAGE_URL and OS_AUTH_TOKEN",
        open: swift::open,
    });
    add(Backend {
        scheme: "hdfs",
        example: "hdfs://HOST:PORT/PATH",
        settings: "write it like hdfs://HOST:PORT; name services come from the files in HADOOP_CONF_DIR",
        open: hdfs::open,
    });
}

#[cfg(test)]
mod tests {
    use pellucid_storage::open;
    use url::Url;

    #[test]
    fn registered_schemes_are_opened_and_named() {
        let url = Url::parse("hdfs://127.0.0.1:9/x").unwrap();
        super::register();
        super::register();
        open(&url).unwrap();
        let error = open(&Url::parse("gopher://x/y").unwrap()).unwrap_err().to_string();
        let known = "s3://BUCKET/KEY, swift://CONTAINER/KEY, hdfs://HOST:PORT/PATH";
        assert!(error.ends_with(known), "{error}");
    }
}
