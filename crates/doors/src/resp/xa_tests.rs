//! XA.*: what they answer, inside and outside of MULTI, what replies wait for, and that whatever they are sent is answered.
//!
//! May use: the fixture of `handle_tests.rs`. Must not know: sockets.

use holdfast::{CoordinatorId, LastResourceId, OwnerId, TransactionId};
use proptest::prelude::*;

use super::*;
use crate::resp::rows::COMMANDS;
use crate::resp::table::flag;

impl Fixture {
    fn begin(&mut self, options: &str) -> String {
        let reply = self.run(format!("XA.BEGIN {options}").trim());
        reply.strip_prefix("$54 ").expect("an id has 54 characters").to_owned()
    }

    /// What the next command's reply needs to be synced, after it.
    fn synced(&mut self, line: &str) -> (String, Position) {
        self.session.need = Need::NOTHING;
        let reply = self.run(line);
        (reply, self.session.need.synced)
    }

    /// Another connection to the same door, until it closes.
    fn elsewhere<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let other = Self::session(&self.door);
        let mine = std::mem::replace(&mut self.session, other);
        let answer = run(self);
        self.session = mine;
        answer
    }
}

#[test]
fn an_operator_says_so_and_is_an_administrator() {
    let mut fixture = Fixture::new();
    let (first, second) = (fixture.begin(""), fixture.begin("TIMEOUT 60000"));
    let by_itself = "-ERR an operator decides at once, and by itself: without WAIT, and outside of MULTI";
    fixture.check(&[
        (&format!("XA.COMMIT {first} BRANCHES 1 pg OPERATOR WAIT 5"), by_itself),
        (&format!("XA.ROLLBACK {first} PLEASE"), "-ERR syntax error"),
        (&format!("XA.ROLLBACK {first} OPERATOR now"), "-ERR syntax error"),
        (&format!("XA.COMMIT {first} BRANCHES 1 pg DURABILITY synced OPERATOR"), "+OK"),
        (&format!("XA.ROLLBACK {first} OPERATOR"), "-ERR the transaction is committed already"),
        (&format!("XA.ROLLBACK {second} OPERATOR"), "+OK"),
        (&format!("XA.COMMIT {second} BRANCHES 1 pg OPERATOR"), "-ABORTED the transaction was rolled back"),
        ("MULTI", "+OK"),
        (&format!("XA.COMMIT {second} BRANCHES 1 pg OPERATOR"), "+QUEUED"),
    ]);
    let refused = fixture.run("EXEC");
    assert!(refused.starts_with("-EXECABORT Transaction discarded: ERR an operator decides at once"), "{refused}");
    let mut user = User::admin("ada", &crate::auth::hash_password(b"pw").unwrap());
    user.buckets = vec![BucketRight { pattern: "*".to_owned(), right: Right::Write }];
    fixture.session.user = Some(Arc::new(user));
    let third = fixture.begin("");
    let no_administrator = "needs a right to all buckets that this user does not have";
    fixture.check(&[
        (&format!("XA.COMMIT {third} BRANCHES 1 pg OPERATOR"), &format!("-NOPERM 'xa.commit' {no_administrator}")),
        (&format!("XA.ROLLBACK {third} OPERATOR"), &format!("-NOPERM 'xa.rollback' {no_administrator}")),
        (&format!("XA.COMMIT {third} BRANCHES 1 pg"), "+OK"),
    ]);
}

