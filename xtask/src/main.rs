//! Project chores: `cargo xtask test`, `cargo xtask ci`, `cargo xtask tidy`.
//!
//!   test   installs what the tests need from outside, then runs every test there is; the last line of its output is
//!          `N passed, N failed`
//!   ci     formatting, lints, documentation, dependencies, tidy, then test
//!   tidy   the rules of the house that no compiler checks
//!
//! May use: std, `toml`, `serde_json`. Must not know: the crates of the product, except by their names and folders.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to the person or the log that runs it")]

mod ci;
mod install;
mod run;
mod tally;
mod test;
mod tidy;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <test | ci | tidy>";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test"] => test::test(&root()),
        ["ci"] => ci::ci(&root()),
        ["tidy"] => tidy::tidy(&root()),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The folder of the workspace: cargo names this crate's folder to whatever it runs.
fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("xtask"), PathBuf::from);
    own.parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}
