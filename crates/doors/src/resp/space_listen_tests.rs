//! SPACE.LISTEN with CONFLATE: each entry once in a reply, and nothing lost where it ends.

use super::Fixture;

/// The bookmark of the reply, and of each event its kind and the entry as it is now.
fn heard(reply: &str) -> (String, Vec<String>) {
    let words: Vec<&str> = reply.split(' ').collect();
    let event = |words: &[&str]| match words {
        ["*4", _, kind, _, _, now, ..] if now.starts_with('$') && *now != "$-1" => {
            Some(format!("{kind} {}", words.get(6).unwrap_or(&"")))
        }
        ["*4", _, kind, ..] => Some(format!("{kind} nothing")),
        _ => None,
    };
    let bookmark = words.get(2).map(|it| (*it).to_owned()).unwrap_or_else(|| panic!("no bookmark in {reply}"));
    (bookmark, (0..words.len()).filter_map(|at| event(words.get(at..)?)).collect())
}

#[test]
fn each_entry_is_told_once_in_a_reply_that_reads_the_journal() {
    let mut fixture = Fixture::new();
    fixture.check(&[("SPACE.DECLARE shop orders HISTORY", "+OK")]);
    let (begin, _) = heard(&fixture.run("SPACE.LISTEN shop orders ANY"));
    for n in 0..40 {
        fixture.run(&format!("SPACE.WRITE shop orders {{\"id\":{},\"n\":{n}}}", n % 2));
    }
    fixture.run("SPACE.TAKE shop orders ID 0");
    let listen = |from: &str, more: &str| format!("SPACE.LISTEN shop orders ANY FROM {from} CONFLATE{more}");
    let (end, events) = heard(&fixture.run(&listen(&begin, "")));
    assert_eq!(events, ["written {\"id\":1,\"n\":39}", "taken nothing"]);
    let (_, again) = heard(&fixture.run(&listen(&end, "")));
    assert!(again.is_empty(), "nothing is told again: {again:?}");
    let all = heard(&fixture.run(&format!("SPACE.LISTEN shop orders ANY FROM {begin}")));
    assert_eq!((all.0, all.1.len()), (end.clone(), 41), "who does not ask for it is told all");
    // A reply ends before the first event of an entry that it has no room for: what lies behind is told as it was.
    let (mut at, mut last) = (begin, Vec::new());
    for _ in 0..50 {
        let (next, events) = heard(&fixture.run(&listen(&at, " COUNT 1")));
        assert!(events.len() <= 1, "{events:?}");
        if events.is_empty() {
            break;
        }
        last.extend(events);
        at = next;
    }
    assert_eq!((at, last.len()), (end.clone(), 41), "one by one there is nothing to make one of");
    fixture.run("SPACE.WRITE shop orders {\"id\":1,\"n\":40}");
    let (_, events) = heard(&fixture.run(&listen(&end, " BLOCK 1000")));
    assert_eq!(events, ["updated {\"id\":1,\"n\":40}"]);
}
