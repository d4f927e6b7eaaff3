//! Pages of events, in which a listener that conflates is told of each entry once.

use std::collections::BTreeMap;

use holdfast::ErrorKind;
use holdfast::space::{Bookmark, Hears, Listen, Listener, Notice, NoticeKind, NoticePage, PageLimit, Storage};

use super::*;

const WIDE: PageLimit = PageLimit { events: 1_000, bytes: 1 << 20 };

fn with_history(store: &Store) -> Entries {
    store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "order") }).unwrap()
}

fn conflating(orders: &Entries, wanted: &Wanted, hears: Hears, from: Option<Bookmark>) -> Listener {
    orders.listen(wanted, Listen { conflate: true, hears, from, ..Listen::default() }).unwrap()
}

fn number(notice: &Notice, name: &str) -> i64 {
    let document = notice.after.as_ref().or(notice.before.as_ref()).unwrap();
    document.get(name).and_then(|it| it.as_i64()).unwrap()
}

fn told(page: &NoticePage) -> Vec<(NoticeKind, i64, i64)> {
    page.notices.iter().map(|notice| (notice.kind, number(notice, "id"), number(notice, "total"))).collect()
}

/// A fresh listener read the journal, and told of every event in it.
#[test]
fn what_is_read_from_the_journal_is_conflated_within_a_page() {
    let (store, _) = with_clock();
    let orders = with_history(&store);
    let begin = conflating(&orders, &Wanted::all(), Hears::ALL, None).bookmark();
    for total in 0..500 {
        orders.write(&order(total % 3, "ada", total), &upsert()).unwrap();
    }
    orders.take(&Wanted::id(0), &now()).unwrap().unwrap();
    let mut fresh = conflating(&orders, &Wanted::all(), Hears::ALL, Some(begin));
    let page = fresh.page(WIDE).unwrap();
    use NoticeKind::{Taken, Updated, Written};
    assert_eq!(told(&page), [(Written, 2, 497), (Written, 1, 499), (Taken, 0, 498)]);
    assert!(!page.has_more && page.notices.windows(2).all(|pair| pair[0].bookmark < pair[1].bookmark));
    assert_eq!(page.bookmark, page.notices[2].bookmark);
    assert_eq!(fresh.page(WIDE).unwrap().notices, []);
    let mut next = conflating(&orders, &Wanted::all(), Hears::ALL, Some(page.bookmark));
    assert_eq!(next.page(WIDE).unwrap().notices, [], "nothing is told again");
    orders.write(&order(1, "ada", 7), &upsert()).unwrap();
    for listener in [&mut fresh, &mut next] {
        assert_eq!(told(&listener.page(WIDE).unwrap()), [(Updated, 1, 7)], "live as well");
    }
    let mut all = orders.listen(&Wanted::all(), Listen { from: Some(begin), ..Listen::default() }).unwrap();
    assert_eq!(all.page(WIDE).unwrap().notices.len(), 502, "who does not ask for it is told all");
}

/// A page that was cut between events of one entry left what became of it to nobody: it entered before the cut, and changed behind it.
#[test]
fn a_page_that_is_cut_leaves_the_rest_as_it_was_whole() {
    let (store, _) = with_clock();
    let orders = with_history(&store);
    let large = Wanted::query("total >= 10", &[]).unwrap();
    let begin = conflating(&orders, &large, Hears::MATCHING, None).bookmark();
    let mut live = conflating(&orders, &large, Hears::MATCHING, Some(begin));
    for (id, total) in [(1, 10), (2, 20), (3, 0), (1, 11), (2, 21), (3, 30), (1, 12), (2, 0)] {
        orders.write(&order(id, "ada", total), &upsert()).unwrap();
    }
    use NoticeKind::{Entered, Left};
    let one = PageLimit { events: 1, ..WIDE };
    let mut at = begin;
    let mut pages = Vec::new();
    for _ in 0..20 {
        let page = conflating(&orders, &large, Hears::MATCHING, Some(at)).page(one).unwrap();
        at = page.bookmark;
        pages.extend(told(&page));
        if !page.has_more {
            break;
        }
    }
    assert_eq!(pages, [(Entered, 1, 10), (Entered, 2, 20), (Entered, 3, 30), (Left, 2, 0)]);
    assert_eq!(told(&live.page(WIDE).unwrap()), [(Entered, 3, 30), (Entered, 1, 12)], "in one it is one");
    let small = PageLimit { bytes: 1, ..WIDE };
    let page = conflating(&orders, &large, Hears::MATCHING, Some(begin)).page(small).unwrap();
    assert!(page.has_more && told(&page) == [(Entered, 1, 10)], "{page:?}");
}

