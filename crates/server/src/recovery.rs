//! The server's own recovery of distributed transactions: asks the resource managers of the configured profiles what is in
//! doubt, and settles it by the store's own decisions, also when no program ever comes back.
//!
//! A thread of its own, so that neither a database that hangs nor a disk that is full holds up anybody else. It ends with
//! the server: a round that is under way is finished, or given up after [`STOP_TIME_MAX`]; what it did not get to is in
//! doubt as before, and the next start's.
//!
//! May use: `tm`, `config`, tokio. Must not know: doors, what a verdict rests on.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use doors::numbers::RecoveryNumbers;
use holdfast::Store;
use tm::{
    BranchName, Coordinator, CoordinatorPlace, Decisions, Down, Embedded, Fate, Found, Pace, Profile, Recovery, Remote,
    RemoteOptions, Report, ResourceManager, ResourceManagerProfile, Switches, Unreadable, Xid,
};
use tokio::sync::watch;

use crate::config::Xa;
use crate::failure::Failure;

/// How long a round may go on when the server stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a profile's coordinator may take to say which it is. It is this server, and there; unless the profile is wrong.
const CHECK_TIME_MAX: Duration = Duration::from_secs(2);

/// Between two looks for decisions that nobody needs.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Recovery under way, of all configured profiles. Dropping it stops it.
pub(crate) struct Recoverer {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// What all profiles' recovery counts.
#[derive(Default)]
pub(crate) struct Counts(Vec<Count>);

/// What the recovery of one profile counts.
#[derive(Default)]
struct Count {
    managers: AtomicU64,
    managers_down: AtomicU64,
    in_doubt: AtomicU64,
    rounds: AtomicU64,
    committed: AtomicU64,
    rolled_back: AtomicU64,
    heuristic: AtomicU64,
}

/// What was said of a profile's resource managers and branches, so that it is said once and not with every round.
struct Watch {
    profile: String,
    /// Who does not answer, and why.
    down: BTreeMap<Option<BranchName>, String>,
    /// Prepared and not settled, by where it was found; true when that was said.
    unsettled: BTreeMap<(BranchName, Xid), bool>,
    /// How many are prepared that cannot be read, by where they are.
    unreadable: BTreeMap<BranchName, u64>,
}

impl Counts {
    pub(crate) fn new(xa: &Xa) -> Self {
        Self(xa.profiles.iter().map(|_| Count::default()).collect())
    }

