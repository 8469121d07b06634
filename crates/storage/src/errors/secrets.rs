//! Removes credentials from errors.
//!
//! Stores echo what they receive: S3's response to an expired token contains the token, and a
//! client's error may contain a URL with user and password. The credentials that open a store are
//! known, so they are removed from every error before it can be printed, logged or recorded.

use std::error::Error as _;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use futures::{StreamExt, TryStreamExt};
use object_store::{Error, GetResult};

use super::ErrorMap;
use crate::body::map_body;

/// Replacement for a secret.
const HIDDEN: &str = "[hidden]";

/// Tags around the token in S3's response to an expired one. The token may be unknown here, if the client
/// got it from an instance profile or a web identity.
const TOKEN: [&str; 2] = ["<Token-0>", "</Token-0>"];

/// Minimum length of a secret; shorter texts would match inside words.
const MIN_LENGTH: usize = 4;

/// A set of secrets to remove from errors.
#[derive(Clone)]
pub struct Secrets(Arc<RwLock<Vec<String>>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.all().len())
    }
}

impl Secrets {
    /// Creates a set of secrets. Longer ones are replaced first, since they may contain shorter ones.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let all = Secrets(Arc::default());
        all.learn(secrets);
        all
    }

    /// Adds secrets that were not known before, to all copies of this set.
    pub fn learn(&self, secrets: impl IntoIterator<Item = String>) {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        kept.extend(secrets.into_iter().filter(|s| s.len() >= MIN_LENGTH));
        kept.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        kept.dedup();
    }

    fn all(&self) -> RwLockReadGuard<'_, Vec<String>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `text` without the secrets.
    pub fn hide(&self, text: &str) -> String {
        self.all().iter().fold(without_tokens(text), |text, secret| text.replace(secret, HIDDEN))
    }

    fn is_in(&self, text: &str) -> bool {
        text.contains(TOKEN[0]) || self.all().iter().any(|secret| text.contains(secret))
    }

    /// Returns the error without secrets; unchanged if neither it nor its causes contain one.
    pub fn hide_in(&self, error: Error) -> Error {
        let mut texts = vec![error.to_string(), format!("{error:?}")];
        let mut cause = error.source();
        while let Some(inner) = cause {
            texts.extend([inner.to_string(), format!("{inner:?}")]);
            cause = inner.source();
        }
        if !texts.iter().any(|text| self.is_in(text)) {
            return error;
        }
        let source = self.hide(error.source().map_or(texts[0].clone(), ToString::to_string).as_str()).into();
        match error {
            Error::NotFound { path, .. } => Error::NotFound { path: self.hide(&path), source },
            Error::AlreadyExists { path, .. } => Error::AlreadyExists { path: self.hide(&path), source },
            Error::Precondition { path, .. } => Error::Precondition { path: self.hide(&path), source },
            Error::NotModified { path, .. } => Error::NotModified { path: self.hide(&path), source },
            Error::PermissionDenied { path, .. } => {
                Error::PermissionDenied { path: self.hide(&path), source }
            }
            Error::Unauthenticated { path, .. } => Error::Unauthenticated { path: self.hide(&path), source },
            Error::Generic { store, .. } => Error::Generic { store, source },
            _ => Error::Generic { store: "store", source },
        }
    }
}

/// Returns `text` without tokens; a token without an end tag hides the rest of the text.
fn without_tokens(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, token)) = rest.split_once(TOKEN[0]) {
        kept += before;
        kept += HIDDEN;
        rest = token.split_once(TOKEN[1]).map_or("", |(_, after)| after);
    }
    kept + rest
}

impl ErrorMap for Secrets {
    fn call(&self, _location: &str, error: Error) -> Error {
        self.hide_in(error)
    }

    fn body(self: Arc<Self>, result: GetResult) -> GetResult {
        map_body(result, |body| body.map_err(move |error| self.hide_in(error)).boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_in_errors_and_their_causes() {
        let secrets = Secrets::new(["hunter2hunter2".to_string(), "hunter2".to_string(), String::new()]);
        let error = Error::Unauthenticated {
            path: "a/hunter2".into(),
            source: "token hunter2hunter2 expired".into(),
        };
        let hidden = secrets.hide_in(error);
        assert!(matches!(hidden, Error::Unauthenticated { .. }));
        let shown = format!("{hidden} {hidden:?}");
        assert!(!shown.contains("hunter2") && shown.contains("token [hidden] expired"), "{shown}");
        assert_eq!(format!("{secrets:?}"), "Secrets(2)");
    }

    #[test]
    fn unknown_token_in_an_s3_error_is_hidden() {
        let message = "<Code>ExpiredToken</Code><Token-0>FwoGZX</Token-0><RequestId>1</RequestId>";
        let error = Error::Generic { store: "S3", source: message.into() };
        let hidden = Secrets::new([]).hide_in(error);
        let shown = format!("{hidden} {hidden:?}");
        assert!(
            !shown.contains("FwoGZX") && shown.contains("ExpiredToken</Code>[hidden]<RequestId>1"),
            "{shown}"
        );
        assert_eq!(without_tokens("a<Token-0>FwoG"), "a[hidden]");
    }
}