/// Who was told of an entry that matched was not told that it went, where it had ceased to match before.
#[test]
fn an_entry_that_ceases_to_match_and_goes_is_told_to_have_gone() {
    let (store, _) = with_clock();
    let orders = with_history(&store);
    orders.write(&order(1, "ada", 10), &upsert()).unwrap();
    let large = Wanted::query("total >= 10", &[]).unwrap();
    let (mut pages, mut live) =
        (conflating(&orders, &large, Hears::ALL, None), conflating(&orders, &large, Hears::ALL, None));
    orders.write(&order(1, "ada", 1), &upsert()).unwrap();
    orders.take(&Wanted::id(1), &now()).unwrap().unwrap();
    assert_eq!(told(&pages.page(WIDE).unwrap()), [(NoticeKind::Taken, 1, 1)]);
    assert_eq!(live.poll().unwrap().map(|notice| notice.kind), Some(NoticeKind::Taken));
}

/// What somebody has who does what pages tell him, and nothing else.
struct Follower {
    at: Bookmark,
    has: BTreeMap<i64, i64>,
    told: usize,
}

impl Follower {
    /// Follows one page of a listener of its own.
    fn follow(&mut self, orders: &Entries, hears: Hears, events: usize) -> bool {
        let large = Wanted::query("total >= 50", &[]).unwrap();
        let page = conflating(orders, &large, hears, Some(self.at)).page(PageLimit { events, ..WIDE }).unwrap();
        assert!(page.bookmark >= self.at && page.notices.iter().all(|it| it.bookmark <= page.bookmark));
        assert!(page.notices.len() <= events);
        let ids: BTreeSet<i64> = page.notices.iter().map(|notice| number(notice, "id")).collect();
        assert_eq!(ids.len(), page.notices.len(), "each entry once");
        for notice in &page.notices {
            let (id, total) = (number(notice, "id"), number(notice, "total"));
            if notice.after.is_some() && total >= 50 {
                self.has.insert(id, total)
            } else {
                self.has.remove(&id)
            };
        }
        (self.at, self.told) = (page.bookmark, self.told + page.notices.len());
        page.has_more
    }
}

#[test]
fn who_follows_pages_ends_with_what_is_there_wherever_they_are_cut() {
    let (store, _) = with_clock();
    let orders = with_history(&store);
    let begin = conflating(&orders, &Wanted::all(), Hears::ALL, None).bookmark();
    let follower = || Follower { at: begin, has: BTreeMap::new(), told: 0 };
    let mut followers: Vec<(Hears, usize, Follower)> = [Hears::ALL, Hears::MATCHING]
        .into_iter()
        .flat_map(|hears| [1, 2, 3, 100].map(|cut| (hears, cut, follower())))
        .collect();
    let mut random = base::Random::new(7);
    let mut written = 0;
    for round in 0..60 {
        for _ in 0..1 + random.below(30) {
            let id = i64::try_from(random.below(6)).unwrap();
            if random.below(5) == 0 {
                orders.take(&Wanted::id(id), &now()).unwrap();
            } else {
                orders.write(&order(id, "ada", i64::try_from(random.below(100)).unwrap()), &upsert()).unwrap();
            }
            written += 1;
        }
        let large = orders.read_many(&Wanted::query("total >= 50", &[]).unwrap(), 100).unwrap();
        let totals =
            large.iter().map(|entry| (id(entry), entry.document.get("total").and_then(|it| it.as_i64()).unwrap()));
        let there: BTreeMap<i64, i64> = totals.collect();
        for (hears, cut, follower) in &mut followers {
            if round % 3 == 2 {
                while follower.follow(&orders, *hears, *cut) {}
                let which = |has: &BTreeMap<i64, i64>| has.keys().copied().collect::<Vec<_>>();
                assert_eq!(which(&follower.has), which(&there), "{hears:?} by {cut}, round {round}");
                if *hears == Hears::ALL {
                    assert_eq!(follower.has, there, "by {cut}, round {round}");
                }
            } else {
                follower.follow(&orders, *hears, *cut);
            }
        }
    }
    for (hears, cut, follower) in followers {
        assert!(follower.told < written, "{hears:?} by {cut}: {} of {written}", follower.told);
        assert!(cut < 100 || follower.told < written / 2, "{hears:?}: {} of {written}", follower.told);
    }
}

