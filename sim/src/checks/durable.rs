//! Acknowledged implies present: after a crash the store holds a prefix of the committed batches that covers everything
//! that was promised; a batch is there whole or not at all.
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
            // What was promised beyond the journal's end was promised for a kill, and the power took it: positions there are
            // given again to batches of which nothing was promised.
            let end = Position::new(store.watermarks().appended.get().saturating_sub(1));
            model.written = model.written.min(end).max(last);
            model.synced = model.synced.min(end).max(last);
            return indexes::check(store, model);
        }
    }
    let expected = Model::visible(&model.prefix(at_least), now_ms);
    let text = format!("promised up to {promised} ({at_least} of {} batches)", model.batches.len());
    Err(violation("durable", format!("{text}: {}", difference(&expected, &found))))
}
