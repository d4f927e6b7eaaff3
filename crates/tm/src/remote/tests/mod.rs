//! A remote coordinator against a server that does what a test tells it, over loopback.

mod fake;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use holdfast::Durability;
use xa::{BranchName, CoordinatorId, OwnerId, TransactionId};

use super::pipe::{Pipe, Target};
use super::wire::Reply;
use super::{Remote, RemoteOptions, Tls};
use crate::State;
use crate::administration::{Administration, Settling};
use crate::decisions::{Decisions, ErrorKind, decide_abort, note_done};
use crate::{Begin, Deed, Heuristic, Learned, Verdict, Vote};
use fake::{Act, Fake};

fn names(names: &[&str]) -> Vec<BranchName> {
    names.iter().map(|name| BranchName::new(name).unwrap()).collect()
}

fn options(fake: &Fake) -> RemoteOptions {
    RemoteOptions { patience: Duration::from_secs(5), ..RemoteOptions::new(&fake.address()) }
}

fn open(fake: &Fake) -> Remote {
    Remote::open(options(fake)).unwrap()
}

fn done(name: &str) -> Learned {
    Learned { branch: names(&[name]).remove(0), heuristic: None }
}

#[test]
fn a_commit_is_one_request_and_beginning_none() {
    let fake = Fake::start(|_| Act::say("+OK"));
    let remote = open(&fake);
    assert_eq!(remote.coordinator(), CoordinatorId(0xab));
    let opened = fake.heard().len();
    let first = remote.begin(Begin::default()).unwrap();
    let second = remote.begin(Begin { timeout: Some(Duration::from_secs(5)), ..Begin::default() }).unwrap();
    assert_eq!((first.owner, first.sequence, first.deadline_ms), (OwnerId(1), 1, 0));
    assert_eq!((second.owner, second.sequence), (OwnerId(1), 2));
    // The server's clock stands at 1,000,000 ms; this test will not take a minute.
    assert!((1_005_000..1_065_000).contains(&second.deadline_ms));
    assert_eq!(fake.heard().len(), opened);
    remote.commit(first, &names(&["pg", "my"]), None).unwrap();
    remote.commit(second, &[], Some(Durability::Written)).unwrap();
    let heard = &fake.heard()[opened..];
    let expected =
        [format!("XA.COMMIT {first} BRANCHES 2 pg my"), format!("XA.COMMIT {second} BRANCHES 0 DURABILITY written")];
    assert_eq!(heard, expected);
}

#[test]
fn forty_threads_share_a_connection_and_each_gets_its_own_answer() {
    const THREADS: usize = 40;
    // No answer before all requests are there: they do not wait for each other.
    let mut held = Vec::new();
    let fake = Fake::start(move |words| {
        held.push(words[3].clone() + &words[4]);
        match held.len() {
            THREADS => Act::Say(held.drain(..).map(|what| format!("-ABORTED {what}\r\n")).collect()),
            _ => Act::Say(String::new()),
        }
    });
    let remote = open(&fake);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (remote, name) = (&remote, format!("branch-{number}"));
            scope.spawn(move || {
                let id = remote.begin(Begin::default()).unwrap();
                let refused = remote.commit(id, &names(&[&name]), None).unwrap_err();
                assert_eq!((refused.kind, refused.text), (ErrorKind::Aborted, format!("1{name}")));
            });
        }
    });
    // One for what is synced, one for the rest.
    assert_eq!(fake.connections(), 2);
}

fn pipe(fake: &Fake) -> Pipe {
    Pipe::new(Target { servers: vec![fake.address()], tls: None, login: None, patience: Duration::from_secs(20) })
}

/// Between calls nobody reads. Sent on a connection that has ended, a commit would be one of which nobody knows what became.
#[test]
fn a_connection_that_has_ended_between_two_calls_is_made_anew_before_the_second() {
    let mut is_first = true;
    let fake = Fake::start(
        move |_| {
            if std::mem::take(&mut is_first) { Act::Last("+1\r\n".to_owned()) } else { Act::say("+2") }
        },
    );
    let pipe = pipe(&fake);
    assert_eq!(pipe.call(&["ASK", "1"], Duration::ZERO), Ok(Reply::Text("1".to_owned())));
    while fake.closed() == 0 {
        thread::yield_now();
    }
    assert_eq!(pipe.call(&["ASK", "2"], Duration::ZERO), Ok(Reply::Text("2".to_owned())));
    assert_eq!((fake.connections(), fake.heard()), (2, vec!["ASK 1".to_owned(), "ASK 2".to_owned()]));
}

