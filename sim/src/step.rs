//! The operations of a run: each does something to the store and to the model, and compares.
//!
//! May use: the run. Must not know: what breaks when.

use std::time::Duration;

use holdfast::{
    Compression, Condition, Durability, ErrorKind, Exclusive, Indexes, Metadata, Position, PutOptions, Scope, Term,
};

use crate::checks::indexes::INDEXES;
use crate::checks::views::{self, View};
use crate::model::{Batch, Effect, Model, Name};
use crate::run::{Check, Run, violation};
use crate::world::Sim;

const VIEWS_MAX: usize = 3;

pub(crate) fn name(run: &mut Run) -> Name {
    let bucket = [b"a".as_slice(), b"b\0", b"long bucket"];
    let bucket = bucket[usize::try_from(run.sim.random.below(3)).unwrap_or(0)].to_vec();
    (bucket, run.sim.random.below(12).to_string().into_bytes())
}

/// A few terms, the same ones again and again.
fn indexes(random: &mut base::Random) -> Indexes {
    let count = random.below(4);
    let pairs = (0..count).map(|_| {
        let index = INDEXES[usize::try_from(random.below(2)).unwrap_or(0)];
        let number = random.below(5);
        let term = match random.below(3) {
            0 => Term::Integer(number.cast_signed() - 2),
            _ => Term::Binary(vec![0; usize::try_from(number).unwrap_or(0)]),
        };
        (index, term)
    });
    Indexes::from_pairs(pairs.collect::<Vec<_>>())
}

fn compression(random: &mut base::Random) -> Option<Compression> {
    match random.below(6) {
        0 => Some(Compression::None),
        1 => Some(Compression::Lz4),
        2 => Some(Compression::Zstd),
        _ => None,
    }
}

fn effect(run: &mut Run) -> Effect {
    let now_ms = run.store.now_ms();
    let random = &mut run.sim.random;
    let soon = |random: &mut base::Random| random.chance(1, 3).then(|| now_ms + 1 + random.below(50));
    match random.below(10) {
        0..6 => {
            let mut value = vec![0; usize::try_from(random.below(300)).unwrap_or(0)];
            if random.chance(1, 40) {
                value.resize(6000, 0);
            }
            random.fill(&mut value);
            if random.chance(1, 3) {
                // Something that compresses.
                let half = value.len() / 2;
                value.truncate(half);
                value.resize(2 * half, 7);
            }
            let metadata = if random.chance(1, 4) { Metadata::from_pairs([("m", "x")]) } else { Metadata::default() };
            let indexes = indexes(random);
            Effect::Put { value, expires_ms: soon(random), metadata: metadata.encoded().to_vec(), indexes }
        }
        6..8 => Effect::Delete,
        _ => Effect::Expire { expires_ms: soon(random) },
    }
}

pub(crate) fn durability(run: &mut Run) -> Durability {
    match run.sim.random.below(4) {
        0 => Durability::Synced,
        1 => Durability::Written,
        2 => Sim::window(),
        _ => run.store.durability(),
    }
}

/// Stages an effect; true if it takes.
fn stage(
    exclusive: &mut Exclusive<'_>,
    (bucket, key): &Name,
    effect: &Effect,
    compression: Option<Compression>,
) -> holdfast::Result<bool> {
    match effect {
        Effect::Put { value, expires_ms, metadata, indexes } => {
            let (metadata, indexes) = (Metadata::from_encoded(metadata), indexes.clone());
            let options =
                PutOptions { expires_ms: *expires_ms, metadata, indexes, compression, ..PutOptions::default() };
            exclusive.put(bucket, key, value, &options).map(|()| true)
        }
        Effect::Delete => exclusive.delete(bucket, key),
        Effect::Expire { expires_ms } => exclusive.expire(bucket, key, *expires_ms),
        Effect::Clear => exclusive.clear(bucket).map(|()| true),
    }
}

/// Whether an error is one that the planned faults explain.
pub(crate) fn explained(error: &holdfast::Error) -> Check<()> {
    match error.kind() {
        ErrorKind::Unavailable => Ok(()),
        _ => Err(violation("errors", format!("{:?}: {error}", error.kind()))),
    }
}

/// As [`explained`], of a step of the background: a transaction that it ends is in the journal then, and may be missing in a ledger that cannot
/// be written.
pub(crate) fn explained_step(error: &holdfast::Error) -> Check<()> {
    if error.kind() == ErrorKind::Unknown { Ok(()) } else { explained(error) }
}