#[test]
fn a_decision_waits_for_its_sync_and_a_refusal_for_its_tombstone() {
    let mut fixture = Fixture::new();
    let (first, second, third) = (fixture.begin(""), fixture.begin(""), fixture.begin("TIMEOUT 60000"));
    assert_ne!(first, second);
    let (reply, synced) = fixture.synced(&format!("XA.COMMIT {first} BRANCHES 2 pg maria DURABILITY synced"));
    assert_eq!(reply, "+OK");
    assert!(synced > Position::ZERO);
    let (reply, synced) = fixture.synced(&format!("XA.COMMIT {second} BRANCHES 1 pg"));
    assert_eq!((reply.as_str(), synced), ("+OK", Position::ZERO), "this connection's durability is written");
    assert!(fixture.session.need.written > Position::ZERO);
    let (reply, buried) = fixture.synced(&format!("XA.ROLLBACK {third}"));
    assert_eq!(reply, "+OK");
    assert!(buried > Position::ZERO);
    let refused = format!("XA.COMMIT {third} BRANCHES 1 pg DURABILITY written");
    assert_eq!(fixture.synced(&refused), ("-ABORTED the transaction was rolled back".to_owned(), buried));
    let committed = "-ERR the transaction is committed already";
    assert_eq!(fixture.run(&format!("XA.ROLLBACK {first}")), committed);
    let (reply, synced) = fixture.synced(&format!("XA.RECOVER {first} {second} {third}"));
    assert_eq!(reply, "*3 $6 commit $6 commit $8 rollback");
    assert!(synced >= buried);
    fixture.check(&[
        (&format!("XA.FORGET {first} BRANCH pg"), "+OK"),
        (
            &format!("XA.FORGET {first}"),
            "-ERR the branch maria may be in doubt or has decided by itself: forgetting it needs force",
        ),
        (&format!("XA.FORGET {first} BRANCH maria HEURISTIC rollback"), "+OK"),
        (&format!("XA.FORGET {first} BRANCH maria"), "+OK"),
        (&format!("XA.FORGET {first} BRANCH oracle"), "-ERR the transaction has no branch oracle"),
        (
            &format!("XA.FORGET {first} BRANCH maria HEURISTIC perhaps"),
            "-ERR a heuristic outcome is one of commit, rollback, mixed, hazard",
        ),
        (&format!("XA.FORGET {first} HEURISTIC mixed"), "-ERR syntax error"),
    ]);
    let status = fixture.run(&format!("XA.STATUS {first}"));
    assert!(status.ends_with("$8 branches *2 *2 $2 pg $4 done *2 $5 maria $18 heuristic-rollback"), "{status}");
    assert!(fixture.run("INFO xa").contains("xa_outstanding:2 xa_heuristic:1 "), "{}", fixture.run("INFO xa"));
    fixture.check(&[
        (&format!("XA.FORGET {first} FORCE"), "+OK"),
        // Of another program, which comes behind the decision.
        (&format!("XA.COMMIT {second} BRANCHES 1 late"), "+OK"),
        (&format!("XA.FORGET {second} BRANCH late"), "+OK"),
        (&format!("XA.COMMIT {second} BRANCHES 1 misspelt OPERATOR"), "-ERR the transaction has no branch misspelt"),
        (&format!("XA.FORGET {second} BRANCH pg"), "+OK"),
        // Recovery was told of it, so its owner may have to be told yet.
        (&format!("XA.COMMIT {second} BRANCHES 1 pg"), "+OK"),
        (&format!("XA.FORGET {second} FORCE"), "+OK"),
        (&format!("XA.FORGET {second} BRANCH pg"), "+OK"),
    ]);
    let list = fixture.run("XA.LIST");
    assert!(list.starts_with(&format!("*2 $-1 *1 *14 $2 id $54 {third} $5 state $7 aborted $5 owner :1 ")), "{list}");
}

