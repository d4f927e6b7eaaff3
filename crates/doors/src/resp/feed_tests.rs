//! FEED: what it answers, page by page, and what it refuses.
//!
//! May use: the fixture of `handle_tests.rs`. Must not know: sockets.

use std::time::Duration;

use holdfast::{CompactionOptions, PutOptions, Schedule};

use super::*;

/// A door to a store of tiny segments that compacts when asked.
fn small() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let compaction = CompactionOptions { schedule: Schedule::OnDemand, keep_bytes: 0, ..CompactionOptions::default() };
    let store = holdfast::Options {
        durability: Durability::Written,
        limits: holdfast::Limits::tiny(),
        partitions: 4,
        compaction,
        ..holdfast::Options::default()
    };
    let store = Store::open(dir.path(), store).unwrap();
    let mut options = Options::new("127.0.0.1:0".parse().unwrap());
    options.limits = Limits::tiny();
    let door = Door::new(store, options, "127.0.0.1:1".parse().unwrap());
    let session = Fixture::session(&door);
    Fixture { session, reply: Reply::new(1 << 26), door: Arc::new(door), usage: None, _dir: dir }
}

/// Runs a command when everything is written, as it is once a connection has sent its replies.
fn feed(fixture: &mut Fixture, line: &str) -> String {
    let last = fixture.door.store.watermarks().appended.get() - 1;
    fixture.door.store.wait(Position::new(last), Durability::Written).unwrap();
    fixture.run(line)
}

/// The position at this word of a reply.
fn position(reply: &str, number: usize) -> u64 {
    let word = reply.split(' ').nth(number).unwrap_or_default();
    word.strip_prefix(':').and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{number} of {reply}"))
}

/// How many items a reply has.
fn items(reply: &str) -> usize {
    reply.split(' ').nth(2).and_then(|word| word.strip_prefix('*')).unwrap().parse().unwrap()
}