/// Commits a batch of one or several changes and waits for some durability.
pub(crate) fn change(run: &mut Run) -> Check<()> {
    let several = run.sim.random.chance(1, 4);
    let count = if several { 2 + run.sim.random.below(5) } else { 1 };
    let mut wanted: Vec<(Name, Effect)> = Vec::new();
    for _ in 0..count {
        let name = name(run);
        if wanted.iter().all(|(other, _)| *other != name) {
            wanted.push((name, effect(run)));
        }
    }
    let clears = several && run.sim.random.chance(1, 10);
    if clears {
        let bucket = name(run).0;
        wanted.insert(0, ((bucket, Vec::new()), Effect::Clear));
    }
    let keys: Vec<(&[u8], &[u8])> = wanted.iter().map(|((b, k), _)| (b.as_slice(), k.as_slice())).collect();
    let scope = if clears { Scope::All } else { Scope::Keys(&keys) };
    let store = run.store.clone();
    let mut exclusive = match store.exclusive(&scope) {
        Ok(exclusive) => exclusive,
        Err(error) => return explained(&error),
    };
    let now_ms = exclusive.now_ms();
    let mut effects = Vec::new();
    for (name, effect) in &wanted {
        let compression = compression(&mut run.sim.random);
        match stage(&mut exclusive, name, effect, compression) {
            Ok(true) => effects.push((name.clone(), effect.clone())),
            Ok(false) => {}
            Err(error) => return explained(&error),
        }
    }
    let there = |name: &Name| Model::visible(&run.model.contents, now_ms).contains_key(name);
    let cleared = |name: &Name| wanted.iter().any(|(n, e)| *e == Effect::Clear && n.0 == name.0);
    for (name, effect) in &wanted {
        let takes = matches!(effect, Effect::Put { .. } | Effect::Clear) || (there(name) && !cleared(name));
        // Without power a batch may have failed whose journal record, and a part of whose changes, are there until the store is opened again.
        let is_well = run.sim.disk.is_powered();
        if is_well && takes != effects.iter().any(|(n, e)| n == name && e == effect) {
            return Err(violation("contents", format!("{effect:?} of {name:?} should take: {takes}")));
        }
    }
    let committed = match exclusive.commit() {
        Ok(committed) => committed,
        Err(error) => return explained(&error),
    };
    if !effects.is_empty() {
        run.outcome.commits += 1;
        run.model.commit(Batch { position: committed.position, now_ms, effects });
    }
    run.trace("commit", committed.position.get());
    let durability = durability(run);
    acknowledge(run, committed.position, durability)
}

/// Waits, and notes what was promised if the wait succeeds.
pub(crate) fn acknowledge(run: &mut Run, position: Position, durability: Durability) -> Check<()> {
    match run.store.wait(position, durability) {
        Ok(()) => promise(run, position, durability),
        Err(error) => explained(&error)?,
    }
    Ok(())
}

pub(crate) fn promise(run: &mut Run, position: Position, durability: Durability) {
    run.model.written = run.model.written.max(position);
    if durability == Durability::Synced {
        run.model.synced = run.model.synced.max(position);
    }
    run.trace("acknowledged", position.get());
}

/// Reads an object as a user would: what is shown is promised not to vanish.
pub(crate) fn read(run: &mut Run) -> Check<()> {
    if run.sim.random.chance(1, 3) {
        return refusal(run);
    }
    let name = name(run);
    let expected = Model::visible(&run.model.contents, run.store.now_ms()).remove(&name);
    let shown = match run.store.kv().get(&name.0, &name.1) {
        Ok(shown) => shown,
        Err(error) => return explained(&error),
    };
    let value = shown.as_ref().map(|object| object.value.to_vec());
    if value != expected.as_ref().map(|thing| thing.value.clone()) {
        return Err(violation("contents", format!("a read of {name:?} shows {value:?}")));
    }
    told(run, &name, shown.map(|object| object.head.version), shown_at(run));
    Ok(())
}

/// How durable what is shown has to be.
pub(crate) fn shown_at(run: &Run) -> Durability {
    if run.store.durability() == Durability::Synced { Durability::Synced } else { Durability::Written }
}

/// Notes what somebody was told of an object: that it is there with this version, or that it is not. An absence is promised as well: the
/// newest change that made the object absent.
fn told(run: &mut Run, name: &Name, version: Option<Position>, durability: Durability) {
    let touched = |batch: &&Batch| {
        batch.effects.iter().any(|(n, effect)| n == name || (*effect == Effect::Clear && n.0 == name.0))
    };
    let newest = || run.model.batches.iter().rev().find(touched).map(|batch| batch.position);
    let position = version.unwrap_or_else(|| newest().unwrap_or_default());
    promise(run, position, durability);
}

/// Asks, as a user would, for what a condition forbids: what the refusal says of the object is promised not to vanish.
fn refusal(run: &mut Run) -> Check<()> {
    let name = name(run);
    let there = Model::visible(&run.model.contents, run.store.now_ms()).remove(&name).map(|thing| thing.version);
    let condition = match there {
        _ if run.sim.random.chance(1, 2) => Condition::Version(Position::new(1)),
        Some(_) => Condition::Absent,
        None => Condition::Present,
    };
    let kv = run.store.kv();
    let refused = match run.sim.random.chance(1, 2) {
        true => kv.put(&name.0, &name.1, b"refused", &PutOptions { condition, ..PutOptions::default() }).map(|_| ()),
        false => kv.delete(&name.0, &name.1, condition).map(|_| ()),
    };
    match refused {
        Ok(()) => Err(violation("refusals", format!("{condition:?} held of {name:?}, which is at {there:?}"))),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            run.trace("refused", there.map_or(0, Position::get));
            told(run, &name, there, shown_at(run));
            Ok(())
        }
        Err(error) => explained(&error),
    }
}

