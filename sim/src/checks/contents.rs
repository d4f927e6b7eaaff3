//! The store shows just what the model holds: every listing, every read, every count.
//!
//! May use: the model. Must not know: crashes.

use std::ops::Bound;

use holdfast::{Page, Store};

use crate::model::{Contents, Model, Thing};
use crate::run::{Check, refused, violation};
use crate::{series, space};

/// Everything that pages show.
pub(crate) fn read_all(store: &Store) -> Check<Contents> {
    let mut contents = Contents::new();
    let buckets = store.kv().buckets().map_err(|error| refused("contents", &error))?.value;
    for bucket in buckets {
        let mut start: Option<Vec<u8>> = None;
        loop {
            let from = start.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let page = Page { bucket: &bucket, start: from, end: Bound::Unbounded, limit: 7, values: true };
            let out = store.kv().page(&page).map_err(|error| refused("contents", &error))?.value;
            for (key, head, value) in &out.entries {
                let value = value.as_ref().map(|value| value.to_vec()).unwrap_or_default();
                let metadata = head.metadata.encoded().to_vec();
                let (version, expires_ms, modified_ms) = (head.version, head.expires_ms, head.modified_ms);
                let indexes = head.indexes.clone();
                let thing = Thing { version, value, expires_ms, modified_ms, metadata, indexes };
                contents.insert((bucket.clone(), key.clone()), thing);
            }
            match out.entries.last().filter(|_| out.more) {
                Some((key, ..)) => start = Some(key.clone()),
                None => break,
            }
        }
    }
    space::read_all(store, &mut contents)?;
    series::read_all(store, &mut contents)?;
    Ok(contents)
}

/// The store against the model.
pub(crate) fn check(store: &Store, model: &Model) -> Check<()> {
    let expected = Model::visible(&model.contents, store.now_ms());
    let found = read_all(store)?;
    if found != expected {
        return Err(violation("contents", difference(&expected, &found)));
    }
    space::check(store, model)?;
    for (name, thing) in &Model::visible_keys(&model.contents, store.now_ms()) {
        let object = store.kv().peek(&name.0, &name.1).map_err(|error| refused("contents", &error))?;
        let value = object.value.map(|object| object.value.to_vec());
        if value.as_ref() != Some(&thing.value) {
            return Err(violation("contents", format!("{name:?}: a read shows {value:?}")));
        }
    }
    Ok(())
}

/// The first few differences between what should be and what is.
pub(crate) fn difference(expected: &Contents, found: &Contents) -> String {
    let missing = expected.iter().filter(|(name, thing)| found.get(*name) != Some(thing)).take(3);
    let extra = found.iter().filter(|(name, thing)| expected.get(*name) != Some(thing)).take(3);
    let short = |(name, thing): (&crate::model::Name, &Thing)| {
        format!("{name:?} at {} ({} bytes, expires {:?})", thing.version, thing.value.len(), thing.expires_ms)
    };
    format!("should be {:?}, is {:?}", missing.map(short).collect::<Vec<_>>(), extra.map(short).collect::<Vec<_>>())
}
