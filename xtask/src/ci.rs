//! `cargo xtask ci`: what must hold before a change lands. Every step runs, whatever the others said.
//!
//! May use: `run`, `tally`, `test`, `workspace`. Must not know: any single test.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::run::{cargo, step, succeeds};
use crate::tally::Tally;
use crate::test;
use crate::workspace::Workspace;

const DENY_VERSION: &str = "0.20.2";

pub(crate) fn ci(root: &Path) -> ExitCode {
    let mut tally = Tally::default();
    let at = |arguments: &[&str]| {
        let mut command = cargo();
        command.current_dir(root).args(arguments);
        command
    };
    step("format", &mut at(&["fmt", "--all", "--check"]), &mut tally);
    let lints = &["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    step("lints", &mut at(lints), &mut tally);
    // Libraries alone: the program `holdfast` and the library of that name would write the same pages.
    let mut documentation = at(&["doc", "--workspace", "--no-deps", "--lib"]);
    step("documentation", documentation.env("RUSTDOCFLAGS", "-D warnings"), &mut tally);
    step("tidy", &mut at(&["xtask", "tidy"]), &mut tally);
    let mut fuzz = at(&["check", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target/fuzz"]);
    // Checking links nothing, so the fuzzer itself, which takes a C++ compiler, need not be built.
    fuzz.env("CUSTOM_LIBFUZZER_PATH", "/nowhere/libfuzzer.a").env("CUSTOM_LIBFUZZER_STD_CXX", "none");
    step("fuzz targets", &mut fuzz, &mut tally);
    dependencies(root, &mut tally);
    test::test_into(root, &mut tally);
    test::finish(&tally)
}

/// Licences, sources and duplicates of what we depend on.
///
/// Not advisories: their database is a git repository, and a test run reaches package registries only.
fn dependencies(root: &Path, tally: &mut Tally) {
    let tools = match Workspace::ask(root) {
        Ok(workspace) => workspace.target.join("tools"),
        Err(error) => {
            println!("{error}");
            tally.step("dependencies", false);
            return;
        }
    };
    let own = tools.join("bin/cargo-deny");
    let installed = |program: &Path| succeeds(Command::new(program).arg("--version"));
    let program = if installed(Path::new("cargo-deny")) { Path::new("cargo-deny") } else { &own };
    if !installed(program) {
        println!("installing cargo-deny {DENY_VERSION} into {}: it checks what we depend on", tools.display());
        let mut install = cargo();
        // Unoptimized it builds in a third of the time, and it runs for a second.
        install.args(["install", "cargo-deny", "--version", DENY_VERSION, "--locked", "--debug", "--root"]).arg(&tools);
        install.env("CARGO_PROFILE_DEV_DEBUG", "0");
        if !step("install cargo-deny", &mut install, tally) {
            return;
        }
    }
    let mut check = Command::new(program);
    check.current_dir(root).args(["--all-features", "check", "bans", "licenses", "sources"]);
    step("dependencies", &mut check, tally);
}
