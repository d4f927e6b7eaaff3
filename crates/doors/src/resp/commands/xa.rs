//! XA.*: the store as a coordinator of distributed transactions.
//!
//! Nothing here waits for a sync: what an answer rests on is noted with the connection, which sends it in time. XA.COMMIT
//! inside MULTI is decided with the batch of EXEC; whatever speaks against it discards all of that.
//!
//! May use: `call`, the facade. Must not know: sockets, dispatch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast::{
    AbortReason, BranchName, BranchState, BranchStatus, Commit, Deed, Durability, ErrorKind, Forgetting, Heuristic,
    Learned, Lease, Outcome, OwnerId, Patience, Pending, Resumer, State, Status, Store, Taking, TransactionId, Verdict,
    Vote,
};

use super::own::durability;
use crate::auth::Right;
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX, View};
use crate::resp::clients::Ask;
use crate::resp::number;
use crate::resp::reply::Reply;
use crate::resp::session::Need;

/// The lease of owners that do not choose one.
const LEASE_DEFAULT: Duration = Duration::from_secs(10);
/// How long XA.COMMIT waits for others at the most.
const WAIT_MAX_MS: u64 = 60_000;
/// How often it looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// How many transactions XA.LIST returns unless COUNT says otherwise, and at the most.
const COUNT_DEFAULT: u64 = 100;
const COUNT_MAX: u64 = 1000;

/// The owner that a connection is for XA.BEGIN. It ends with the connection.
pub(crate) struct ConnectionOwner {
    store: Store,
    owner: OwnerId,
    begun: u64,
}

impl Drop for ConnectionOwner {
    fn drop(&mut self) {
        // It does not write: the background ends it, or whoever asks for one of its transactions.
        self.store.xa().release(self.owner);
    }
}

/// Checks that the user may change transactions, which are everybody's.
fn may(call: &Call<'_, '_>, right: Right) -> Answer {
    let may = |user: &crate::auth::User| user.buckets.iter().any(|rule| rule.right >= right && rule.pattern == "*");
    match &call.session.user {
        Some(user) if !may(user) => {
            let name = call.command.name.replace('|', " ");
            Err(format!("NOPERM '{name}' needs a right to all buckets that this user does not have").into())
        }
        _ => Ok(()),
    }
}

/// The answer, which is sent when what it rests on is durable enough.
fn show<T>(need: &mut Need, durability: Durability, pending: Pending<'_, T>) -> T {
    pending.show_after(|rests| {
        need.add(durability, rests.asked);
        need.add(Durability::Synced, rests.synced);
    })
}

fn aborted(reason: AbortReason) -> Fail {
    format!("ABORTED {reason}").into()
}

fn committed() -> Fail {
    "ERR the transaction is committed already".into()
}

fn text(argument: &[u8]) -> Result<&str, Fail> {
    std::str::from_utf8(argument).map_err(|_| SYNTAX.into())
}

fn id(argument: &[u8]) -> Result<TransactionId, Fail> {
    text(argument)?.parse().map_err(|error: holdfast::MalformedId| format!("ERR {error}").into())
}

fn branch(argument: &[u8]) -> Result<BranchName, Fail> {
    let name = std::str::from_utf8(argument).unwrap_or_default();
    BranchName::new(name).map_err(|error| format!("ERR {error}").into())
}

fn milliseconds(argument: &[u8]) -> Result<u64, Fail> {
    number::parse_u64(argument).ok_or_else(|| NOT_INTEGER.into())
}

fn owner(argument: &[u8]) -> Result<OwnerId, Fail> {
    number::parse_u64(argument).map(OwnerId).ok_or_else(|| NOT_INTEGER.into())
}

