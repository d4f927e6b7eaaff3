//! SPACE.LIMIT, and what SPACE.INFO says of a space.

use super::Fixture;

#[test]
fn a_space_has_a_limit_of_memory_for_all_of_its_types() {
    let mut fixture = Fixture::new();
    fixture.check(&[
        ("SPACE.INFO shop", "*8 $5 space $4 shop $6 memory :0 $5 bytes :0 $5 types *0"),
        ("SPACE.DECLARE shop orders", "+OK"),
        ("SPACE.DECLARE shop jobs FIFO", "+OK"),
        ("SPACE.LIMIT shop 1000", "+OK"),
        ("SPACE.INFO shop", "*8 $5 space $4 shop $6 memory :1000 $5 bytes :0 $5 types *2 $4 jobs $6 orders"),
        ("SPACE.LIMIT shop -1", "-ERR value is not an integer or out of range"),
        ("SPACE.LIMIT shop much", "-ERR value is not an integer or out of range"),
        ("SPACE.LIMIT shop", "-ERR wrong number of arguments for 'space.limit' command"),
        ("SPACE.INFO shop orders more", "-ERR syntax error"),
    ]);
    let full = "-LIMIT the space shop has reached its limit of 1000 bytes: take or clear entries, or raise it";
    let mut written = 0;
    let refused = loop {
        let of = if written % 2 == 0 { "orders" } else { "jobs" };
        let answer = fixture.run(&format!("SPACE.WRITE shop {of} {{\"id\":{written}}}"));
        if answer.starts_with('-') {
            break answer;
        }
        written += 1;
    };
    assert!(refused == full && (5..20).contains(&written), "{written}: {refused}");
    assert!(fixture.run("INFO spaces").contains(",limit_bytes=0,space_limit_bytes=1000"));
    let bytes = fixture.run("SPACE.INFO shop").split(':').nth(2).and_then(|rest| rest.split(' ').next()?.parse().ok());
    assert!(bytes.is_some_and(|bytes: u64| (900..=1000).contains(&bytes)), "{bytes:?}");
    fixture.check(&[
        ("MULTI", "+OK"),
        ("SPACE.WRITE shop orders {\"id\":100}", "+QUEUED"),
        ("SET beside x", "+QUEUED"),
        ("EXEC", &format!("-EXECABORT Transaction discarded: {}", &full[1..])),
        ("EXISTS beside", ":0"),
        ("SPACE.LIMIT shop 0", "+OK"),
    ]);
    assert!(!fixture.run("SPACE.WRITE shop orders {\"id\":100}").starts_with('-'));
}

#[test]
fn a_type_says_by_what_its_entries_are_evicted() {
    let mut fixture = Fixture::new();
    for (line, reply) in [
        (
            "SPACE.DECLARE shop offers MEMORY 3000 EVICT BY n",
            "-ERR to evict by n the type needs an ordered index of it",
        ),
        ("SPACE.DECLARE shop offers MEMORY 3000 EVICT BY", "-ERR syntax error"),
        ("SPACE.DECLARE shop offers MEMORY 3000 EVICT BY n UP", "-ERR syntax error"),
        ("SPACE.DECLARE shop offers MEMORY 3000 TOGETHER EVICT BY n DESC INDEX n ORDERED 1 n", "+OK"),
    ] {
        let answer = fixture.run(line);
        assert!(answer.starts_with(reply), "{line}: {answer}");
    }
    let info = fixture.run("SPACE.INFO shop offers");
    assert!(info.contains("$8 at_limit $5 evict $8 evict_by $1 n $11 evict_order $4 desc"), "{info}");
    for n in 0..40 {
        assert!(!fixture.run(&format!("SPACE.WRITE shop offers {{\"id\":{n},\"n\":{n}}}")).starts_with('-'));
    }
    fixture.check(&[("SPACE.COUNT shop offers WHERE n<5 0", ":5"), ("SPACE.COUNT shop offers ID 39", ":1")]);
    fixture.check(&[("SPACE.COUNT shop offers ID 38", ":0")]);
    fixture.check(&[("SPACE.DECLARE shop offers MEMORY 3000 TOGETHER EVICT BY n INDEX n ORDERED 1 n", "+OK")]);
    assert!(fixture.run("SPACE.INFO shop offers").contains("$11 evict_order $3 asc"));
    fixture.check(&[("SPACE.DECLARE shop offers MEMORY 3000 TOGETHER EVICT INDEX n ORDERED 1 n", "+OK")]);
    assert!(fixture.run("SPACE.INFO shop offers").contains("$8 evict_by $-1 $11 evict_order $-1"));
}
