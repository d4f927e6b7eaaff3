//! What parsing costs: one entry by an indexed query whose text is parsed each time, or once.
//!
//! In the process the query is a text, or was prepared. A server is sent a text that it has parsed before, or one that differs each time in
//! what it says in a comment; a connection sends hundreds before it reads their answers, so that turns on the wire do not hide the work.
//!
//! May use: the space, a server, clients. Must not know: how queries are parsed.

use std::time::Instant;

use holdfast::space::{Definition, Document, Entries, IndexKind, PreparedQuery, ReadOptions, ToQuery, Value, Wanted};

use super::sheet::Sheet;
use super::throughput::for_a_time;
use super::{Kept, Line, open};
use crate::client::Client;
use crate::report::Report;
use crate::workload::Result;

const ONCE: &str = "parsed once";
const EACH: &str = "parsed each time";
const SQL: &str = "number = ? AND state IN ('new', 'open') AND price < ?";
/// Commands between two looks at the clock.
const COMMANDS: u64 = 2048;

fn document(id: u64) -> Document {
    Document::from_pairs([
        ("id", Value::from(id)),
        ("number", id.into()),
        ("state", "new".into()),
        ("price", (id % 100).into()),
    ])
}

/// Both in the process.
pub(super) fn embedded(line: &Line, report: &mut Report, kept: Kept) -> Result<()> {
    let dir = line.common.fresh()?;
    let (store, _) = open(dir.path(), kept)?;
    let definition = Definition::new("bench", "numbered").index("number", IndexKind::Hash)?;
    let entries = store.space("bench").declare(definition)?;
    for id in 0..line.entries {
        let _ = entries.write_shown(&document(id), &Default::default())?;
    }
    let work = format!("read by an index, embedded, {} entries, {}", line.entries, kept.name());
    let mut sheet = Sheet { report, work: &work, sides: &[ONCE, EACH] };
    sheet.rate(ONCE, "reads", reads(line, &entries, &PreparedQuery::new(SQL)?)?, None);
    sheet.rate(EACH, "reads", reads(line, &entries, SQL)?, None);
    Ok(())
}

fn reads(line: &Line, entries: &Entries, query: &(impl ToQuery + Sync + ?Sized)) -> Result<f64> {
    let measured = for_a_time("read", 1, line.time(), &|number| {
        let wanted = Wanted::query(query, &[(number.wrapping_mul(7919) % line.entries).into(), 100.into()])?;
        assert!(entries.read(&wanted, &ReadOptions::default())?.is_some(), "it was written");
        Ok(())
    })?;
    Ok(measured.rate)
}

/// Both over RESP.
pub(super) fn remote(line: &Line, report: &mut Report, kept: Kept) -> Result<()> {
    let server = line.programs.start_holdfast(line.common.fresh()?, "written")?;
    let mut client = Client::connect(server.address)?;
    let declare = ["SPACE.DECLARE", "bench", "numbered", "INDEX", "number", "HASH", "1", "number"];
    client.call(&declare.map(str::as_bytes))?;
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    client.pour((0..line.entries).map(|id| words(&["SPACE.WRITE", "bench", "numbered", &document(id).to_json()])))?;
    let work = format!("SPACE.READ by an index, one connection, {} entries, {}", line.entries, kept.name());
    let mut sheet = Sheet { report, work: &work, sides: &[ONCE, EACH] };
    for side in [ONCE, EACH] {
        let (began, mut done) = (Instant::now(), 0u64);
        while began.elapsed() < line.time() {
            client.pour((done..done + COMMANDS).map(|number| {
                let text = if side == ONCE { format!("{SQL} --") } else { format!("{SQL} --{number}") };
                let id = (number.wrapping_mul(7919) % line.entries).to_string();
                words(&["SPACE.READ", "bench", "numbered", "WHERE", &text, "2", &id, "100"])
            }))?;
            done += COMMANDS;
        }
        sheet.rate(side, "reads", done as f64 / began.elapsed().as_secs_f64(), None);
    }
    drop(client);
    server.stop()
}
