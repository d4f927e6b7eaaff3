//! Scripts that one door runs and keeps for another: what is to be run or kept, and what came of it.
//!
//! The RESP door has the scripts, and the commands that they call; a door that has neither asks it.
//!
//! May use: the facade, `auth`, `budget`, the values of the crate `script`. Must not know: protocols, how scripts run.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{Durability, ErrorKind, Position, Result as StoreResult};
use script::{Registered, Value};
use tokio::sync::OwnedSemaphorePermit;

use crate::auth::User;
use crate::budget::Share;

/// The scripts of a door, which another door may run.
#[derive(Clone)]
pub struct Scripts(Arc<dyn RunsScripts>);

impl Scripts {
    pub(crate) fn new(scripts: impl RunsScripts + 'static) -> Self {
        Scripts(Arc::new(scripts))
    }

    /// Runs one, in a thread that may block, when it is its turn, and lets go of the share when it has ended. It goes on when the answer
    /// is dropped.
    pub(crate) fn run(&self, wanted: Wanted, accepts: Accepts, share: Share) -> Running {
        self.0.run(wanted, accepts, share)
    }

    /// Those that are kept.
    pub(crate) fn kept(&self) -> &dyn KeepsScripts {
        &*self.0
    }
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts").finish_non_exhaustive()
    }
}

/// Who has scripts.
pub(crate) trait RunsScripts: KeepsScripts + Send + Sync {
    fn run(&self, wanted: Wanted, accepts: Accepts, share: Share) -> Running;
}

/// Who keeps scripts: by the SHA-1 of their text as long as it is open, and in libraries of functions, which lie in the store. What compiles or
/// changes the store blocks.
pub(crate) trait KeepsScripts {
    /// A turn among those that run, for what compiles.
    fn turn(&self) -> Turning;

    /// Compiles a script and remembers it; its SHA-1.
    fn remember(&self, text: &[u8]) -> Result<String, Failed>;

    /// Fails when no script with this SHA-1 is remembered.
    fn find(&self, sha1: &str) -> Result<(), Failed>;

    /// Forgets all that are remembered.
    fn forget(&self) -> Result<(), Failed>;

    /// The libraries whose names match the pattern.
    fn libraries(&self, pattern: Option<&[u8]>) -> Result<Libraries, Failed>;

    /// The library of this name.
    fn library(&self, name: &str) -> Result<Libraries, Failed>;

    /// Compiles a library and keeps it; its name, and what an answer rests on.
    fn load(&self, text: &[u8], load: Load) -> Result<(String, Position), Failed>;

    /// Deletes a library, or all; what an answer rests on.
    fn remove(&self, name: Option<&str>) -> Result<Position, Failed>;
}

/// Ends when it is one's turn, which is over when what it answers is dropped.
pub(crate) type Turning = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, Failed>> + Send>>;

/// What becomes of a library of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// There may be none.
    New,
    Replace,
}

/// A library of functions.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) name: String,
    pub(crate) source: Vec<u8>,
    pub(crate) functions: Vec<Registered>,
}

/// Libraries as of one moment.
#[derive(Debug)]
pub(crate) struct Libraries {
    pub(crate) libraries: Vec<Arc<Library>>,
    /// What an answer rests on.
    pub(crate) position: Position,
}

/// Looks at what a script returned before its changes are committed, and takes what the answer needs of memory. What it refuses undoes them.
pub(crate) type Accepts = Box<dyn FnMut(&Value) -> StoreResult<Share> + Send>;

/// Ends when the script has ended, and what it changed is in the journal.
pub(crate) type Running = Pin<Box<dyn Future<Output = Ran> + Send>>;

/// Which script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// With this text.
    Text(Vec<u8>),
    /// With this SHA-1 of its text.
    Hash(String),
    /// This function of a library.
    Function(String),
}

/// A script that is to be run, and for whom.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) which: Which,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// Whether writing is refused.
    pub(crate) is_reading: bool,
    /// The database that is selected when it begins.
    pub(crate) database: u16,
    /// Bytes of texts in what it returns.
    pub(crate) result_bytes_max: usize,
    /// How durable what it shows is to be, unless a command in it asks for more.
    pub(crate) durability: Durability,
    pub(crate) user: Option<Arc<User>>,
    /// Who asks, and by which door, for the log.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) door: String,
    /// The longest that it may work, if the door allows that.
    pub(crate) time_max: Duration,
}

/// A script that was run, or was not.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) result: Result<Returned, Failed>,
    /// What the result rests on, an error too: how durable it has to be before anybody is told.
    pub(crate) rests_on: Vec<(Durability, Position)>,
}

/// What a script returned.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) value: Value,
    /// Of the batch that it became; of one that changed nothing, what it rests on.
    pub(crate) position: Position,
    /// What was taken of memory for it.
    pub(crate) share: Share,
}

/// Why a script came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) why: Why,
    /// As RESP says it, with the code in front.
    pub(crate) text: String,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// There is no such script, or function.
    Missing,
    /// What was sent is no script, or names what there is not.
    Malformed,
    /// It took longer than it may, or was ended.
    Stopped,
    /// The user may not do this.
    Denied,
    /// The script says so, or a command in it.
    Raised,
    /// The store does, or who has the scripts.
    Store(ErrorKind),
}
