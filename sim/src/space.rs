//! Entries of a space in a run: written, changed, taken, with leases, alone and in transactions with keys.
//!
//! In the model an entry is an object of a bucket that no user can have, so that one prefix of batches explains both, and a
//! batch that touches both is there whole or not at all.
//!
//! May use: the run. Must not know: what breaks when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast::space::{
    Bookmark, Change, Definition, Document, Entries, IndexKind, Lease, Listen, NoticeKind, Path, ReadOptions, Value,
    ValueRef, Wanted, WriteMode, WriteOptions,
};
use holdfast::{Durability, ErrorKind, Indexes, Position, PutOptions, Store};

use crate::model::{Batch, Contents, Effect, Model, Name, Thing};
use crate::run::{Check, Run, refused, violation};
use crate::step::{acknowledge, durability, explained, name, promise, shown_at};

/// Where the model keeps entries.
pub(crate) const BUCKET: &[u8] = b"\0entries";
const IDS: u64 = 14;

/// The type, declared if it is not there.
pub(crate) fn declare(store: &Store) -> holdfast::Result<Entries> {
    let definition =
        Definition::new("sim", "entry").index("group", IndexKind::Hash)?.index("total", IndexKind::Ordered)?;
    store.space("sim").declare(Definition { history: true, ..definition })
}

fn key(id: &Value) -> Name {
    let number = if let Value::I64(number) = id { *number } else { -1 };
    (BUCKET.to_vec(), number.to_be_bytes().to_vec())
}

fn entry_key(document: &Document) -> Name {
    key(&document.get("id").map(ValueRef::to_value).unwrap_or_default())
}

fn document(run: &mut Run) -> Document {
    let mut noise = vec![0; usize::try_from(run.sim.random.below(120)).unwrap_or(0)];
    run.sim.random.fill(&mut noise);
    Document::from_pairs([
        ("id", Value::from(run.sim.random.below(IDS))),
        ("group", Value::from(run.sim.random.below(3))),
        ("total", Value::from(run.sim.random.below(9))),
        ("noise", Value::Bytes(noise)),
    ])
}

fn put(document: &Document, expires_ms: Option<u64>) -> Effect {
    Effect::Put { value: document.as_bytes().to_vec(), expires_ms, metadata: Vec::new(), indexes: Indexes::default() }
}

/// All entries, as the model has them.
pub(crate) fn read_all(store: &Store, to: &mut Contents) -> Check<()> {
    // Before the first declaration there is nothing.
    let Ok(entries) = store.space("sim").entries("entry") else { return Ok(()) };
    let all = entries.read_many_shown(&Wanted::all(), usize::MAX).map_err(|error| refused("space", &error))?;
    for entry in all.value {
        let (version, expires_ms) = (entry.version, entry.expires_ms);
        let value = entry.document.as_bytes().to_vec();
        let thing =
            Thing { version, value, expires_ms, modified_ms: 0, metadata: Vec::new(), indexes: Indexes::default() };
        to.insert(entry_key(&entry.document), thing);
    }
    Ok(())
}

/// What the model has of the group, through the index and without.
pub(crate) fn check(store: &Store, model: &Model) -> Check<()> {
    let Ok(entries) = store.space("sim").entries("entry") else { return Ok(()) };
    let expected = Model::visible(&model.contents, store.now_ms());
    let of_group = |wanted: i64| {
        let documents = expected.iter().filter(|((bucket, _), _)| bucket == BUCKET);
        let documents = documents.filter_map(|(_, thing)| Document::from_stored(&thing.value).ok());
        documents.filter(|document| document.get("group") == Some(ValueRef::I64(wanted))).count() as u64
    };
    for group in 0..3 {
        let wanted = Wanted::template(&Document::from_pairs([("group", group)]));
        let count = entries.count(&wanted).map_err(|error| refused("space", &error))?;
        if count != of_group(group) {
            return Err(violation("space", format!("group {group} has {count} entries, not {}", of_group(group))));
        }
    }
    Ok(())
}

