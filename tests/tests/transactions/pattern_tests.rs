//! One transaction over three programs, each with a branch in PostgreSQL and one in MariaDB, of which one is killed before or after
//! each step of its part, or the server is that is their coordinator.
//!
//! One after the other: the first begins and suspends, the second resumes, works and suspends, the third resumes and commits. Side by
//! side: the first begins, the others join, enlist and vote, and the first decides. Who decides may roll back. Each case has a server, programs and accounts
//! of its own, and a fate: all of it, nothing, or all but the part of a program that had not come to it. Whatever programs were
//! told agrees with that, and nothing stays in doubt.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_tests::say;
use mysql_async::prelude::Queryable;

use crate::audit::until_calm;
use crate::bank::{Clients, EACH, Reach};
use crate::databases::{MariaDb, Postgres};
use crate::patterns::Job;
use crate::programs::job;
use crate::stage::Stage;

/// Cases at a time: most of their time they wait for leases and deadlines.
const WORKERS: usize = 8;
const PREPARED_MAX: u32 = 100;
/// How long recovery may take: leases, deadlines and pauses, on a busy machine.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(60);
/// A deadline that comes soon, but not before the programs have done what they do; and one that does not come.
const DEADLINE_MS: [u64; 2] = [8_000, 300_000];
/// How long a commit waits for others that are dead, and for others that are busy.
const SHARED_WAIT_MS: [u64; 2] = [2_000, 60_000];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    OneAfterTheOther,
    SideBySide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    All,
    Nothing,
    /// The same, and it takes the deadline for that, because whoever may decide is gone.
    NothingInTime,
    /// All but the part of the program that dies.
    Without,
}

#[derive(Debug, Clone)]
struct Case {
    pattern: Pattern,
    /// The program at whose step somebody dies.
    at: usize,
    step: String,
    /// How often it gets there before.
    passages: u32,
    /// What is said to whoever decides: `commit` or `rollback`.
    end: &'static str,
    fate: Fate,
}

/// The program that is killed. As a test of its own it has no job, and there is nothing to do.
#[test]
fn a_program_with_a_part() {
    let Some(job) = job() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(Job::of_words(&job).work());
}

#[test]
fn a_program_that_dies_at_any_step_of_its_part_leaves_all_of_it_or_nothing() {
    play_all("itself", cases());
}

#[test]
fn a_server_that_dies_at_any_step_of_a_part_leaves_all_of_it_or_nothing() {
    let of_server = |case: Case| {
        let is_decided = ["commit", "done", "after decision"].iter().any(|step| case.step.contains(step));
        // Who takes part is in memory only until it is decided.
        Case { fate: if is_decided { Fate::All } else { Fate::Nothing }, ..case }
    };
    play_all("server", cases().into_iter().map(of_server).collect());
}

#[test]
fn three_programs_of_which_none_dies_commit_all_of_it() {
    play_all("nobody", undisturbed("commit", Fate::All));
}

#[test]
fn three_programs_of_which_none_dies_roll_all_of_it_back() {
    play_all("nobody", undisturbed("rollback", Fate::Nothing));
}

fn undisturbed(end: &'static str, fate: Fate) -> Vec<Case> {
    let of_pattern = |pattern| Case { pattern, at: 0, step: "after all".to_owned(), passages: 0, end, fate };
    [Pattern::OneAfterTheOther, Pattern::SideBySide].map(of_pattern).into()
}

