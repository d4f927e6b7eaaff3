//! Texts of queries that the server has parsed before: that they mean the same, and are counted.

use super::Fixture;

/// What INFO says.
fn number(fixture: &mut Fixture, name: &str) -> u64 {
    let info = fixture.run("INFO stats");
    let line = info.split(['\r', '\n', ' ']).find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {info}"))
}

fn counted(fixture: &mut Fixture) -> (u64, u64) {
    (number(fixture, "space_query_cache_hits"), number(fixture, "space_query_cache_misses"))
}

/// The command with this condition and these parameters.
fn run(fixture: &mut Fixture, command: &str, condition: &str, rest: &str) -> String {
    let (head, tail) = (format!("{command} WHERE"), rest.to_owned());
    let words: Vec<&[u8]> = head
        .split(' ')
        .chain([condition])
        .chain(tail.split(' ').filter(|it| !it.is_empty()))
        .map(str::as_bytes)
        .collect();
    fixture.run_args(&words)
}

fn five() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.check(&[("SPACE.DECLARE shop orders HISTORY", "+OK")]);
    for (id, city) in (1..).zip(["Ulm", "Bonn", "Ulm", "Jena", "Ulm"]) {
        fixture.run(&format!("SPACE.WRITE shop orders {{\"id\":{id},\"city\":\"{city}\",\"n\":{id}0}}"));
    }
    fixture
}

