//! Why a script did not end well.
//!
//! May use: nothing. Must not know: Luau.

use thiserror::Error;

/// Who ends a script that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its time is over.
    Time,
    /// It has made as many steps as it may.
    Steps,
    /// Somebody asked for it.
    Killed,
}

/// Why a script was not compiled or did not end well.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The text is no script; the text of the error names the line.
    #[error("the script does not compile: {text}")]
    Compile {
        /// What Luau says, bounded.
        text: String,
    },
    /// The text is too long.
    #[error("the script has {bytes} bytes and may have {bytes_max}")]
    TooLong {
        /// Bytes of the text.
        bytes: usize,
        /// How many there may be.
        bytes_max: usize,
    },
    /// The first line begins with `#!` and is wrong.
    #[error("the first line is wrong: {text}")]
    Header {
        /// What is wrong with it.
        text: String,
    },
    /// The watch ended it.
    #[error("the script was stopped: {}", match .0 { Stop::Time => "it took longer than it may", Stop::Steps => "it made more steps than it may", Stop::Killed => "somebody asked for it" })]
    Stopped(Stop),
    /// It needed too much memory.
    #[error("the script needs more memory than the {bytes_max} bytes it may take")]
    Memory {
        /// How many bytes it may take.
        bytes_max: usize,
    },
    /// It failed; the text names the line.
    #[error("{text}")]
    Failed {
        /// What Luau says, bounded.
        text: String,
    },
    /// It raised an error reply, its own or that of a command.
    #[error("{text}")]
    Raised {
        /// The reply's text, with its code in front.
        text: String,
    },
    /// What it returned cannot be a reply.
    #[error("the script returned what cannot be a reply: {what}")]
    Result {
        /// What was wrong.
        what: &'static str,
    },
    /// What it returned is larger than what it may return.
    #[error("the script returned what cannot be a reply: {what}")]
    TooLarge {
        /// What was wrong.
        what: &'static str,
        /// Bytes of texts in it; as far as they were counted where it has too many elements.
        bytes: usize,
    },
    /// The library has no function of this name.
    #[error("the library has no such function")]
    NoFunction,
    /// The state could not be made.
    #[error("no script can run: {text}")]
    Setup {
        /// What Luau says.
        text: String,
    },
}