/// Every step of every part.
fn cases() -> Vec<Case> {
    use Fate::{All, Nothing, NothingInTime, Without};
    use Pattern::{OneAfterTheOther, SideBySide};
    let mut cases = Vec::new();
    let mut add = |pattern, at, step: &str, passages, fate| {
        for moment in ["before", "after"] {
            let end = if step.starts_with("rollback") { "rollback" } else { "commit" };
            cases.push(Case { pattern, at, step: format!("{moment} {step}"), passages, end, fate });
        }
    };
    for manager in ["postgres", "mariadb"] {
        for (pattern, at, fate) in [
            (OneAfterTheOther, 0, Nothing),
            (OneAfterTheOther, 1, Nothing),
            (OneAfterTheOther, 2, NothingInTime),
            (SideBySide, 0, Nothing),
            (SideBySide, 1, Nothing),
        ] {
            add(pattern, at, &format!("prepare {manager}"), 0, fate);
            add(pattern, at, &format!("commit {manager}"), 0, All);
            // Whoever decides, and those who hear of it.
            add(pattern, at, &format!("rollback {manager}"), 0, fate);
        }
    }
    for (pattern, at) in [(OneAfterTheOther, 0), (OneAfterTheOther, 1), (SideBySide, 1)] {
        add(pattern, at, "vote", 0, Nothing);
        add(pattern, at, "vote", 1, Nothing);
    }
    for (pattern, at) in [(OneAfterTheOther, 2), (SideBySide, 0)] {
        add(pattern, at, "decision", 0, All);
        add(pattern, at, "done", 0, All);
    }
    add(OneAfterTheOther, 0, "suspend", 0, Nothing);
    add(OneAfterTheOther, 1, "suspend", 0, Nothing);
    add(OneAfterTheOther, 1, "resume", 0, NothingInTime);
    add(OneAfterTheOther, 2, "resume", 0, NothingInTime);
    add(SideBySide, 1, "enlist", 0, Nothing);
    add(SideBySide, 1, "enlist", 1, Nothing);
    for case in &mut cases {
        case.fate = match (case.pattern, case.at, case.step.as_str(), case.passages) {
            // The last vote, behind which it is others who decide.
            (_, _, "after vote", 1) => All,
            (OneAfterTheOther, _, "before decision", _) => NothingInTime,
            (SideBySide, _, "before decision", _) => Nothing,
            // It holds what it has not suspended yet.
            (_, 1, "before suspend", _) => NothingInTime,
            // The third one resumes what the first one suspended; and the first one decides without it.
            (_, 1, "before resume", _) | (SideBySide, _, "before enlist", 0) => Without,
            _ => case.fate,
        };
    }
    cases
}

fn play_all(victim: &str, cases: Vec<Case>) {
    let start = Instant::now();
    let (postgres, mariadb) = (Postgres::start(PREPARED_MAX), MariaDb::start());
    let reach = Reach::new(&postgres.connection(), &mariadb.socket());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(reach.found_with(3 * i64::try_from(cases.len()).unwrap()));
    let next = AtomicUsize::new(0);
    let play_some = || {
        let clients = runtime.block_on(reach.connect()).unwrap();
        while let number = next.fetch_add(1, Ordering::SeqCst)
            && let Some(case) = cases.get(number)
        {
            let place = Place { postgres_port: postgres.port(), mariadb: &mariadb, reach: &reach, clients: &clients };
            let played = catch_unwind(AssertUnwindSafe(|| place.play(case, victim, number, runtime.handle())));
            if let Err(panic) = played {
                say!("it was {case:?}, {victim}");
                resume_unwind(panic);
            }
        }
    };
    thread::scope(|scope| (0..WORKERS.min(cases.len())).for_each(|_| drop(scope.spawn(play_some))));
    runtime.block_on(until_calm(&reach));
    say!("patterns: {} cases, killed {victim}, {} s", cases.len(), start.elapsed().as_secs());
}

/// Where cases are played.
struct Place<'a> {
    postgres_port: u16,
    mariadb: &'a MariaDb,
    reach: &'a Reach,
    clients: &'a Clients,
}

