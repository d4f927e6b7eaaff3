//! One side of a comparison: a program that does a plan to one store and says what it measured, a line of JSON each.
//!
//! May use: this folder. Must not know: the other side.

use std::io::Write;

use super::driver::Unsupported;
use super::outcome::Said;
use super::run::Side;
use super::{Driver, Failure, Plan, Result};

/// Does all workloads of `plan` to a fresh store and writes a [`Said`] a line to standard output.
pub(crate) fn run_side(driver: &dyn Driver, plan: &Plan) -> Result<()> {
    let mut say = |said: Said| -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&said)?)?;
        Ok(out.flush()?)
    };
    run_steps(driver, plan, &mut say)
}

fn run_steps(driver: &dyn Driver, plan: &Plan, say: &mut dyn FnMut(Said) -> Result<()>) -> Result<()> {
    let side = Side::new(driver, plan);
    for (round, workload) in plan.steps().into_iter().enumerate() {
        let said = match side.run(workload, round as u64, say) {
            Ok(outcome) => Said::Outcome(outcome),
            Err(failure) => Said::Skipped { workload: workload.name(), reason: unsupported(failure)?.to_string() },
        };
        say(said)?;
    }
    Ok(())
}

/// What the store cannot do; any other failure goes on.
fn unsupported(failure: Failure) -> Result<Unsupported> {
    Ok(*failure.downcast::<Unsupported>()?)
}

#[cfg(test)]
#[path = "side_tests.rs"]
mod tests;
