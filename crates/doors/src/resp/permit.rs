//! Whether a user may run a command: by the buckets and spaces its row says it touches.
//!
//! May use: `auth`, `table`. Must not know: the store, what commands do.

use super::call::{Answer, Fail};
use super::handle::keys_of;
use super::session::BucketName;
use super::table::{BucketOf, Command, flag};
use super::wire::Args;
use crate::auth::{Right, User};

/// Bytes of a name that are shown.
const SHOWN_BYTES: usize = 64;

/// Checks one call, with this database selected, before it runs or is queued.
pub(crate) fn check(user: &User, row: &Command, args: Args<'_>, selected: BucketName) -> Answer {
    if row.has(flag::ADMIN) && !user.is_admin() {
        return Err(refused(row, "it needs the right 'admin' on '*'"));
    }
    let right = if row.has(flag::CLEARS) {
        Right::Admin
    } else if row.has(flag::WRITE) {
        Right::Write
    } else {
        Right::Read
    };
    let lacking = match row.keys.bucket {
        BucketOf::None | BucketOf::Each | BucketOf::Series => return Ok(()),
        BucketOf::Selected => lacking(user, right, "bucket", selected.as_bytes()),
        BucketOf::First => lacking(user, right, "bucket", args.at(1)),
        BucketOf::Space => lacking(user, right, "space", args.at(1)),
        BucketOf::Copy => {
            let mut keys = Vec::new();
            keys_of(row, args, selected, &mut keys);
            keys.iter().enumerate().find_map(|(number, (bucket, _))| {
                let right = if number == 0 { Right::Read } else { Right::Write };
                lacking(user, right, "bucket", bucket)
            })
        }
    };
    match lacking {
        None => Ok(()),
        Some(lacking) if row.keys.first > 0 => Err(refused_keys(&lacking)),
        Some(lacking) => Err(refused(row, &lacking)),
    }
}

/// Refuses a user that may not read this bucket, where that shows only when a command runs.
pub(crate) fn check_read(user: Option<&User>, bucket: &[u8]) -> Answer {
    match user.and_then(|user| lacking(user, Right::Read, "bucket", bucket)) {
        None => Ok(()),
        Some(lacking) => Err(refused_keys(&lacking)),
    }
}

/// What a user would need and does not have.
fn lacking(user: &User, right: Right, what: &str, name: &[u8]) -> Option<String> {
    if user.may(right, name) {
        return None;
    }
    let right = match right {
        Right::Read => "read",
        Right::Write => "write",
        Right::Admin => "admin",
    };
    let (shown, more) = match name.get(..SHOWN_BYTES).filter(|_| name.len() > SHOWN_BYTES) {
        Some(start) => (start, "..."),
        None => (name, ""),
    };
    Some(format!("it needs the right '{right}' on {what} '{}{more}'", shown.escape_ascii()))
}

/// As Redis says it, and behind that what clients of Redis need not understand.
fn refused_keys(lacking: &str) -> Fail {
    format!("NOPERM this user has no permissions to access one of the keys used as arguments: {lacking}").into()
}

fn refused(row: &Command, lacking: &str) -> Fail {
    format!("NOPERM this user has no permissions to run the '{}' command: {lacking}", row.name).into()
}
