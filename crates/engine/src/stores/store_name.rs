//! Full paths in errors of stores.
//!
//! A client's errors name a key without its bucket, an endpoint that the user never typed, or nothing. The engine's
//! errors name `s3://BUCKET/KEY`.

use object_store::Error;
use pellucid_storage::errors::ErrorMap;

/// The name of a store, such as `s3://bucket`, to add to the paths in its errors.
#[derive(Debug)]
pub(super) struct StoreName(pub String);

impl ErrorMap for StoreName {
    fn call(&self, location: &str, error: Error) -> Error {
        let path = format!("{}/{}", self.0, pellucid_storage::web::path(location));
        match error {
            Error::NotFound { source, .. } => Error::NotFound { path, source },
            Error::PermissionDenied { source, .. } => Error::PermissionDenied { path, source },
            Error::Unauthenticated { source, .. } => Error::Unauthenticated { path, source },
            Error::AlreadyExists { source, .. } => Error::AlreadyExists { path, source },
            Error::Generic { store, source } => {
                Error::Generic { store, source: format!("{path}: {source}").into() }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use pellucid_storage::errors::MappedErrors;

    use super::*;

    #[test]
    fn refused_upload_error_names_store() {
        let store = StoreName("s3://bucket".to_string());
        let part =
            store.call("a/b.csv", Error::PermissionDenied { path: "key".into(), source: "403".into() });
        assert!(
            matches!(&part, Error::PermissionDenied { path, .. } if path == "s3://bucket/a/b.csv"),
            "{part}"
        );
        let whole = store.call("a/b.csv", Error::Generic { store: "S3", source: "no".into() }).to_string();
        assert!(whole.contains("s3://bucket/a/b.csv: no"), "{whole}");
    }

    #[tokio::test]
    async fn not_found_error_names_store() {
        let store = MappedErrors::new(Arc::new(InMemory::new()), StoreName("s3://bucket".to_string()));
        let error = store.head(&Path::from("a/b.csv")).await.unwrap_err();
        assert!(matches!(&error, Error::NotFound { path, .. } if path == "s3://bucket/a/b.csv"), "{error}");
    }
}
