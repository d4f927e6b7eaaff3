//! Acknowledged implies present: after a crash the store holds a prefix of the committed batches that covers everything
//! that was promised; a batch is there whole or not at all; no position is given twice.
//!
//! May use: the model. Must not know: how the crash came about.

use holdfast::{Position, Store};

use crate::checks::contents::{difference, read_all};
use crate::checks::indexes;
use crate::model::Model;
use crate::run::{Check, violation};

/// Finds the prefix that the reopened store holds, checks it against `promised`, and cuts the model to it.
pub(crate) fn check(store: &Store, model: &mut Model, promised: Position) -> Check<()> {
    let found = read_all(store)?;
    let now_ms = store.now_ms();
    let at_least = model.batches.iter().filter(|batch| batch.position <= promised).count();
    for count in (at_least..=model.batches.len()).rev() {
        if Model::visible(&model.prefix(count), now_ms) == found {
            model.truncate(count);
            // What an opened store shows is on the disk: recovery has synced it.
            let last = model.batches.last().map_or(Position::ZERO, |batch| batch.position);
            model.written = model.written.max(last);
            model.synced = model.synced.max(last);
            // Not those either of batches that a power cut took.
            let end = store.watermarks().appended;
            if model.written >= end {
                let text = format!("position {} was given, and the journal goes on at {end}", model.written);
                return Err(violation("durable", text));
            }
            return indexes::check(store, model);
        }
    }
    let expected = Model::visible(&model.prefix(at_least), now_ms);
    let text = format!("promised up to {promised} ({at_least} of {} batches)", model.batches.len());
    Err(violation("durable", format!("{text}: {}", difference(&expected, &found))))
}
