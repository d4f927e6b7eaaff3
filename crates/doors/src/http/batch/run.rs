//! A batch carried out: under the locks of the objects that it names, in a transaction of what it does in spaces, with its points.
//!
//! Nothing in it waits: an entry that a transaction has locked makes the whole fail. Each operation sees what those before it did.
//!
//! May use: the facade, `running`. Must not know: HTTP's messages, rights.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use axum::http::StatusCode;
use holdfast::series::Rows;
use holdfast::{Durability, ErrorKind, Position, Scope, Store};

use super::answer::{Answer, list};
use super::operation::Operation;
use super::running::{Bounds, Objects, Own, Running};
use super::{Done, Fault};
use crate::http::failure::Failure;
use crate::http::object::{Name, shown_at};
use crate::http::shared::Shared;
use crate::http::showing::{Otherwise, Sent};
use crate::numbers::PointCounts;

/// Carries a batch out; does not wait for durability.
pub(super) fn run(
    store: &Store,
    shared: &Shared,
    operations: Vec<Operation>,
    durability: Durability,
    bounds: &Bounds,
) -> Result<Done, Fault> {
    let only_reads = operations.iter().all(Operation::only_reads);
    let durability = if only_reads { shown_at(durability) } else { durability };
    try_run(store, &shared.points, operations, bounds).map_or_else(
        |fault| {
            // It may have been refused by anything that was written by now: all that lies before the end of the journal.
            let newest = Position::new(store.watermarks().appended.get().saturating_sub(1));
            let rests_on = Some((newest, durability));
            Err(Fault { rests_on, ..fault })
        },
        |(position, answers)| {
            let body =
                format!("{{\"position\":\"{:016x}\",\"answers\":{}}}", position.get(), list(&answers, Some(position)));
            let otherwise = if only_reads { Otherwise::Refuse } else { Otherwise::Show };
            let body = Sent::of(body, &shared.budget, otherwise).map_err(Failure::from)?;
            Ok(Done { position, durability, body })
        },
    )
}

fn try_run(
    store: &Store,
    counts: &PointCounts,
    operations: Vec<Operation>,
    bounds: &Bounds,
) -> Result<(Position, Vec<Answer>), Fault> {
    let points = operations.iter().map(|it| if let Operation::Points(points) = it { points.len() } else { 0 }).sum();
    if points > 0 {
        store.series().make_room(points).map_err(Failure::from)?;
    }
    let names: Vec<Name> = operations.iter().filter_map(Operation::object).cloned().collect();
    let mut scope: Vec<(&[u8], &[u8])> = names.iter().map(|name| (&name.bucket[..], &name.key[..])).collect();
    scope.sort_unstable();
    scope.dedup();
    let mut transaction = store.begin().joining();
    let mut rows = Rows::new("default");
    // Where the store keeps listeners is its own affair.
    let is_everywhere = operations.iter().any(|it| matches!(it, Operation::Acknowledge { .. }));
    let scope = if is_everywhere { Scope::All } else { Scope::Keys(&scope) };
    let mut exclusive = store.exclusive(&scope).map_err(Failure::from)?;
    let mut own = Own::new();
    let mut running = Running {
        store,
        bounds: *bounds,
        objects: Objects::Locked(&mut exclusive),
        transaction: &mut transaction,
        rows: &mut rows,
        types: BTreeMap::new(),
        own: &mut own,
        has_met_lock: false,
        left_bytes: bounds.answer_bytes,
    };
    let mut answers = Vec::with_capacity(operations.len());
    for (number, operation) in operations.into_iter().enumerate() {
        answers.push(running.step(operation).map_err(Fault::of(number))?);
    }
    exclusive.join_spaces(&mut transaction);
    if !rows.is_empty() {
        exclusive.add_points(&mut rows).map_err(Failure::from)?;
    }
    let committed = exclusive.commit().map_err(|error| match error.kind() {
        ErrorKind::Conflict => Failure::new(StatusCode::CONFLICT, error.to_string()),
        _ => error.into(),
    })?;
    if points > 0 {
        counts.written.fetch_add(points as u64, Relaxed);
        counts.batches.fetch_add(1, Relaxed);
    }
    Ok((committed.position, answers))
}