#[test]
fn what_was_done_against_a_rollback_is_listed_until_an_administrator_forgets_it() {
    let mut fixture = Fixture::new();
    let (first, second) = (fixture.begin("TIMEOUT 60000"), fixture.begin("TIMEOUT 60000"));
    for wrong in ["BRANCH pg", "BRANCH pg HEURISTIC", "BRANCH pg OPERATOR mixed", "BRANCH pg HEURISTIC mixed OPERATOR"]
    {
        fixture.check(&[(&format!("XA.ROLLBACK {first} {wrong}"), "-ERR syntax error")]);
    }
    let none = "-ERR a heuristic outcome is one of commit, rollback, mixed, hazard";
    fixture.check(&[(&format!("XA.ROLLBACK {first} BRANCH pg HEURISTIC perhaps"), none)]);
    assert!(fixture.run(&format!("XA.STATUS {first}")).contains("unknown"), "nothing was noted");
    let deeds = format!("XA.ROLLBACK {first} BRANCH pg HEURISTIC commit branch my heuristic HAZARD");
    let (reply, synced) = fixture.synced(&deeds);
    assert_eq!(reply, "+OK");
    assert!(synced > Position::ZERO, "the resource manager forgets it now");
    assert_eq!(fixture.synced(&deeds), ("+OK".to_owned(), synced), "once more is once");
    let listed = "$8 branches *2 *2 $2 pg $16 heuristic-commit *2 $2 my $16 heuristic-hazard";
    let status = fixture.run(&format!("XA.STATUS {first}"));
    assert!(status.contains("$5 state $7 aborted ") && status.ends_with(listed), "{status}");
    assert!(fixture.run("XA.LIST").ends_with(listed));
    assert!(fixture.run("INFO xa").contains("xa_heuristic:1 "), "{}", fixture.run("INFO xa"));
    fixture.check(&[
        (&format!("XA.COMMIT {first} BRANCHES 1 pg"), "-ABORTED the transaction was rolled back"),
        (
            &format!("XA.FORGET {first}"),
            "-ERR the branch pg may be in doubt or has decided by itself: forgetting it needs force",
        ),
        (&format!("XA.FORGET {first} FORCE"), "+OK"),
        (&format!("XA.COMMIT {second} BRANCHES 1 pg"), "+OK"),
        (&format!("XA.ROLLBACK {second} BRANCH pg HEURISTIC commit"), "-ERR the transaction is committed already"),
    ]);
    assert!(fixture.run(&format!("XA.STATUS {first}")).ends_with("$8 branches *0"));
    assert!(fixture.run("INFO xa").contains("xa_heuristic:0 "), "{}", fixture.run("INFO xa"));
}

#[test]
fn owners_open_renew_and_end_and_a_connection_is_one_while_it_lasts() {
    let mut fixture = Fixture::new();
    let opened = fixture.run("XA.OWNER OPEN LEASE 60000 NAME bank");
    let words: Vec<&str> = opened.split(' ').collect();
    assert_eq!((words[0], words[1], words[2].len(), words[4]), ("*4", "$16", 16, ":60000"), "{opened}");
    let coordinator = CoordinatorId(u64::from_str_radix(words[2], 16).unwrap());
    let number: u64 = words[3].trim_start_matches(':').parse().unwrap();
    let id = |sequence, coordinator| {
        TransactionId {
            coordinator,
            owner: OwnerId(number),
            sequence,
            deadline_ms: 0,
            shared: false,
            last_resource: None,
        }
        .to_string()
    };
    let with_last = TransactionId { last_resource: Some(LastResourceId(7)), ..id(3, coordinator).parse().unwrap() };
    let (mine, foreign) = (id(1, coordinator), id(1, CoordinatorId(coordinator.0 ^ 1)));
    fixture.check(&[
        (&format!("XA.OWNER RENEW {number}"), "+OK"),
        (&format!("XA.RECOVER {mine} {foreign}"), "*2 $5 leave $7 foreign"),
        (&format!("XA.COMMIT {} BRANCHES 1 pg", id(2, coordinator)), "+OK"),
        (&format!("XA.OWNER END {number}"), "+OK"),
        (&format!("XA.OWNER END {number}"), "+OK"),
        (&format!("XA.OWNER RENEW {number}"), "-ABORTED the owner of the transaction has ended"),
        (&format!("XA.RECOVER {mine} {}", id(2, coordinator)), "*2 $8 rollback $6 commit"),
        (&format!("XA.RECOVER {with_last}"), "*1 $13 last-resource"),
        (&format!("XA.COMMIT {mine} BRANCHES 1 pg"), "-ABORTED the owner of the transaction has ended"),
        ("XA.OWNER RENEW 99", "-ERR no owner was ever given the number 99"),
        ("XA.OWNER END x", "-ERR value is not an integer or out of range"),
        ("XA.OWNER OPEN LEASE 1", "-ERR a lease has 100 to 600000 milliseconds"),
        ("XA.OWNER OPEN LEASE", "-ERR syntax error"),
        ("XA.OWNER OPEN COLOUR red", "-ERR syntax error"),
        ("XA.OWNER CLOSE 1", "-ERR unknown subcommand 'CLOSE'. Try XA.OWNER HELP."),
        (&format!("XA.OWNER OPEN NAME {}", "x".repeat(65)), "-ERR the name of an owner has 64 bytes at most"),
    ]);
    let (of_other, kept) = fixture.elsewhere(|fixture| {
        let ids = (fixture.begin(""), fixture.begin(""));
        assert_eq!(fixture.run(&format!("XA.RECOVER {}", ids.0)), "*1 $5 leave");
        assert_eq!(fixture.run(&format!("XA.COMMIT {} BRANCHES 1 pg", ids.1)), "+OK");
        ids
    });
    assert_eq!(fixture.run(&format!("XA.RECOVER {of_other} {kept}")), "*2 $8 rollback $6 commit");
    let before_reset = fixture.begin("");
    fixture.run("RESET");
    assert_eq!(fixture.run(&format!("XA.RECOVER {before_reset}")), "*1 $8 rollback");
}

