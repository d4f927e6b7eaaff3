//! Every index holds just what the objects say.
//!
//! May use: the model. Must not know: how runs are driven.

use std::collections::BTreeSet;

use holdfast::{IndexCursor, IndexPage, IndexQuery, Snapshot, Store, Term};

use crate::model::{Contents, Entries, Model, index};
use crate::run::{Check, refused, violation};

/// The indexes that there are.
pub(crate) const INDEXES: [&[u8]; 2] = [b"i", b"i\0"];
const PAGE_ENTRIES: usize = 5;

/// The whole of an index, page by page.
fn read(query: &dyn Fn(&IndexQuery<'_>) -> holdfast::Result<IndexPage>, bucket: &[u8], index: &[u8]) -> Check<Entries> {
    let (from, to) = (Term::Integer(i64::MIN), Term::Binary(vec![0xff]));
    let mut entries = Entries::new();
    let mut after: Option<IndexCursor> = None;
    loop {
        let limit = PAGE_ENTRIES;
        let wanted = IndexQuery { bucket, index, from: &from, to: &to, term_regex: None, limit, after: after.as_ref() };
        let page = query(&wanted).map_err(|error| refused("indexes", &error))?;
        entries.extend(page.entries.to_vec());
        after = page.next;
        if after.is_none() {
            return Ok(entries);
        }
    }
}

fn compare(query: &dyn Fn(&IndexQuery<'_>) -> holdfast::Result<IndexPage>, expected: &Contents) -> Check<()> {
    let buckets: BTreeSet<&[u8]> = expected.keys().map(|(bucket, _)| bucket.as_slice()).collect();
    for bucket in buckets.into_iter().chain([b"no such".as_slice()]) {
        for name in INDEXES {
            let (found, wanted) = (read(query, bucket, name)?, index(expected, bucket, name));
            if found != wanted {
                let text = format!("{name:?} of {bucket:?} should be {wanted:?}, is {found:?}");
                return Err(violation("indexes", text));
            }
        }
    }
    Ok(())
}

/// The store against the model.
pub(crate) fn check(store: &Store, model: &Model) -> Check<()> {
    let expected = Model::visible_keys(&model.contents, store.now_ms());
    compare(&|query| Ok(store.kv().index(query)?.value), &expected)
}

/// A snapshot against what it must show.
pub(crate) fn check_snapshot(snapshot: &Snapshot, expected: &Contents) -> Check<()> {
    compare(&|query| snapshot.index(query), expected)
}
