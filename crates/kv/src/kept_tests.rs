//! The table against a map, its bounds, and who goes first.

use std::collections::BTreeMap;

use base::Random;

use super::*;

/// Half of the marks are two pieces' each, told apart by their first bytes.
fn mark(number: u64) -> Mark {
    Mark { number: if number.is_multiple_of(2) { number * 8 } else { (number / 4) * 8 + 4 }, tag: 7 }
}

fn numbered(number: u64) -> Mark {
    Mark { number: number * 4096, tag: 7 }
}

/// A head and a tail, which a third of them have not.
fn piece(number: u64, version: u8) -> (Vec<u8>, Vec<u8>) {
    let mut head = number.to_le_bytes().to_vec();
    head.resize(9 + usize::try_from(number % 40).unwrap(), version);
    let tail = vec![version; usize::try_from((number % 3) * (number % 200)).unwrap()];
    (head, tail)
}

fn is(number: u64) -> impl Fn(&[u8]) -> bool {
    move |head| head.starts_with(&number.to_le_bytes())
}

fn keep(kept: &Kept, number: u64, (head, tail): &(Vec<u8>, Vec<u8>), because: Because) {
    kept.keep(mark(number), is(number), ([head, &[]], tail), because);
}

fn write(kept: &Kept, number: u64, head: usize, tail: usize) {
    kept.keep(numbered(number), |_| true, ([&vec![1; head], &[]], &vec![2; tail]), Because::Written);
}

/// Head and tail of what is there.
fn there(kept: &Kept, number: u64) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let (head, tail) = kept.get(mark(number), is(number))?.cut(0);
    Some((head.to_vec(), tail.map(|tail| tail.to_vec())))
}

fn sum(kept: &Kept, of: impl Fn(&Table) -> usize) -> usize {
    kept.shards.iter().map(|shard| of(&shard.0.lock().unwrap())).sum()
}

/// What is counted is what is there, and is within the bounds.
fn check(kept: &Kept) {
    for shard in &kept.shards {
        let table = shard.0.lock().unwrap();
        let counted = |of: fn(&Slot) -> usize| table.slots.iter().map(of).sum::<usize>();
        assert_eq!(table.pieces, counted(|slot| usize::from(slot.piece.is_some())));
        assert_eq!(table.bytes, counted(Slot::bytes));
        assert_eq!(table.tail_bytes, counted(|slot| slot.piece.as_ref().map_or(0, Piece::tail_bytes)));
        assert!(table.tail_bytes <= kept.room.tails && (table.held() <= kept.room.all || table.pieces == 0));
    }
}

#[test]
fn it_shows_the_newest_piece_or_nothing_in_bounded_memory() {
    for (bytes, tail_bytes) in
        [(0, 0), (1 << 10, 0), (32 << 10, 32 << 10), (256 << 10, 0), (64 << 10, 256 << 10), (4 << 20, 4 << 20)]
    {
        let kept = Kept::new(bytes, tail_bytes);
        let mut model = BTreeMap::new();
        let mut random = Random::new(bytes + tail_bytes);
        let (mut asked, mut found, mut with_tail) = (0, 0, 0);
        for n in 0..200_000 {
            let number = random.below(3_000);
            match random.below(10) {
                0 => {
                    kept.remove(mark(number), is(number));
                    model.remove(&number);
                }
                asked @ 1..4 => {
                    let piece = piece(number, u8::try_from(n % 251).unwrap());
                    keep(&kept, number, &piece, if asked == 1 { Because::Asked } else { Because::Written });
                    model.insert(number, piece);
                }
                _ => {
                    let (known, got) = (model.get(&number), there(&kept, number));
                    asked += usize::from(known.is_some());
                    let Some((head, tail)) = got else { continue };
                    let known = known.unwrap();
                    assert_eq!(head, known.0);
                    assert!(tail.is_none_or(|tail| {
                        with_tail += 1;
                        tail == known.1
                    }));
                    found += 1;
                }
            }
        }
        check(&kept);
        // All of it takes less than a megabyte.
        assert!((found > 0) == (bytes + tail_bytes >= 64 << 10), "{found}");
        assert!((with_tail > 0) == (tail_bytes > 0), "{with_tail}");
        assert!(
            bytes < 4 << 20 || (found * 100 > asked * 98 && with_tail * 100 > asked * 60),
            "{found}, {with_tail} of {asked}"
        );
        kept.clear();
        assert!((0..3_000).all(|number| there(&kept, number).is_none()) && sum(&kept, Table::held) == 0);
    }
}

#[test]
fn who_holds_a_piece_has_it_as_it_was() {
    let kept = Kept::new(1 << 20, 1 << 20);
    let get = || kept.get(mark(4), is(4)).unwrap();
    let of = |version| {
        let (head, tail) = piece(4, version);
        Piece::new(&[&u32::try_from(head.len()).unwrap().to_le_bytes(), &head, &tail])
    };
    keep(&kept, 4, &piece(4, 1), Because::Written);
    let held = get();
    for version in 2..5 {
        // In the same place from the second time on, and the third time with one who holds what is there.
        let _held = (version == 4).then(get);
        keep(&kept, 4, &piece(4, version), Because::Written);
        assert_eq!((&held, get()), (&of(1), of(version)));
    }
    // As long as before, and with less of it in the tail.
    for (head, tail) in [(11, 2), (13, 0), (12, 1)] {
        let head: Vec<u8> = 4_u64.to_le_bytes().into_iter().chain(std::iter::repeat_n(9, head - 8)).collect();
        keep(&kept, 4, &(head.clone(), vec![8; tail]), Because::Written);
        assert_eq!(there(&kept, 4), Some((head, (tail > 0).then(|| vec![8; tail]))));
        check(&kept);
    }
}