/// Who reads goes when its own reply is there; the next reply has to be read all the same.
#[test]
fn who_has_its_reply_has_another_read_on() {
    let fake = Fake::start(|words| match words[1].as_str() {
        "1" => Act::Say(String::new()),
        _ => Act::InTwo("+1\r\n".to_owned(), "+2\r\n".to_owned()),
    });
    let pipe = pipe(&fake);
    thread::scope(|scope| {
        let first = scope.spawn(|| pipe.call(&["ASK", "1"], Duration::ZERO));
        while fake.heard().is_empty() {
            thread::yield_now();
        }
        let second = scope.spawn(|| pipe.call(&["ASK", "2"], Duration::ZERO));
        assert_eq!(first.join().unwrap(), Ok(Reply::Text("1".to_owned())));
        assert_eq!(second.join().unwrap(), Ok(Reply::Text("2".to_owned())));
    });
    assert_eq!(fake.connections(), 1);
}

#[test]
fn what_is_doubtful_since_damage_is_not_known_and_the_program_goes_on_as_another_owner() {
    let fake = Fake::start(|words| match words[0].as_str() {
        "XA.COMMIT" | "XA.ROLLBACK" if words.last().is_some_and(|word| word != "OPERATOR") => {
            Act::say("-CORRUPT what was decided may be lost")
        }
        _ => Act::say("+OK"),
    });
    let remote = open(&fake);
    let id = remote.begin(Begin::default()).unwrap();
    let refused = remote.commit(id, &names(&["pg"]), None).unwrap_err();
    assert_eq!((refused.kind, refused.text.as_str()), (ErrorKind::Unknown, "what was decided may be lost"));
    let next = remote.begin(Begin::default()).unwrap();
    assert_ne!(next.owner, id.owner);
    assert!(decide_abort(&remote, id).is_err());
    remote.settle(id, Settling::Commit(&names(&["pg", "my"]))).unwrap();
    remote.settle(next, Settling::Rollback).unwrap();
    let heard = fake.heard();
    assert!(heard.contains(&format!("XA.COMMIT {id} BRANCHES 2 pg my OPERATOR")), "{heard:?}");
    assert!(heard.contains(&format!("XA.ROLLBACK {next} OPERATOR")), "{heard:?}");
}

#[test]
fn completion_is_told_without_waiting_and_again_when_the_connection_broke() {
    let (told, telling) = mpsc::channel();
    let mut first = true;
    let fake = Fake::start(move |words| {
        if words[0] != "XA.FORGET" {
            return Act::say("+OK");
        }
        told.send(words.join(" ")).unwrap();
        if std::mem::take(&mut first) { Act::Break } else { Act::say("+OK") }
    });
    let remote = open(&fake);
    let id = remote.begin(Begin::default()).unwrap();
    let mixed = Learned { heuristic: Some(Heuristic::Mixed), ..done("b") };
    remote.done(id, &[done("a"), mixed]);
    remote.done(id, &[]);
    let expected = format!("XA.FORGET {id} BRANCH a BRANCH b HEURISTIC mixed");
    for _ in 0..2 {
        assert_eq!(telling.recv_timeout(Duration::from_secs(10)).unwrap(), expected);
    }
    remote.done(id, &[done("c")]);
    // What is left is sent at the end.
    drop(remote);
    assert_eq!(telling.recv_timeout(Duration::from_secs(10)).unwrap(), format!("XA.FORGET {id} BRANCH c"));
    assert!(telling.try_recv().is_err());
    assert_eq!(fake.heard().last().unwrap(), "XA.OWNER END 1");
}

/// Found by the simulator: a transaction of which neither commit nor abort could be told stayed prepared for as long as its
/// program lived.
#[test]
fn an_abort_that_could_not_be_told_is_told_as_soon_as_it_can_be() {
    let (told, telling) = mpsc::channel();
    let mut asked = 0;
    let fake = Fake::start(move |words| {
        if words[0] != "XA.ROLLBACK" {
            return Act::say("+OK");
        }
        asked += 1;
        told.send(words.join(" ")).unwrap();
        match asked {
            1..=3 => Act::Break,
            4 => Act::say("-UNAVAILABLE the disk is full"),
            _ => Act::say("+OK"),
        }
    });
    let remote = open(&fake);
    let id = remote.begin(Begin::default()).unwrap();
    assert_eq!(remote.abort(id).unwrap_err().kind, ErrorKind::Unavailable);
    for _ in 0..5 {
        assert_eq!(telling.recv_timeout(Duration::from_secs(10)).unwrap(), format!("XA.ROLLBACK {id}"));
    }
    drop(remote);
    assert!(telling.try_recv().is_err(), "it was told, and is told again");
}

