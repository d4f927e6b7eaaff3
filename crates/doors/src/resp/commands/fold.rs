//! KV.FOLD: going through many objects of one instant, a page at a time, off the event loop.
//!
//! A page ends when it has as many objects as LIMIT says, when as many were looked at as the door allows, or when it has
//! gathered as many bytes as the door allows; so what is filtered may leave a page with few objects, or none, and a cursor
//! to go on from. Filters are applied here and not by the library, which would go on until it finds something.
//!
//! May use: `call`, `own`, the facade. Must not know: sockets, dispatch.

use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

use holdfast::{
    Durability, Fold, FoldCursor, FoldOrder, Folded, FoldedValue, Head, LeafSet, Regex, Snapshot, Store, TreeSize,
    Value, object_hash,
};

use super::index::{regex, text};
use super::own::{HEAD_FIELDS, LIMIT_DEFAULT, durability_name, page_limit, reading, write_head};
use crate::auth::Right;
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX, View};
use crate::resp::reply::Reply;
use crate::resp::session::Need;
use crate::resp::{number, permit};

/// Bytes beside key, metadata and value that an object in a reply is counted with.
const OBJECT_BYTES: usize = 256;

/// What of each object is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    Heads,
    Objects,
    Keys,
    Count,
}

/// What a fold is to do, in terms of its own: it runs in another thread.
struct Plan {
    bucket: Option<Vec<u8>>,
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    key_regex: Option<Regex>,
    modified_ms: Range<u64>,
    leaves: Option<LeafSet>,
    order: FoldOrder,
    show: Show,
    limit: usize,
    after: Option<FoldCursor>,
    examined_max: usize,
    bytes_max: usize,
}

/// An object of the reply.
struct Shown {
    bucket: Vec<u8>,
    key: Vec<u8>,
    head: Option<Head>,
    value: Option<Value>,
}

/// Refuses users that may not read each bucket there is or may be.
pub(crate) fn may_read_all(call: &Call<'_, '_>) -> Answer {
    let may =
        |user: &crate::auth::User| user.buckets.iter().any(|rule| rule.right >= Right::Read && rule.pattern == "*");
    match &call.session.user {
        Some(user) if !may(user) => Err("NOPERM this user may not read all buckets, which this command does".into()),
        _ => Ok(()),
    }
}

/// The size of a Merkle tree that the argument says, in leaves.
pub(crate) fn tree_size(argument: &[u8]) -> Result<TreeSize, Fail> {
    let leaves = number::parse_u64(argument).and_then(|leaves| u32::try_from(leaves).ok());
    let size = leaves.and_then(TreeSize::with_leaves);
    size.ok_or_else(|| "ERR a tree has 1024, 4096, 16384, 65536, 262144 or 1048576 leaves".into())
}

/// The leaves that the arguments say, of a tree of this size.
pub(crate) fn leaf_set<'a>(size: TreeSize, leaves: impl Iterator<Item = &'a [u8]>) -> Result<LeafSet, Fail> {
    let numbers: Option<Vec<u32>> =
        leaves.map(|leaf| number::parse_u64(leaf).and_then(|leaf| u32::try_from(leaf).ok())).collect();
    LeafSet::new(size, numbers.ok_or(NOT_INTEGER)?).ok_or_else(|| "ERR the tree has no such leaf".into())
}