pub(crate) fn owner_open(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let args = call.args();
    let (mut lease, mut name, mut index) = (LEASE_DEFAULT, "", 2);
    while let Some(option) = args.get(index) {
        let value = args.get(index + 1).ok_or(SYNTAX)?;
        if option.eq_ignore_ascii_case(b"lease") {
            lease = Duration::from_millis(milliseconds(value)?);
        } else if option.eq_ignore_ascii_case(b"name") {
            name = text(value)?;
        } else {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    let xa = call.door.store.xa();
    let opened = xa.open(Lease::For(lease), name)?;
    let owner = show(&mut call.session.need, call.durability, opened);
    call.reply.array(4);
    call.reply.text(&format!("{:016x}", xa.coordinator().0));
    call.reply.unsigned(owner.0);
    call.reply.unsigned(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
    call.reply.unsigned(call.door.store.now_ms());
    Ok(())
}

pub(crate) fn owner_renew(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let renewed = call.door.store.xa().renew(owner(call.args.at(2))?)?;
    show(&mut call.session.need, call.durability, renewed).map_err(aborted)?;
    call.reply.ok();
    Ok(())
}

pub(crate) fn owner_end(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let ended = call.door.store.xa().end(owner(call.args.at(2))?)?;
    show(&mut call.session.need, call.durability, ended);
    call.reply.ok();
    Ok(())
}

pub(crate) fn begin(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let args = call.args();
    let (mut timeout, mut shared, mut index) = (None, false, 1);
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"shared") {
            shared = true;
        } else if option.eq_ignore_ascii_case(b"timeout") {
            index += 1;
            timeout = Some(Duration::from_millis(milliseconds(args.get(index).ok_or(SYNTAX)?)?));
        } else {
            return Err(SYNTAX.into());
        }
        index += 1;
    }
    let store = &call.door.store;
    let own = match call.session.xa_owner.take() {
        // It may have been ended while the connection is there.
        Some(own) => {
            let renewed = show(&mut call.session.need, call.durability, store.xa().renew(own.owner)?);
            renewed.is_ok().then_some(own)
        }
        None => None,
    };
    let mut own = match own {
        Some(own) => own,
        None => {
            let opened = store.xa().open(Lease::Held, &call.session.client.address.to_string())?;
            let owner = show(&mut call.session.need, call.durability, opened);
            ConnectionOwner { store: store.clone(), owner, begun: 0 }
        }
    };
    own.begun += 1;
    let id = TransactionId {
        coordinator: store.xa().coordinator(),
        owner: own.owner,
        sequence: own.begun,
        deadline_ms: store.xa().deadline_ms(timeout),
        shared,
        last_resource: None,
    };
    call.session.xa_owner = Some(own);
    call.reply.text(&id.to_string());
    Ok(())
}

fn taken(call: &mut Call<'_, '_>, taking: Pending<'_, Taking>) -> Answer {
    match show(&mut call.session.need, call.durability, taking) {
        Taking::Part => call.reply.ok(),
        Taking::Settled(Outcome::Aborted(reason)) => return Err(aborted(reason)),
        Taking::Settled(Outcome::Committed) => return Err(committed()),
    }
    Ok(())
}

/// `[BY owner] [branch ...]`: a program's branches.
fn own_branches(call: &Call<'_, '_>) -> Result<(Option<OwnerId>, Vec<BranchName>), Fail> {
    let args = call.args();
    let (by, names) = match args.get(2).is_some_and(|word| word.eq_ignore_ascii_case(b"by")) {
        true => (Some(owner(args.get(3).ok_or(SYNTAX)?)?), args.from(4)),
        false => (None, args.from(2)),
    };
    Ok((by, names.iter().map(branch).collect::<Result<_, Fail>>()?))
}

pub(crate) fn enlist(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let (by, branches) = own_branches(call)?;
    if branches.is_empty() {
        return Err(SYNTAX.into());
    }
    let taking = call.door.store.xa().enlist(id(call.args().at(1))?, by, &branches)?;
    taken(call, taking)
}

pub(crate) fn suspend(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let (by, branches) = own_branches(call)?;
    let taking = call.door.store.xa().suspend(id(call.args().at(1))?, by, &branches)?;
    taken(call, taking)
}

pub(crate) fn resume(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let args = call.args();
    let mut resumer = Resumer::default();
    let mut words = args.from(2).iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(SYNTAX)?;
        match word.to_ascii_lowercase().as_slice() {
            b"by" if resumer.by.is_none() => resumer.by = Some(owner(value)?),
            b"number" if resumer.number.is_none() => {
                resumer.number = Some(number::parse_u64(value).ok_or(NOT_INTEGER)?)
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    let taking = call.door.store.xa().resume(id(args.at(1))?, resumer)?;
    taken(call, taking)
}

pub(crate) fn prepared(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let args = call.args();
    let vote = match args.get(3) {
        None => Vote::Prepared,
        Some(word) if word.eq_ignore_ascii_case(b"readonly") => Vote::ReadOnly,
        Some(word) if word.eq_ignore_ascii_case(b"failed") => Vote::Failed,
        Some(_) => return Err(SYNTAX.into()),
    };
    if args.len() > 4 {
        return Err(SYNTAX.into());
    }
    let taking = call.door.store.xa().vote(id(args.at(1))?, &branch(args.at(2))?, vote)?;
    taken(call, taking)
}

pub(crate) fn commit(call: &mut Call<'_, '_>) -> Answer {
    let in_exec = call.in_exec;
    try_commit(call).map_err(|fail| match fail {
        // Inside EXEC the other commands must not happen without it.
        Fail::Text(text) if in_exec => {
            let text = text.strip_prefix("ERR ").unwrap_or(&text).to_owned();
            Fail::Store(holdfast::Error::new(ErrorKind::Invalid, text))
        }
        fail => fail,
    })
}

fn try_commit(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let args = call.args();
    let id = id(args.at(1))?;
    if !args.at(2).eq_ignore_ascii_case(b"branches") {
        return Err(SYNTAX.into());
    }
    let count = number::parse_u64(args.at(3)).and_then(|count| usize::try_from(count).ok()).ok_or(NOT_INTEGER)?;
    let rest = args.from(4);
    if count > rest.len() {
        return Err("ERR fewer branches are named than BRANCHES says".into());
    }
    let branches: Vec<BranchName> = rest.iter().take(count).map(branch).collect::<Result<_, Fail>>()?;
    let (mut wait_ms, mut by_operator, mut index) = (0, false, 4 + count);
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"operator") {
            (by_operator, index) = (true, index + 1);
            continue;
        }
        if option.eq_ignore_ascii_case(b"wait") {
            wait_ms = milliseconds(args.get(index + 1).ok_or(SYNTAX)?)?;
        } else if !durability(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    if wait_ms > WAIT_MAX_MS {
        return Err(format!("ERR a commit waits for {WAIT_MAX_MS} milliseconds at the most").into());
    }
    if by_operator {
        may(call, Right::Admin)?;
        if wait_ms > 0 || call.in_exec {
            return Err("ERR an operator decides at once, and by itself: without WAIT, and outside of MULTI".into());
        }
        let decided = call.door.store.xa().decide_by_operator(id, &branches)?;
        let commit = show(&mut call.session.need, call.durability, decided);
        return write_commit(commit, call.reply);
    }
    if call.in_exec {
        if wait_ms > 0 {
            return Err("ERR inside a transaction a commit does not wait for others".into());
        }
        match &mut call.view {
            View::Transaction { transaction, .. } => {
                transaction.decide(id, &branches);
                // Nothing is decided yet: TX.COMMIT says so.
                call.reply.simple("QUEUED");
            }
            view => {
                view.exclusive()?.decide(id, &branches)?;
                call.reply.ok();
            }
        }
        return Ok(());
    }
    let patience = if wait_ms > 0 { Patience::Waits } else { Patience::Over };
    let decided = call.door.store.xa().decide(id, &branches, patience)?;
    call.session.commits = call.session.commits.saturating_add(1);
    let asked = call.durability;
    let commit = show(&mut call.session.need, asked, decided);
    if commit != Commit::Waiting {
        // For WAITAOF, which may wait for a little more than the decision.
        let need = call.session.need;
        call.session.last_write = call.session.last_write.max(need.synced).max(need.window).max(need.written);
        return write_commit(commit, call.reply);
    }
    let (store, client) = (call.door.store.clone(), Arc::clone(&call.session.client));
    let until = Instant::now() + Duration::from_millis(wait_ms);
    call.defer(move |reply| {
        let mut need = Need::NOTHING;
        loop {
            let patience = if Instant::now() < until { Patience::Waits } else { Patience::Over };
            match show(&mut need, asked, store.xa().decide(id, &branches, patience)?) {
                Commit::Waiting if matches!(client.asked(), Ask::Nothing) => std::thread::park_timeout(LOOK_INTERVAL),
                Commit::Waiting => return Err("UNAVAILABLE the connection closes; nothing was decided".into()),
                Commit::Settled(Outcome::Aborted(reason)) => {
                    // An error carries no positions from here, so what it rests on is waited for.
                    store.wait(need.synced, Durability::Synced)?;
                    return Err(aborted(reason));
                }
                commit => return write_commit(commit, reply).map(|()| need),
            }
        }
    });
    Ok(())
}

fn write_commit(commit: Commit, reply: &mut Reply) -> Answer {
    match commit {
        Commit::Decided | Commit::Settled(Outcome::Committed) => reply.ok(),
        Commit::Settled(Outcome::Aborted(reason)) => return Err(aborted(reason)),
        Commit::Waiting => return Err("ERR internal error: a commit waits that was not to".into()),
    }
    Ok(())
}

pub(crate) fn rollback(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let (args, xa) = (call.args(), call.door.store.xa());
    let id = id(args.at(1))?;
    let outcome = match args.get(2) {
        None => xa.abort(id)?,
        Some(word) if word.eq_ignore_ascii_case(b"branch") => {
            let deeds = args.from(2).iter().collect::<Vec<_>>();
            let deeds = deeds.chunks(4).map(deed).collect::<Result<Vec<_>, Fail>>()?;
            xa.note_deeds(id, &deeds)?
        }
        Some(word) if word.eq_ignore_ascii_case(b"operator") && args.len() == 3 => {
            may(call, Right::Admin)?;
            xa.abort_by_operator(id)?
        }
        Some(_) => return Err(SYNTAX.into()),
    };
    match show(&mut call.session.need, call.durability, outcome) {
        Outcome::Aborted(_) => call.reply.ok(),
        Outcome::Committed => return Err(committed()),
    }
    Ok(())
}

/// `BRANCH name HEURISTIC outcome`.
fn deed(words: &[&[u8]]) -> Result<Deed, Fail> {
    let [of, name, how, did] = words else { return Err(SYNTAX.into()) };
    if !of.eq_ignore_ascii_case(b"branch") || !how.eq_ignore_ascii_case(b"heuristic") {
        return Err(SYNTAX.into());
    }
    Ok(Deed { branch: branch(name)?, did: heuristic(did)? })
}

pub(crate) fn forget(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let args = call.args();
    let (mut learned, mut forgetting, mut index) = (Vec::<Learned>::new(), Forgetting::Known, 2);
    while let Some(option) = args.get(index) {
        index += 1;
        if option.eq_ignore_ascii_case(b"force") {
            forgetting = Forgetting::Everything;
            continue;
        }
        let value = args.get(index).ok_or(SYNTAX)?;
        index += 1;
        if option.eq_ignore_ascii_case(b"branch") {
            learned.push(Learned { branch: branch(value)?, heuristic: None });
        } else if option.eq_ignore_ascii_case(b"heuristic") {
            let last = learned.last_mut().filter(|last| last.heuristic.is_none()).ok_or(SYNTAX)?;
            last.heuristic = Some(heuristic(value)?);
        } else {
            return Err(SYNTAX.into());
        }
    }
    if forgetting == Forgetting::Everything {
        may(call, Right::Admin)?;
    }
    let forgotten = call.door.store.xa().forget(id(args.at(1))?, &learned, forgetting)?;
    show(&mut call.session.need, call.durability, forgotten);
    call.reply.ok();
    Ok(())
}

fn heuristic(word: &[u8]) -> Result<Heuristic, Fail> {
    Ok(match word.to_ascii_lowercase().as_slice() {
        b"commit" => Heuristic::Commit,
        b"rollback" => Heuristic::Rollback,
        b"mixed" => Heuristic::Mixed,
        b"hazard" => Heuristic::Hazard,
        _ => return Err("ERR a heuristic outcome is one of commit, rollback, mixed, hazard".into()),
    })
}

pub(crate) fn recover(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Write)?;
    let ids: Vec<TransactionId> = call.args().from(1).iter().map(id).collect::<Result<_, Fail>>()?;
    let xa = call.door.store.xa();
    call.reply.array(ids.len());
    for some in ids.chunks(xa.verdicts_max().max(1)) {
        let verdicts = show(&mut call.session.need, call.durability, xa.verdicts(some)?);
        for verdict in verdicts {
            call.reply.text(match verdict {
                Verdict::Commit => "commit",
                Verdict::Rollback => "rollback",
                Verdict::LastResource => "last-resource",
                Verdict::Leave => "leave",
                Verdict::Foreign => "foreign",
            });
        }
    }
    Ok(())
}

pub(crate) fn status(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Read)?;
    let status = call.door.store.xa().status(id(call.args.at(1))?)?;
    let status = show(&mut call.session.need, call.durability, status);
    write_status(&status, call.reply);
    Ok(())
}

pub(crate) fn list(call: &mut Call<'_, '_>) -> Answer {
    may(call, Right::Read)?;
    let args = call.args();
    let (mut after, mut count, mut index) = (None, COUNT_DEFAULT, 1);
    while let Some(option) = args.get(index) {
        let value = args.get(index + 1).ok_or(SYNTAX)?;
        if option.eq_ignore_ascii_case(b"cursor") {
            after = Some(id(value)?);
        } else if option.eq_ignore_ascii_case(b"count") {
            count = number::parse_u64(value).ok_or(NOT_INTEGER)?.clamp(1, COUNT_MAX);
        } else {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    let listed = call.door.store.xa().list(after, usize::try_from(count).unwrap_or(usize::MAX))?;
    let listed = show(&mut call.session.need, call.durability, listed);
    call.reply.array(2);
    match listed.next {
        Some(next) => call.reply.text(&next.to_string()),
        None => call.reply.null(),
    }
    call.reply.array(listed.statuses.len());
    listed.statuses.iter().for_each(|status| write_status(status, call.reply));
    Ok(())
}

fn write_status(status: &Status, reply: &mut Reply) {
    reply.map(7);
    reply.text("id");
    reply.text(&status.id.to_string());
    reply.text("state");
    reply.text(match status.state {
        State::Committed => "committed",
        State::Aborted => "aborted",
        State::LastResource => "last-resource",
        State::Active => "active",
        State::Suspended => "suspended",
        State::Doubtful => "doubtful",
        State::Unknown => "unknown",
    });
    reply.text("owner");
    reply.unsigned(status.id.owner.0);
    reply.text("owner_name");
    match &status.owner_name {
        Some(name) => reply.text(name),
        None => reply.null(),
    }
    let times = [("deadline", Some(status.id.deadline_ms).filter(|at| *at != 0)), ("settled", status.at_ms)];
    for (name, at) in times {
        reply.text(name);
        match at {
            Some(at) => reply.unsigned(at),
            None => reply.null(),
        }
    }
    reply.text("branches");
    reply.array(status.branches.len());
    for (name, state) in &status.branches {
        reply.array(2);
        reply.text(name.as_str());
        reply.text(match state {
            BranchStatus::Decided(BranchState::Open) => "open",
            BranchStatus::Decided(BranchState::Done) => "done",
            BranchStatus::Decided(BranchState::Heuristic(Heuristic::Commit)) => "heuristic-commit",
            BranchStatus::Decided(BranchState::Heuristic(Heuristic::Rollback)) => "heuristic-rollback",
            BranchStatus::Decided(BranchState::Heuristic(Heuristic::Mixed)) => "heuristic-mixed",
            BranchStatus::Decided(BranchState::Heuristic(Heuristic::Hazard)) => "heuristic-hazard",
            BranchStatus::Enlisted(None) => "enlisted",
            BranchStatus::Enlisted(Some(Vote::Prepared)) => "prepared",
            BranchStatus::Enlisted(Some(Vote::ReadOnly)) => "readonly",
            BranchStatus::Enlisted(Some(Vote::Failed)) => "failed",
        });
    }
}