    pub(crate) fn numbers(&self) -> RecoveryNumbers {
        let sum = |of: fn(&Count) -> &AtomicU64| self.0.iter().map(|count| of(count).load(Relaxed)).sum();
        RecoveryNumbers {
            managers: sum(|count| &count.managers),
            managers_down: sum(|count| &count.managers_down),
            in_doubt: sum(|count| &count.in_doubt),
            rounds: sum(|count| &count.rounds),
            committed: sum(|count| &count.committed),
            rolled_back: sum(|count| &count.rolled_back),
            heuristic: sum(|count| &count.heuristic),
        }
    }
}

/// The servers of a profile's coordinator; `None` when it is in a directory.
fn servers(profile: &Profile) -> Option<&RemoteOptions> {
    match &profile.coordinator {
        CoordinatorPlace::Servers(options) => Some(options),
        CoordinatorPlace::Directory { .. } => None,
    }
}

/// Asks the coordinator of each profile, as its programs do, whether it is this server. Blocks. A coordinator that cannot be
/// asked is no mistake: it may be known to the programs by a name that means nothing here.
///
/// # Errors
/// When one is another server.
pub(crate) fn check_coordinators(store: &Store, profiles: &[Profile]) -> Result<(), Failure> {
    let own = store.xa().coordinator();
    for profile in profiles {
        let Some(options) = servers(profile) else { continue };
        let name = Some("the server's check of its profiles".to_owned());
        let patience = options.patience.min(CHECK_TIME_MAX);
        match Remote::open(RemoteOptions { name, patience, ..options.clone() }) {
            Ok(remote) if remote.coordinator() == own => {}
            Ok(remote) => {
                let (profile, servers) = (profile.name.clone(), options.servers.join(", "));
                return Err(Failure::OtherCoordinator { profile, servers, theirs: remote.coordinator(), own });
            }
            Err(error) => tracing::warn!(
                "xa: whether this server is the coordinator of profile {} could not be checked: {error}",
                profile.name
            ),
        }
    }
    Ok(())
}

/// The resource managers of each profile; those that an earlier profile has alike are left to that one.
fn managers(profiles: &[Profile]) -> Result<Vec<Vec<Arc<dyn ResourceManager>>>, Failure> {
    let mut known: Vec<&ResourceManagerProfile> = Vec::new();
    let mut all = Vec::new();
    for profile in profiles {
        let is_same = |one: &ResourceManagerProfile, other: &ResourceManagerProfile| {
            (&one.name, &one.kind, &one.open) == (&other.name, &other.kind, &other.open)
        };
        let mut own = profile.clone();
        own.resource_managers.retain(|manager| !known.iter().any(|known| is_same(known, manager)));
        known.extend(&profile.resource_managers);
        let made = tm::resource_managers(&own, Switches::Left);
        all.push(made.map_err(|faults| Failure::ResourceManagers { profile: own.name, faults })?);
    }
    Ok(all)
}

impl Recoverer {
    /// Begins, with a round at once; `None` when no profile is configured.
    pub(crate) fn start(store: &Store, xa: &Xa, counts: &Arc<Counts>) -> Result<Option<Self>, Failure> {
        if xa.profiles.is_empty() {
            return Ok(None);
        }
        let managers = managers(&xa.profiles)?;
        // Here and not in the thread: whoever finds the server ready finds the number too.
        for (count, managers) in counts.0.iter().zip(&managers) {
            count.managers.store(managers.len() as u64, Relaxed);
        }
        let embedded = Embedded::over(store.clone());
        let coordinator = Coordinator::embedded(embedded.clone());
        let sweeping = xa.sweep.map(|age| (embedded, managers.concat(), age));
        let retry_max = Pace::default().retry_max.min(xa.interval.max(Duration::from_secs(1)) * 3);
        let pace = Pace { interval: xa.interval, retry_max, ..Pace::default() };
        let (stop, stopped) = watch::channel(false);
        let profiles: Vec<(String, Vec<Arc<dyn ResourceManager>>)> =
            xa.profiles.iter().map(|profile| profile.name.clone()).zip(managers).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        let counts = Arc::clone(counts);
        let work = move || {
            let all = async {
                let mut running = tokio::task::JoinSet::new();
                for (number, (profile, managers)) in profiles.into_iter().enumerate() {
                    let (counts, ended) = (Arc::clone(&counts), end(stopped.clone()));
                    let recovery = Recovery::new(&coordinator, managers, pace);
                    let mut watch = Watch::new(profile);
                    running.spawn(recovery.keep_running_until(ended, move |report| {
                        if let Some(count) = counts.0.get(number) {
                            watch.note(report, count);
                        }
                    }));
                }
                if let Some((embedded, managers, age)) = sweeping {
                    running.spawn(sweep(embedded, managers, age, end(stopped.clone())));
                }
                while let Some(ended) = running.join_next().await {
                    if let Err(error) = ended {
                        tracing::error!("xa: recovery of a profile ended, which it never should: {error}");
                    }
                }
            };
            let patience = async {
                end(stopped.clone()).await;
                tokio::time::sleep(STOP_TIME_MAX).await;
            };
            runtime.block_on(async {
                tokio::select! {
                    () = all => {}
                    () = patience => tracing::warn!("xa: a round of recovery did not end in time, and was given up"),
                }
            });
        };
        let thread = thread::Builder::new().name("xa-recovery".to_owned()).spawn(work);
        let thread = thread.map_err(|error: io::Error| Failure::Start(error))?;
        Ok(Some(Self { stop, thread: Some(thread) }))
    }
}

/// Lets go of decisions that nobody needs, now and then, until `end`.
async fn sweep(
    embedded: Embedded,
    managers: Vec<Arc<dyn ResourceManager>>,
    age: Duration,
    end: impl Future<Output = ()>,
) {
    let mut end = std::pin::pin!(end);
    loop {
        tokio::select! {
            biased;
            () = &mut end => return,
            () = tokio::time::sleep(age.min(SWEEP_INTERVAL)) => {}
        }
        // A database that hangs is recovery's to complain of.
        match tokio::time::timeout(SWEEP_INTERVAL, tm::sweep(&embedded, &managers, age)).await {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(count)) => tracing::info!("xa: {count} decisions were let go, of which no branch was left"),
            Ok(Err(error)) => tracing::warn!("xa: decisions of which no branch is left cannot be let go: {error}"),
        }
    }
}