#[test]
fn a_text_is_parsed_once_for_all_commands_and_connections() {
    let mut fixture = five();
    let count = |fixture: &mut Fixture, rest: &str| run(fixture, "SPACE.COUNT shop orders", "city = ?", rest);
    let answers = ["1 Ulm", "1 Bonn", "1 Rome"].map(|rest| count(&mut fixture, rest));
    assert_eq!(answers, [":3", ":1", ":0"]);
    assert_eq!(counted(&mut fixture), (2, 1));
    let commands = [
        ("SPACE.MREAD shop orders", "1 Jena COUNT 9"),
        ("SPACE.READ shop orders", "1 Jena"),
        ("SPACE.EXPLAIN shop orders", "1 Jena"),
        ("SPACE.ITERATE shop orders", "1 Jena"),
        ("SPACE.LISTEN shop orders", "1 Jena"),
        ("SPACE.MCHANGE shop orders", "1 Jena SET n 7"),
        ("SPACE.TAKE shop orders", "1 Jena"),
        ("SPACE.CLEAR shop orders", "1 Jena"),
    ];
    for (command, rest) in commands {
        let answer = run(&mut fixture, command, "city = ?", rest);
        assert!(!answer.starts_with('-'), "{command}: {answer}");
    }
    assert_eq!(counted(&mut fixture), (2 + commands.len() as u64, 1));
    let sum = "SELECT sum(n) AS s FROM orders WHERE city = ?";
    for _ in 0..2 {
        let answer = fixture.run_args(&[b"SPACE.SELECT", b"shop", b"orders", sum.as_bytes(), b"1", b"Ulm"]);
        assert!(answer.contains(r#"{"s":90}"#), "{answer}");
    }
    assert_eq!(counted(&mut fixture), (11, 2));
    assert_eq!(number(&mut fixture, "space_query_cache_queries"), 2);
    assert!((1..4096).contains(&number(&mut fixture, "space_query_cache_bytes")));
}

#[test]
fn what_is_wrong_with_parameters_is_told_of_a_text_that_is_known_as_of_a_new_one() {
    let mut fixture = five();
    let wrong = [
        ("0", "-ERR the query has 1 parameters, 0 were given"),
        ("2 a b", "-ERR the query has 1 parameters, 2 were given"),
        ("1 5", "-ERR parameter 1 must be a string, as it is a pattern"),
    ];
    for (condition, is_known) in [("city LIKE ?", false), ("city LIKE ?", true)] {
        for (rest, error) in wrong {
            let answer = run(&mut fixture, "SPACE.COUNT shop orders", condition, rest);
            assert_eq!(answer, error, "{condition} {rest}, known: {is_known}");
        }
        assert_eq!(run(&mut fixture, "SPACE.COUNT shop orders", condition, "1 U%"), ":3");
    }
    let before = counted(&mut fixture);
    for _ in 0..2 {
        let answer = run(&mut fixture, "SPACE.COUNT shop orders", "city LIKE", "0");
        assert!(answer.starts_with("-ERR "), "{answer}");
    }
    assert_eq!(counted(&mut fixture), (before.0, before.1 + 2), "what is no query is not remembered");
}

#[test]
fn a_known_text_means_the_same_when_types_and_indexes_change() {
    let mut fixture = five();
    let explain = |fixture: &mut Fixture| run(fixture, "SPACE.EXPLAIN shop orders", "city = ?", "1 Ulm");
    let count =
        |fixture: &mut Fixture, name: &str| run(fixture, &format!("SPACE.COUNT shop {name}"), "city = ?", "1 Ulm");
    assert!(explain(&mut fixture).contains("all entries"));
    fixture.check(&[("SPACE.DECLARE shop orders HISTORY INDEX city HASH 1 city", "+OK")]);
    assert!(explain(&mut fixture).contains("index city"), "an index that came is used");
    assert_eq!(count(&mut fixture, "orders"), ":3");
    fixture.check(&[("SPACE.DECLARE shop orders HISTORY", "+OK"), ("SPACE.DECLARE shop others", "+OK")]);
    assert!(explain(&mut fixture).contains("all entries"), "one that went is not");
    assert_eq!((count(&mut fixture, "orders"), count(&mut fixture, "others")), (":3".to_owned(), ":0".to_owned()));
    fixture.check(&[("SPACE.DROP shop orders", ":1"), ("SPACE.DECLARE shop orders ID city", "+OK")]);
    assert_eq!(count(&mut fixture, "orders"), ":0");
    fixture.run("SPACE.WRITE shop orders {\"city\":\"Ulm\"}");
    assert_eq!(count(&mut fixture, "orders"), ":1");
    let whole: [&[u8]; 5] = [b"SPACE.SELECT", b"shop", b"others", b"SELECT count(*) AS n FROM others", b"0"];
    assert!(fixture.run_args(&whole).contains("{\"n\":0}"));
    let [command, space, _, sql, none] = whole;
    let answer = fixture.run_args(&[command, space, b"orders", sql, none]);
    assert_eq!(answer, "-ERR the query is of the type others, not of orders");
}

/// The first that matches was looked for in a thread, two at a time, whenever an index said that many do.
#[test]
fn the_first_of_many_that_match_is_found_at_once() {
    let mut fixture = Fixture::new();
    fixture.check(&[("SPACE.DECLARE shop jobs INDEX state HASH 1 state INDEX n ORDERED 1 n", "+OK")]);
    let text = "x".repeat(2_000);
    for first in (0..6_000).step_by(500) {
        let one = |id| format!("{{\"id\":{id},\"state\":\"new\",\"n\":{id},\"text\":\"{text}\"}}");
        let documents: Vec<String> = (first..first + 500).map(one).collect();
        let words = ["SPACE.MWRITE", "shop", "jobs", "500"].into_iter().chain(documents.iter().map(String::as_str));
        fixture.run_args(&words.map(str::as_bytes).collect::<Vec<_>>());
    }
    fixture.session.effort = crate::resp::effort::Effort::here(1 << 20);
    // Said of one that is looked for elsewhere, it is an error.
    for word in ["SPACE.READ", "SPACE.TAKE"] {
        let named = [word.as_bytes(), b"shop", b"jobs", b"TEMPLATE", br#"{"state":"new"}"#, b"STRICT"];
        assert!(fixture.run_args(&named).starts_with("*3 "), "{word}");
        let elsewhere = run(&mut fixture, &format!("{word} shop jobs"), "missing = 7", "0 STRICT");
        assert!(elsewhere.starts_with("-ERR STRICT is of an entry that is found fast"), "{elsewhere}");
        assert_eq!(run(&mut fixture, &format!("{word} shop jobs"), "missing = 7", "0"), "$-1");
    }
    for (order, expected) in [("n >= 100 ORDER BY n", ["100", "101"]), ("n >= 0 ORDER BY id DESC", ["5999", "5998"])] {
        let first = run(&mut fixture, "SPACE.MREAD shop jobs", order, "0 COUNT 2");
        assert!(expected.iter().all(|id| first.contains(&format!("\"id\":{id},"))), "{order}");
    }
}
