//! KV.TREE: what another store asks of this one to learn where the two differ; see `docs/formats/tree.md`.
//!
//! Runs off the event loop: where no tree of the size is kept, all heads are looked at.
//!
//! May use: `call`, `fold` for what the two share, the facade. Must not know: sockets, dispatch.

use std::ops::ControlFlow;

use holdfast::{Durability, Fold, FoldOrder, LeafSet, Peer, Store};

use super::fold::{leaf_set, may_read_all, need_of, tree_size};
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER};
use crate::resp::number;
use crate::resp::reply::Reply;
use crate::resp::session::Need;

/// Bytes of a clock and of what is around it in a reply.
const CLOCK_BYTES: usize = 96;

pub(crate) fn root(call: &mut Call<'_, '_>) -> Answer {
    may_read_all(call)?;
    let size = tree_size(call.args.at(2))?;
    let (store, durability) = (call.door.store.clone(), call.durability);
    call.defer(move |reply| {
        let root = store.root(size)?;
        write_hashes(reply, &root);
        need_of_now(&store, durability)
    });
    Ok(())
}

pub(crate) fn branches(call: &mut Call<'_, '_>) -> Answer {
    may_read_all(call)?;
    let size = tree_size(call.args.at(2))?;
    let asked: Option<Vec<u32>> = call
        .args()
        .from(3)
        .iter()
        .map(|branch| number::parse_u64(branch).and_then(|branch| u32::try_from(branch).ok()))
        .collect();
    let asked = asked.ok_or(NOT_INTEGER)?;
    if asked.len() > size.width() as usize {
        return Err("ERR the tree has fewer branches than are asked for".into());
    }
    let (store, durability) = (call.door.store.clone(), call.durability);
    call.defer(move |reply| {
        let branches = store.branches(size, &asked)?;
        reply.array(branches.len());
        branches.iter().for_each(|hashes| write_hashes(reply, hashes));
        need_of_now(&store, durability)
    });
    Ok(())
}

/// What a reply needs that rests on nothing newer than now.
fn need_of_now(store: &Store, durability: Durability) -> Result<Need, Fail> {
    Ok(need_of(&store.snapshot()?, durability))
}

fn write_hashes(reply: &mut Reply, hashes: &[u32]) {
    reply.array(hashes.len());
    hashes.iter().for_each(|hash| reply.unsigned(u64::from(*hash)));
}

pub(crate) fn clocks(call: &mut Call<'_, '_>) -> Answer {
    may_read_all(call)?;
    let size = tree_size(call.args.at(2))?;
    let leaves = leaf_set(size, call.args().from(3).iter())?;
    let (store, durability) = (call.door.store.clone(), call.durability);
    let bytes_max = call.door.options.limits.output_bytes_max;
    call.defer_reading(move |reply| write_clocks(&store, &leaves, durability, bytes_max, reply));
    Ok(())
}

fn write_clocks(
    store: &Store,
    leaves: &LeafSet,
    durability: Durability,
    bytes_max: usize,
    reply: &mut Reply,
) -> Result<Need, Fail> {
    let snapshot = store.snapshot()?;
    let (mut clocks, mut bytes) = (Vec::new(), 0);
    let fold = Fold { leaves: Some(leaves), order: FoldOrder::Partition, ..Fold::default() };
    snapshot.fold(&fold, &mut |folded| {
        let (bucket, key) = (folded.bucket().to_vec(), folded.key().to_vec());
        bytes += bucket.len() + key.len() + CLOCK_BYTES;
        clocks.push((bucket, key, folded.clock()?));
        Ok(if bytes > bytes_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if bytes > bytes_max {
        return Err("ERR there are too many objects under these leaves: ask for fewer leaves".into());
    }
    reply.array(clocks.len());
    for (bucket, key, clock) in &clocks {
        reply.array(3);
        reply.bulk(bucket);
        reply.bulk(key);
        reply.bulk(&clock.encode());
    }
    Ok(need_of(&snapshot, durability))
}
