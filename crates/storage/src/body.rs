//! Bodies of responses.

use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::{GetResult, GetResultPayload, Result};

/// A response body.
pub type Body = BoxStream<'static, Result<Bytes>>;

/// Replaces the body of a response.
pub fn map_body(result: GetResult, map: impl FnOnce(Body) -> Body) -> GetResult {
    let GetResult { meta, range, attributes, .. } = &result;
    let (meta, range, attributes) = (meta.clone(), range.clone(), attributes.clone());
    GetResult { payload: GetResultPayload::Stream(map(result.into_stream())), meta, range, attributes }
}
