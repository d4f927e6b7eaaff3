//! What clients of InfluxDB 1.x ask: InfluxQL, pings.
//!
//! May use: the facade's `series`, `handle`, `table`, `upload`. Must not know: sockets.

use std::sync::Arc;

use axum::response::Response;

use super::failure::Failure;
use super::handle::Asked;
use super::table::Route;
use super::upload::Upload;
use crate::auth::User;

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {}

/// Every route.
pub(crate) static ROUTES: &[Route] = &[];

/// Carries a request out.
pub(crate) async fn run(
    asked: &Asked<'_>,
    operation: Operation,
    user: Option<Arc<User>>,
    upload: &mut Upload,
) -> Result<Response, Failure> {
    let _ = (asked, user, upload);
    match operation {}
}
