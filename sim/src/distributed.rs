//! The second world: distributed transactions over simulated resource managers, with a real store as coordinator.
//!
//! Programs, a server, resource managers, and messages that come late, out of order or not at all. The same pure logic that
//! `tm` and the C library drive runs here: the store's table, two-phase commit, recovery. Everything may be killed at any
//! time, and at each of the named points of [`points`].
//!
//! May use: everything of the simulator. Must not know: protocols.

mod application;
mod checks;
mod handing_on;
mod manager;
mod points;
mod recovery;
mod said;
mod server;
mod wire;
mod world;

use std::collections::BTreeMap;

use crate::run::{Setup, Violation, violation};
use points::PASSAGES;
pub use points::{Moment, Point, Side, Step, all as all_points};
use world::World;

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Distributed {
    /// A hash over what happened.
    pub trace: u64,
    /// Programs that were told how a transaction ended.
    pub told: u64,
    /// Programs killed.
    pub kills: u64,
    /// Times that the server was killed, or its power cut.
    pub crashes: u64,
    /// Branches that recovery settled.
    pub recovered: u64,
    /// Transactions that were committed by a program that had resumed them.
    pub resumed: u64,
    /// Where kills struck, and at which passage.
    pub struck: BTreeMap<(Point, u32), u64>,
}

/// So often the fixed seeds plan a kill at each point and passage; some of the plans come to nothing.
const FIXED_PLANS: u64 = 26;

/// Seeds that never change, and strike at every point at both passages.
pub fn fixed_seeds() -> std::ops::Range<u64> {
    0..FIXED_PLANS * points::all().len() as u64 * u64::from(PASSAGES)
}

/// The points, and passages, at which no kill struck.
#[must_use]
pub fn missed(struck: &BTreeMap<(Point, u32), u64>) -> Vec<String> {
    let all = points::all().into_iter().flat_map(|point| (1..=PASSAGES).map(move |passage| (point, passage)));
    let missed = all.filter(|at| !struck.contains_key(at));
    missed.map(|(point, passage)| format!("{point}, passage {passage}")).collect()
}

/// Runs a seed twice and checks that both runs are the same.
///
/// # Errors
/// The first check that fails.
pub fn prove(setup: Setup) -> Result<Distributed, Violation> {
    let first = run(setup)?;
    if first != run(setup)? {
        return Err(violation("determinism", format!("seed {} tells two stories", setup.seed)));
    }
    Ok(first)
}

/// Runs a seed. Its number says at which point the first kill strikes, so that as many seeds as there are points, times
/// the passages, plan each of them.
///
/// # Errors
/// The first check that fails.
pub(crate) fn run(setup: Setup) -> Result<Distributed, Violation> {
    let mut world = World::new(setup.seed, setup.lying_disk, setup.verbose)?;
    let points = points::all();
    let planned = usize::try_from(setup.seed % (points.len() as u64 * u64::from(PASSAGES))).unwrap_or(0);
    if let Some(point) = points.get(planned / PASSAGES as usize) {
        world.points.plan(*point, 1 + (planned % PASSAGES as usize) as u32);
    }
    for _ in 0..setup.steps {
        world.step()?;
    }
    world.settle()?;
    checks::all(&world)?;
    let world::Did { trace, told, kills, crashes, recovered, resumed } = world.outcome;
    Ok(Distributed { trace, told, kills, crashes, recovered, resumed, struck: world.points.struck })
}

#[cfg(test)]
#[path = "distributed/tests.rs"]
mod tests;