impl Drop for Recoverer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("xa: recovery ended by a panic");
        }
    }
}

/// Until the server stops.
async fn end(mut stopped: watch::Receiver<bool>) {
    // An error means that nobody is left to say so, which is the same.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

impl Watch {
    fn new(profile: String) -> Self {
        Self { profile, down: BTreeMap::new(), unsettled: BTreeMap::new(), unreadable: BTreeMap::new() }
    }

    /// Logs what is news, and counts.
    fn note(&mut self, report: &Report, count: &Count) {
        if report.answered.is_empty() && report.down.is_empty() {
            return;
        }
        count.rounds.fetch_add(1, Relaxed);
        let profile = &self.profile;
        for name in &report.answered {
            if self.down.remove(&Some(name.clone())).is_some() {
                tracing::info!("xa: {profile}: {name} answers again");
            }
        }
        if report.down.iter().all(|down| down.manager.is_some()) && !report.found.is_empty() {
            self.down.remove(&None);
        }
        self.unreadable.retain(|manager, _| !report.answered.contains(manager));
        for Unreadable { manager, .. } in &report.unreadable {
            *self.unreadable.entry(manager.clone()).or_default() += 1;
        }
        for Unreadable { manager, name, .. } in report.unreadable.iter().filter(|unreadable| unreadable.is_new) {
            tracing::warn!("xa: {profile}: {manager}: {name:?} is prepared and cannot be read, and is left alone");
        }
        report.down.iter().for_each(|down| self.note_down(down));
        let before: BTreeSet<(BranchName, Xid)> = self.unsettled.keys().cloned().collect();
        let found: BTreeMap<(BranchName, Xid), &Found> =
            report.found.iter().map(|found| ((found.manager.clone(), found.xid.clone()), found)).collect();
        // What is listed no more was settled by somebody else.
        self.unsettled.retain(|place, _| !report.answered.contains(&place.0) || found.contains_key(place));
        for (place, found) in found {
            self.note_found(&place, found, before.contains(&place), count);
        }
        count.managers_down.store(self.down.keys().flatten().count() as u64, Relaxed);
        count.in_doubt.store(self.unsettled.len() as u64 + self.unreadable.values().sum::<u64>(), Relaxed);
    }

    fn note_down(&mut self, down: &Down) {
        let Down { manager, reason, pause } = down;
        let name = manager.as_ref().map_or("the coordinator", BranchName::as_str);
        let text =
            format!("xa: {}: {name} does not answer, asked again in {} ms: {reason}", self.profile, pause.as_millis());
        if self.down.insert(manager.clone(), reason.clone()).is_none_or(|before| before != *reason) {
            tracing::warn!("{text}");
        } else {
            tracing::debug!("{text}");
        }
    }

    fn note_found(&mut self, place: &(BranchName, Xid), found: &Found, is_known: bool, count: &Count) {
        let reason = if found.reason.is_empty() { String::new() } else { format!(" ({})", found.reason) };
        let text = format!("xa: {}: {}: {}: {}{reason}", self.profile, found.manager, found.xid, found.fate);
        let settled = match found.fate {
            Fate::Committed => &count.committed,
            Fate::RolledBack => &count.rolled_back,
            Fate::Heuristic => {
                count.heuristic.fetch_add(1, Relaxed);
                self.unsettled.remove(place);
                tracing::warn!("{text}");
                return;
            }
            // A transaction under way is seen once; one that is seen again is worth a line.
            fate @ (Fate::Left | Fate::Postponed) => {
                let is_said = self.unsettled.get(place).copied().unwrap_or(false);
                let is_news = !is_said && (is_known || fate == Fate::Postponed);
                if is_news {
                    tracing::info!("{text}");
                } else {
                    tracing::debug!("{text}");
                }
                self.unsettled.insert(place.clone(), is_said || is_news);
                return;
            }
        };
        settled.fetch_add(1, Relaxed);
        self.unsettled.remove(place);
        tracing::info!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use tm::{CoordinatorId, OwnerId, TransactionId};

    use super::*;

    fn name(text: &str) -> BranchName {
        BranchName::new(text).unwrap()
    }

    fn found(manager: &str, sequence: u64, fate: Fate) -> Found {
        let transaction = TransactionId {
            coordinator: CoordinatorId(1),
            owner: OwnerId(1),
            sequence,
            deadline_ms: 0,
            shared: false,
            last_resource: None,
        };
        Found { manager: name(manager), xid: Xid { transaction, branch: name(manager) }, fate, reason: String::new() }
    }

    fn answered(names: &[&str], found: Vec<Found>) -> Report {
        Report { answered: names.iter().copied().map(name).collect(), found, ..Report::default() }
    }

    #[test]
    fn numbers_follow_what_is_found_and_what_becomes_of_it() {
        let (mut watch, counts) = (Watch::new("bank".to_owned()), Counts(vec![Count::default()]));
        let mut after = |report: &Report| {
            watch.note(report, &counts.0[0]);
            counts.numbers()
        };
        let wanted = RecoveryNumbers::default();
        // Nobody was due.
        assert_eq!(after(&Report::default()), wanted);
        let both = ["ledger", "shop"];
        let seen =
            vec![found("ledger", 1, Fate::Left), found("shop", 1, Fate::Postponed), found("shop", 2, Fate::Left)];
        let wanted = RecoveryNumbers { rounds: 1, in_doubt: 3, ..wanted };
        assert_eq!(after(&answered(&both, seen)), wanted);
        let down = Down { manager: Some(name("shop")), reason: "refused".to_owned(), pause: Duration::ZERO };
        let seen = vec![found("ledger", 1, Fate::Committed)];
        let report = Report { down: vec![down], ..answered(&["ledger"], seen) };
        let wanted = RecoveryNumbers { rounds: 2, in_doubt: 2, managers_down: 1, committed: 1, ..wanted };
        assert_eq!(after(&report), wanted);
        // Its second branch was settled by somebody else meanwhile.
        let seen = vec![found("shop", 1, Fate::RolledBack), found("shop", 3, Fate::Heuristic)];
        let wanted =
            RecoveryNumbers { rounds: 3, in_doubt: 0, managers_down: 0, rolled_back: 1, heuristic: 1, ..wanted };
        assert_eq!(after(&answered(&["shop"], seen)), wanted);
    }

    #[test]
    fn a_resource_manager_of_two_profiles_is_asked_once() {
        let profile = |profile: &str, managers: &[(&str, &str)]| {
            let mut text = format!("[profiles.{profile}.coordinator]\nservers = [\"localhost:1\"]\n");
            for (name, host) in managers {
                text.push_str(&format!(
                    "[[profiles.{profile}.resource_managers]]\nname = \"{name}\"\nkind = \"postgres\"\nopen = \"host={host}\"\n"
                ));
            }
            Profile::of_text(&text, None, &|_| None).unwrap()
        };
        let profiles = [profile("a", &[("x", "one"), ("y", "two")]), profile("b", &[("x", "one"), ("y", "three")])];
        let managers = managers(&profiles).unwrap();
        let names: Vec<Vec<&str>> =
            managers.iter().map(|some| some.iter().map(|manager| manager.name().as_str()).collect()).collect();
        assert_eq!(names, [vec!["x", "y"], vec!["y"]]);
    }
}
