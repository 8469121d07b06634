//! HDFS: `hdfs://HOST:PORT/PATH`, or the name of a name service.
//!
//! Settings such as name services and replication come from Hadoop's configuration files in
//! `HADOOP_CONF_DIR` or `HADOOP_HOME`. The user is `HADOOP_USER_NAME`, or Kerberos's. A rename moves
//! no bytes; for a copy, the client reads and writes the bytes. [`map_error`] maps Java exceptions
//! of the name node to `object_store`'s error kinds.

use std::io;
use std::sync::{Arc, LazyLock};

use hdfs_native_object_store::HdfsObjectStoreBuilder;
use object_store::{Error, ObjectStore};
use pellucid_storage::errors::{MappedErrors, Secrets};
use pellucid_storage::retry::Limits;
use pellucid_storage::{StorageError, Watch};
use tokio::runtime::{Builder, Runtime};
use url::Url;

/// The runtime for the client's connection tasks; it lives as long as the process. By default the client spawns them on
/// the calling runtime. If that is an operator's runtime on a core, it stops as soon as the call has returned, and the
/// next caller waits forever.
static CONNECTIONS: LazyLock<io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).thread_name("hdfs").enable_all().build());

/// Opens the file system of `url`.
pub(crate) fn open(url: &Url, watch: Watch) -> Result<Arc<dyn ObjectStore>, StorageError> {
    let name = pellucid_storage::name(url);
    let store = CONNECTIONS
        .as_ref()
        .map_err(|error| Error::Generic { store: "HDFS", source: error.to_string().into() })
        .and_then(|runtime| {
            let client = HdfsObjectStoreBuilder::new().with_url(name.clone());
            client.with_io_runtime(runtime.handle().clone()).build()
        })
        .map_err(|source| StorageError::Settings { url: name, source })?;
    let map: fn(_) -> _ = map_error;
    Ok(pellucid_storage::guarded(
        MappedErrors::new(Arc::new(store), map),
        Limits::default(),
        Secrets::new([]),
        watch,
    ))
}

/// Maps a Java exception of the name node to an error kind by its name, and removes the stack trace.
fn map_error(error: Error) -> Error {
    let Error::Generic { store, source } = error else { return error };
    let whole = source.to_string();
    let first = whole.lines().next().unwrap_or_default();
    // An error of one line may have a cause, so it is kept as it is.
    let source = if first.len() < whole.len() { first.into() } else { source };
    if first.contains("FileNotFoundException") {
        return Error::NotFound { path: String::new(), source };
    }
    if first.contains("AccessControlException") {
        return Error::PermissionDenied { path: String::new(), source };
    }
    Error::Generic { store, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_exceptions_map_to_error_kinds_without_stack_traces() {
        let mapped =
            |message: &'static str| map_error(Error::Generic { store: "HDFS", source: message.into() });
        let missing =
            mapped("RPC error: java.io.FileNotFoundException File does not exist: /a\n\tat org.apache.X");
        assert!(
            matches!(&missing, Error::NotFound { .. }) && !missing.to_string().contains("apache"),
            "{missing}"
        );
        assert!(matches!(
            mapped("org.apache.hadoop.security.AccessControlException: no"),
            Error::PermissionDenied { .. }
        ));
        assert!(matches!(mapped("connection refused"), Error::Generic { .. }));
    }
}