#[test]
fn what_a_resource_manager_did_by_itself_is_recorded_before_anybody_goes_on() {
    let mut asked = 0;
    let fake = Fake::start(move |words| {
        asked += usize::from(words[0] == "XA.FORGET");
        if asked == 1 { Act::say("-UNAVAILABLE the disk is full") } else { Act::say("+OK") }
    });
    let remote = open(&fake);
    let id = remote.begin(Begin::default()).unwrap();
    let mixed = [Learned { heuristic: Some(Heuristic::Mixed), ..done("b") }];
    assert!(!note_done(&remote, id, &mixed), "it is not recorded, and must not be forgotten");
    assert!(note_done(&remote, id, &mixed));
    let expected = format!("XA.FORGET {id} BRANCH b HEURISTIC mixed");
    assert_eq!(fake.heard().iter().filter(|heard| **heard == expected).count(), 2);
}

#[test]
fn what_was_done_against_a_rollback_is_told_with_it_and_a_refusal_is_no_record() {
    let mut asked = 0;
    let fake = Fake::start(move |words| {
        asked += usize::from(words[0] == "XA.ROLLBACK");
        match asked {
            // One from before that was understood.
            1 => Act::say("-ERR syntax error"),
            2 => Act::say("-UNAVAILABLE the disk is full"),
            _ => Act::say("+OK"),
        }
    });
    let remote = open(&fake);
    let id = remote.begin(Begin::default()).unwrap();
    let deed = |branch: &str, did| Deed { branch: BranchName::new(branch).unwrap(), did };
    let deeds = [deed("pg", Heuristic::Commit), deed("my", Heuristic::Hazard)];
    for kind in [ErrorKind::Invalid, ErrorKind::Unavailable] {
        assert_eq!(remote.record_deeds(id, &deeds).unwrap_err().kind, kind);
    }
    remote.record_deeds(id, &deeds).unwrap();
    let expected = format!("XA.ROLLBACK {id} BRANCH pg HEURISTIC commit BRANCH my HEURISTIC hazard");
    assert_eq!(fake.heard().iter().filter(|heard| **heard == expected).count(), 3);
}

/// What a commit says whose connection breaks, when the server then answers so to STATUS and to the repeated commit.
fn broken_commit(status: &'static str, repeated: &'static str) -> (Result<(), ErrorKind>, Vec<String>) {
    broken_commit_at(None, status, repeated)
}

/// The same of a commit that says how durable it is to be.
fn broken_commit_at(
    durability: Option<Durability>,
    status: &'static str,
    repeated: &'static str,
) -> (Result<(), ErrorKind>, Vec<String>) {
    let mut commits = 0;
    let fake = Fake::start(move |words| match words[0].as_str() {
        "XA.COMMIT" => {
            commits += 1;
            if commits == 1 { Act::Break } else { Act::say(repeated) }
        }
        "XA.STATUS" => Act::Say(format!("%1\r\n+state\r\n+{status}\r\n")),
        _ => Act::say("+OK"),
    });
    let remote = open(&fake);
    let id = remote.begin(Begin::default()).unwrap();
    let answer = remote.commit(id, &names(&["a"]), durability).map_err(|error| error.kind);
    let heard = fake.heard();
    let heard = heard.iter().filter_map(|line| line.split(' ').next()?.strip_prefix("XA.").map(str::to_owned));
    (answer, heard.filter(|word| word != "OWNER").collect())
}

#[test]
fn a_commit_whose_answer_was_lost_is_asked_about() {
    let commit = "COMMIT";
    let asked = ["COMMIT", "STATUS"].map(str::to_owned).to_vec();
    let twice = [&asked[..], &[commit.to_owned()]].concat();
    assert_eq!(broken_commit("committed", "+OK"), (Ok(()), asked));
    assert_eq!(broken_commit("active", "+OK"), (Ok(()), twice.clone()));
    // It may have been committed, and forgotten since.
    assert_eq!(broken_commit("unknown", "-ABORTED too late"), (Err(ErrorKind::Unknown), twice.clone()));
    assert_eq!(broken_commit("aborted", "-ABORTED rolled back"), (Err(ErrorKind::Unknown), twice));
}

