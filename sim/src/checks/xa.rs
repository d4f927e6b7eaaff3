//! After a crash: what was promised to be decided is, what was said to be rolled back is not decided, and a decision is
//! there if and only if the batch that it came with is.
//!
//! May use: what was said, the store's public surface. Must not know: how the crash came about.

use holdfast::{Durability, Position, State, Store, TransactionId};

use crate::model::Model;
use crate::run::{Check, violation};
use crate::xa::Said;

fn is_committed(store: &Store, id: TransactionId) -> Check<bool> {
    let status = store.xa().status(id).and_then(|pending| pending.wait(Durability::Written));
    let status = status.map_err(|error| violation("xa", format!("status: {error}")))?;
    Ok(status.state == State::Committed)
}

/// Compares, and forgets the decisions that the crash took. `before` are the positions of the batches before it.
pub(crate) fn check(
    store: &Store,
    said: &mut Said,
    model: &Model,
    promised: Position,
    before: &[Position],
) -> Check<()> {
    let mut lost = Vec::new();
    // What came last may have made nothing that is seen, such as an object that is gone again: whether the crash took that nobody can tell.
    let unseen = model.unseen_from(store.now_ms());
    for (id, position) in &said.committed {
        let is_there = is_committed(store, *id)?;
        if !is_there && *position <= promised {
            return Err(violation("xa", format!("{id}, decided at {position}, is gone; promised up to {promised}")));
        }
        let has_batch = model.batches.iter().any(|batch| batch.position == *position);
        let is_told = unseen.is_none_or(|unseen| *position < unseen);
        if before.contains(position) && is_told && has_batch != is_there {
            return Err(violation("xa", format!("half of batch {position} is there: the decision is: {is_there}")));
        }
        if !is_there {
            lost.push(*id);
        }
    }
    for id in &said.aborted {
        if is_committed(store, *id)? {
            return Err(violation("xa", format!("{id} was said to be rolled back, and is decided after a crash")));
        }
    }
    said.committed.retain(|id, _| !lost.contains(id));
    Ok(())
}
