//! One side of a comparison: a program that does a plan to one store and says one line of JSON for each phase.
//!
//! May use: this folder. Must not know: the other side.

use std::io::Write;

use super::run::run_phase;
use super::{Driver, Plan, Result};

/// Does all phases of `plan` and writes an [`super::Outcome`] a line to standard output.
pub(crate) fn run_side(driver: &dyn Driver, plan: &Plan) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for (round, phase) in plan.phases.iter().enumerate() {
        let outcome = run_phase(driver, plan, *phase, round as u64)?;
        writeln!(out, "{}", serde_json::to_string(&outcome)?)?;
        out.flush()?;
    }
    Ok(())
}
