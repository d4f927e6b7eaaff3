//! Entries that a space has not, and a database behind it may have.
//!
//! May use: the facade. Must not know: databases, protocols.

use std::future::Future;
use std::pin::Pin;

use holdfast::space::{Entries, ReadOptions, Value, Wanted};
use holdfast::{Error, ErrorKind, Result};

/// Ends when the entry is in the space, if the database has it, and says whether it has; or with why nobody knows.
pub type Loading = Pin<Box<dyn Future<Output = Result<bool>> + Send>>;

/// Loads entries that are read by their id and not there. The program has the databases; doors only ask.
pub trait ReadThrough: Send + Sync {
    /// Whether entries of this type may be in a database.
    fn is_for(&self, space: &str, type_name: &str) -> bool;

    /// Loads the entry with this id, of a type for which it is. Must not block.
    fn load(&self, space: &str, type_name: &str, id: &Value) -> Loading;
}

/// How often an entry is loaded that is gone again when it is looked at.
const TRIES_MAX: usize = 8;

/// Loads an entry that is read by its id and is not there, and has `look` look again, which looks for the routing value too if there is one.
pub(crate) async fn load_and_look<T, E: From<Error>, L>(
    through: &dyn ReadThrough,
    (entries, id, routing): (&Entries, &Value, Option<&Value>),
    mut look: impl FnMut() -> L,
) -> std::result::Result<Option<T>, E>
where
    L: Future<Output = std::result::Result<Option<T>, E>>,
{
    let of = entries.definition();
    for _ in 0..TRIES_MAX {
        if !through.load(&of.space, &of.name, id).await? {
            return Ok(None);
        }
        if let Some(found) = look().await? {
            return Ok(Some(found));
        }
        // It may have another routing value than is wanted.
        if routing.is_some() && entries.read_shown(&Wanted::id(id.clone()), &ReadOptions::default())?.value.is_some() {
            return Ok(None);
        }
    }
    let text = format!("entries of {} are gone as soon as they are loaded: its limit of memory is too small", of.name);
    Err(Error::new(ErrorKind::Limit, text).into())
}