#[test]
fn in_multi_the_decision_and_the_changes_are_one_batch_or_nothing() {
    let mut fixture = Fixture::new();
    let id = fixture.begin("");
    let commit = format!("XA.COMMIT {id} BRANCHES 1 pg");
    let queue = |fixture: &mut Fixture, commit: &str, value: &str| {
        assert_eq!(fixture.run("MULTI"), "+OK");
        assert_eq!(fixture.run(&format!("SET k {value}")), "+QUEUED");
        assert_eq!(fixture.run(commit), "+QUEUED");
        assert_eq!(fixture.run(&format!("KV.PUT b k {value}")), "+QUEUED");
        fixture.session.need = Need::NOTHING;
        fixture.run("EXEC")
    };
    let batches = fixture.door.store.stats().batches;
    let reply = queue(&mut fixture, &format!("{commit} DURABILITY synced"), "1");
    assert!(reply.starts_with("*3 +OK +OK *2 :"), "{reply}");
    assert_eq!(fixture.door.store.stats().batches, batches + 1);
    assert_eq!(fixture.session.need.synced, fixture.session.last_write, "the one commit is as durable as it wants");
    let again = queue(&mut fixture, &commit, "2");
    assert!(again.starts_with("-CONFLICT the transaction is committed already"), "{again}");
    let late = fixture.begin("TIMEOUT 0");
    let refused = queue(&mut fixture, &format!("XA.COMMIT {late} BRANCHES 1 pg"), "3");
    assert_eq!(refused, "-ABORTED the transaction's deadline has passed");
    assert!(fixture.session.need.synced > Position::ZERO, "its tombstone");
    for wrong in [
        "XA.COMMIT x BRANCHES 0",
        &format!("{commit} maria"),
        &format!("{commit} WAIT 1"),
        &format!("XA.COMMIT {late} BRANCHES 2 pg pg"),
    ] {
        let reply = queue(&mut fixture, wrong, "4");
        assert!(reply.starts_with("-EXECABORT Transaction discarded: ERR "), "{wrong}: {reply}");
    }
    fixture.check(&[
        ("GET k", "$1 1"),
        ("MULTI", "+OK"),
        (&format!("XA.ROLLBACK {late}"), "-ERR Command not allowed inside a transaction"),
        ("DISCARD", "+OK"),
        // Where everything is locked too.
        ("MULTI", "+OK"),
        ("DBSIZE", "+QUEUED"),
        (&format!("XA.COMMIT {} BRANCHES 1 pg", id), "+QUEUED"),
        ("DISCARD", "+OK"),
    ]);
    let whole = fixture.begin("");
    fixture.check(&[("MULTI", "+OK"), ("DBSIZE", "+QUEUED"), (&format!("XA.COMMIT {whole} BRANCHES 1 pg"), "+QUEUED")]);
    assert_eq!(fixture.run("EXEC"), "*2 :1 +OK");
    assert_eq!(fixture.run(&format!("XA.RECOVER {whole}")), "*1 $6 commit");
}

#[test]
fn a_connection_whose_owner_was_ended_goes_on_as_another() {
    let mut fixture = Fixture::new();
    let first = fixture.begin("");
    let owner = first.parse::<TransactionId>().unwrap().owner;
    fixture.check(&[
        (&format!("XA.OWNER END {}", owner.0), "+OK"),
        (&format!("XA.COMMIT {first} BRANCHES 1 pg"), "-ABORTED the owner of the transaction has ended"),
    ]);
    let second = fixture.begin("");
    assert_ne!(second.parse::<TransactionId>().unwrap().owner, owner);
    assert_eq!(fixture.run(&format!("XA.COMMIT {second} BRANCHES 1 pg")), "+OK");
}