/// What became of entries, by batch: their keys, and what is there now.
type Heard = BTreeMap<Position, BTreeSet<(Vec<u8>, Option<Vec<u8>>)>>;

/// What the model has of entries in batches behind the bookmark.
fn said(model: &Model, behind: impl Fn(Position) -> bool) -> Heard {
    let mut said = Heard::new();
    for batch in model.batches.iter().filter(|batch| behind(batch.position)) {
        for ((_, key), effect) in batch.effects.iter().filter(|((bucket, _), _)| bucket == BUCKET) {
            let now = if let Effect::Put { value, .. } = effect { Some(value.clone()) } else { None };
            said.entry(batch.position).or_default().insert((key.clone(), now));
        }
    }
    said
}

/// Listens, after a crash, from where the last listener stood: each batch of the model is told once, and no other.
pub(crate) fn hear(run: &mut Run) -> Check<()> {
    let Ok(entries) = run.store.space("sim").entries("entry") else { return Ok(()) };
    let refused = |error: holdfast::Error| refused("listener", &error);
    let listen = |from| entries.listen(&Wanted::all(), Listen { from: Some(from), ..Listen::default() });
    // What it asks for may be gone: with a segment, or with the power.
    let resumed = run.heard.and_then(|from| Some((from, listen(from).ok()?)));
    let (from, mut listener) = match resumed {
        Some(resumed) => resumed,
        None => (Bookmark::START, listen(Bookmark::START).map_err(refused)?),
    };
    let floor = if from == Bookmark::START { run.store.feed_floor() } else { Position::ZERO };
    let is_whole = from.to_string().ends_with(".0");
    let behind = |at: Position| at >= floor && (at > from.position() || (is_whole && at == from.position()));
    let (mut heard, mut last) = (Heard::new(), from);
    while let Some(notice) = listener.poll().map_err(refused)? {
        if notice.bookmark <= last {
            return Err(violation("listener", format!("{} after {last}", notice.bookmark)));
        }
        last = notice.bookmark;
        let document = notice.after.as_ref().or(notice.before.as_ref());
        let key = document.map(|document| entry_key(document).1).unwrap_or_default();
        let now = notice.after.as_ref().map(|document| document.as_bytes().to_vec());
        // Of leases that end the model has no batches.
        if notice.kind != NoticeKind::Expired
            && last.position() >= floor
            && !heard.entry(last.position()).or_default().insert((key, now))
        {
            return Err(violation("listener", format!("{last} was told twice")));
        }
    }
    let expected = said(&run.model, behind);
    let now_ms = run.store.now_ms();
    // A crash may have taken the last batches, of which nothing is left to be seen: whether they are there, the contents do
    // not tell. So what was not told of them is gone.
    let unseen = run.model.unseen_from(now_ms);
    let is_explained = |at: &Position| !heard.contains_key(at) && unseen.is_some_and(|unseen| *at >= unseen);
    let differs = |at: &&Position| heard.get(at) != expected.get(at) && !is_explained(at);
    if let Some(first) = heard.keys().chain(expected.keys()).filter(differs).min() {
        let (told, wanted) = (heard.get(first), expected.get(first));
        let text = format!("from {from}: batch {first} was told otherwise: {told:?} instead of {wanted:?}");
        return Err(violation("listener", text));
    }
    let gone: Vec<Position> = expected.keys().filter(|at| is_explained(at)).copied().collect();
    run.model.batches.retain(|batch| !gone.contains(&batch.position));
    run.heard = Some(listener.bookmark());
    drop(listener);
    run.trace("listener", heard.len() as u64);
    Ok(())
}

fn commit(run: &mut Run, position: Position, effects: Vec<(Name, Effect)>, now_ms: u64) -> Check<()> {
    run.outcome.commits += 1;
    run.model.commit(Batch { position, now_ms, effects });
    run.trace("space: commit", position.get());
    let durability = durability(run);
    acknowledge(run, position, durability)
}

