//! KV.COMPACT: the compaction of the journal, begun by hand and looked at.
//!
//! May use: `call`, the facade. Must not know: sockets, dispatch.

use holdfast::ErrorKind;

use crate::resp::call::{Answer, Call, SYNTAX};

pub(crate) fn compact(call: &mut Call<'_, '_>) -> Answer {
    match call.args.len() {
        1 => start(call),
        2 if call.args.at(1).eq_ignore_ascii_case(b"status") => {
            status(call);
            Ok(())
        }
        _ => Err(SYNTAX.into()),
    }
}

fn start(call: &mut Call<'_, '_>) -> Answer {
    match call.door.store.start_compaction() {
        Ok(()) => {
            tracing::info!(client = %call.session.client.address, "a client asked for a compaction");
            call.reply.simple("started");
        }
        Err(error) if error.kind() == ErrorKind::Conflict => call.reply.simple("running"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn status(call: &mut Call<'_, '_>) {
    let stats = call.door.store.stats().compaction;
    let numbers = [
        ("running", u64::from(stats.is_running)),
        ("segments", stats.segments),
        ("reclaimed_bytes", stats.reclaimed_bytes),
        ("read_bytes", stats.read_bytes),
        ("moved_bytes", stats.moved_bytes),
        ("waiting", stats.waiting),
    ];
    call.reply.map(numbers.len());
    for (name, number) in numbers {
        call.reply.text(name);
        call.reply.unsigned(number);
    }
}