/// With owners up to the fifteenth.
fn with_owners() -> Fixture {
    let mut fixture = Fixture::new();
    (0..15).for_each(|_| assert!(fixture.run("XA.OWNER OPEN").starts_with('*')));
    fixture
}

#[test]
fn shared_transactions_wait_for_all_votes() {
    let mut fixture = with_owners();
    let (all, alone) = (fixture.begin("SHARED TIMEOUT 600000"), fixture.begin(""));
    let not_shared = "-ERR the transaction is not shared: its id says that one program has all its branches";
    let taken = "-ERR another program has a branch a in this transaction; the names of all its branches have to differ";
    fixture.check(&[
        (&format!("XA.ENLIST {alone} a"), not_shared),
        (&format!("XA.ENLIST {all} BY 9 a b c"), "+OK"),
        (&format!("XA.ENLIST {all} BY 9 a"), "+OK"),
        (&format!("XA.ENLIST {all} BY 10 x a"), taken),
        (&format!("XA.ENLIST {all} BY 77 z"), "-ERR no owner was ever given the number 77"),
        (&format!("XA.ENLIST {all} BY 9"), "-ERR syntax error"),
        (&format!("XA.ENLIST {all} BY nine a"), "-ERR value is not an integer or out of range"),
        (&format!("XA.PREPARED {all} a"), "+OK"),
        (&format!("XA.PREPARED {all} b READONLY"), "+OK"),
        (&format!("XA.PREPARED {all} d"), "-ERR the transaction has no branch d"),
        (&format!("XA.PREPARED {all} c MAYBE"), "-ERR syntax error"),
    ]);
    let status = fixture.run(&format!("XA.STATUS {all}"));
    assert!(status.contains("$5 state $6 active"), "{status}");
    assert!(status.ends_with("*3 *2 $1 a $8 prepared *2 $1 b $8 readonly *2 $1 c $8 enlisted"), "{status}");
    assert_eq!(fixture.run(&format!("XA.COMMIT {all} BRANCHES 2 own a WAIT 60000")), taken);
    // The vote arrives while another connection's commit waits for it.
    let store = fixture.door.store.clone();
    let id: TransactionId = all.parse().unwrap();
    let voter = std::thread::spawn(move || {
        let pending = store.xa().vote(id, &holdfast::BranchName::new("c").unwrap(), holdfast::Vote::Prepared);
        pending.unwrap().wait(Durability::Written).unwrap()
    });
    assert_eq!(fixture.run(&format!("XA.COMMIT {all} BRANCHES 1 own WAIT 60000")), "+OK");
    voter.join().unwrap();
    // Who is told to close waits no longer, and has decided nothing.
    let closing = fixture.begin("SHARED");
    fixture.check(&[(&format!("XA.ENLIST {closing} a"), "+OK")]);
    fixture.elsewhere(|fixture| {
        fixture.session.client.ask(crate::resp::clients::Ask::Finish);
        let answer = fixture.run(&format!("XA.COMMIT {closing} BRANCHES 0 WAIT 60000"));
        assert_eq!(answer, "-UNAVAILABLE the connection closes; nothing was decided");
    });
    assert_eq!(fixture.run(&format!("XA.PREPARED {closing} a")), "+OK");
    let failing = fixture.begin("SHARED");
    fixture.check(&[
        (&format!("XA.ENLIST {failing} a b"), "+OK"),
        (&format!("XA.COMMIT {failing} BRANCHES 0 WAIT 1"), "-ABORTED a branch of the transaction is not prepared"),
        (&format!("XA.PREPARED {failing} a"), "-ABORTED the transaction was rolled back"),
        (
            &format!("XA.COMMIT {failing} BRANCHES 0 WAIT 60001"),
            "-ERR a commit waits for 60000 milliseconds at the most",
        ),
        (&format!("XA.PREPARED {all} a"), "-ERR the transaction is committed already"),
    ]);
}