/// One operation.
pub(crate) fn step(run: &mut Run) -> Check<()> {
    let entries = match declare(&run.store) {
        Ok(entries) => entries,
        Err(error) => return explained(&error),
    };
    match run.sim.random.below(10) {
        0..4 => write(run, &entries),
        4..6 => take(run, &entries),
        6 => change(run, &entries),
        7 => read(run, &entries),
        _ => transaction(run, &entries),
    }
}

fn write(run: &mut Run, entries: &Entries) -> Check<()> {
    let document = document(run);
    let lease = match run.sim.random.below(3) {
        0 => Lease::For(Duration::from_millis(1 + run.sim.random.below(50))),
        1 => Lease::Forever,
        _ => Lease::Default,
    };
    let now_ms = run.store.now_ms();
    let written = entries.write_shown(&document, &WriteOptions { lease, ..WriteOptions::default() });
    let written = match written {
        Ok(written) => written,
        Err(error) => return explained(&error),
    };
    let name = entry_key(&document);
    let old = Model::visible(&run.model.contents, now_ms).remove(&name);
    if written.previous.map(|entry| entry.document.as_bytes().to_vec()) != old.as_ref().map(|thing| thing.value.clone())
    {
        return Err(violation("space", format!("a write replaced something else of {name:?}")));
    }
    let expires_ms = match lease {
        Lease::For(time) => Some(now_ms + u64::try_from(time.as_millis()).unwrap_or(0)),
        Lease::Forever => None,
        Lease::Default => old.and_then(|thing| thing.expires_ms),
    };
    commit(run, written.version, vec![(name, put(&document, expires_ms))], now_ms)
}

fn take(run: &mut Run, entries: &Entries) -> Check<()> {
    let id = run.sim.random.below(IDS);
    let now_ms = run.store.now_ms();
    let taken = match entries.take_shown(&Wanted::id(id), &ReadOptions::default()) {
        Ok(taken) => taken,
        Err(error) => return explained(&error),
    };
    let name = key(&Value::from(id));
    let expected = Model::visible(&run.model.contents, now_ms).remove(&name);
    let found = taken.value.as_ref().map(|entry| entry.document.as_bytes().to_vec());
    if found != expected.map(|thing| thing.value) {
        return Err(violation("space", format!("taking {name:?} gave something else")));
    }
    match taken.value {
        Some(_) => commit(run, taken.position, vec![(name, Effect::Delete)], now_ms),
        None => Ok(()),
    }
}

/// Reads as a user would: what is shown is promised not to vanish, and what is shown not to be there not to come back.
fn read(run: &mut Run, entries: &Entries) -> Check<()> {
    if run.sim.random.chance(1, 2) {
        return refusal(run, entries);
    }
    let id = run.sim.random.below(IDS);
    let now_ms = run.store.now_ms();
    let shown = match entries.read(&Wanted::id(id), &ReadOptions::default()) {
        Ok(shown) => shown,
        Err(error) => return explained(&error),
    };
    let name = key(&Value::from(id));
    let expected = Model::visible(&run.model.contents, now_ms).remove(&name);
    if shown.as_ref().map(|entry| entry.document.as_bytes().to_vec()) != expected.map(|thing| thing.value) {
        return Err(violation("space", format!("reading {name:?} gave something else")));
    }
    let position = shown.map_or_else(|| run.model.absent_since(&name, now_ms), |entry| entry.version);
    promise(run, position, shown_at(run));
    Ok(())
}

