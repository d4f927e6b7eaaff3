//! Who asks, and whether they may: before anything of a request's body is read.
//!
//! May use: `auth`, `credentials`, `table`. Must not know: what is answered.

use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::credentials::{self, Credentials};
use super::failure::Failure;
use super::shared::Shared;
use super::table::Access;
use super::uri::Query;
use crate::auth::{Right, User};
use crate::failed_logins::FailedLogin;
use crate::peer::Peer;

/// The name of this door in users' lists of doors.
pub(crate) const DOOR: &str = "http";

/// Why somebody is not let in.
pub(crate) enum Refused {
    /// They did not say who they are, or not rightly.
    Unknown,
    Failed(Failure),
}

/// Where a client says who it is.
pub(crate) struct Who<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// The parameters, where a protocol has names and passwords there. What the headers say counts before them.
    pub(crate) query: Option<&'a Query>,
    pub(crate) peer: Option<&'a Peer>,
}

impl Who<'_> {
    fn credentials(&self) -> Option<Credentials> {
        if let Some(value) = self.headers.get(AUTHORIZATION) {
            return credentials::parse(value.as_bytes());
        }
        let query = self.query?;
        Some(Credentials { name: query.get("u")?.to_vec(), password: query.get("p")?.to_vec() })
    }
}

/// Lets in who may use a route; `bucket` is the one, or the space, that its path names. The user, when there are users.
pub(crate) async fn admit(
    shared: &Shared,
    who: Who<'_>,
    access: Access,
    bucket: Option<&[u8]>,
) -> Result<Option<Arc<User>>, Refused> {
    if access == Access::Open || !shared.options.users.is_required() {
        return Ok(None);
    }
    let user = match who.credentials() {
        Some(given) => {
            let name = given.name.clone();
            let user = verify(shared, given).await;
            if user.as_ref().is_none_or(|user| !user.may_enter(DOOR)) {
                let address = who.peer.and_then(Peer::address);
                shared.options.users.tell_failed(FailedLogin { door: DOOR, name: &name, address });
            }
            user
        }
        // Browsers ask without first, and are told to ask for a name.
        None => None,
    };
    let user = user.ok_or(Refused::Unknown)?;
    let forbidden = |text| Err(Refused::Failed(Failure::new(StatusCode::FORBIDDEN, text)));
    if !user.may_enter(DOOR) {
        return forbidden("this user may not use HTTP");
    }
    let right = match access {
        Access::Open | Access::User => return Ok(Some(user)),
        Access::Admin if user.is_admin() => return Ok(Some(user)),
        Access::Admin => return forbidden("it needs the right 'admin' on '*'"),
        Access::Read => Right::Read,
        Access::Write => Right::Write,
        Access::Drop => Right::Admin,
    };
    if !bucket.is_some_and(|bucket| user.may(right, bucket)) {
        return forbidden("this user may not do this with this bucket or space");
    }
    Ok(Some(user))
}

/// Verifies at once what was verified before, and else in a thread that may take its time: argon2 is slow on purpose.
async fn verify(shared: &Shared, given: Credentials) -> Option<Arc<User>> {
    let users = Arc::clone(&shared.options.users);
    if let Some(user) = users.verify_cached(&given.name, &given.password) {
        return Some(user);
    }
    // Each verification takes much memory, so there are never many at a time.
    let _place = shared.verifying.acquire().await.ok()?;
    tokio::task::spawn_blocking(move || users.verify(&given.name, &given.password)).await.ok().flatten()
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Refused::Failed(failure) = self else {
            let mut answer = Failure::new(StatusCode::UNAUTHORIZED, "name and password, please").into_response();
            for challenge in ["Basic realm=\"holdfast\", charset=\"UTF-8\"", "Bearer realm=\"holdfast\""] {
                answer.headers_mut().append(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
            return answer;
        };
        failure.into_response()
    }
}
