//! `cargo xtask test`: everything there is to test, from the smallest to whole programs.
//!
//! Unit, property, model and documentation tests run in the crates; then the program is met by real clients, SIGKILL and a
//! full disk; then the simulator, with seeds that never change and fresh ones; then the examples. All are of one profile,
//! [`PROFILE`]: to build everything twice takes longer than to run it.
//!
//! May use: `install`, `run`, `tally`, `workspace`. Must not know: any single test.

use std::path::Path;
use std::process::ExitCode;

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

    let of_profile = |command: &str| {
        let mut of_profile = cargo();
        of_profile.current_dir(root).args([command, "--profile", PROFILE]);
        of_profile
    };
    let mut crates = of_profile("test");
    crates.args(["--workspace", "--exclude", "holdfast-tests", "--no-fail-fast"]);
    tests("tests of the crates", &mut crates, tally);

    let simulator = "holdfast-sim".to_owned();
    let simulated = workspace.programs.contains(&simulator);
    let mut build = of_profile("build");
    build.args(["--package", "holdfast-server"]);
    if simulated {
        build.args(["--package", &simulator]);
    }
    let built = step("build the programs", &mut build, tally);
    let programs = workspace.target.join(PROFILE);

    if built {
        let mut programs_tests = of_profile("test");
        programs_tests.args(["--package", "holdfast-tests", "--no-fail-fast"]);
        // What these tests print (seeds, rounds, what could not run here) is part of the result.
        programs_tests.args(["--", "--nocapture"]);
        programs_tests.env("HOLDFAST_BIN", programs.join("holdfast")).env("HOLDFAST_PYTHON", python);
        tests("end to end", &mut programs_tests, tally);
    }
    if built && simulated {
        let mut simulation = std::process::Command::new(programs.join(&simulator));
        simulation.current_dir(root).args(["run", "--fixed", "--fresh", FRESH_SEEDS]);
        step("simulation", &mut simulation, tally);
    } else if !simulated {
        tally.read_line("SKIPPED simulation: the workspace has no program holdfast-sim");
    }
    for example in &workspace.examples {
        let mut run = of_profile("run");
        run.args(["--quiet", "--package", "holdfast-examples", "--example", example]);
        step(&format!("example {example}"), &mut run, tally);
    }
}
