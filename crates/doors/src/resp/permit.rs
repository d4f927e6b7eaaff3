//! Whether a user may run a command: by the buckets and spaces its row says it touches.
//!
//! May use: `auth`, `table`. Must not know: the store, what commands do.

use super::call::{Answer, Fail};
use super::handle::keys_of;
use super::session::Session;
use super::table::{BucketOf, Command, flag};
use super::wire::Args;
use crate::auth::{Right, User};

/// Checks one call before it runs or is queued.
pub(crate) fn check(user: &User, row: &Command, args: Args<'_>, session: &Session) -> Answer {
    if row.has(flag::ADMIN) && !user.is_admin() {
        return Err(refused(row));
    }
    let right = if row.has(flag::CLEARS) {
        Right::Admin
    } else if row.has(flag::WRITE) {
        Right::Write
    } else {
        Right::Read
    };
    let allowed = match row.keys.bucket {
        BucketOf::None | BucketOf::Each | BucketOf::Series => return Ok(()),
        // Inside MULTI a SELECT may be queued before: EXEC checks again.
        BucketOf::Selected => user.may(right, session.bucket.as_bytes()),
        BucketOf::First | BucketOf::Space => user.may(right, args.at(1)),
        BucketOf::Copy => {
            let mut keys = Vec::new();
            keys_of(row, args, session.bucket, &mut keys);
            keys.iter().enumerate().all(|(number, (bucket, _))| {
                let right = if number == 0 { Right::Read } else { Right::Write };
                user.may(right, bucket)
            })
        }
    };
    match allowed {
        true => Ok(()),
        false if row.keys.first > 0 => {
            Err("NOPERM this user has no permissions to access one of the keys used as arguments".into())
        }
        false => Err(refused(row)),
    }
}

fn refused(row: &Command) -> Fail {
    format!("NOPERM this user has no permissions to run the '{}' command", row.name).into()
}