/// A server that answers STATUS after a write was taken at its word by a commit that had asked for a sync.
#[test]
fn a_commit_that_asked_for_a_durability_is_sent_again_to_get_it() {
    let asked = ["COMMIT", "STATUS", "COMMIT"].map(str::to_owned).to_vec();
    let synced = |repeated| broken_commit_at(Some(Durability::Synced), "committed", repeated);
    assert_eq!(synced("+OK"), (Ok(()), asked.clone()));
    assert_eq!(synced("-UNAVAILABLE a sync has failed"), (Err(ErrorKind::Unknown), asked));
}

#[test]
fn a_commit_that_could_not_be_made_durable_is_not_known_to_be_undone() {
    let fake = Fake::start(|words| match words[0].as_str() {
        "XA.COMMIT" => Act::say("-UNAVAILABLE a sync has failed"),
        _ => Act::say("+OK"),
    });
    let remote = open(&fake);
    let id = remote.begin(Begin::default()).unwrap();
    assert_eq!(remote.commit(id, &names(&["a"]), None).unwrap_err().kind, ErrorKind::Unknown);
}

#[test]
fn a_server_that_vanished_leaves_it_unknown_and_one_that_was_not_there_did_nothing() {
    let fake = Fake::start(|words| if words[0] == "XA.COMMIT" { Act::Vanish } else { Act::say("+OK") });
    let remote = Remote::open(RemoteOptions { patience: Duration::from_millis(300), ..options(&fake) }).unwrap();
    let id = remote.begin(Begin::default()).unwrap();
    assert_eq!(remote.commit(id, &names(&["a"]), None).unwrap_err().kind, ErrorKind::Unknown);
    assert_eq!(remote.commit(id, &names(&["a"]), None).unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(remote.verdicts(&[id]).unwrap_err().kind, ErrorKind::Unavailable);
    let error = Remote::open(options(&fake)).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.text.contains(&fake.address()), "{error}");
}

#[test]
fn a_server_that_says_nothing_is_given_up_after_a_while() {
    let fake = Fake::start(|words| match words[0].as_str() {
        "XA.COMMIT" | "XA.STATUS" => Act::Say(String::new()),
        _ => Act::say("+OK"),
    });
    let remote = Remote::open(RemoteOptions { patience: Duration::from_millis(200), ..options(&fake) }).unwrap();
    let id = remote.begin(Begin::default()).unwrap();
    let error = remote.commit(id, &names(&["a"]), None).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unknown);
    assert!(error.text.contains("did not answer within 200ms"), "{error}");
}

/// It was called a resource that is temporarily unavailable.
#[test]
fn a_server_that_accepts_and_is_stopped_is_said_not_to_answer() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let patience = Duration::from_millis(100);
    let error = Remote::open(RemoteOptions { patience, ..RemoteOptions::new(&address) }).err().unwrap();
    let expected = format!("cannot reach the coordinator at {address}: it did not answer within 100ms");
    assert_eq!((error.kind, error.text), (ErrorKind::Unavailable, expected));
}

#[test]
fn what_is_no_reply_breaks_the_connection_and_is_said() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n", "+OK\r\n+OK\r\n+OK\r\n"] {
        let fake = Fake::start(move |words| match words[0].as_str() {
            "XA.ROLLBACK" => Act::Say(answer.to_owned()),
            _ => Act::say("+OK"),
        });
        let remote = open(&fake);
        let id = remote.begin(Begin::default()).unwrap();
        let first = remote.abort(id);
        assert!(first.is_ok() == answer.starts_with('+'), "{first:?}");
        assert!(remote.commit(id, &[], None).is_ok());
    }
}