fn parse(call: &mut Call<'_, '_>) -> Result<Plan, Fail> {
    let args = call.args();
    let limits = &call.door.options.limits;
    let mut plan = Plan {
        bucket: None,
        start: None,
        end: None,
        key_regex: None,
        modified_ms: 0..u64::MAX,
        leaves: None,
        order: FoldOrder::Key,
        show: Show::Heads,
        limit: 0,
        after: None,
        examined_max: limits.fold_examined_max,
        bytes_max: limits.fold_bytes_max,
    };
    let (mut index, mut limit) = (1, None);
    while let Some(option) = args.get(index) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let shows = [("heads", Show::Heads), ("objects", Show::Objects), ("keys", Show::Keys), ("count", Show::Count)];
        if let Some((_, show)) = shows.into_iter().find(|(name, _)| is(name)) {
            plan.show = show;
            index += 1;
            continue;
        }
        let value = args.get(index + 1).ok_or(SYNTAX)?;
        if is("bucket") {
            plan.bucket = Some(value.to_vec());
        } else if is("start") {
            plan.start = Some(value.to_vec());
        } else if is("end") {
            plan.end = Some(value.to_vec());
        } else if is("keyregex") {
            plan.key_regex = Some(regex(value)?);
        } else if is("modified") {
            let to = args.get(index + 2).ok_or(SYNTAX)?;
            let milliseconds = |text| number::parse_u64(text).ok_or(NOT_INTEGER);
            plan.modified_ms = milliseconds(value)?..milliseconds(to)?;
            index += 1;
        } else if is("leaves") {
            let size = tree_size(value)?;
            let leaves = args.from(index + 2).iter().take_while(|leaf| leaf.first().is_some_and(u8::is_ascii_digit));
            let leaves: Vec<&[u8]> = leaves.collect();
            index += leaves.len();
            plan.leaves = Some(leaf_set(size, leaves.into_iter())?);
        } else if is("order") {
            plan.order = match value.to_ascii_lowercase().as_slice() {
                b"key" => FoldOrder::Key,
                b"write" => FoldOrder::Write,
                b"partition" => FoldOrder::Partition,
                _ => return Err("ERR the order is one of key, write, partition".into()),
            };
        } else if is("limit") {
            limit = Some(page_limit("LIMIT", value)?);
        } else if is("after") {
            plan.after = Some(FoldCursor::decode(text(value)?)?);
        } else if !reading(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    // A count gathers nothing: what it looks at bounds it.
    plan.limit = match plan.show {
        Show::Count => limit.unwrap_or(limits.fold_examined_max).clamp(1, limits.fold_examined_max),
        _ => limit.unwrap_or(LIMIT_DEFAULT).clamp(1, limits.fold_entries_max),
    };
    if plan.bucket.is_none() && (plan.start.is_some() || plan.end.is_some()) {
        return Err("ERR START and END are keys of a BUCKET".into());
    }
    Ok(plan)
}

pub(crate) fn fold(call: &mut Call<'_, '_>) -> Answer {
    let plan = parse(call)?;
    match &plan.bucket {
        None => may_read_all(call)?,
        Some(bucket) => permit::check_read(call.session.user.as_deref(), bucket)?,
    }
    let (store, durability) = (call.door.store.clone(), call.durability);
    let snapshot = match &call.view {
        View::Snapshot(snapshot) => Some(snapshot.clone()),
        _ => None,
    };
    call.defer_reading(move |reply| run(&store, snapshot.clone(), &plan, durability, reply));
    Ok(())
}

/// What a reply needs that shows a snapshot.
pub(crate) fn need_of(snapshot: &Snapshot, durability: Durability) -> Need {
    let mut need = Need::NOTHING;
    need.add(durability, snapshot.position());
    need
}

fn run(
    store: &Store,
    snapshot: Option<Arc<Snapshot>>,
    plan: &Plan,
    durability: Durability,
    reply: &mut Reply,
) -> Result<Need, Fail> {
    let snapshot = match snapshot {
        Some(snapshot) => snapshot,
        None => Arc::new(store.snapshot()?),
    };
    let (mut shown, mut found, mut bytes) = (Vec::new(), 0usize, 0usize);
    let fold = Fold {
        bucket: plan.bucket.as_deref(),
        start: plan.start.as_deref().map_or(Bound::Unbounded, Bound::Included),
        end: plan.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        order: plan.order,
        limit: plan.examined(),
        after: plan.after.as_ref(),
        ..Fold::default()
    };
    let next = snapshot.fold(&fold, &mut |folded| {
        if plan.wants(folded) {
            found += 1;
            if plan.show != Show::Count {
                let object = plan.shown(folded)?;
                bytes += object.bytes();
                shown.push(object);
            }
        }
        let is_over = found >= plan.limit || bytes >= plan.bytes_max;
        Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    reply.array(3);
    if plan.show == Show::Count {
        reply.unsigned(found as u64);
    } else {
        reply.array(shown.len());
        shown.iter().for_each(|object| object.write(reply));
    }
    match next {
        Some(next) => reply.text(&next.encode()),
        None => reply.null(),
    }
    reply.text(durability_name(durability));
    Ok(need_of(&snapshot, durability))
}

impl Plan {
    /// The most objects that are looked at. Where each is wanted these are as few as are shown, which a fold in the order of writing
    /// should know of beforehand.
    fn examined(&self) -> usize {
        let wants_all = self.key_regex.is_none() && self.leaves.is_none() && self.modified_ms == (0..u64::MAX);
        if wants_all { self.limit.min(self.examined_max) } else { self.examined_max }
    }

    fn wants(&self, folded: &Folded<'_>) -> bool {
        self.modified_ms.contains(&folded.modified_ms())
            && self.key_regex.as_ref().is_none_or(|regex| regex.is_match(folded.key()))
            && self.leaves.as_ref().is_none_or(|leaves| leaves.contains(object_hash(folded.bucket(), folded.key())))
    }

    fn shown(&self, folded: &Folded<'_>) -> holdfast::Result<Shown> {
        let with_head = matches!(self.show, Show::Heads | Show::Objects);
        Ok(Shown {
            bucket: folded.bucket().to_vec(),
            key: folded.key().to_vec(),
            head: with_head.then(|| folded.head()).transpose()?,
            value: (self.show == Show::Objects).then(|| folded.value()).transpose()?.map(FoldedValue::into_value),
        })
    }
}

impl Shown {
    fn bytes(&self) -> usize {
        let head = self.head.as_ref().map_or(0, |head| head.metadata.len() + head.indexes.len());
        self.bucket.len() + self.key.len() + head + self.value.as_ref().map_or(0, |value| value.len()) + OBJECT_BYTES
    }

    fn write(&self, reply: &mut Reply) {
        reply.array(2 + usize::from(self.head.is_some()) + usize::from(self.value.is_some()));
        reply.bulk(&self.bucket);
        reply.bulk(&self.key);
        if let Some(head) = &self.head {
            reply.map(HEAD_FIELDS);
            write_head(reply, head);
        }
        if let Some(value) = &self.value {
            reply.bulk(value.as_ref());
        }
    }
}
