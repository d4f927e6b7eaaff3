//! TX.BEGIN, TX.COMMIT and TX.ABORT: a transaction that stays open while the client thinks. See `resp/open.rs`.
//!
//! May use: `open`, the facade. Must not know: sockets, what commands do within it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use holdfast::space::ReadLock;
use holdfast::{Durability, Transaction};

use super::own::durability;
use crate::numbers::PointCounts;
use crate::resp::call::{Answer, Call, Fail, SYNTAX, store_error_text};
use crate::resp::number;
use crate::resp::open::{self, Open, none_open};
use crate::resp::reply::Reply;
use crate::resp::session::{Need, Pending};

/// How long a transaction may hold locks unless it says otherwise.
const LEASE: Duration = Duration::from_secs(60);

pub(crate) fn begin(call: &mut Call<'_, '_>) -> Answer {
    if call.session.multi.is_some() || call.session.open.is_some() {
        return Err("ERR a transaction is open already: they do not nest".into());
    }
    if !call.session.watched.is_empty() {
        return Err("ERR WATCH is for MULTI: a transaction watches all keys that it reads".into());
    }
    let lease_max = call.door.options.limits.transaction_lease_max;
    let (mut lease, mut isolation, mut index) = (None, None, 1);
    while let Some(option) = call.args.get(index) {
        let argument = call.args.get(index + 1).ok_or(SYNTAX)?;
        let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is(option, "lease") && lease.is_none() {
            let ms = number::parse_u64(argument).filter(|ms| (1..=lease_max.as_millis()).contains(&u128::from(*ms)));
            let wrong = || format!("ERR a lease has 1 to {} milliseconds", lease_max.as_millis());
            lease = Some(Duration::from_millis(ms.ok_or_else(wrong)?));
        } else if is(option, "isolation") && isolation.is_none() {
            let kinds =
                [("committed", ReadLock::None), ("repeatable", ReadLock::Shared), ("exclusive", ReadLock::Exclusive)];
            let named = kinds.into_iter().find(|(name, _)| is(argument, name));
            isolation = Some(named.ok_or("ERR ISOLATION is one of COMMITTED, REPEATABLE, EXCLUSIVE")?.1);
        } else {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    let lease = lease.unwrap_or(LEASE.min(lease_max));
    let transaction = call.door.store.begin().with_lease(lease).joining();
    call.session.forget_points();
    call.session.open = Some(Open::new(transaction, isolation.unwrap_or(ReadLock::Shared), lease));
    open::tell(call.session);
    call.reply.ok();
    Ok(())
}

pub(crate) fn abort(call: &mut Call<'_, '_>) -> Answer {
    if call.session.open.take().is_none() {
        return Err(none_open());
    }
    open::tell(call.session);
    call.session.forget_points();
    call.reply.ok();
    Ok(())
}

pub(crate) fn commit(call: &mut Call<'_, '_>) -> Answer {
    let mut index = 1;
    let mut is_asked = false;
    while let Some(option) = call.args.get(index) {
        if is_asked || !durability(call, option, index)? {
            return Err(SYNTAX.into());
        }
        (is_asked, index) = (true, index + 2);
    }
    let open = call.session.open.take().ok_or_else(none_open)?;
    open::tell(call.session);
    let mut transaction = open.transaction.ok_or_else(none_open)?;
    // What it asks for itself counts, and nothing else then: it is what was said last.
    let asked = if is_asked || open.asked.is_empty() { vec![call.durability] } else { open.asked };
    *transaction.points() = std::mem::take(&mut call.session.points);
    let (store, counts) = (call.door.store.clone(), Arc::clone(&call.door.points));
    if !transaction.points().is_empty() && store.series().is_crowded() {
        let commit = move |mut transaction: Transaction, reply: &mut Reply| {
            store.series().make_room(transaction.points().len())?;
            let (need, ended) = end(transaction, &counts, &asked, reply);
            ended.inspect_err(|_| drop(store.wait(need.synced, Durability::Synced)))?;
            Ok(need)
        };
        call.session.pending = Some(Pending::Within(open::Waiting::to_commit(call, transaction, Box::new(commit))));
        return Ok(());
    }
    let (need, ended) = end(transaction, &counts, &asked, call.reply);
    call.session.need.merge(need);
    call.session.last_write = call.session.last_write.max(need.own);
    ended
}

/// Commits: what the reply rests on, also when it is an error.
fn end(
    mut transaction: Transaction,
    counts: &PointCounts,
    asked: &[Durability],
    reply: &mut Reply,
) -> (Need, Result<(), Fail>) {
    let points = transaction.points().len() as u64;
    let mut need = Need::NOTHING;
    match transaction.commit_no_wait() {
        Ok(committed) => {
            if points > 0 {
                counts.written.fetch_add(points, Relaxed);
                counts.batches.fetch_add(1, Relaxed);
            }
            reply.unsigned(committed.position.get());
            asked.iter().for_each(|asked| need.add(*asked, committed.position));
            need.own = committed.position;
            (need, Ok(()))
        }
        Err(error) => {
            if let Some(position) = error.rests_on() {
                // A distributed transaction was refused, which has to be durable before it is said.
                need.add(Durability::Synced, position);
            }
            (need, Err(store_error_text(&error).into()))
        }
    }
}