#[test]
fn a_listener_that_goes_on_by_pages_misses_nothing_where_its_buffer_overflows_or_does_not_fit_a_page() {
    let (store, _) = with_clock();
    let orders = with_history(&store);
    for (buffer_events, events) in [(2, 100), (100, 2), (4, 1)] {
        let listen = Listen { conflate: true, buffer_events, ..Listen::default() };
        let mut listener = orders.listen(&Wanted::all(), listen).unwrap();
        for round in 0..5 {
            let mut has = BTreeMap::new();
            for total in 0..40 {
                orders.write(&order(total % 5, "ada", 100 * round + total), &upsert()).unwrap();
            }
            while {
                let page = listener.page(PageLimit { events, ..WIDE }).unwrap();
                has.extend(page.notices.iter().map(|notice| (number(notice, "id"), number(notice, "total"))));
                assert!(page.notices.len() <= events);
                page.has_more
            } {}
            let newest = (0..5).map(|id| (id, 100 * round + 35 + id)).collect();
            assert_eq!(has, newest, "{buffer_events} buffered, {events} a page");
        }
    }
}

/// Their ids alone are told when they go, and two may have one.
#[test]
fn of_a_type_without_history_no_entry_is_taken_for_another() {
    let (store, _) = with_clock();
    let definition =
        Definition { routing: Some(holdfast::space::Path::field("customer")), ..Definition::new("shop", "line") };
    let lines = store.space("shop").declare(definition).unwrap();
    let hears = Hears { updated: false, ..Hears::ALL };
    let begin = conflating(&lines, &Wanted::all(), hears, None).bookmark();
    let twins: Vec<&str> = ["ada", "bob", "eve", "dan", "joe", "zoe"]
        .into_iter()
        .filter(|customer| lines.write(&order(1, customer, 0), &upsert()).is_ok())
        .take(2)
        .collect();
    for customer in &twins {
        lines.take(&Wanted::id(1).routed(*customer), &now()).unwrap().unwrap();
    }
    lines.write(&order(1, twins[0], 5), &upsert()).unwrap();
    let page = conflating(&lines, &Wanted::id(1), hears, Some(begin)).page(WIDE).unwrap();
    let gone = page.notices.iter().filter(|notice| notice.kind == NoticeKind::Taken).count();
    assert_eq!((twins.len(), gone), (2, 2));
    assert_eq!(page.notices.last().and_then(|notice| notice.after.clone()), Some(order(1, twins[0], 5)));
}

#[test]
fn of_a_volatile_type_what_waits_is_told_by_pages_and_what_is_lost_is_told_once() {
    let (store, _) = with_clock();
    let definition = Definition { storage: Storage::Volatile, ..Definition::new("shop", "price") };
    let prices = store.space("shop").declare(definition).unwrap();
    let listen = Listen { conflate: true, buffer_events: 5, ..Listen::default() };
    let mut listener = prices.listen(&Wanted::all(), listen).unwrap();
    for total in 0..40 {
        prices.write(&order(total % 4, "ada", total), &upsert()).unwrap();
    }
    let page = listener.page(PageLimit { events: 3, ..WIDE }).unwrap();
    assert_eq!((page.notices.len(), page.has_more), (3, true));
    assert_eq!(listener.page(WIDE).unwrap().notices.len(), 1);
    for total in 0..40 {
        prices.write(&order(total, "ada", total), &upsert()).unwrap();
    }
    assert_eq!(listener.page(WIDE).unwrap_err().kind(), ErrorKind::Limit);
    prices.write(&order(1, "ada", 1), &upsert()).unwrap();
    assert_eq!(told(&listener.page(WIDE).unwrap()), [(NoticeKind::Updated, 1, 1)]);
}

