//! `cargo xtask test`: everything there is to test, from the smallest to whole programs.
//!
//! Unit, property, model and documentation tests run in the crates, and the program is met by real clients, SIGKILL and a
//! full disk; then comes the simulator, with seeds that never change and fresh ones; then the examples. All of it is built once, by one
//! profile, [`PROFILE`], and in one selection: to build everything twice takes longer than to run it.
//!
//! May use: `install`, `run`, `tally`, `workspace`. Must not know: any single test.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::install;
use crate::run::{cargo, step, tests};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Seeds that nobody has tried yet, in each run.
const FRESH_SEEDS: &str = "200";
/// What everything is built by: see the workspace's manifest.
const PROFILE: &str = "checked";

pub(crate) fn test(root: &Path) -> ExitCode {
    let mut tally = Tally::default();
    test_into(root, &mut tally);
    finish(&tally)
}

/// Prints the report; the last line is the summary.
pub(crate) fn finish(tally: &Tally) -> ExitCode {
    println!("{}", tally.report());
    if tally.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

pub(crate) fn test_into(root: &Path, tally: &mut Tally) {
    let workspace = match Workspace::ask(root) {
        Ok(workspace) => workspace,
        Err(error) => {
            println!("{error}");
            tally.step("cargo metadata", false);
            return;
        }
    };
    let python = install::install(root, &workspace.target, tally);

    let of_profile = |arguments: &[&str]| {
        let mut of_profile = cargo();
        of_profile.current_dir(root).args(arguments).args(["--profile", PROFILE, "--workspace"]);
        of_profile
    };
    let programs = workspace.target.join(PROFILE);
    let with_programs = |mut command: Command| {
        command.current_dir(root).env("HOLDFAST_BIN", programs.join("holdfast")).env("HOLDFAST_PYTHON", &python);
        command
    };
    // All at once: what is selected decides by which features libraries are built, and a part alone would build them anew.
    let built = step("build", &mut of_profile(&["build", "--bins", "--examples", "--tests"]), tally);
    tests("tests", &mut with_programs(of_profile(&["test", "--no-fail-fast"])), tally);
    if !built {
        return;
    }
    let mut simulation = with_programs(Command::new(programs.join("holdfast-sim")));
    simulation.args(["run", "--fixed", "--fresh", FRESH_SEEDS]);
    step("simulation", &mut simulation, tally);
    for example in &workspace.examples {
        let mut run = with_programs(Command::new(programs.join("examples").join(example)));
        step(&format!("example {example}"), &mut run, tally);
    }
}