#[test]
fn a_lease_is_renewed_and_an_owner_that_ended_is_followed_by_another() {
    let (renewed, renewals) = mpsc::channel();
    let mut times = 0;
    let fake = Fake::start(move |words| {
        if words[1] != "RENEW" {
            return Act::say("+OK");
        }
        times += 1;
        renewed.send(words[2].clone()).unwrap();
        if times == 2 { Act::say("-ABORTED it ended") } else { Act::say("+OK") }
    });
    let remote = Remote::open(RemoteOptions { lease: Duration::from_secs(1), ..options(&fake) }).unwrap();
    let owners: Vec<String> = (0..3).map(|_| renewals.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
    assert_eq!(owners, ["1", "1", "2"]);
    assert_eq!(remote.begin(Begin::default()).unwrap().owner, OwnerId(2));
}

#[test]
fn verdicts_status_and_shared_transactions_are_asked_for_in_the_words_of_the_protocol() {
    let id = TransactionId {
        coordinator: CoordinatorId(0xab),
        owner: OwnerId(1),
        sequence: 9,
        deadline_ms: 0,
        shared: true,
        last_resource: None,
    };
    let status = format!(
        "%4\r\n+id\r\n+{id}\r\n+state\r\n+committed\r\n+settled\r\n:7\r\n+branches\r\n*1\r\n*2\r\n+a\r\n+open\r\n"
    );
    let page = format!("*2\r\n_\r\n*1\r\n{status}");
    let fake = Fake::start(move |words| match words[0].as_str() {
        "XA.RECOVER" => Act::say("*4\r\n+commit\r\n+rollback\r\n+leave\r\n+foreign"),
        "XA.STATUS" => Act::Say(status.clone()),
        "XA.LIST" => Act::Say(page.clone()),
        _ => Act::say("+OK"),
    });
    let remote = open(&fake);
    let opened = fake.heard().len();
    let verdicts = [Verdict::Commit, Verdict::Rollback, Verdict::Leave, Verdict::Foreign];
    assert_eq!(remote.verdicts(&[id; 4]).unwrap(), verdicts);
    assert_eq!(remote.verdicts(&[id; 3]).unwrap_err().kind, ErrorKind::Invalid);
    let known = remote.status(id).unwrap();
    assert_eq!((known.id, known.state, known.decided), (id, State::Committed, Some(Duration::from_millis(7))));
    assert_eq!((known.branches[0].branch.as_str(), known.branches[0].state.as_str()), ("a", "open"));
    let page = remote.list("0").unwrap();
    assert_eq!((page.transactions, page.next), (vec![known], None));
    remote.enlist(id, &names(&["a", "b"])).unwrap();
    remote.prepared(id, &names(&["a"])[0], Vote::Prepared).unwrap();
    remote.prepared(id, &names(&["b"])[0], Vote::Failed).unwrap();
    remote.commit(id, &names(&["a"]), None).unwrap();
    let expected = [
        format!("XA.RECOVER {id} {id} {id} {id}"),
        format!("XA.RECOVER {id} {id} {id}"),
        format!("XA.STATUS {id}"),
        "XA.LIST COUNT 200".to_owned(),
        format!("XA.ENLIST {id} BY 1 a b"),
        format!("XA.PREPARED {id} a"),
        format!("XA.PREPARED {id} b FAILED"),
        format!("XA.COMMIT {id} BRANCHES 1 a WAIT 30000"),
    ];
    assert_eq!(fake.heard()[opened..], expected);
}

#[test]
fn tls_and_a_password_are_used_and_never_shown() {
    let fake = Fake::start_with_tls(|_| Act::say("+OK"));
    let tls = Some(Tls { authorities: fake.authorities() });
    let login = Some(("bank".to_owned(), "secret".to_owned()));
    let options = RemoteOptions { tls, login, ..options(&fake) };
    assert!(!format!("{options:?}").contains("secret"));
    let remote = Remote::open(options.clone()).unwrap();
    assert_eq!(fake.greetings(), ["HELLO 3 AUTH bank secret"]);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let id = remote.begin(Begin::default()).unwrap();
                    // Longer than a record of TLS, together.
                    remote.commit(id, &names(&["a-name-that-is-rather-long"; 100]), None).unwrap();
                }
            });
        }
    });
    let stranger = Fake::start_with_tls(|_| Act::say("+OK"));
    let error = Remote::open(RemoteOptions { servers: vec![stranger.address()], ..options }).err().unwrap();
    assert!(error.text.contains("certificate"), "{error}");
    let expired = Fake::start_with_certificate(2021, |_| Act::say("+OK"));
    let tls = Some(Tls { authorities: expired.authorities() });
    let error = Remote::open(RemoteOptions { tls, ..self::options(&expired) }).err().unwrap();
    assert!(error.text.contains("the server's certificate has expired"), "{error}");
}
