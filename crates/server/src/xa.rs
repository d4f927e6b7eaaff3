//! `holdfast xa ...`: what a coordinator knows of transactions, and what people do about them.
//!
//! The coordinator is that of a profile, a store's directory, or a server. Only a profile names resource managers, so only
//! with one can something be recovered.
//!
//! May use: `tm`. Must not know: protocols, records.

mod place;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast::Options;
use tm::{
    Administration, Begin, BranchName, Checked, CoordinatorPlace, Decisions, Embedded, Fate, Forget, Found, Pace,
    Profile, Progress, Recovery, Remote, Settling, State, Status, Switches, TransactionId, Unreadable,
};

use self::place::ProfilePlace;
use crate::cli::{XaArguments, XaCommand, XaPlace};
use crate::failure::Failure;
use crate::output::{complain, say};

/// A coordinator as people and recovery need it.
trait Coordinator: Decisions + Administration {}

impl<T: Decisions + Administration> Coordinator for T {}

/// Does what the command line says. Exit code 1 when something is left in doubt, or may be by what is known, or is wrong.
pub(crate) fn xa(arguments: &XaArguments) -> Result<ExitCode, Failure> {
    act(arguments).map_err(|failure| match failure {
        Failure::Transaction(error) if arguments.place.password_file.is_none() && is_unnamed(&error) => {
            // Of a profile the login is the profile's affair.
            let profile = match arguments.command {
                XaCommand::Recover { .. } | XaCommand::Check => ProfilePlace::said_or_usual(&arguments.place),
                _ => ProfilePlace::said(&arguments.place),
            };
            if profile.is_some() { Failure::UnnamedInProfile(error) } else { Failure::Unnamed(error) }
        }
        failure => failure,
    })
}

fn is_unnamed(error: &tm::Error) -> bool {
    error.to_string().contains("NOAUTH")
}

fn act(arguments: &XaArguments) -> Result<ExitCode, Failure> {
    let place = &arguments.place;
    match &arguments.command {
        XaCommand::List => list(&*open(place)?),
        XaCommand::Show { id } => show(&*open(place)?, *id),
        XaCommand::Commit { id, branches } => commit(&*open(place)?, *id, branches),
        XaCommand::Rollback { id } => rollback(&*open(place)?, *id),
        XaCommand::Forget { id, force } => {
            let forget = if *force { Forget::EvenInDoubt } else { Forget::Settled };
            open(place)?.forget(*id, forget)?;
            say(format_args!("forgotten  {id}"));
            Ok(ExitCode::SUCCESS)
        }
        XaCommand::Recover { sweep } => {
            let profile = ProfilePlace::said_or_usual(place).ok_or(Failure::NoResourceManagers)?;
            recover(&profile.whole()?, sweep.map(Duration::from_secs))
        }
        XaCommand::Check => match ProfilePlace::said_or_usual(place) {
            Some(profile) => check(&profile.whole()?),
            None => {
                let coordinator = place::coordinator(place)?;
                Ok(judge(&[runtime()?.block_on(tm::check_coordinator(&coordinator))]))
            }
        },
    }
}

fn open(place: &XaPlace) -> Result<Arc<dyn Coordinator>, Failure> {
    open_at(&place::coordinator(place)?)
}

fn open_at(coordinator: &CoordinatorPlace) -> Result<Arc<dyn Coordinator>, Failure> {
    match coordinator {
        CoordinatorPlace::Directory { directory, .. } => embedded(directory),
        CoordinatorPlace::Servers(options) => Ok(Arc::new(Remote::open(options.clone())?)),
    }
}

fn embedded(dir: &Path) -> Result<Arc<dyn Coordinator>, Failure> {
    // A typing error must not make a store.
    if holdfast::identity_of(dir).map_err(Failure::Read)?.is_none() {
        return Err(Failure::NoStore(dir.to_owned()));
    }
    Ok(Arc::new(Embedded::open(dir, Options::default())?))
}

