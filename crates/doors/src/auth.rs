//! Who may come in, and what they may do: users, their argon2 password hashes and their rights. Shared by all doors.
//!
//! A password is checked with argon2, which costs tens of milliseconds on purpose. What passed once is remembered under
//! a keyed 128-bit hash (keys from the process' entropy, never stored), so that a request with the same credentials
//! costs nanoseconds. The memory is bounded. [`Users::verify`] blocks: never call it on an event loop.
//!
//! May use: argon2. Must not know: protocols, the store.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher, PasswordVerifier};

use crate::failed_logins::{FailedLogin, FailedLogins};

/// Credentials that are remembered as verified; when full, all are forgotten at once and verified again.
const VERIFIED_MAX: usize = 1024;
/// Nobody's password: verified against when the user is unknown, so that an unknown name takes as long as a wrong password.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$2MWeFnUVtlWzxNXeR/0D0UO9/BC/DUCACIv/LpP5MvI";

/// What may be done with a bucket, each including the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Look at keys and values.
    Read,
    /// Change them.
    Write,
    /// Empty the bucket; on the pattern `*` also run commands that concern the whole server.
    Admin,
}

/// The buckets that match a pattern (as KEYS reads patterns), and what may be done with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketRight {
    /// For example `db0`, `orders-*` or `*`.
    pub pattern: String,
    /// The most that may be done.
    pub right: Right,
}

/// One user as configured.
#[derive(Clone)]
pub struct User {
    /// The name; `default` is the user of `AUTH <password>` and of HTTP bearer tokens without a name.
    pub name: String,
    /// The argon2 hash in PHC form, as [`hash_password`] makes it.
    pub password_hash: String,
    /// Doors this user may come through ("resp", "http"); empty means all.
    pub doors: Vec<String>,
    /// Rights on buckets; what no pattern names is not allowed.
    pub buckets: Vec<BucketRight>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .field("doors", &self.doors)
            .field("buckets", &self.buckets)
            .finish_non_exhaustive()
    }
}

impl User {
    /// A user who may do everything through every door.
    pub fn admin(name: &str, password_hash: &str) -> Self {
        User {
            name: name.to_owned(),
            password_hash: password_hash.to_owned(),
            doors: Vec::new(),
            buckets: vec![BucketRight { pattern: "*".to_owned(), right: Right::Admin }],
        }
    }

    /// Whether this user may come through `door`.
    pub fn may_enter(&self, door: &str) -> bool {
        self.doors.is_empty() || self.doors.iter().any(|allowed| allowed == door)
    }

    /// Whether this user may do this with `bucket`.
    pub fn may(&self, right: Right, bucket: &[u8]) -> bool {
        self.buckets
            .iter()
            .any(|rule| rule.right >= right && crate::resp::glob_matches(rule.pattern.as_bytes(), bucket))
    }

    /// Whether this user may run commands that concern the whole server.
    pub fn is_admin(&self) -> bool {
        self.buckets.iter().any(|rule| rule.right == Right::Admin && rule.pattern == "*")
    }
}

/// Why a configured user was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserError {
    /// The hash is not a PHC string of argon2.
    #[error("the password hash of user {name} is not an argon2 hash: {reason}")]
    Hash {
        /// The user.
        name: String,
        /// What is wrong, without the hash.
        reason: String,
    },
    /// Two users have the same name.
    #[error("there are two users named {name}")]
    Twice {
        /// The name.
        name: String,
    },
}

