//! Transactions of several programs: one after the other, and at the same time.

use crate::databases_tests::{Player, databases, values};

#[test]
fn a_transaction_goes_from_one_program_to_the_next() {
    let databases = databases("t");
    let stage = databases.stage("");
    for (id, end, finished) in [(1, "tx-commit", "TX_OK"), (2, "tx-rollback", "TX_ROLLBACK")] {
        let (a, b) = (id * 10, id * 10 + 1);
        let work =
            |id: u32| [format!("own-pg=INSERT INTO t VALUES ({id})"), format!("own-ma=INSERT INTO t VALUES ({id})")];
        let (of_a, of_b) = (work(a), work(b));
        let words =
            ["tm", "tx-shared", &of_a[0], &of_a[1], "tx-id", "tx-suspend", "tx-finish-now", "wait", "tx-finish"];
        let mut first = Player::start(&databases, &stage, "1", &words);
        first.skip(4);
        let id = first.next();
        assert!(id.starts_with("hfxa1."), "{id}");
        assert_eq!((first.next(), first.next()), ("TX_OK".to_owned(), "HOLDFAST_UNDECIDED".to_owned()));
        let resume = format!("tx-resume={id}");
        let mut second = Player::start(&databases, &stage, "2", &["tm", &resume, &of_b[0], &of_b[1], end]);
        second.skip(1);
        assert_eq!(second.next(), "TX_OK");
        second.skip(2);
        assert_eq!(second.next(), "TX_OK");
        second.end();
        first.go_on();
        assert_eq!(first.next(), finished);
        first.end();
    }
    assert_eq!(databases.counts("t"), ["2", "2", "0", "nothing"]);
    assert_eq!(stage.coordinator.undone(), 0);
}

/// Both were let in, and each decided: what one committed the other rolled back, or it was done twice.
#[test]
fn one_program_resumes_a_transaction_and_not_before_it_is_suspended() {
    let databases = databases("t");
    let stage = databases.stage("");
    let words = ["tm", "tx-shared", "own-pg=INSERT INTO t VALUES (1)", "tx-id", "wait", "tx-suspend"];
    let words = [&words[..], &["wait", "tx-finish"]].concat();
    let mut first = Player::start(&databases, &stage, "1", &words);
    first.skip(3);
    let id = first.next();
    let resume = format!("tx-resume={id}");
    let work = ["own-pg=INSERT INTO t VALUES (2)", "tx-commit"];
    let words = ["tm", &resume, "error", "wait", &resume, work[0], "wait", work[1]];
    let mut second = Player::start(&databases, &stage, "2", &words);
    second.skip(1);
    assert_eq!(second.next(), "TX_EINVAL");
    let why = second.next();
    assert!(why.contains("it is not suspended"), "{why}");
    first.go_on();
    assert_eq!(first.next(), "TX_OK");
    second.go_on();
    assert_eq!(second.next(), "TX_OK");
    second.skip(1);
    // Its work is not done as part of the transaction, and the program can go on.
    let late = ["tm", &resume, "error", "tx-begin", "own-pg=INSERT INTO t VALUES (3)", "tx-commit"];
    let late = databases.play(&stage, &late);
    let late = values(&late);
    assert_eq!((late[1], &late[3..]), ("TX_EINVAL", &["TX_OK", "done", "TX_OK"][..]));
    assert!(late[2].contains("another program has resumed it"), "{late:?}");
    second.go_on();
    assert_eq!(second.next(), "TX_OK");
    second.end();
    first.go_on();
    assert_eq!(first.next(), "TX_OK");
    first.end();
    assert_eq!(databases.counts("t")[0], "3");
    assert_eq!(stage.coordinator.undone(), 0);
}

#[test]
fn two_programs_work_in_one_transaction_at_the_same_time() {
    let databases = databases("t");
    let stage = databases.stage("");
    let words = ["tm", "tx-shared", "tx-id", "own-pg=INSERT INTO t VALUES (1)", "wait", "tx-commit"];
    let mut superior = Player::start(&databases, &stage, "1", &words);
    superior.skip(2);
    let join = format!("tx-join={}", superior.next());
    let words = ["tm", &join, "own-ma=INSERT INTO t VALUES (2)", "tx-commit", "tx-rollback", "tx-finish"];
    let mut member = Player::start(&databases, &stage, "2", &words);
    member.skip(3);
    assert_eq!((member.next(), member.next()), ("TX_OK".to_owned(), "TX_PROTOCOL_ERROR".to_owned()));
    superior.skip(1);
    superior.go_on();
    assert_eq!(superior.next(), "TX_OK");
    superior.end();
    assert_eq!(member.next(), "TX_OK");
    member.end();
    assert_eq!(databases.counts("t"), ["1", "1", "0", "nothing"]);
}
