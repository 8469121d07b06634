//! Errors without credentials in them.
//!
//! Stores repeat what they were sent: S3's answer to an expired token holds the token, and a
//! client's error may hold a URL with its user. What a store was opened with is known, so it
//! is taken out of every error's text before anyone can print, log or record it.

use std::error::Error as _;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use object_store::{Error, GetResult, Result};

use super::{Around, Call, map_body};

/// What stands where a secret stood.
const HIDDEN: &str = "[hidden]";

/// What stands round the token in S3's answer to one that has expired. It may be the client's own, which an
/// instance or a web identity gave it.
const TOKEN: [&str; 2] = ["<Token-0>", "</Token-0>"];

/// Shorter texts are no secrets, and would be found inside words.
const MIN_LENGTH: usize = 4;

/// Takes secrets out of errors.
#[derive(Clone)]
pub struct Secrets(Arc<Vec<String>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// Keeps `secrets`, longest first, so that none is left over inside another.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut kept: Vec<String> = secrets.into_iter().filter(|s| s.len() >= MIN_LENGTH).collect();
        kept.sort_by_key(|s| std::cmp::Reverse(s.len()));
        Secrets(Arc::new(kept))
    }

    /// `text` without the secrets.
    pub fn hide(&self, text: &str) -> String {
        self.0.iter().fold(without_tokens(text), |text, secret| text.replace(secret, HIDDEN))
    }

    fn is_in(&self, text: &str) -> bool {
        text.contains(TOKEN[0]) || self.0.iter().any(|secret| text.contains(secret))
    }

    /// The error as it is, unless it or what caused it holds a secret.
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

/// `text` without tokens in it; one that is cut off takes the rest along.
fn without_tokens(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, token)) = rest.split_once(TOKEN[0]) {
        kept += before;
        kept += HIDDEN;
        rest = token.split_once(TOKEN[1]).map_or("", |(_, after)| after);
    }
    kept + rest
}

#[async_trait]
impl Around for Secrets {
    type Pass = ();

    async fn enter(&self, _call: Call) -> Result<()> {
        Ok(())
    }

    async fn leave(&self, _pass: (), outcome: Result<()>) -> Result<()> {
        outcome.map_err(|e| self.hide_in(e))
    }

    fn answer(self: Arc<Self>, _pass: (), result: GetResult) -> GetResult {
        map_body(result, |body| body.map(move |piece| piece.map_err(|e| self.hide_in(e))).boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_hidden_in_the_error_and_in_its_cause() {
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
    fn a_token_that_nobody_named_is_hidden_where_s3_repeats_it() {
        let said = "<Code>ExpiredToken</Code><Token-0>FwoGZX</Token-0><RequestId>1</RequestId>";
        let error = Error::Generic { store: "S3", source: said.into() };
        let hidden = Secrets::new([]).hide_in(error);
        let shown = format!("{hidden} {hidden:?}");
        assert!(
            !shown.contains("FwoGZX") && shown.contains("ExpiredToken</Code>[hidden]<RequestId>1"),
            "{shown}"
        );
        assert_eq!(without_tokens("a<Token-0>FwoG"), "a[hidden]");
    }
}