/// A store with orders 1 and 3, and between them damage, where an event was.
fn damaged() -> (Store, Entries) {
    let (disk, ledgers) = (base::memory::Disk::new(1), MemoryLedgers::new());
    let open = || {
        let store = Store::open_in(&world(&disk, &ledgers), std::path::Path::new("/store"), options()).unwrap();
        let orders = with_history(&store);
        (store, orders)
    };
    let (store, orders) = open();
    let lost = "the event that is lost";
    for (id, customer) in [(1, "before"), (2, lost), (3, "behind")] {
        orders.write(&order(id, customer, id), &upsert()).unwrap();
    }
    store.close().unwrap();
    drop((store, orders));
    let journal = disk.inventory().into_iter().filter(|(path, _)| path.starts_with("/store/journal"));
    let places = journal.filter_map(|(path, length)| {
        let bytes = base::read_whole(&disk, &path, length).unwrap();
        let at = bytes.windows(lost.len()).position(|part| part == lost.as_bytes())?;
        Some((path, u64::try_from(at).unwrap()))
    });
    let places: Vec<_> = places.collect();
    assert_eq!(places.len(), 1);
    disk.flip(&places[0].0, places[0].1, 1);
    open()
}

/// Where nothing that lay before the damage was to be told, the page went on behind it, and nobody heard that events may be lost.
#[test]
fn damage_is_told_whether_or_not_there_is_something_to_tell_before_it() {
    let (_store, orders) = damaged();
    let third = Wanted::query("total = 3", &[]).unwrap();
    let from = Some(Bookmark::START);
    for conflate in [true, false] {
        let listen = |wanted| orders.listen(wanted, Listen { conflate, from, ..Listen::default() }).unwrap();
        let mut listener = listen(&third);
        assert_eq!(listener.page(WIDE).unwrap_err().kind(), ErrorKind::Corrupt, "{conflate}");
        assert_eq!(told(&listener.page(WIDE).unwrap()), [(NoticeKind::Written, 3, 3)], "it goes on");

        let mut listener = listen(&Wanted::all());
        let page = listener.page(WIDE).unwrap();
        assert!(told(&page) == [(NoticeKind::Written, 1, 1)] && page.has_more, "{page:?}");
        let mut next =
            orders.listen(&Wanted::all(), Listen { conflate, from: Some(page.bookmark), ..Listen::default() });
        assert_eq!(
            next.as_mut().unwrap().page(WIDE).unwrap_err().kind(),
            ErrorKind::Corrupt,
            "it lies behind the page"
        );
        assert!(listener.may_have_more());
        assert_eq!(listener.poll().unwrap_err().kind(), ErrorKind::Corrupt, "told by whatever is asked next");
        assert_eq!(listener.poll().unwrap().map(|notice| number(&notice, "id")), Some(3));
    }
}

