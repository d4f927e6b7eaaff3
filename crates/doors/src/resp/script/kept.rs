//! Scripts that this door keeps for another: by hash, as SCRIPT LOAD does, and by name in libraries, as FUNCTION LOAD does.
//!
//! Whether the user may is the other door's to look at: what is loaded runs with the rights of whoever calls it.
//!
//! May use: `lent`, `cache`, `functions`, `crate::scripts`. Must not know: the other door.

use std::sync::Arc;

use holdfast::{ErrorKind, Position};
use script::{ScriptError, Stop};

use super::functions::{EXISTS, FULL};
use super::lent::{Lent, closing, failed, missing, why};
use super::run::{failure, limits};
use crate::resp::call::Fail;
use crate::resp::door::Door;
use crate::resp::glob;
use crate::scripts::{Failed, KeepsScripts, Libraries, Load, Turning, Why};

/// What is said where there is no such library.
const NO_LIBRARY: &str = "ERR Library not found";

impl Lent {
    fn door(&self) -> Result<Arc<Door>, Failed> {
        self.0.upgrade().ok_or_else(closing)
    }
}

impl KeepsScripts for Lent {
    fn turn(&self) -> Turning {
        let door = self.door();
        Box::pin(async move { door?.scripts.turns().acquire_owned().await.map_err(|_| closing()) })
    }

    fn remember(&self, text: &[u8]) -> Result<String, Failed> {
        let door = self.door()?;
        let added = door.scripts.add(text, &limits(&door.options));
        let (sha1, _) = added.map_err(|error| failed(Why::Malformed, failure(&error).text()))?;
        Ok(sha1)
    }

    fn find(&self, sha1: &str) -> Result<(), Failed> {
        self.door()?.scripts.get(sha1.as_bytes()).map(drop).ok_or_else(missing)
    }

    fn forget(&self) -> Result<(), Failed> {
        self.door()?.scripts.clear();
        Ok(())
    }

    fn libraries(&self, pattern: Option<&[u8]>) -> Result<Libraries, Failed> {
        let table = self.door()?.functions.table();
        let is_wanted = |name: &str| pattern.is_none_or(|pattern| glob::matches(pattern, name.as_bytes()));
        let libraries = table.libraries.iter().filter(|(name, _)| is_wanted(name));
        let libraries = libraries.map(|(_, library)| library.said.clone()).collect();
        Ok(Libraries { libraries, position: table.position })
    }

    fn library(&self, name: &str) -> Result<Libraries, Failed> {
        let table = self.door()?.functions.table();
        let library = table.libraries.get(name).ok_or_else(|| failed(Why::Missing, NO_LIBRARY))?;
        Ok(Libraries { libraries: vec![library.said.clone()], position: table.position })
    }

    fn load(&self, text: &[u8], load: Load) -> Result<(String, Position), Failed> {
        let door = self.door()?;
        door.functions.load(&door.store, text, load == Load::Replace).map_err(|fail| refused(&fail))
    }

    fn remove(&self, name: Option<&str>) -> Result<Position, Failed> {
        let door = self.door()?;
        let removed = door.functions.remove(&door.store, name).map_err(|fail| refused(&fail))?;
        removed.ok_or_else(|| failed(Why::Missing, NO_LIBRARY))
    }
}

/// Why a library is not kept.
fn refused(fail: &Fail) -> Failed {
    let why = match fail {
        Fail::Text(text) if text.ends_with(EXISTS) => Why::Store(ErrorKind::Conflict),
        Fail::Text(text) if text.ends_with(FULL) => Why::Store(ErrorKind::Limit),
        Fail::Text(text) if *text == failure(&ScriptError::Stopped(Stop::Time)).text() => Why::Stopped,
        // It says so while it is looked at, and none of it is kept.
        fail => match why(fail) {
            Why::Raised => Why::Malformed,
            why => why,
        },
    };
    failed(why, fail.text())
}
