//! A shared transaction that goes from one program to the next is held by one at a time: nobody decides about what is suspended, one
//! program resumes it, and with a deadline it outlives the program that began it.
//!
//! May use: what was said. Must not know: who was told, what breaks when.

use base::Clock;
use holdfast::{Patience, Store, TransactionId};

use crate::distributed::said::Held;
use crate::distributed::world::World;
use crate::run::{Check, Violation, violation};

fn wrong(id: TransactionId, text: &str) -> Violation {
    violation("holder", format!("{id} {text}"))
}

/// The coordinator lets this run of a program suspend it.
pub(crate) fn suspended(world: &mut World, id: TransactionId, run: u64) -> Check<()> {
    match world.said.held.insert(id, Held::Nobody) {
        Some(Held::By(holder)) if holder != run => Err(wrong(id, "is suspended by a program that does not hold it")),
        _ => Ok(()),
    }
}

/// The coordinator lets this run of a program resume it.
pub(crate) fn resumed(world: &mut World, id: TransactionId, run: u64) -> Check<()> {
    match world.said.held.insert(id, Held::By(run)) {
        None => Err(wrong(id, "is resumed, and was not suspended")),
        Some(Held::By(holder)) if holder != run => Err(wrong(id, "is held by two programs")),
        _ => Ok(()),
    }
}

/// Somebody who does not hold it would commit it now and then: refused while it is suspended, and nothing comes of it.
pub(crate) fn commit_by_others(world: &mut World, store: &Store, id: TransactionId) -> Check<()> {
    if world.said.held.get(&id) != Some(&Held::Nobody) || !world.random.chance(1, 4) {
        return Ok(());
    }
    match store.xa().decide(id, &[], Patience::Over) {
        Ok(_) => Err(wrong(id, "is settled by a program that does not hold it while it is suspended")),
        Err(_) => Ok(()),
    }
}

/// The coordinator decides to commit it, as this run of a program asked.
pub(crate) fn decided(world: &mut World, id: TransactionId, run: u64) -> Check<()> {
    match world.said.held.get(&id) {
        Some(Held::Nobody) => Err(wrong(id, "is committed while it is suspended")),
        Some(Held::By(holder)) if *holder != run => Err(wrong(id, "is committed by a program that does not hold it")),
        Some(Held::By(_)) => {
            world.outcome.resumed += 1;
            Ok(())
        }
        None => Ok(()),
    }
}

/// Somebody who found branches of it is told to roll them back.
pub(crate) fn rolled_back(world: &World, id: TransactionId) -> Check<()> {
    let has_reason = world.said.aborted.contains(&id) || world.said.failed.contains(&id);
    let is_early = id.deadline_ms > world.sim.clock.wall_ms() && !has_reason;
    if is_early && world.said.held.get(&id) == Some(&Held::Nobody) {
        return Err(wrong(id, "is rolled back before its deadline while it is suspended"));
    }
    Ok(())
}