/// An error took with it what the page had told by then: the listener stood behind that.
#[test]
fn an_error_behind_events_of_a_page_is_told_after_them() {
    let (store, _) = with_clock();
    let definition = Definition { storage: Storage::Volatile, ..Definition::new("shop", "price") };
    let prices = store.space("shop").declare(definition).unwrap();
    let mut listener = prices.listen(&Wanted::all(), Listen { buffer_events: 5, ..Listen::default() }).unwrap();
    let write = |ids: std::ops::Range<i64>| {
        for id in ids {
            prices.write(&order(id, "ada", 0), &upsert()).unwrap();
        }
    };
    write(0..5);
    assert_eq!(listener.poll().unwrap().map(|notice| number(&notice, "id")), Some(0));
    write(5..20);
    let page = listener.page(WIDE).unwrap();
    let ids: Vec<i64> = page.notices.iter().map(|notice| number(notice, "id")).collect();
    assert_eq!((ids, page.has_more), (vec![1, 2, 3, 4], true));
    assert!(listener.may_have_more(), "who waits is woken for it");
    assert_eq!(listener.page(WIDE).unwrap_err().kind(), ErrorKind::Limit);
    write(20..21);
    assert_eq!(listener.page(WIDE).unwrap().notices.len(), 1, "it goes on");
}

/// One at a time it was told of each of them: only pages were.
#[test]
fn what_is_asked_for_one_at_a_time_is_conflated_in_the_journal_too() {
    let (store, _) = with_clock();
    let orders = with_history(&store);
    let begin = conflating(&orders, &Wanted::all(), Hears::ALL, None).bookmark();
    for total in 0..500 {
        orders.write(&order(total % 3, "ada", total), &upsert()).unwrap();
    }
    let mut fresh = conflating(&orders, &Wanted::all(), Hears::ALL, Some(begin));
    let next = |fresh: &mut Listener| fresh.next(Duration::ZERO).unwrap().map(|it| (it.kind, number(&it, "total")));
    use NoticeKind::{Updated, Written};
    assert_eq!(next(&mut fresh), Some((Written, 497)));
    assert!(fresh.may_have_more());
    // Behind the first of them the others are not what was told before: who begins anew begins where all of that began.
    assert_eq!(fresh.bookmark(), begin);
    let rest = fresh.page(PageLimit { events: 1, ..WIDE }).unwrap();
    assert_eq!((told(&rest), rest.bookmark, rest.has_more), (vec![(Written, 0, 498)], begin, true));
    orders.write(&order(1, "ada", 900), &upsert()).unwrap();
    assert_eq!(next(&mut fresh), Some((Written, 499)));
    assert!(fresh.bookmark() > begin);
    let mut other = conflating(&orders, &Wanted::all(), Hears::ALL, Some(fresh.bookmark()));
    for listener in [&mut fresh, &mut other] {
        assert_eq!((next(listener), next(listener)), (Some((Updated, 900)), None));
    }
}

/// Who stops anywhere, and goes on from where the listener says that it stands, has what is there in the end.
#[test]
fn who_is_told_one_at_a_time_and_stops_anywhere_misses_nothing() {
    let (store, _) = with_clock();
    let orders = with_history(&store);
    let large = Wanted::query("total >= 50", &[]).unwrap();
    let mut at = conflating(&orders, &large, Hears::MATCHING, None).bookmark();
    let (mut random, mut has) = (base::Random::new(3), BTreeMap::new());
    for _ in 0..300 {
        let mut listener = conflating(&orders, &large, Hears::MATCHING, Some(at));
        for _ in 0..random.below(8) {
            let (id, total) = (random.below(5) as i64, random.below(100) as i64);
            orders.write(&order(id, "ada", total), &upsert()).unwrap();
        }
        for _ in 0..1 + random.below(4) {
            let Some(notice) = listener.poll().unwrap() else { break };
            let (id, total) = (number(&notice, "id"), number(&notice, "total"));
            if notice.kind == NoticeKind::Entered {
                has.insert(id, total)
            } else {
                has.remove(&id)
            };
        }
        at = listener.bookmark();
    }
    let mut listener = conflating(&orders, &large, Hears::MATCHING, Some(at));
    while let Some(notice) = listener.poll().unwrap() {
        let (id, total) = (number(&notice, "id"), number(&notice, "total"));
        if notice.kind == NoticeKind::Entered {
            has.insert(id, total)
        } else {
            has.remove(&id)
        };
    }
    let there: BTreeSet<i64> = ids(&orders.read_many(&large, 99).unwrap());
    assert_eq!(has.into_keys().collect::<BTreeSet<_>>(), there);
}