#[test]
fn a_suspended_transaction_is_resumed_by_one_program_and_committed_by_nobody_before() {
    let mut fixture = with_owners();
    let all = fixture.begin("SHARED TIMEOUT 600000");
    let early =
        format!("-ERR {all} is not suspended: the program that works in it has not let go of it yet, or it is over");
    let late = format!("-ERR another program has resumed {all}, and decides about it");
    let nobody = format!("-ERR {all} is suspended: who is to commit it has to resume it first");
    fixture.check(&[
        (&format!("XA.RESUME {all}"), &early),
        (&format!("XA.SUSPEND {all} BY 9 a"), "+OK"),
        (&format!("XA.SUSPEND {all} BY 9 a"), "+OK"),
        (&format!("XA.SUSPEND {all} BY 10 b"), &nobody),
        (&format!("XA.PREPARED {all} a"), "+OK"),
        (&format!("XA.COMMIT {all} BRANCHES 1 own"), &nobody),
        (&format!("XA.RESUME {all} BY 10 NUMBER"), "-ERR syntax error"),
        (&format!("XA.RESUME {all} BY 10 BY 11"), "-ERR syntax error"),
        (&format!("XA.RESUME {all} NUMBER many"), "-ERR value is not an integer or out of range"),
        (&format!("XA.RESUME {all} BY ten"), "-ERR value is not an integer or out of range"),
        (&format!("XA.RESUME {all} AS 10"), "-ERR syntax error"),
    ]);
    assert!(fixture.run(&format!("XA.STATUS {all}")).contains("$5 state $9 suspended"));
    fixture.check(&[
        (&format!("XA.RESUME {all} BY 10 NUMBER 1"), "+OK"),
        (&format!("XA.RESUME {all} NUMBER 1 BY 10"), "+OK"),
        (&format!("XA.RESUME {all} BY 10 NUMBER 2"), &late),
        (&format!("XA.RESUME {all} BY 11 NUMBER 1"), &late),
        (&format!("XA.RESUME {all}"), &late),
        (&format!("XA.SUSPEND {all} BY 11 c"), &late),
        (&format!("XA.SUSPEND {all}"), &late),
        (&format!("XA.RESUME {all} BY 77 NUMBER 1"), "-ERR no owner was ever given the number 77"),
        (&format!("XA.SUSPEND {all} BY 10 b"), "+OK"),
        (&format!("XA.PREPARED {all} b"), "+OK"),
        // Who names neither is somebody else each time.
        (&format!("XA.RESUME {all}"), "+OK"),
        (&format!("XA.RESUME {all}"), &late),
        (&format!("XA.COMMIT {all} BRANCHES 1 own"), "+OK"),
        (&format!("XA.RESUME {all} BY 12"), "-ERR the transaction is committed already"),
        (&format!("XA.SUSPEND {all} x"), "-ERR the transaction is committed already"),
    ]);
    let status = fixture.run(&format!("XA.STATUS {all}"));
    assert!(status.ends_with("*3 *2 $3 own $4 open *2 $1 a $4 open *2 $1 b $4 open"), "{status}");
    let far = fixture.begin("SHARED TIMEOUT 4611686018427387904");
    let too_long = "-ERR a transaction that is suspended has to end within 31 days: begin it with a shorter timeout";
    assert_eq!(fixture.run(&format!("XA.SUSPEND {far}")), too_long);
    // It is rolled back by anybody, and cannot be resumed then.
    let (given_up, alone) = (fixture.begin("SHARED"), fixture.begin(""));
    fixture.check(&[
        (&format!("XA.SUSPEND {given_up}"), "+OK"),
        (&format!("XA.ROLLBACK {given_up}"), "+OK"),
        (&format!("XA.RESUME {given_up}"), "-ABORTED the transaction was rolled back"),
        (
            &format!("XA.SUSPEND {alone} a"),
            "-ERR the transaction is not shared: its id says that one program has all its branches",
        ),
    ]);
}

