//! SPACE.COUNT, SPACE.CLEAR, SPACE.SELECT and SPACE.EXPLAIN.
//!
//! May use: `wanted`, the facade. Must not know: sockets, dispatch.

use holdfast::Shown;
use holdfast::space::{Document, Entries, Value, Wanted};

use super::wanted::{Takes, chosen, options, parameters};
use super::within::Begins;
use super::{entries, entries_to_change, is_long, need_of, show, show_change, within};
use crate::explained::{self, By, Found};
use crate::resp::call::{Answer, Call, Fail, SYNTAX};
use crate::resp::open::{Came, For};
use crate::resp::reply::Reply;
use crate::resp::session::Need;

type Counts = fn(&Entries, &Wanted) -> holdfast::Result<Shown<u64>>;

/// Counts entries here, or in a thread where that may take long.
fn counted(call: &mut Call<'_, '_>, counts: Counts, changes: bool) -> Answer {
    let entries = if changes { entries_to_change(call)? } else { entries(call)? };
    let mut chosen = chosen(call, 3)?;
    options(call, &mut chosen, Takes::Nothing)?;
    // By an id too, a partition is gone through.
    if is_long(&entries, &chosen.wanted, usize::MAX)? {
        let asked = call.durability;
        call.defer(move |reply| {
            let shown = counts(&entries, &chosen.wanted)?;
            reply.unsigned(shown.value);
            Ok(need_of(&entries, asked, shown.position))
        });
        return Ok(());
    }
    let shown = counts(&entries, &chosen.wanted)?;
    if changes {
        show_change(call, &entries, shown.position);
    } else {
        show(call, &entries, shown.position);
    }
    call.reply.unsigned(shown.value);
    Ok(())
}

pub(crate) fn count(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, try_count)
}

fn try_count(call: &mut Call<'_, '_>) -> Answer {
    if !call.in_exec {
        return counted(call, Entries::count_shown, false);
    }
    let entries = entries(call)?;
    let mut chosen = chosen(call, 3)?;
    options(call, &mut chosen, Takes::Nothing)?;
    let begins = begins(&entries, &chosen.wanted, usize::MAX)?;
    within::run(call, begins, (For::Lock, None), move |transaction, reply, _| {
        reply.unsigned(entries.within(transaction).count(&chosen.wanted)?);
        Ok(Came::Done)
    })
}

/// Where a transaction that is open looks at entries which may be many.
pub(crate) fn begins(entries: &Entries, wanted: &Wanted, max: usize) -> Result<Begins, Fail> {
    Ok(if is_long(entries, wanted, max)? { Begins::Elsewhere } else { Begins::Here })
}

pub(crate) fn clear(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, try_clear)
}

fn try_clear(call: &mut Call<'_, '_>) -> Answer {
    if !call.in_exec {
        return counted(call, Entries::clear_shown, true);
    }
    let entries = entries(call)?;
    let mut chosen = chosen(call, 3)?;
    options(call, &mut chosen, Takes::Nothing)?;
    let most = call.door.options.limits.space_entries_max;
    let begins = begins(&entries, &chosen.wanted, usize::MAX)?;
    within::run(call, begins, (For::Lock, None), move |transaction, reply, _| {
        reply.unsigned(entries.within(transaction).clear(&chosen.wanted, most)?);
        Ok(Came::Done)
    })
}

/// Always in a thread: figures are of all entries, and what they rest on is waited for there.
pub(crate) fn select(call: &mut Call<'_, '_>) -> Answer {
    within::all_or_nothing(call, try_select)
}

fn try_select(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let entries = entries(call)?;
    let sql = std::str::from_utf8(args.at(3)).map_err(|_| Fail::from("ERR SQL has to be UTF-8"))?.to_owned();
    let (parameters, next) = parameters(args, 4)?;
    if args.get(next).is_some() {
        return Err(SYNTAX.into());
    }
    let most = call.door.options.limits.space_entries_max;
    // It waits for its turn.
    let kept = entries.keep_bytes(sql.len() + parameters.iter().map(Value::memory_bytes).sum::<usize>())?;
    if call.in_exec {
        return within::run(call, Begins::Elsewhere, (For::Lock, None), move |transaction, reply, _| {
            let _kept = &kept;
            let query = entries.store().prepared(&sql)?;
            let documents = entries.within(transaction).select_up_to(&query, &parameters, most + 1)?;
            write_documents(reply, &documents, most)?;
            Ok(Came::Done)
        });
    }
    call.defer_reading(move |reply| {
        let _kept = &kept;
        let documents = entries.select_up_to(&entries.store().prepared(&sql)?, &parameters, most + 1)?;
        write_documents(reply, &documents, most)?;
        Ok(Need::NOTHING)
    });
    Ok(())
}

fn write_documents(reply: &mut Reply, documents: &[Document], most: usize) -> Answer {
    if documents.len() > most {
        return Err(format!("ERR more than {most} documents: say LIMIT").into());
    }
    reply.array(documents.len());
    documents.iter().for_each(|document| reply.document(document));
    Ok(())
}

pub(crate) fn explain(call: &mut Call<'_, '_>) -> Answer {
    let entries = entries(call)?;
    let mut chosen = chosen(call, 3)?;
    options(call, &mut chosen, Takes::Nothing)?;
    let found = explained::explain(&entries, &chosen.wanted, chosen.is_id)?;
    call.reply.map(3);
    call.reply.text("partitions");
    call.reply.unsigned(found.iter().map(|found| found.partitions).sum());
    call.reply.text("candidates");
    call.reply.unsigned(found.iter().map(|found| found.candidates).sum());
    call.reply.text("by");
    call.reply.array(found.len());
    for Found { by, partitions, candidates } in found {
        call.reply.array(3);
        match by {
            By::Id => call.reply.text("id"),
            By::Index(index) => call.reply.text(&format!("index {index}")),
            By::All => call.reply.text("all entries"),
        }
        call.reply.unsigned(partitions);
        call.reply.unsigned(candidates);
    }
    Ok(())
}