#[test]
fn the_feed_names_every_change_in_order_and_goes_on_where_it_was() {
    let mut fixture = Fixture::new();
    let empty = feed(&mut fixture, "FEED FROM 0");
    let start = position(&empty, 1);
    assert_eq!(empty, format!("*2 :{start} *0"));
    for line in [
        "KV.PUT b k v PXAT 9999999999999 META lang en INDEX city Paris INDEXINT born 7",
        "SET plain v",
        "PERSIST plain",
        "EXPIREAT plain 9999999999",
        "DEL plain nosuch",
        "FLUSHDB",
        "MULTI",
        "SET x 1",
        "KV.PUT other y 2",
        "EXEC",
    ] {
        let reply = fixture.run(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
    }
    let reply = feed(&mut fixture, &format!("FEED FROM {start}"));
    let modified = |after: &str| position(reply.split_once(after).unwrap().1, 0);
    let bodies = [
        format!(
            "*1 *8 $3 put $1 b $1 k $1 v *2 $4 lang $2 en *2 *2 $4 born :7 *2 $4 city $5 Paris :{} :9999999999999",
            modified("Paris ")
        ),
        format!("*1 *8 $3 put $3 db0 $5 plain $1 v *0 *0 :{} $-1", modified("plain $1 v *0 *0 ")),
        "*1 *4 $6 expire $3 db0 $5 plain :9999999999000".to_owned(),
        "*1 *3 $6 delete $3 db0 $5 plain".to_owned(),
        "*1 *2 $5 clear $3 db0".to_owned(),
    ];
    let mut rest = reply.split_once(' ').unwrap().1;
    let mut told = Vec::new();
    for body in &bodies {
        let (before, behind) = rest.split_once(body.as_str()).unwrap_or_else(|| panic!("{body} in {rest}"));
        told.push(position(before, before.split(' ').count() - 2));
        rest = behind;
    }
    assert!(told.is_sorted() && told[0] >= start, "{told:?}");
    assert!(rest.starts_with(" *2 :") && rest.contains(" *2 *8 $3 put "), "one item has both changes: {rest}");
    assert!(rest.contains("$1 x $1 1 ") && rest.contains("$5 other $1 y $1 2 "), "{rest}");
    assert_eq!(items(&reply), 6);
    // One at a time it is the same, and in the end nothing.
    let (mut next, mut count) = (start, 0);
    loop {
        let page = feed(&mut fixture, &format!("FEED FROM {next} COUNT 1"));
        if items(&page) == 0 {
            break;
        }
        count += items(&page);
        next = position(&page, 1);
    }
    assert_eq!((next, count), (position(&reply, 1), 6));
    // Also from within the last item.
    let inside = told[told.len() - 1] + 1;
    assert_eq!(items(&feed(&mut fixture, &format!("feed from {inside} block 0"))), 1);
    fixture.session.need = Need::NOTHING;
    fixture.run("CLIENT DURABILITY synced");
    feed(&mut fixture, &format!("FEED FROM {start}"));
    assert_eq!(fixture.session.need.synced.get(), next - 1, "what it shows has to be synced first");
}

#[test]
fn what_the_feed_is_asked_wrongly_it_refuses() {
    let mut fixture = Fixture::new();
    let not_integer = "-ERR value is not an integer or out of range";
    fixture.check(&[
        ("FEED", "-ERR wrong number of arguments for 'feed' command"),
        ("FEED BEHIND 0", "-ERR syntax error"),
        ("FEED FROM -1", not_integer),
        ("FEED FROM 0 COUNT", "-ERR syntax error"),
        ("FEED FROM 0 COUNT -1", not_integer),
        ("FEED FROM 0 COUNT 0", "-ERR COUNT is at least 1"),
        ("FEED FROM 0 COUNT 1 COUNT 1", "-ERR syntax error"),
        ("FEED FROM 0 BLOCK 1 BLOCK 1", "-ERR syntax error"),
        ("FEED FROM 0 BLOCK x", not_integer),
        ("FEED FROM 0 LIMIT 1", "-ERR syntax error"),
        ("MULTI", "+OK"),
        ("FEED FROM 0", "-ERR Command not allowed inside a transaction"),
        ("DISCARD", "+OK"),
    ]);
    let end = fixture.door.store.watermarks().appended;
    let refused = feed(&mut fixture, "FEED FROM 18446744073709551615");
    assert!(refused.starts_with("-ERR ") && refused.contains(&end.to_string()), "{refused}");
    let rights = [("*", Right::Read, true), ("db*", Right::Admin, false), ("*", Right::Admin, true)];
    for (pattern, right, may) in rights {
        let mut user = User::admin("ada", &crate::auth::hash_password(b"pw").unwrap());
        user.buckets = vec![BucketRight { pattern: pattern.to_owned(), right }];
        fixture.session.user = Some(Arc::new(user));
        let reply = feed(&mut fixture, "FEED FROM 0");
        let refused = "-NOPERM this user may not read all buckets, which this command does";
        assert_eq!(reply != refused, may, "{pattern}: {reply}");
    }
}

#[test]
fn no_page_of_the_feed_is_larger_than_the_door_allows_but_one_item_always_fits() {
    let mut fixture = small();
    for number in 0..60usize {
        fixture.run(&format!("KV.PUT b k{number} {} COMPRESSION zstd", "v".repeat(number * 13)));
    }
    let big = fixture.door.options.limits.feed_bytes_max * 2;
    fixture.run(&format!("KV.PUT b big {}", "v".repeat(big.min(fixture.door.value_bytes_max()))));
    fixture.run("SET last v");
    let (mut next, mut keys, mut pages) = (0, 0, 0);
    loop {
        let page = feed(&mut fixture, &format!("FEED FROM {next} COUNT 1000"));
        if items(&page) == 0 {
            break;
        }
        assert!(items(&page) <= 8 && (items(&page) == 1 || page.len() <= (1 << 10) + FRAME), "{page}");
        (keys, pages) = (keys + items(&page), pages + 1);
        assert!(position(&page, 1) > next);
        next = position(&page, 1);
    }
    assert_eq!(keys, 62);
    assert!(pages > 20, "{pages}");
    // What no reply can hold is passed over by name.
    Arc::get_mut(&mut fixture.door).unwrap().options.limits.output_bytes_max = 600;
    let from = position(&fixture.run("KV.PUT b k v"), 1);
    fixture.run(&format!("KV.PUT b k {}", "v".repeat(500)));
    let small = feed(&mut fixture, &format!("FEED FROM {from}"));
    assert_eq!(items(&small), 1);
    let refused = feed(&mut fixture, &format!("FEED FROM {}", position(&small, 1)));
    let behind = refused.split_once("exceed 600 bytes; go on FROM ").unwrap_or_else(|| panic!("{refused}")).1;
    assert!(feed(&mut fixture, &format!("FEED FROM {behind}")).ends_with(" *0"));
}

/// What stands around the items.
const FRAME: usize = 64;

#[test]
fn what_compaction_let_go_the_feed_says_is_trimmed_and_names_the_lowest_position() {
    let mut fixture = small();
    let options = PutOptions::default();
    fixture.door.store.kv().put(b"b", b"cold", &[b'c'; 300], &options).unwrap();
    for _ in 0..40 {
        fixture.door.store.kv().put(b"b", b"hot", &[b'h'; 900], &options).unwrap();
    }
    // The background may have done it already.
    fixture.door.store.compact().unwrap();
    assert!(fixture.door.store.stats().compaction.segments > 0);
    let floor = fixture.door.store.feed_floor();
    let expected = format!("-TRIMMED the feed begins at position {floor}: what came before was compacted away");
    fixture.check(&[("FEED FROM 0", &expected), ("FEED FROM 1 BLOCK 60000", &expected)]);
    // What compaction moved is no change: the way to the end may have pages without items, but ends.
    let mut next = floor.get();
    for _ in 0..100 {
        let page = feed(&mut fixture, &format!("FEED FROM {next} BLOCK 1"));
        assert!(!page.contains("cold"), "{page}");
        next = position(&page, 1);
    }
    assert_eq!(next, fixture.door.store.watermarks().written.get());
    let late = position(&fixture.run("KV.PUT b late v"), 1);
    let page = feed(&mut fixture, &format!("FEED FROM {next} BLOCK 60000"));
    assert_eq!((items(&page), position(&page, 4)), (1, late));
}

#[test]
fn only_so_many_wait_for_the_feed_and_none_for_longer_than_the_door_allows() {
    let mut fixture = small();
    let started = Instant::now();
    assert!(feed(&mut fixture, "FEED FROM 0 BLOCK 18446744073709551615").ends_with(" *0"));
    assert!(started.elapsed() >= Duration::from_millis(20));
    let place = fixture.door.feed_waiters.clone().try_acquire_owned().unwrap();
    Arc::get_mut(&mut fixture.door).unwrap().options.limits.feed_block_max = Duration::from_secs(60);
    fixture.check(&[("FEED FROM 0 BLOCK 60000", "-ERR too many clients wait for the feed; ask again without BLOCK")]);
    assert!(feed(&mut fixture, "FEED FROM 0").ends_with(" *0"));
    fixture.run("SET k v");
    assert_eq!(items(&feed(&mut fixture, "FEED FROM 0 BLOCK 1")), 1, "who finds something need not wait");
    drop(place);
    let next = position(&feed(&mut fixture, "FEED FROM 0"), 1);
    assert!(feed(&mut fixture, &format!("FEED FROM {next} BLOCK 1")).ends_with(" *0"));
}
