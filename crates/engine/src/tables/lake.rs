//! Tables of a lake, where a statement calls their function or creates an external table.

use std::sync::Arc;

use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::execution::context::SessionState;

use super::failed;
use super::find::{check_local, list};
use crate::lakes::{self, Version};

/// Opens the table of a call of a lake's function.
pub(super) async fn called(state: &SessionState, call: &lakes::call::Call) -> Result<Arc<dyn TableProvider>> {
    check_local(&call.place)?;
    let found = list(state, &call.place).await?;
    if found.lake != Some(call.lake) {
        return failed(format!("cannot read {}: it is not {}; check the path", call.place, call.lake.a()));
    }
    lakes::open(state, call.lake, &call.place, &found.url, &found.files, call.version).await
}

/// Opens the table of a lake at `place`; `None` if there is none.
///
/// # Errors
/// Returns an error if `place` has raw files of such a table, or the table cannot be read.
pub(crate) async fn at(state: &dyn Session, place: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let found = list(state, place).await?;
    let Some(lake) = found.lake else { return Ok(None) };
    lakes::open(state, lake, place, &found.url, &found.files, Version::Newest).await.map(Some)
}
