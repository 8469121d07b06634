//! Storage backends whose clients pull in dozens of crates: Azure, Google Cloud Storage, HDFS and OpenStack Swift.
//!
//! [`register`] adds `az://`, `abfss://`, `gs://`, `hdfs://` and `swift://` to [`pellucid_storage::open`]. Only the command-line tool
//! (with its feature `backends`) and the Python module depend on this crate, so a build without it
//! compiles the rest of the workspace unchanged.

mod cloud;
mod hdfs;
mod segments;
mod swift;

use pellucid_storage::{Backend, register as add};

/// Registers the backends of this crate. Calling it again has no effect.
pub fn register() {
    const AZURE: &str = "the account comes from AZURE_STORAGE_ACCOUNT_NAME, and credentials from \
                         AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and \
                         AZURE_TENANT_ID, or the machine's identity";
    add(Backend { scheme: "az", example: "az://CONTAINER/KEY", settings: AZURE, open: cloud::open_azure });
    add(Backend {
        scheme: "abfss",
        example: "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY",
        settings: AZURE,
        open: cloud::open_azure,
    });
    add(Backend {
        scheme: "gs",
        example: "gs://BUCKET/KEY",
        settings: "credentials come from GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_SERVICE_ACCOUNT, \
                   `gcloud auth application-default login` or the machine's account",
        open: cloud::open_google,
    });
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
    fn registered_schemes_open_and_appear_in_errors() {
        let url = Url::parse("hdfs://127.0.0.1:9/x").unwrap();
        super::register();
        super::register();
        open(&url).unwrap();
        let error = open(&Url::parse("gopher://x/y").unwrap()).unwrap_err().to_string();
        let known = "s3://BUCKET/KEY, az://CONTAINER/KEY, abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY, \
                     gs://BUCKET/KEY, swift://CONTAINER/KEY, hdfs://HOST:PORT/PATH";
        assert!(error.ends_with(known), "{error}");
    }
}