fn list(coordinator: &dyn Coordinator) -> Result<ExitCode, Failure> {
    let (mut cursor, mut count) = ("0".to_owned(), 0);
    loop {
        let page = coordinator.list(&cursor)?;
        for status in &page.transactions {
            count += 1;
            let branches: Vec<String> =
                status.branches.iter().map(|branch| format!("{}={}", branch.branch, branch.state)).collect();
            let (state, age, owner) = (name_of(status.state), age(status), owner(status));
            say(format_args!("{} {state:<9} {age} {owner} {}", status.id, branches.join(" ")));
        }
        match page.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    if count == 0 {
        say("nothing is remembered: no transaction is decided that somebody may not know of");
    }
    Ok(ExitCode::SUCCESS)
}

fn show(coordinator: &dyn Coordinator, id: TransactionId) -> Result<ExitCode, Failure> {
    let status = coordinator.status(id)?;
    say(format_args!("id          {id}"));
    let asked = coordinator.coordinator();
    let other = if asked == id.coordinator { String::new() } else { format!(", and {:016x} was asked", asked.0) };
    say(format_args!("coordinator {:016x}{other}", id.coordinator.0));
    match &status.owner_name {
        Some(name) => say(format_args!("owner       {} {}", id.owner.0, name.escape_debug())),
        None => say(format_args!("owner       {}", id.owner.0)),
    }
    say(format_args!("sequence    {}", id.sequence));
    say(format_args!("shared      {}", if id.shared { "yes, several programs take part" } else { "no" }));
    match until(Duration::from_millis(id.deadline_ms)) {
        _ if id.deadline_ms == 0 => say("deadline    none"),
        Ok(left) => say(format_args!("deadline    in {} s", left.as_secs())),
        Err(since) => say(format_args!("deadline    {} s ago", since.as_secs())),
    }
    say(format_args!("state       {} {}", name_of(status.state), age(&status)));
    let is_foreign = asked != id.coordinator;
    let has_deeds = status.branches.iter().any(|branch| branch.state.starts_with("heuristic"));
    let is_known = !status.branches.is_empty() && status.branches.iter().all(|branch| branch.state == "done");
    let meaning = match status.state {
        _ if is_known => ALL_KNOW,
        State::Committed if has_deeds => DEEDS_OF_COMMITTED,
        State::Aborted if has_deeds => DEEDS_OF_ABORTED,
        // Whoever asked the right one for it would be told something else.
        State::Unknown if is_foreign => NOT_OURS,
        state => meaning(state),
    };
    say(format_args!("meaning     {meaning}"));
    for branch in &status.branches {
        say(format_args!("branch      {} {}", branch.branch, branch.state));
    }
    Ok(ExitCode::SUCCESS)
}

fn commit(coordinator: &dyn Coordinator, id: TransactionId, branches: &[BranchName]) -> Result<ExitCode, Failure> {
    coordinator.settle(id, Settling::Commit(branches))?;
    say(format_args!("decided    {id} is committed; `holdfast xa recover` commits its branches"));
    Ok(ExitCode::SUCCESS)
}

fn rollback(coordinator: &dyn Coordinator, id: TransactionId) -> Result<ExitCode, Failure> {
    coordinator.settle(id, Settling::Rollback)?;
    say(format_args!("decided    {id} will never be committed; `holdfast xa recover` rolls its branches back"));
    Ok(ExitCode::SUCCESS)
}

fn recover(profile: &Profile, sweep: Option<Duration>) -> Result<ExitCode, Failure> {
    let managers = match tm::resource_managers(profile, Switches::Asked) {
        Ok(managers) => managers,
        Err(faults) => return Ok(blame(&faults)),
    };
    let coordinator = open_at(&profile.coordinator)?;
    if matches!(profile.coordinator, CoordinatorPlace::Directory { .. }) {
        // The directory is ours alone, so all who had it before are gone, and this tells.
        coordinator.begin(Begin::default())?;
    }
    let runtime = runtime()?;
    let asking = tm::Coordinator::over(coordinator.clone());
    let names: Vec<&str> = managers.iter().map(|manager| manager.name().as_str()).collect();
    if !names.is_empty() {
        say(format_args!("asking     {}", names.join(", ")));
    }
    let asked = Arc::clone(&coordinator);
    let recovery =
        || Recovery::new(&asking, managers.clone(), Pace::default()).telling(move |told| tell(&*asked, told));
    let report = runtime.block_on(async { recovery().run().await });
    if let Some(age) = sweep
        && report.is_clean()
    {
        let swept = runtime.block_on(tm::sweep(&*coordinator, &managers, age))?;
        say(format_args!("swept      {swept} decisions of which no branch was left"));
    }
    let is_settled = report.is_clean();
    let end = match (is_settled, managers.is_empty()) {
        (false, _) => "something may be in doubt: see above",
        (true, false) => "nothing is in doubt",
        (true, true) => "there is nobody whom this program can ask what is in doubt",
    };
    say(format_args!("found      {}; {end}", report.found.len()));
    Ok(if is_settled { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says how a round of recovery goes.
fn tell(coordinator: &dyn Coordinator, told: Progress<'_>) {
    match told {
        Progress::Answered { manager, prepared: 0 } => say(format_args!("asked      {manager}: nothing is prepared")),
        Progress::Answered { manager, prepared } => say(format_args!("asked      {manager}: {prepared} prepared")),
        Progress::Down(down) => {
            let name = down.manager.as_ref().map_or("coordinator", BranchName::as_str);
            complain(format_args!("no answer  {name}: {}", down.reason));
        }
        Progress::Found(found) => tell_found(coordinator, found),
        Progress::Unreadable(Unreadable { manager, name, .. }) => {
            complain(format_args!("{:<10} {name:?}: cannot be read, and is left alone", manager.as_str()));
        }
    }
}

fn tell_found(coordinator: &dyn Coordinator, found: &Found) {
    let is_doubtful = found.fate == Fate::Left
        && coordinator.status(found.xid.transaction).is_ok_and(|status| status.state == State::Doubtful);
    let reason = match found.reason.as_str() {
        _ if is_doubtful => format!(". Doubtful: {}", meaning(State::Doubtful)),
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    say(format_args!("{:<10} {}: {}{reason}", found.manager.as_str(), found.xid, found.fate));
}

fn check(profile: &Profile) -> Result<ExitCode, Failure> {
    Ok(judge(&runtime()?.block_on(tm::check(profile))))
}

fn judge(all: &[Checked]) -> ExitCode {
    for Checked { part, found } in all {
        match found {
            Ok(reach) if reach.is_empty() => say(format_args!("{part:<12} good")),
            Ok(reach) => say(format_args!("{part:<12} good: {reach}")),
            Err(faults) => faults.iter().for_each(|what| complain(format_args!("{part:<12} {what}"))),
        }
    }
    if all.iter().all(|checked| checked.found.is_ok()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn blame(faults: &[tm::Fault]) -> ExitCode {
    for fault in faults {
        complain(format_args!("{:<12} {}", fault.part, fault.what));
    }
    ExitCode::FAILURE
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Start)
}

fn name_of(state: State) -> &'static str {
    match state {
        State::Committed => "committed",
        State::Aborted => "aborted",
        State::LastResource => "last-resource",
        State::Active => "active",
        State::Suspended => "suspended",
        State::Doubtful => "doubtful",
        State::Unknown => "unknown",
    }
}

/// What a decision means of which nobody is in doubt any more.
const ALL_KNOW: &str = "it is decided, and all branches know; its owner may not, so it is remembered for an hour";

/// What it means that a resource manager did something by itself.
const DEEDS_OF_COMMITTED: &str = "it is decided, and a resource manager did by itself what its branch's state says: compare the data, then \
                                  `holdfast xa forget --force` it; a prepared branch recovery commits, and of one branch alone \
                                  the program was told what its state says";
const DEEDS_OF_ABORTED: &str = "it will never be committed, and a resource manager did by itself what its branch's state says: compare the \
                                data, then `holdfast xa forget --force` it; a prepared branch recovery rolls back, and of one branch \
                                alone the program was told what its state says";

/// What is said of another coordinator's transaction.
const NOT_OURS: &str =
    "it is another coordinator's, and the one that was asked knows nothing of it: ask the other what became of it";

fn meaning(state: State) -> &'static str {
    match state {
        State::Committed => "it is decided; a prepared branch has to be committed, and recovery does that",
        State::Aborted => "it will never be committed; a prepared branch has to be rolled back, and recovery does that",
        State::LastResource => {
            "the coordinator will not commit it any more, but its last resource may have: `holdfast xa recover` with a profile that \
             has it asks, and completes what is prepared"
        }
        State::Active => "several programs work on it, and nothing is decided",
        State::Suspended => "a program has suspended it, and it waits for another one to resume it",
        State::Doubtful => {
            "the journal was damaged, and a decision may be lost: look at the data, and at the other branches, then \
             `holdfast xa commit` or `rollback` it"
        }
        State::Unknown => {
            "nothing is remembered of it: of what is rolled back there need be no record, and that of what is committed goes when \
             all its branches know. While a branch of it is prepared it was never decided to be committed, and `holdfast xa recover` \
             rolls that back once its owner is gone or its deadline has passed, and not before; when none is, it is over, and only \
             the data tells how"
        }
    }
}

/// What its owner calls itself, if that is known, and the owner's number.
fn owner(status: &Status) -> String {
    let name = status.owner_name.as_deref().unwrap_or_default();
    format!("{}#{}", name.escape_debug(), status.id.owner.0)
}

/// How long ago it was decided.
fn age(status: &Status) -> String {
    match status.decided.map(until) {
        Some(Err(since)) => format!("{} s ago", since.as_secs()),
        Some(Ok(_)) => "now".to_owned(),
        None => "-".to_owned(),
    }
}

/// From now until a moment since 1970; or the time since.
fn until(moment: Duration) -> Result<Duration, Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    moment.checked_sub(now).ok_or_else(|| now.saturating_sub(moment))
}
