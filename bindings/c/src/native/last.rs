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
    if let Some(found) = find(session)? {
        return Ok(found);
    }
    // The standard library seeds each of these from the operating system.
    let made = LastResourceId(RandomState::new().hash_one(0));
    let mut statement = PostgresDecisions(made).make();
    if value(&ask(session, PostgresDecisions::HAS_NO_SCHEMA)?) == Some("t") {
        statement = format!("{}; {statement}", PostgresDecisions::MAKE_SCHEMA);
    }
    let answer = ask(session, &statement);
    // Somebody else may have made it at the same time, and all agree on the first.
    match (find(session)?, answer) {
        (Some(found), _) => Ok(found),
        (None, Ok(_)) => Ok(made),
        (None, Err(Failure::Refused { state, number, text })) => {
            let text = format!("cannot make a table for decisions in the schema holdfast: {text}");
            Err(Failure::Refused { state, number, text })
        }
        (None, Err(lost)) => Err(lost),
    }
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
        ask(session, &decisions.note(*id))?;
        settled.push(match value(&ask(session, &decisions.look(*id))?) {
            Some(word) => word == "t",
            None => return Err(Failure::Lost(format!("the decision about {id} went while it was read"))),
        });
    }
    ask(session, &decisions.let_go_old())?;
    Ok(Some(settled))
}

/// Lets go of decisions that nobody needs.
pub(super) fn let_go(session: &mut impl Session, last: LastResourceId, ids: &[TransactionId]) -> Result<(), Failure> {
    ask(session, &PostgresDecisions(last).let_go(ids)).map(drop)
}