/// The owner ended with its connection, and what it had suspended was rolled back behind the back of who resumed it.
#[test]
fn what_was_suspended_with_a_timeout_goes_on_when_its_owner_has_ended() {
    let mut fixture = Fixture::new();
    for (timeout, verdict, resumed) in [
        (" TIMEOUT 600000", "*1 $5 leave", "+OK"),
        ("", "*1 $8 rollback", "-ABORTED the owner of the transaction has ended"),
    ] {
        let id = fixture.begin(&format!("SHARED{timeout}"));
        let owner = id.parse::<TransactionId>().unwrap().owner;
        fixture.check(&[
            (&format!("XA.SUSPEND {id} a"), "+OK"),
            (&format!("XA.PREPARED {id} a"), "+OK"),
            (&format!("XA.OWNER END {}", owner.0), "+OK"),
            (&format!("XA.RECOVER {id}"), verdict),
            (&format!("XA.RESUME {id}"), resumed),
        ]);
        if resumed == "+OK" {
            let committed = format!("XA.COMMIT {id} BRANCHES 1 b");
            fixture.check(&[(&committed, "+OK"), (&format!("XA.RECOVER {id}"), "*1 $6 commit")]);
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_harms_nobody() {
    let mut fixture = Fixture::new();
    let id = fixture.begin("");
    let many = (0..10_000).map(|number| format!(" b{number}")).collect::<String>();
    let cut = &id[..53];
    let changed = id.replacen("hfxa1.A", "hfxa1.B", 1);
    fixture.check(&[
        (
            &format!("XA.COMMIT {id} BRANCHES 10000{many}"),
            "-LIMIT the coordinator holds at most 1000 branches of a transaction",
        ),
        (
            &format!("XA.COMMIT {id} BRANCHES 18446744073709551615 a"),
            "-ERR fewer branches are named than BRANCHES says",
        ),
        (&format!("XA.COMMIT {id} BRANCHES 2 a"), "-ERR fewer branches are named than BRANCHES says"),
        (&format!("XA.COMMIT {id} BRANCHES 2 a a"), "-ERR the branch a is named twice"),
        (&format!("XA.COMMIT {id} BRANCHES -1 a"), "-ERR value is not an integer or out of range"),
        (&format!("XA.COMMIT {id} PIECES 1 a"), "-ERR syntax error"),
        (&format!("XA.COMMIT {id} BRANCHES 1 a WAIT"), "-ERR syntax error"),
        (
            &format!("XA.COMMIT {id} BRANCHES 1 a DURABILITY eventually"),
            "-ERR durability is one of synced, window, written",
        ),
        (&format!("XA.COMMIT {id} BRANCHES 1 {}", "x".repeat(100_000)), "-ERR a branch's name has 1 to 64 bytes"),
        (&format!("XA.COMMIT {id} BRANCHES 1 a/b"), "-ERR a branch's name is made of a-z A-Z 0-9 _ - ."),
        (&format!("XA.COMMIT {cut} BRANCHES 1 a"), "-ERR a transaction's id has 48 or 59 characters behind `hfxa1.`"),
        (&format!("XA.STATUS {changed}"), "-ERR the id's checksum is wrong: it was changed or cut on its way"),
        (&format!("XA.RECOVER {id} {}", "y".repeat(1_000_000)), "-ERR a transaction's id begins with `hfxa1.`"),
        ("XA.STATUS \"\"", "-ERR a transaction's id begins with `hfxa1.`"),
        ("XA.LIST CURSOR 0", "-ERR a transaction's id begins with `hfxa1.`"),
        ("XA.LIST COUNT many", "-ERR value is not an integer or out of range"),
        ("XA.BEGIN TIMEOUT", "-ERR syntax error"),
        ("XA.BEGIN QUICKLY", "-ERR syntax error"),
        ("XA.COMMIT", "-ERR wrong number of arguments for 'xa.commit' command"),
        ("XA.LIST", "*2 $-1 *0"),
        (&format!("XA.RECOVER {id}"), "*1 $5 leave"),
        (&format!("XA.COMMIT {id} BRANCHES 1 a"), "+OK"),
    ]);
    assert!(fixture.run("XA.JOIN x").starts_with("-ERR unknown command 'XA.JOIN'"));
    assert_eq!(fixture.run_args(&[b"XA.STATUS", b"\xff\xfe"]), "-ERR syntax error");
    assert_eq!(fixture.run("KV.PUT \0xa k v"), "-ERR buckets whose names begin with the byte 00 are the store's own");
    assert_eq!(fixture.run("KV.BUCKETS"), "*0");
}

#[test]
fn a_list_goes_on_where_a_page_ended() {
    let mut fixture = Fixture::new();
    let ids: Vec<String> = (0..7).map(|_| fixture.begin("")).collect();
    for id in &ids {
        assert_eq!(fixture.run(&format!("XA.COMMIT {id} BRANCHES 1 pg")), "+OK");
    }
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = fixture.run(format!("XA.LIST COUNT 3{cursor}").as_str());
        let words: Vec<&str> = page.split(' ').collect();
        found.extend(words.windows(4).filter(|words| words[1] == "id").map(|words| words[3].to_owned()));
        if words[1] == "$-1" {
            break;
        }
        cursor = format!(" CURSOR {}", words[2]);
    }
    assert_eq!(found, ids);
}

#[test]
fn transactions_are_everybodys_and_need_rights_to_all_buckets() {
    let mut fixture = Fixture::new();
    let id = fixture.begin("");
    let mut check = |pattern: &str, right, table: &[(&str, &str)]| {
        let rule = BucketRight { pattern: pattern.to_owned(), right };
        let user = User { buckets: vec![rule], ..User::admin("ada", "") };
        fixture.session.user = Some(Arc::new(user));
        for (line, start) in table {
            let reply = fixture.run(&line.replace("ID", &id));
            assert!(reply.starts_with(start), "{pattern} {line}: {reply}");
        }
        fixture.session.user = None;
    };
    check("db0", Right::Admin, &[("XA.STATUS ID", "-NOPERM"), ("XA.RECOVER ID", "-NOPERM"), ("XA.BEGIN", "-NOPERM")]);
    check(
        "*",
        Right::Read,
        &[("XA.STATUS ID", "*14"), ("XA.LIST", "*2"), ("XA.ROLLBACK ID", "-NOPERM"), ("XA.OWNER OPEN", "-NOPERM")],
    );
    check(
        "*",
        Right::Write,
        &[("XA.COMMIT ID BRANCHES 1 pg", "+OK"), ("XA.FORGET ID FORCE", "-NOPERM"), ("XA.FORGET ID BRANCH pg", "+OK")],
    );
    check("*", Right::Admin, &[("XA.FORGET ID FORCE", "+OK")]);
}

#[test]
fn whatever_these_commands_are_sent_gets_one_reply() {
    let mut fixture = Fixture::new();
    let mut words: Vec<String> = ["", "SHARED", "TIMEOUT 50"].map(|options| fixture.begin(options)).into();
    words.extend(
        "BRANCHES BRANCH HEURISTIC commit mixed FORCE WAIT TIMEOUT SHARED LEASE NAME CURSOR COUNT READONLY FAILED DURABILITY \
         synced written 0 1 2 3 100 18446744073709551615 -1 a b c OPEN RENEW END"
            .split_whitespace()
            .map(str::to_owned),
    );
    fixture.session.replies = 0;
    let fixture = std::cell::RefCell::new(fixture);
    let rows = COMMANDS.iter().filter(|row| row.name.starts_with("xa.") && !row.has(flag::CONTAINER));
    let names: Vec<&str> = rows.map(|row| row.name).collect();
    let config = ProptestConfig { cases: 2_000, ..ProptestConfig::default() };
    let arguments = prop::collection::vec(prop::sample::select(words), 0..8);
    proptest!(config, |(name in prop::sample::select(names), arguments in arguments)| {
        let words: Vec<&str> = name.split('|').chain(arguments.iter().map(String::as_str)).collect();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut fixture = fixture.borrow_mut();
        let reply = fixture.run_args(&words);
        prop_assert!(reply.starts_with(['*', ':', '+', '-', '$']), "{reply}");
        prop_assert!(!reply.contains("internal error"), "{reply}");
        prop_assert_eq!(fixture.session.replies, 1);
        fixture.session.replies = 0;
    });
}

#[test]
fn what_the_server_recovers_by_itself_is_in_info() {
    let numbers = crate::numbers::RecoveryNumbers {
        managers: 1,
        managers_down: 2,
        in_doubt: 3,
        rounds: 4,
        committed: 5,
        rolled_back: 6,
        heuristic: 7,
    };
    let mut fixture = Fixture::with(|options| options.recovery = Some(Arc::new(move || numbers)));
    let told = fixture.run("INFO xa");
    let wanted = "xa_recovery_managers:1 xa_recovery_managers_down:2 xa_recovery_in_doubt:3 xa_recovery_rounds:4 \
                  xa_recovery_committed:5 xa_recovery_rolled_back:6 xa_recovery_heuristic:7";
    assert!(told.contains(wanted), "{told}");
    assert!(Fixture::new().run("INFO xa").contains("xa_recovery_managers:0 "));
}
