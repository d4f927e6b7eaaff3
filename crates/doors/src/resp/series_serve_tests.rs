//! Questions about points through real sockets: they end when their time is over, or nobody waits for them any more.
//!
//! May use: the fixture of `serve_tests.rs`, the store. Must not know: the inside of the door.

use std::thread;
use std::time::Duration;

use holdfast::series::{Rows, ValueRef};

use super::*;

/// A door to a store with series that have long texts in a tag, and one in another database.
fn texts(change: impl FnOnce(&mut Options)) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), holdfast::Options::default()).unwrap();
    let mut random = 1u64;
    let mut letter = |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if random >> 63 == 0 { 'a' } else { 'b' }
    };
    for (database, count) in [("default", 400), ("few", 1)] {
        let mut rows = Rows::new(database);
        for nth in 0..count {
            let text: String = (0..4_000).map(&mut letter).collect();
            let row = rows.row(format!("m{nth}").as_bytes(), |_| Ok(("m".to_owned(), vec![("h".to_owned(), text)])));
            let slot = rows.field(row.unwrap(), 0, b"value", |_| Ok("value".to_owned())).unwrap();
            rows.push(slot, 1_000_000_000, ValueRef::Integer(7));
        }
        assert_eq!(store.series().write(&mut rows).unwrap().refused, []);
    }
    let mut options = Options::new("127.0.0.1:0".parse().unwrap());
    change(&mut options);
    Server { running: serve(store, options).unwrap(), _dir: dir }
}

fn command(words: &[&str]) -> Vec<u8> {
    let all: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{all}", words.len()).into_bytes()
}

/// A question that takes minutes: an expression that takes milliseconds for each of the texts, many times.
fn slow() -> Vec<u8> {
    let expression = format!("m{{{}}}", vec!["h!~\"[ab]*a[ab]{14}[cd]\""; 60].join(","));
    command(&["TS.QUERY", &expression, "AT", "1"])
}

/// Questions whose clients had gone had the turns of others until they were over.
#[test]
fn a_question_whose_client_is_gone_lets_others_have_its_turn() {
    let server = texts(|_| {});
    let mut gone: Vec<TcpStream> = (0..8).map(|_| server.connect()).collect();
    gone.iter_mut().for_each(|client| client.write_all(&slow()).unwrap());
    // They have all turns that there are, as far as can be seen from here.
    thread::sleep(Duration::from_millis(500));
    drop(gone);
    let last = command(&["TS.QUERY", "sum(m)", "AT", "1", "DB", "few"]);
    exchange(&mut server.connect(), &last, "*1\r\n*2\r\n*0\r\n*1\r\n*2\r\n:1000\r\n$1\r\n7\r\n");
}

#[test]
fn a_question_that_takes_too_long_is_told_what_to_do() {
    let server = texts(|options| options.limits.series_time_max = Duration::from_millis(1));
    let expected = "-LIMIT the query was ended after 0.001 s: ask about fewer series, or a shorter time, or raise \
                    series.query_seconds_max\r\n";
    exchange(&mut server.connect(), &slow(), expected);
    let server = texts(|options| options.limits.series_time_max = Duration::ZERO);
    let expected = expected.replace("0.001", "0");
    for words in [&["TS.RANGE", "m", "-", "+"][..], &["TS.LAST", "m"], &["TS.QUERY", "m"]] {
        exchange(&mut server.connect(), &command(words), &expected);
    }
}
