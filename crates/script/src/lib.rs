//! Scripts of strangers, in Luau, with limits of memory and time.
//!
//! A [`Script`] is source text that was compiled; a [`Sandbox`] runs it against a [`Host`], which is everything that the
//! script can reach of the world: what it calls commands, and where it logs. Values are converted as Redis does it.
//!
//! What a script cannot do: read files, ask the system, compile text, run bytecode, see what another run left behind, take
//! more memory than it may, or go on when the watch says stop. The watch comes from outside: there is no clock here.
//!
//! May use: `mlua`. Must not know: stores, protocols, clocks, threads.

mod convert;
mod error;
mod json;
mod limits;
mod number;
mod sandbox;
mod sha1;
mod source;
mod value;

pub use error::{ScriptError, Stop};
pub use limits::Limits;
pub use sandbox::{Entry, Host, Registered, Run, Sandbox, Watch};
pub use sha1::sha1hex;
pub use source::{Header, Script};
pub use value::Value;