/// All users. Without any, everybody may do everything.
pub struct Users {
    by_name: BTreeMap<String, Arc<User>>,
    keys: (RandomState, RandomState),
    verified: Mutex<HashMap<(u64, u64), Arc<User>>>,
    failed: FailedLogins,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("names", &self.by_name.keys().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

impl Users {
    /// # Errors
    /// When two users have one name, or a hash is not an argon2 PHC string.
    pub fn new(users: impl IntoIterator<Item = User>) -> Result<Self, UserError> {
        let mut by_name = BTreeMap::new();
        for user in users {
            let name = user.name.clone();
            let hash = PasswordHash::new(&user.password_hash);
            let reason = match &hash {
                Ok(hash) if hash.algorithm.as_str().starts_with("argon2") => None,
                Ok(hash) => Some(format!("it is {}", hash.algorithm)),
                Err(error) => Some(error.to_string()),
            };
            if let Some(reason) = reason {
                return Err(UserError::Hash { name, reason });
            }
            if by_name.insert(name.clone(), Arc::new(user)).is_some() {
                return Err(UserError::Twice { name });
            }
        }
        Ok(Users { by_name, ..Self::open() })
    }

    /// Nobody is configured: everybody may do everything.
    pub fn open() -> Self {
        Users {
            by_name: BTreeMap::new(),
            keys: (RandomState::new(), RandomState::new()),
            verified: Mutex::new(HashMap::new()),
            failed: FailedLogins::default(),
        }
    }

    /// Whether clients must authenticate.
    pub fn is_required(&self) -> bool {
        !self.by_name.is_empty()
    }

    /// The user with this name, if it is one of ours.
    pub fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// The user with this name and password, if they were verified before; does not block and does not run argon2.
    pub fn verify_cached(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).get(&self.key(name, password)).cloned()
    }

    /// The user with this name and password. Blocks for as long as argon2 takes, unless they were verified before.
    pub fn verify(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        if let Some(user) = self.verify_cached(name, password) {
            return Some(user);
        }
        let user = std::str::from_utf8(name).ok().and_then(|name| self.by_name.get(name));
        let hash = user.map_or(NOBODY, |user| user.password_hash.as_str());
        let right =
            PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok());
        let user = user.filter(|_| right)?;
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(self.key(name, password), user.clone());
        Some(user.clone())
    }

    /// Notes in the log that somebody was not let in.
    pub(crate) fn tell_failed(&self, failed: FailedLogin<'_>) {
        self.failed.tell(failed);
    }

    /// How often somebody was not let in since the doors were opened.
    pub fn failed_logins(&self) -> u64 {
        self.failed.count()
    }

    fn key(&self, name: &[u8], password: &[u8]) -> (u64, u64) {
        (self.keys.0.hash_one((name, password)), self.keys.1.hash_one((name, password)))
    }
}

/// Hashes a password with argon2id for the configuration file. Blocks for tens of milliseconds.
///
/// # Errors
/// When the system has no entropy for the salt.
pub fn hash_password(password: &[u8]) -> Result<String, String> {
    Argon2::default().hash_password(password).map(|hash| hash.to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        let mut reader = User::admin("reader", &hash_password(b"r").unwrap());
        reader.doors = vec!["http".to_owned()];
        reader.buckets = vec![
            BucketRight { pattern: "logs-*".to_owned(), right: Right::Read },
            BucketRight { pattern: "db1".to_owned(), right: Right::Write },
        ];
        Users::new([User::admin("default", &hash_password(b"secret").unwrap()), reader]).unwrap()
    }

    #[test]
    fn the_right_password_passes_and_is_remembered() {
        let users = users();
        assert!(users.verify_cached(b"default", b"secret").is_none());
        assert!(users.verify(b"default", b"secret").is_some());
        assert!(users.verify_cached(b"default", b"secret").is_some());
        assert!(users.verify(b"default", b"wrong").is_none());
        assert!(users.verify_cached(b"default", b"wrong").is_none());
        assert!(users.verify(b"nobody", b"secret").is_none());
        assert!(users.verify(b"\xff", b"secret").is_none());
    }

    #[test]
    fn the_hash_of_nobody_is_well_formed_so_that_it_costs_what_a_real_one_costs() {
        let hash = PasswordHash::new(NOBODY).unwrap();
        assert!(hash.hash.is_some() && hash.salt.is_some());
    }

    #[test]
    fn rights_include_the_lesser_ones_and_stop_at_the_pattern() {
        let users = users();
        let reader = users.get("reader").unwrap();
        assert!(reader.may(Right::Read, b"logs-2024"));
        assert!(!reader.may(Right::Write, b"logs-2024"));
        assert!(
            reader.may(Right::Read, b"db1") && reader.may(Right::Write, b"db1") && !reader.may(Right::Admin, b"db1")
        );
        assert!(!reader.may(Right::Read, b"db0"));
        assert!(!reader.is_admin() && users.get("default").unwrap().is_admin());
        assert!(reader.may_enter("http") && !reader.may_enter("resp"));
    }

    #[test]
    fn bad_configurations_are_refused_and_nothing_prints_a_hash() {
        assert!(matches!(Users::new([User::admin("a", "plain")]), Err(UserError::Hash { .. })));
        let hash = hash_password(b"x").unwrap();
        assert!(matches!(Users::new([User::admin("a", &hash), User::admin("a", &hash)]), Err(UserError::Twice { .. })));
        assert!(!format!("{:?}", User::admin("a", &hash)).contains("argon2"));
        assert!(!format!("{:?}", users()).contains("argon2"));
    }
}