/// An optimistic transaction, with or without somebody in its way.
pub(crate) fn transaction(run: &mut Run) -> Check<()> {
    let (read, write) = (name(run), name(run));
    let mut transaction = run.store.begin();
    let seen = match transaction.get(&read.0, &read.1) {
        Ok(seen) => seen.map(|object| object.head.version),
        Err(error) => return explained(&error),
    };
    let disturbed = run.sim.random.chance(1, 2);
    if disturbed {
        let before = run.model.batches.len();
        change(run)?;
        if run.model.batches.len() == before {
            return Ok(());
        }
    }
    let now_ms = run.store.now_ms();
    let effect = Effect::Put {
        value: b"by transaction".to_vec(),
        expires_ms: None,
        metadata: Vec::new(),
        indexes: Indexes::default(),
    };
    if let Err(error) = transaction.put(&write.0, &write.1, b"by transaction", &PutOptions::default()) {
        return explained(&error);
    }
    let newest = Model::visible(&run.model.contents, now_ms).get(&read).map(|thing| thing.version);
    match transaction.commit(Durability::Written) {
        Ok(committed) => {
            if newest != seen {
                return Err(violation("transactions", format!("{read:?} had changed from {seen:?} to {newest:?}")));
            }
            run.outcome.commits += 1;
            run.model.commit(Batch { position: committed.position, now_ms, effects: vec![(write, effect)] });
            promise(run, committed.position, Durability::Written);
        }
        Err(error) if error.kind() == ErrorKind::Conflict => {
            if newest == seen {
                return Err(violation("transactions", format!("a conflict where nobody changed {read:?}")));
            }
            run.trace("conflict", 0);
            // That somebody has changed it is promised too.
            told(run, &read, newest, Durability::Written);
        }
        Err(error) => {
            explained(&error)?;
            // It may have been committed and only the wait failed: the crash that follows decides.
            let position = run.store.kv().peek_head(&write.0, &write.1).ok().and_then(|shown| shown.value);
            let fresh =
                |head: &holdfast::Head| run.model.batches.last().is_none_or(|last| head.version > last.position);
            if let Some(head) = position.filter(fresh) {
                run.model.commit(Batch { position: head.version, now_ms, effects: vec![(write, effect)] });
            }
        }
    }
    Ok(())
}

/// Takes a snapshot, or looks at the held ones again.
pub(crate) fn view(run: &mut Run) -> Check<()> {
    if !run.is_well() {
        return Ok(());
    }
    run.unless_struck(run.views.iter().try_for_each(views::check))?;
    if run.views.len() >= VIEWS_MAX {
        run.views.remove(0);
    }
    match run.store.snapshot() {
        Ok(snapshot) => {
            let contents = Model::visible_keys(&run.model.contents, run.store.now_ms());
            run.views.push(View { snapshot, contents });
            Ok(())
        }
        Err(error) => explained(&error),
    }
}

/// Time passes, and the background work gets its turn.
pub(crate) fn time(run: &mut Run) -> Check<()> {
    let by = Duration::from_micros(run.sim.random.below(20_000));
    run.sim.clock.advance(by);
    run.trace("time", u64::try_from(by.as_micros()).unwrap_or(0));
    // A conditional put that cannot take proves that conditions see through expiry.
    let name = name(run);
    let there = Model::visible(&run.model.contents, run.store.now_ms()).contains_key(&name);
    let condition = if there { Condition::Absent } else { Condition::Present };
    let options = PutOptions { condition, ..PutOptions::default() };
    match run.store.kv().put(&name.0, &name.1, b"never", &options) {
        Ok(_) => return Err(violation("conditions", format!("{condition:?} held for {name:?}"))),
        Err(error) if error.kind() == ErrorKind::Conflict => {}
        Err(error) => explained(&error)?,
    }
    for _ in 0..=run.sim.random.below(4) {
        if let Err(error) = run.store.step() {
            return explained_step(&error);
        }
    }
    run.trace("compacted", run.store.stats().compaction.segments);
    Ok(())
}

/// Somebody asks for a compaction.
pub(crate) fn compact(run: &mut Run) -> Check<()> {
    run.trace("compaction is asked for", 0);
    match run.store.compact() {
        Ok(done) => run.trace("compact", done.segments),
        Err(error) => {
            run.trace("compaction fails", 0);
            return explained(&error);
        }
    }
    if !run.is_well() {
        return Ok(());
    }
    run.unless_struck(run.views.iter().try_for_each(views::check))
}