/// Asks, as a user would, for what is refused because of what is there, or is not: that is promised to stay so.
fn refusal(run: &mut Run, entries: &Entries) -> Check<()> {
    let document = document(run);
    let name = entry_key(&document);
    let id = document.get("id").map(ValueRef::to_value).unwrap_or_default();
    let now_ms = run.store.now_ms();
    let there = Model::visible(&run.model.contents, now_ms).remove(&name).map(|thing| thing.version);
    let version = Some(Position::new(1));
    let by_version = WriteOptions { version, ..WriteOptions::default() };
    let by_mode = if there.is_some() { WriteMode::Insert } else { WriteMode::Update };
    let refused = match run.sim.random.below(4) {
        0 => entries.write(&document, &by_version).map(|_| ()),
        1 if there.is_some() => {
            entries.take(&Wanted::id(id), &ReadOptions { version, ..ReadOptions::default() }).map(|_| ())
        }
        2 => {
            let mut transaction = run.store.begin();
            entries.within(&mut transaction).write(&document, &by_version).map(|_| ())
        }
        _ => entries.write(&document, &WriteOptions { mode: by_mode, ..WriteOptions::default() }).map(|_| ()),
    };
    match refused {
        Ok(()) => Err(violation("refusals", format!("{name:?} was not refused, which is at {there:?}"))),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            run.trace("space: refused", there.map_or(0, Position::get));
            let position = there.unwrap_or_else(|| run.model.absent_since(&name, now_ms));
            promise(run, position, shown_at(run));
            Ok(())
        }
        Err(error) => explained(&error),
    }
}

fn change(run: &mut Run, entries: &Entries) -> Check<()> {
    let id = run.sim.random.below(IDS);
    let path = Path::parse("total").map_err(|error| violation("space", error.to_string()))?;
    let now_ms = run.store.now_ms();
    let increment = [Change::Increment { path, by: 1.into() }];
    let changed = match entries.change_shown(&Wanted::id(id), &increment, &WriteOptions::default()) {
        Ok(changed) => changed,
        Err(error) => return explained(&error),
    };
    let name = key(&Value::from(id));
    let there = Model::visible(&run.model.contents, now_ms).contains_key(&name);
    match changed.value {
        Some(changed) if there => {
            let effect = put(&changed.now.document, changed.now.expires_ms);
            commit(run, changed.now.version, vec![(name, effect)], now_ms)
        }
        None if !there => Ok(()),
        _ => Err(violation("space", format!("a change of {name:?} should find it: {there}"))),
    }
}

/// A key, an entry that is taken and one that is written: together or not at all.
fn transaction(run: &mut Run, entries: &Entries) -> Check<()> {
    let (object, document) = (name(run), document(run));
    let taken_id = run.sim.random.below(IDS);
    let mut transaction = run.store.begin();
    let now_ms = run.store.now_ms();
    let mut effects = Vec::new();
    let staged = (|| {
        transaction.put(&object.0, &object.1, b"with entries", &PutOptions::default())?;
        let taken = entries.within(&mut transaction).take(&Wanted::id(taken_id), &ReadOptions::default())?;
        entries
            .within(&mut transaction)
            .write(&document, &WriteOptions { lease: Lease::Forever, ..WriteOptions::default() })?;
        Ok(taken)
    })();
    let taken = match staged {
        Ok(taken) => taken,
        Err(error) => return explained(&error),
    };
    let value = b"with entries".to_vec();
    effects.push((object, Effect::Put { value, expires_ms: None, metadata: Vec::new(), indexes: Indexes::default() }));
    if taken.is_some() && key(&Value::from(taken_id)) != entry_key(&document) {
        effects.push((key(&Value::from(taken_id)), Effect::Delete));
    }
    effects.push((entry_key(&document), put(&document, None)));
    if run.sim.random.chance(1, 4) {
        drop(transaction);
        run.trace("space: rolled back", 0);
        return Ok(());
    }
    match transaction.commit(Durability::Written) {
        Ok(committed) => commit(run, committed.position, effects, now_ms),
        Err(error) => {
            explained(&error)?;
            // It may have been committed and only the wait failed: the crash that follows decides.
            let version = entries.read_shown(
                &Wanted::id(document.get("id").map(ValueRef::to_value).unwrap_or_default()),
                &ReadOptions::default(),
            );
            let version = version
                .ok()
                .and_then(|shown| shown.value)
                .filter(|entry| entry.document == document)
                .map(|entry| entry.version);
            let fresh = |version: &Position| run.model.batches.last().is_none_or(|last| *version > last.position);
            if let Some(position) = version.filter(fresh) {
                run.model.commit(Batch { position, now_ms, effects });
            }
            Ok(())
        }
    }
}
