//! `cargo xtask test`: everything there is to test, from the smallest to whole programs.
//!
//! Unit, property, model and documentation tests run in the crates; then the release program is built and met by real
//! clients, SIGKILL and a full disk; then the simulator, with seeds that never change and fresh ones; then the examples.
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

    let mut crates = cargo();
    crates.current_dir(root).args(["test", "--workspace", "--exclude", "holdfast-tests", "--no-fail-fast"]);
    tests("tests of the crates", &mut crates, tally);

    let simulator = "holdfast-sim".to_owned();
    let simulated = workspace.programs.contains(&simulator);
    let mut build = cargo();
    build.current_dir(root).args(["build", "--release", "--package", "holdfast-server"]);
    if simulated {
        build.args(["--package", &simulator]);
    }
    let built = step("build the release programs", &mut build, tally);
    let programs = workspace.target.join("release");

    if built {
        let mut programs_tests = cargo();
        programs_tests.current_dir(root).args(["test", "--package", "holdfast-tests", "--no-fail-fast"]);
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
        let mut run = cargo();
        run.current_dir(root).args(["run", "--quiet", "--package", "holdfast-examples", "--example", example]);
        step(&format!("example {example}"), &mut run, tally);
    }
}