impl Place<'_> {
    fn play(&self, case: &Case, victim: &str, number: usize, runtime: &tokio::runtime::Handle) {
        let mut stage = Stage::new(self.reach);
        let first_account = 3 * i64::try_from(number).unwrap();
        for (at, suffix) in ["a", "b", "c"].iter().enumerate() {
            stage.start(&Job {
                coordinator: stage.address(),
                postgres_port: self.postgres_port,
                socket: self.mariadb.socket().display().to_string(),
                account: first_account + i64::try_from(at).unwrap(),
                suffix: (*suffix).to_owned(),
                shared_wait_ms: SHARED_WAIT_MS[usize::from(case.fate == Fate::All)],
                victim: if at == case.at { victim } else { "nobody" }.to_owned(),
                dead: stage.file(&format!("dead-{at}")),
                passages: case.passages,
                step: case.step.clone(),
            });
        }
        let deadline_ms = DEADLINE_MS[usize::from(case.fate != Fate::NothingInTime)];
        let told = match case.pattern {
            Pattern::OneAfterTheOther => one_after_the_other(&mut stage, deadline_ms, case.end),
            Pattern::SideBySide => side_by_side(&mut stage, deadline_ms, case.end),
        };
        let death = (victim != "nobody").then_some(case.step.as_str());
        assert_eq!(stage.death.as_deref(), death, "nobody died there: {told:?}");
        stage.end_programs();
        let changed = runtime.block_on(self.changed(first_account));
        let changed = changed.unwrap_or_else(|| panic!("still in doubt; the server says:\n{}", stage.said_by_server()));
        let expected = match case.fate {
            Fate::All => [true; 3],
            Fate::Nothing | Fate::NothingInTime => [false; 3],
            Fate::Without => std::array::from_fn(|at| at != case.at),
        };
        assert_eq!(changed, [expected, expected], "in PostgreSQL and MariaDB; programs were told {told:?}");
        for (told, is_changed) in told.iter().zip(expected) {
            match told.as_deref() {
                Some("committed") => assert!(is_changed, "told as committed: {told:?}"),
                Some("refused") => assert!(!is_changed, "told as rolled back: {told:?}"),
                Some("torn") => panic!("told as torn"),
                _ => {}
            }
        }
    }

    /// Whose accounts were changed in each database, once nothing there is locked.
    async fn changed(&self, first_account: i64) -> Option<[[bool; 3]; 2]> {
        let query = format!(
            "SELECT money FROM bank.accounts WHERE id BETWEEN {first_account} AND {} ORDER BY id FOR UPDATE NOWAIT",
            first_account + 2
        );
        let start = Instant::now();
        while start.elapsed() < SETTLE_TIME_MAX {
            let here = self.clients.postgres.query(&query, &[]).await;
            let there: Result<Vec<i64>, _> = self.clients.mariadb.lock().await.query(&query).await;
            if let (Ok(here), Ok(there)) = (here, there) {
                let here: Vec<i64> = here.iter().map(|row| row.get(0)).collect();
                return Some([here, there].map(|money| std::array::from_fn(|at| money[at] != EACH)));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    }
}

/// What each was told in the end.
type Told = [Option<String>; 3];

fn one_after_the_other(stage: &mut Stage, deadline_ms: u64, end: &str) -> Told {
    let Some(id) = stage.ask(0, &format!("begin {deadline_ms}")) else { return Told::default() };
    stage.ask(0, "work");
    let first = stage.ask(0, "suspend");
    let mut goes_on = |at: usize, then: &str| {
        let is_resumed = stage.ask(at, &format!("resume {id}")).as_deref() == Some("ok");
        let works = is_resumed && stage.ask(at, "work").as_deref() == Some("ok");
        if works { stage.ask(at, then) } else { None }
    };
    let (second, third) = (goes_on(1, "suspend"), goes_on(2, end));
    let mut finished = |at: usize, suspended: Option<String>| {
        if suspended.as_deref() == Some("suspended") { stage.ask(at, "finish") } else { suspended }
    };
    [finished(0, first), finished(1, second), third]
}

fn side_by_side(stage: &mut Stage, deadline_ms: u64, end: &str) -> Told {
    let Some(id) = stage.ask(0, &format!("begin {deadline_ms}")) else { return Told::default() };
    stage.ask(0, "work");
    // It has answered that it has enlisted before the first one commits.
    let works = [1, 2].map(|at| {
        stage.ask(at, &format!("join {id}"));
        stage.ask(at, "work").as_deref() == Some("ok")
    });
    for at in [1, 2] {
        if works[at - 1] {
            stage.tell(at, "prepare");
        }
    }
    stage.tell(0, end);
    let mut told = |at: usize| if at == 0 || works[at - 1] { stage.answer(at) } else { None };
    [told(0), told(1), told(2)]
}
