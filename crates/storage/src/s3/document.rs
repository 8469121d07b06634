//! Limits on the XML documents of S3: lists of objects, results of uploads, errors.
//!
//! `object_store` reads a document whole, whatever its length, and the version of its XML parser takes quadratic time
//! for the attributes of one tag (RUSTSEC-2026-0194, RUSTSEC-2026-0195). A store is not trusted, so a document
//! is checked before it is parsed.

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::client::{HttpError, HttpErrorKind, HttpResponse};

/// A list of 1,000 objects with the longest names takes about 2 MB.
const MAX_BYTES: usize = 16 << 20;
/// Real tags have one attribute, a namespace.
const MAX_TAG_BYTES: usize = 1024;

/// Reads the body of a response and returns the response with it.
///
/// # Errors
/// If the body cannot be read or exceeds a limit.
pub(crate) async fn checked(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (head, body) = response.into_parts();
    let (mut stream, mut document) = (body.bytes_stream(), BytesMut::new());
    while let Some(bytes) = stream.next().await {
        document.extend_from_slice(&bytes?);
        if document.len() > MAX_BYTES {
            return Err(refused(&format!("is longer than {} MiB", MAX_BYTES >> 20)));
        }
    }
    // The text of an error is not parsed; it may be a web page.
    if head.status.is_success() && longest_tag(&document) > MAX_TAG_BYTES {
        return Err(refused(&format!("has a tag of more than {MAX_TAG_BYTES} bytes")));
    }
    Ok(HttpResponse::from_parts(head, Bytes::from(document).into()))
}

fn refused(cause: &str) -> HttpError {
    let message =
        format!("cannot read the store's answer: its XML {cause}; check that the address is that of a store");
    HttpError::new(HttpErrorKind::Decode, std::io::Error::other(message))
}

/// Returns the length of the longest tag.
fn longest_tag(document: &[u8]) -> usize {
    let tags = document.split(|&byte| byte == b'<').skip(1);
    tags.map(|tag| tag.iter().position(|&byte| byte == b'>').unwrap_or(tag.len())).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(document: String) -> Result<String, String> {
        let answer = futures::executor::block_on(checked(HttpResponse::new(Bytes::from(document).into())));
        let answer = answer.map_err(|error| std::error::Error::source(&error).unwrap().to_string())?;
        let bytes = futures::executor::block_on(answer.into_body().bytes()).unwrap();
        Ok(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn list_of_many_objects_passes_unchanged() {
        let object = format!("<Contents><Key>{}</Key><Size>1</Size></Contents>", "k".repeat(1024));
        let list =
            format!("<ListBucketResult xmlns=\"http://s3\">{}</ListBucketResult>", object.repeat(1000));
        assert_eq!(check(list.clone()), Ok(list));
    }

    #[test]
    fn long_document_and_long_tag_are_refused() {
        let error = check(" ".repeat(MAX_BYTES + 1)).unwrap_err();
        assert!(error.contains("longer than 16 MiB"), "{error}");
        let attributes: String = (0..1000).map(|at| format!(" a{at}=\"\"")).collect();
        let error = check(format!("<ListBucketResult{attributes}></ListBucketResult>")).unwrap_err();
        assert!(error.contains("a tag of more than 1024 bytes"), "{error}");
        // A tag that never ends.
        assert!(check(format!("<a{attributes}")).is_err());
    }
}
