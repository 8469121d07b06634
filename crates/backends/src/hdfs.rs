//! HDFS: `hdfs://HOST:PORT/PATH`, or the name of a name service.
//!
//! Name services, replication and the like are read from Hadoop's own files where
//! `HADOOP_CONF_DIR` or `HADOOP_HOME` leads to them; the user is `HADOOP_USER_NAME`, or
//! Kerberos's. A rename moves no bytes; a copy is read and written by the client. What the name
//! node says in Java's words is said in the trait's ([`plain`]).

use std::io;
use std::sync::{Arc, LazyLock};

use hdfs_native_object_store::HdfsObjectStoreBuilder;
use object_store::{Error, ObjectStore};
use pellucid_storage::retry::Limits;
use pellucid_storage::wrap::secrets::Secrets;
use pellucid_storage::wrap::{MapErrors, Wrapped};
use pellucid_storage::{StorageError, Watch};
use tokio::runtime::{Builder, Runtime};
use url::Url;

/// Runs the client's own tasks, its connections, for as long as the process lives. Left alone, the client spawns them
/// where it is called: on a runtime that stands still as soon as the call has returned, if that is an operator's
/// on a core, and the next caller waits for ever.
static CONNECTIONS: LazyLock<io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).thread_name("hdfs").enable_all().build());

/// The file system of `url`.
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
    Ok(pellucid_storage::guarded(
        Wrapped::new(Arc::new(store), MapErrors(plain)),
        Limits::default(),
        Secrets::new([]),
        watch,
    ))
}

/// Returns an error of the name node with its kind by the exception's name, and without the stack.
fn plain(error: Error) -> Error {
    let Error::Generic { store, source } = error else { return error };
    let whole = source.to_string();
    let first = whole.lines().next().unwrap_or_default();
    // Where it has one line it may have a cause of its own below it.
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
    fn javas_exceptions_become_kinds_without_a_stack() {
        let said = |words: &'static str| plain(Error::Generic { store: "HDFS", source: words.into() });
        let missing =
            said("RPC error: java.io.FileNotFoundException File does not exist: /a\n\tat org.apache.X");
        assert!(
            matches!(&missing, Error::NotFound { .. }) && !missing.to_string().contains("apache"),
            "{missing}"
        );
        assert!(matches!(
            said("org.apache.hadoop.security.AccessControlException: no"),
            Error::PermissionDenied { .. }
        ));
        assert!(matches!(said("connection refused"), Error::Generic { .. }));
    }
}
