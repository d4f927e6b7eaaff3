//! What is prepared under a name that begins as ours and cannot be read: told once, never touched, never taken for nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_tm::{Administration, Begin, Decisions, Pace, Progress, Recovery, ResourceManager, sweep};

use tokio::sync::Notify;

use super::{Monkey, bank};

#[tokio::test]
async fn what_cannot_be_read_is_told_once_and_is_in_doubt_for_as_long_as_it_is_there() {
    let bank = bank();
    let one = Monkey::new("one");
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let recovery = Recovery::new(&bank.coordinator, vec![Arc::new(one.clone())], Pace::default());
    let mut recovery = recovery.telling(move |progress| {
        if let Progress::Unreadable(unreadable) = progress {
            heard.lock().unwrap().push(format!("{} {}", unreadable.manager, unreadable.name));
        }
    });
    let rounds: [(&[&str], &[&str]); 6] = [
        (&[], &[]),
        (&["a"], &["one a"]),
        (&["a"], &[]),
        (&["a", "b"], &["one b"]),
        (&["b"], &[]),
        // It was gone in between, so it is another one.
        (&["a", "b"], &["one a"]),
    ];
    for (names, expected) in rounds {
        one.hold_unreadable(names);
        let report = recovery.run().await;
        assert_eq!(*told.lock().unwrap(), expected, "{names:?}");
        told.lock().unwrap().clear();
        let listed: Vec<&str> = report.unreadable.iter().map(|unreadable| unreadable.name.as_str()).collect();
        assert_eq!(listed, names);
        assert_eq!(report.unreadable.iter().filter(|unreadable| unreadable.is_new).count(), expected.len());
        assert_eq!(report.is_clean(), names.is_empty());
        assert!(one.calls().is_empty());
    }
}

#[tokio::test]
async fn rounds_that_go_on_report_it_when_it_is_new() {
    let bank = bank();
    let one = Monkey::new("one");
    one.hold_unreadable(&["a"]);
    let moment = Duration::from_millis(1);
    let pace = Pace { interval: moment, ..Pace::default() };
    let recovery = Recovery::new(&bank.coordinator, vec![Arc::new(one.clone())], pace);
    let (rounds, reports) = (Arc::new(Notify::new()), Arc::new(Mutex::new(0)));
    let (round, counted) = (Arc::clone(&rounds), Arc::clone(&reports));
    let recovery = recovery.telling(move |progress| {
        if matches!(progress, Progress::Answered { .. }) {
            round.notify_one();
        }
    });
    let running = recovery.keep_running(move |_| *counted.lock().unwrap() += 1);
    let some = async {
        for _ in 0..5 {
            rounds.notified().await;
        }
    };
    tokio::select! {
        () = running => unreachable!("it goes on for ever"),
        () = some => {}
    }
    assert_eq!(*reports.lock().unwrap(), 1);
}

/// What cannot be read may be a branch of any decision.
#[tokio::test]
async fn nothing_is_swept_while_something_cannot_be_read() {
    let bank = bank();
    let one = Monkey::new("one");
    let id = bank.embedded.begin(Begin::default()).unwrap();
    bank.embedded.commit(id, &[one.name().clone()], None).unwrap();
    let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(one.clone())];
    one.hold_unreadable(&["a"]);
    assert_eq!(sweep(&bank.embedded, &managers, Duration::ZERO).await.unwrap(), 0);
    assert_eq!(bank.remembered(), 1);
    one.hold_unreadable(&[]);
    assert_eq!(sweep(&bank.embedded, &managers, Duration::ZERO).await.unwrap(), 1);
    assert!(bank.embedded.list("0").unwrap().transactions.is_empty());
}
