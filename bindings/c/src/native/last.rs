//! PostgreSQL as the last resource of a transaction: where its decisions are, and what it decided.
//!
//! May use: sessions, `tm` for the statements. Must not know: branches, transactions.

use std::hash::{BuildHasher, RandomState};

use tm::{LastResourceId, PostgresDecisions, TransactionId};

use super::{Failure, Reply, Session};

fn ask(session: &mut impl Session, statement: &str) -> Result<Reply, Failure> {
    session.send(statement)?;
    session.receive()
}

/// The one value of an answer.
fn value(reply: &Reply) -> Option<&str> {
    std::str::from_utf8(reply.rows.first()?.first()?).ok()
}

fn find(session: &mut impl Session) -> Result<Option<LastResourceId>, Failure> {
    let reply = ask(session, PostgresDecisions::FIND)?;
    Ok(value(&reply).and_then(PostgresDecisions::of_name).map(|decisions| decisions.0))
}

/// Which last resource the database is; it becomes one if it is none.
pub(super) fn open(session: &mut impl Session) -> Result<LastResourceId, Failure> {
    let last = match find(session)? {
        Some(found) => found,
        None => making(session)?,
    };
    check_rights(session, last)?;
    Ok(last)
}

fn making(session: &mut impl Session) -> Result<LastResourceId, Failure> {
    let made = make(session);
    if made.is_err() {
        // What it began is not to be left open, and is not once the connection is lost.
        drop(ask(session, "ROLLBACK"));
    }
    made
}

fn make(session: &mut impl Session) -> Result<LastResourceId, Failure> {
    let plain = |failure| match failure {
        Failure::Refused { state, number, text } => {
            Failure::Refused { state, number, text: format!("{}: {text}", PostgresDecisions::CANNOT_MAKE) }
        }
        lost => lost,
    };
    ask(session, &PostgresDecisions::begin_making()).map_err(plain)?;
    let found = find(session)?;
    // The standard library seeds each of these from the operating system.
    let made = found.unwrap_or_else(|| LastResourceId(RandomState::new().hash_one(0)));
    if found.is_none() {
        if value(&ask(session, PostgresDecisions::HAS_NO_SCHEMA)?) == Some("t") {
            ask(session, PostgresDecisions::MAKE_SCHEMA).map_err(plain)?;
        }
        ask(session, &PostgresDecisions(made).make()).map_err(plain)?;
    }
    ask(session, "COMMIT").map_err(plain)?;
    Ok(made)
}

fn check_rights(session: &mut impl Session, last: LastResourceId) -> Result<(), Failure> {
    let reply = ask(session, &PostgresDecisions(last).rights())?;
    let mut values = reply.rows.iter().flatten().map(|value| String::from_utf8_lossy(value));
    let role = values.next().unwrap_or_default();
    if values.next().is_some_and(|has_all| has_all == "t") {
        return Ok(());
    }
    let text = PostgresDecisions(last).no_rights(&role);
    Err(Failure::Refused { state: "42501".to_owned(), number: 0, text })
}

/// Whether each of these is committed there; what is not never will be. `None` when it is not the last resource that is meant.
pub(super) fn settle(
    session: &mut impl Session,
    last: LastResourceId,
    ids: &[TransactionId],
) -> Result<Option<Vec<bool>>, Failure> {
    let decisions = PostgresDecisions(last);
    let there = ask(session, &format!("SELECT to_regclass('{}') IS NOT NULL", decisions.table()))?;
    if value(&there) != Some("t") {
        return Ok(None);
    }
    let mut settled = Vec::with_capacity(ids.len());
    for id in ids {
        // Each in a transaction of its own, which waits for nothing else while it holds its row.
        ask(session, &decisions.note(*id))?;
        ask(session, &PostgresDecisions::begin_looking())?;
        let reply = ask(session, &decisions.look(&[*id]))?;
        ask(session, "COMMIT")?;
        settled.push(match reply.rows.first().and_then(|row| row.get(1)) {
            Some(word) => word == b"t",
            None => return Err(Failure::Lost(format!("the decision about {id} went while it was read"))),
        });
    }
    drop(ask(session, &decisions.let_go_old()));
    Ok(Some(settled))
}

/// Lets go of decisions that nobody needs.
pub(super) fn let_go(session: &mut impl Session, last: LastResourceId, ids: &[TransactionId]) -> Result<(), Failure> {
    ask(session, &PostgresDecisions(last).let_go(ids)).map(drop)
}