#[test]
fn what_is_used_stays_when_much_else_comes() {
    let kept = Kept::new(256 << 10, 1 << 20);
    let used = |kept: &Kept| {
        let got = (1..200).filter_map(|n| kept.get(numbered(n), |_| true));
        got.filter(|piece| piece.tail_bytes() > 0).count()
    };
    for n in 1..200 {
        write(&kept, n, 20, 1000);
    }
    let before = used(&kept);
    for n in 0..20_000 {
        write(&kept, 1_000 + n, 20, 1000);
        if n % 100 == 0 {
            used(&kept);
        }
    }
    assert!(before > 190 && used(&kept) > 150, "{before}, then {}", used(&kept));
    check(&kept);
}

/// In room for 4,000 of them with their tails, of which there are ten times as many.
#[test]
fn what_has_to_go_leaves_its_tail_first() {
    let kept = Kept::new(8 << 20, 4 << 20);
    for n in 0..40_000 {
        write(&kept, n, 20, 1000);
    }
    check(&kept);
    let got: Vec<Piece> = (0..40_000).filter_map(|n| kept.get(numbered(n), |_| true)).collect();
    let with_tail = got.iter().filter(|piece| piece.tail_bytes() > 0).count();
    assert!(got.len() > 36_000 && with_tail > 3_500, "{} and {with_tail}", got.len());
    assert!(got.into_iter().all(|piece| *piece.cut(0).0 == [1; 20]));
}

#[test]
fn what_was_written_and_not_asked_for_leaves_the_rest_of_the_room_alone() {
    let kept = Kept::new(1 << 20, 7 << 20);
    for n in 0..100_000 {
        write(&kept, n, 100, 0);
    }
    let written = sum(&kept, Table::held);
    assert!((900 << 10..1300 << 10).contains(&written), "{written}");
    // Somebody asks for others: those stay, all that there is room for.
    for n in 200_000..220_000 {
        kept.keep(numbered(n), |_| true, ([&[1; 100], &[]], &[]), Because::Asked);
        kept.get(numbered(n), |_| true);
    }
    for n in 100_000..200_000 {
        write(&kept, n, 100, 0);
    }
    let stayed = (200_000..220_000).filter(|n| kept.get(numbered(*n), |_| true).is_some()).count();
    assert!(stayed > 19_000, "{stayed}");
    check(&kept);
}

/// Whatever their size: there is a place for nearly all that there is room for.
#[test]
fn there_are_as_many_sets_as_pieces_need() {
    for bytes in [40, 200, 1000] {
        let kept = Kept::new(8 << 20, 0);
        let fit = (8 << 20) / (bytes + u64::try_from(OVERHEAD_BYTES + LENGTH_BYTES + 3 * SLOT_BYTES).unwrap());
        for n in 0..fit {
            kept.keep(numbered(n), |_| true, ([&vec![1; usize::try_from(bytes).unwrap()], &[]], &[]), Because::Asked);
        }
        let there = (0..fit).filter(|n| kept.get(numbered(*n), |_| true).is_some()).count();
        assert!(there as u64 * 100 > fit * 93, "{bytes}: {there} of {fit}");
        check(&kept);
    }
}

#[test]
fn what_was_asked_about_once_is_known_for_a_while() {
    let kept = Kept::new(4 << 20, 0);
    for n in 0..4_000 {
        write(&kept, n, 20, 0);
    }
    let marks = || (1..200_u64).map(numbered);
    assert!(marks().filter(|mark| kept.was_seen(*mark)).count() < 20);
    assert!(marks().filter(|mark| kept.was_seen(*mark)).count() > 160);
}

#[test]
fn threads_share_it() {
    let kept = Kept::new(1 << 18, 1 << 17);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let kept = &kept;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..20_000 {
                    let number = random.below(2_000);
                    match there(kept, number) {
                        Some((head, _)) => assert_eq!(head, piece(number, 1).0),
                        None => keep(kept, number, &piece(number, 1), Because::Asked),
                    }
                }
            });
        }
    });
    check(&kept);
}

#[test]
fn what_is_not_taken_is_lent() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    let (kept, lent) = (Kept::new(1 << 20, 3 << 20), Arc::new(AtomicU64::new(0)));
    let borrower = Arc::clone(&lent);
    kept.lend(Box::new(move |bytes| borrower.store(bytes, Ordering::Relaxed)));
    let lent = || lent.load(Ordering::Relaxed);
    assert_eq!(lent(), 4 << 20);
    for n in 0..10_000 {
        kept.keep(numbered(n), |_| true, ([&[1; 100], &[]], &[]), Because::Asked);
        let free = (4 << 20) - sum(&kept, Table::held) as u64;
        assert!(lent().abs_diff(free) <= (4 << 20) / NOTED_PARTS as u64, "{} and {free}", lent());
    }
    assert!(lent() < 2 << 20, "{}", lent());
    for n in 0..10_000 {
        kept.remove(numbered(n), |_| true);
        let free = (4 << 20) - sum(&kept, Table::held) as u64;
        assert!(lent().abs_diff(free) <= (4 << 20) / NOTED_PARTS as u64, "{} and {free}", lent());
    }
    kept.clear();
    assert_eq!(lent(), 4 << 20);
}

/// Of much room for values nothing is taken by what has none, neither by itself nor by slots.
#[test]
fn what_was_written_and_not_asked_for_is_bounded_however_much_room_there_is() {
    for tails in [0, 16 << 20, 1 << 30] {
        let kept = Kept::new(1 << 20, tails);
        for n in 0..60_000 {
            write(&kept, n, 100, 0);
        }
        let held = sum(&kept, Table::held);
        assert!((700 << 10..2 << 20).contains(&held), "{held} with {tails}");
        check(&kept);
    }
}
