//! Exchanges between maps in memory, whose differences are known, and between two stores.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use base::memory::Disk;
use base::{ManualClock, Random};
use kv::{MemoryLedgers, Metadata, Tree};
use proptest::prelude::*;

use super::*;
use crate::{Durability, Options, PutOptions, Store, World};

type Objects = BTreeMap<(Vec<u8>, Vec<u8>), Clock>;

type Before = Box<dyn Fn(&Memory)>;

/// A peer that holds a map, and counts what it was asked.
#[derive(Default)]
struct Memory {
    objects: RefCell<Objects>,
    asked: Cell<usize>,
    /// Most leaves it was asked the objects of at once.
    leaves: Cell<usize>,
    /// Called before each answer.
    before: Option<Before>,
}

impl Memory {
    fn of(objects: Objects) -> Self {
        Self { objects: RefCell::new(objects), ..Self::default() }
    }

    fn begin(&self) {
        self.asked.set(self.asked.get() + 1);
        self.before.iter().for_each(|before| before(self));
    }

    fn tree(&self, size: TreeSize) -> Tree {
        self.begin();
        let mut tree = Tree::new(size);
        for ((bucket, key), clock) in &*self.objects.borrow() {
            tree.update(object_hash(bucket, key), None, Some(clock.hash()));
        }
        tree
    }
}

impl Peer for Memory {
    fn root(&self, size: TreeSize) -> Result<Vec<u32>> {
        Ok(self.tree(size).root())
    }

    fn branches(&self, size: TreeSize, branches: &[u32]) -> Result<Vec<Vec<u32>>> {
        Ok(self.tree(size).branches(branches).unwrap())
    }

    fn clocks(&self, leaves: &LeafSet) -> Result<Vec<Clocked>> {
        self.begin();
        self.leaves.set(self.leaves.get().max(leaves.iter().count()));
        let objects = self.objects.borrow();
        let under = objects.iter().filter(|((bucket, key), _)| leaves.contains(object_hash(bucket, key)));
        Ok(under.map(|((bucket, key), clock)| (bucket.clone(), key.clone(), *clock)).collect())
    }
}

fn name(number: u64) -> (Vec<u8>, Vec<u8>) {
    ((number % 3 + 1).to_le_bytes().to_vec(), number.to_le_bytes().to_vec())
}

fn clock(modified_ms: u64, checksum: u32) -> Clock {
    Clock { modified_ms, checksum, ..Clock::default() }
}

fn smallest() -> TreeSize {
    TreeSize::ALL[0]
}

fn exchange<'a>(here: &'a dyn Peer, there: &'a dyn Peer) -> Exchange<'a> {
    Exchange { here, there, size: smallest(), leaves_max: 7, pause: &|| {} }
}

/// Every difference of all rounds, in order.
fn run(exchange: Exchange<'_>) -> Result<Vec<Difference>> {
    let (mut rounds, mut all) = (exchange.begin()?, Vec::new());
    let mut left = rounds.leaves();
    while let Some(differences) = rounds.step()? {
        assert!(rounds.leaves() < left, "a round gets on");
        left = rounds.leaves();
        all.extend(differences);
    }
    assert_eq!(left, 0);
    all.sort_by(|a, b| (&a.bucket, &a.key).cmp(&(&b.bucket, &b.key)));
    Ok(all)
}

fn differences(here: &Objects, there: &Objects) -> Vec<Difference> {
    let names: BTreeSet<_> = here.keys().chain(there.keys()).collect();
    let both = names.into_iter().map(|(bucket, key)| {
        let name = (bucket.clone(), key.clone());
        let (here, there) = (here.get(&name).copied(), there.get(&name).copied());
        Difference { bucket: name.0, key: name.1, here, there }
    });
    both.filter(|difference| difference.here != difference.there).collect()
}

#[test]
fn equal_peers_exchange_nothing_but_their_roots() {
    let objects: Objects = (0..2000).map(|number| (name(number), clock(number, 1))).collect();
    let (here, there) = (Memory::of(objects.clone()), Memory::of(objects));
    assert_eq!(run(exchange(&here, &there)).unwrap(), []);
    assert_eq!((here.asked.get(), there.asked.get()), (1, 1));
}

#[test]
fn one_difference_among_many_objects_is_found_under_its_leaf_alone() {
    let objects: Objects = (0..2000).map(|number| (name(number), clock(number, 1))).collect();
    let (here, there) = (Memory::of(objects.clone()), Memory::of(objects));
    there.objects.borrow_mut().insert(name(77), clock(78, 1));
    let found = run(exchange(&here, &there)).unwrap();
    assert_eq!(found, differences(&here.objects.borrow(), &there.objects.borrow()));
    assert_eq!(found.len(), 1);
    assert_eq!((here.asked.get(), here.leaves.get()), (6, 1), "roots, branches and clocks, each twice");
}

#[test]
fn a_peer_with_nothing_learns_everything_a_few_leaves_at_a_time() {
    let objects: Objects = (0..200).map(|number| (name(number), clock(number, 1))).collect();
    let (here, there) = (Memory::default(), Memory::of(objects));
    let found = run(exchange(&here, &there)).unwrap();
    assert_eq!(found.len(), 200);
    assert!(found.iter().all(|found| found.kind() == DifferenceKind::OnlyThere && found.keep() == Side::There));
    assert_eq!(there.leaves.get(), 7, "a round asks for no more leaves than it may");
    let one = Exchange { leaves_max: 0, ..exchange(&here, &there) };
    assert_eq!(run(one).unwrap().len(), 200, "no leaf at a time is taken for one");
}

#[test]
fn both_sides_keep_the_same_object() {
    let (early, late) = (clock(1, 9), clock(2, 1));
    let twin = clock(2, 2);
    let difference = |here, there| Difference { bucket: Vec::new(), key: Vec::new(), here, there };
    for (here, there, kind) in [
        (Some(early), None, DifferenceKind::OnlyHere),
        (None, Some(early), DifferenceKind::OnlyThere),
        (Some(late), Some(early), DifferenceKind::NewerHere),
        (Some(early), Some(late), DifferenceKind::NewerThere),
        (Some(twin), Some(late), DifferenceKind::SameTime),
        (Some(late), Some(twin), DifferenceKind::SameTime),
    ] {
        let (one, other) = (difference(here, there), difference(there, here));
        assert_eq!(one.kind(), kind);
        assert_ne!(one.keep(), other.keep(), "seen from the other side it is the other side");
        let kept = if one.keep() == Side::Here { here } else { there };
        assert!(kept.is_some(), "an absence is never kept");
        assert!(kept != Some(early) || here.is_none() || there.is_none(), "the later change is kept");
    }
}

#[test]
fn a_write_that_has_reached_only_one_side_yet_is_no_difference() {
    // Before each answer here something is new here; during each pause it gets there.
    let shared = Rc::new(Cell::new(10_000));
    let on_its_way: Rc<RefCell<Objects>> = Rc::default();
    let objects: Objects = (0..500).map(|number| (name(number), clock(number, 1))).collect();
    let there = Memory::of(objects.clone());
    let (next, sent) = (Rc::clone(&shared), Rc::clone(&on_its_way));
    let write = move |here: &Memory| {
        for _ in 0..50 {
            next.set(next.get() + 1);
            here.objects.borrow_mut().insert(name(next.get()), clock(1, 1));
            sent.borrow_mut().insert(name(next.get()), clock(1, 1));
        }
    };
    let here = Memory { before: Some(Box::new(write)), ..Memory::of(objects) };
    here.objects.borrow_mut().insert(name(3), clock(99, 2));
    let pause = || there.objects.borrow_mut().append(&mut on_its_way.borrow_mut());
    let found = run(Exchange { leaves_max: 1000, pause: &pause, ..exchange(&here, &there) }).unwrap();
    assert!(shared.get() >= 10_000 + 6 * 50, "it was written to throughout");
    let (bucket, key) = name(3);
    let (was, is) = (clock(3, 1), clock(99, 2));
    assert_eq!(
        found,
        [Difference { bucket, key, here: Some(is), there: Some(was) }],
        "the one that is there all the time"
    );
}

/// Answers as another peer does, changed.
struct Liar<'a> {
    honest: &'a Memory,
    root: usize,
    branches: usize,
    clocks: bool,
}

impl Peer for Liar<'_> {
    fn root(&self, size: TreeSize) -> Result<Vec<u32>> {
        self.honest.root(size).map(|root| root.into_iter().take(self.root).collect())
    }

    fn branches(&self, size: TreeSize, branches: &[u32]) -> Result<Vec<Vec<u32>>> {
        self.honest.branches(size, branches).map(|branches| branches.into_iter().take(self.branches).collect())
    }

    fn clocks(&self, leaves: &LeafSet) -> Result<Vec<Clocked>> {
        let mut clocks = self.honest.clocks(leaves)?;
        clocks.extend((0..4).map(name).map(|(bucket, key)| (bucket, key, clock(0, 0))).filter(|_| self.clocks));
        Ok(clocks)
    }
}

#[test]
fn an_answer_to_something_else_is_an_error() {
    let here = Memory::default();
    let honest = Memory::of((0..3).map(|number| (name(number), clock(1, 1))).collect());
    let (root, branches, clocks) = (usize::MAX, usize::MAX, false);
    assert_eq!(run(exchange(&here, &Liar { honest: &honest, root, branches, clocks })).unwrap().len(), 3);
    for (liar, message) in [
        (Liar { honest: &honest, root: 31, branches, clocks }, "31 hashes instead of 32"),
        (Liar { honest: &honest, root, branches: 0, clocks }, "0 branches instead of 3"),
        (Liar { honest: &honest, root, branches, clocks: true }, "an object that was not asked for"),
    ] {
        let error = run(exchange(&here, &liar)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().ends_with(message), "{error}");
    }
}

#[test]
fn a_round_that_failed_is_tried_again() {
    let fails = Rc::new(Cell::new(false));
    struct Shaky<'a>(&'a Memory, Rc<Cell<bool>>);
    impl Peer for Shaky<'_> {
        fn root(&self, size: TreeSize) -> Result<Vec<u32>> {
            self.0.root(size)
        }

        fn branches(&self, size: TreeSize, branches: &[u32]) -> Result<Vec<Vec<u32>>> {
            self.0.branches(size, branches)
        }

        fn clocks(&self, leaves: &LeafSet) -> Result<Vec<Clocked>> {
            if self.1.get() {
                return Err(Error::new(ErrorKind::Timeout, "no answer"));
            }
            self.0.clocks(leaves)
        }
    }
    let (here, there) = (Memory::default(), Memory::of((0..9).map(|number| (name(number), clock(1, 1))).collect()));
    let shaky = Shaky(&there, Rc::clone(&fails));
    let mut rounds = exchange(&here, &shaky).begin().unwrap();
    fails.set(true);
    assert_eq!(rounds.step().unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(rounds.leaves(), 9);
    fails.set(false);
    let mut found = 0;
    while let Some(differences) = rounds.step().unwrap() {
        found += differences.len();
    }
    assert_eq!(found, 9);
}

fn world(clock: &Arc<ManualClock>, entropy: u64) -> World {
    let clock = Arc::clone(clock);
    let ledgers = Arc::new(MemoryLedgers::default());
    World { files: Arc::new(Disk::new(entropy)), clock, ledgers, threads: false, entropy }
}

fn open(world: &World, tree: Option<TreeSize>) -> Store {
    let partitions = 1 + u16::try_from(world.entropy).unwrap();
    let options = Options { durability: Durability::Written, partitions, tree, ..Options::default() };
    Store::open_in(world, std::path::Path::new("/store"), options).unwrap()
}

fn store(clock: &Arc<ManualClock>, entropy: u64) -> Store {
    open(&world(clock, entropy), Some(TreeSize::default()))
}

/// Every leaf of a tree of the store: the one that is kept, or made anew from all heads when that is smaller.
fn leaves(store: &Store, size: TreeSize) -> Vec<u32> {
    let all: Vec<u32> = (0..size.width()).collect();
    store.branches(size, &all).unwrap().concat()
}

#[test]
fn the_tree_that_is_kept_is_that_of_the_heads_whatever_was_changed_and_reopened() {
    let time = Arc::new(ManualClock::at(1_000));
    let world = world(&time, 4);
    let mut random = Random::new(11);
    // A size, another, none, and the first again.
    for kept in [Some(1), Some(0), None, Some(1)] {
        let kept = kept.map(|at| TreeSize::ALL[at]);
        let store = open(&world, kept);
        for round in 0..3 {
            let larger = leaves(&store, TreeSize::ALL[2]);
            let sums: Vec<u32> = larger.chunks(4).map(|leaves| leaves.iter().fold(0, |sum, hash| sum ^ hash)).collect();
            assert_eq!(leaves(&store, TreeSize::ALL[1]), sums, "{kept:?}, round {round}");
            let sums: Vec<u32> = sums.chunks(4).map(|leaves| leaves.iter().fold(0, |sum, hash| sum ^ hash)).collect();
            assert_eq!(leaves(&store, TreeSize::ALL[0]), sums, "{kept:?}, round {round}");
            for _ in 0..100 {
                time.advance(std::time::Duration::from_millis(1));
                let (bucket, key) = name(random.below(60));
                match random.below(4) {
                    0 => drop(store.kv().delete(&bucket, &key, crate::Condition::None).unwrap()),
                    1 => drop(store.kv().expire(&bucket, &key, Some(1_000_000)).unwrap()),
                    _ => drop(
                        store.kv().put(&bucket, &key, &random.next().to_le_bytes(), &PutOptions::default()).unwrap(),
                    ),
                }
            }
        }
        store.close().unwrap();
    }
}

#[test]
fn two_stores_of_different_partitions_find_what_differs_between_them() {
    let time = Arc::new(ManualClock::at(1_000));
    let (here, there) = (store(&time, 2), store(&time, 6));
    let metadata = Metadata::from_pairs([("a", "b")]);
    let put = |store: &Store, bucket: &[u8], key: u64, value: &[u8]| {
        let options = PutOptions { metadata: metadata.clone(), ..PutOptions::default() };
        store.kv().put(bucket, &key.to_be_bytes(), value, &options).unwrap();
    };
    let mut random = Random::new(5);
    for key in 0..300 {
        let value = random.next().to_le_bytes();
        let buckets = [&b"a"[..], b"b", b"c"];
        let bucket = buckets[(key % 3) as usize];
        put(&here, bucket, key, &value);
        put(&there, bucket, key, &value);
    }
    let all = Exchange { leaves_max: 256, ..exchange(&here, &there) };
    assert_eq!(run(all).unwrap(), [], "version and place are not compared");
    time.advance(std::time::Duration::from_secs(1));
    put(&here, b"only", 1, b"x");
    put(&there, b"a", 0, b"newer");
    here.kv().delete(b"b", &1u64.to_be_bytes(), crate::Condition::None).unwrap();
    there.kv().expire(b"c", &2u64.to_be_bytes(), Some(2_500)).unwrap();
    // Expired there and not removed yet, never here: the trees differ, and nothing else does.
    put(&there, b"gone", 9, b"x");
    there.kv().expire(b"gone", &9u64.to_be_bytes(), Some(2_100)).unwrap();
    time.advance(std::time::Duration::from_millis(200));
    let found = run(all).unwrap();
    let told: Vec<(&[u8], DifferenceKind)> = found.iter().map(|found| (&*found.bucket, found.kind())).collect();
    let expected: [(&[u8], _); 4] = [
        (b"a", DifferenceKind::NewerThere),
        (b"b", DifferenceKind::OnlyThere),
        (b"c", DifferenceKind::NewerThere),
        (b"only", DifferenceKind::OnlyHere),
    ];
    assert_eq!(told, expected);
    assert_eq!(here.branches(smallest(), &[32]).unwrap_err().kind(), ErrorKind::Invalid);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_objects_that_differ_are_found(
        shared in proptest::collection::btree_map(0u64..2000, (0u64..3, 0u32..3), 0..400),
        here in proptest::collection::btree_map(0u64..2000, proptest::option::of((0u64..3, 0u32..3)), 0..60),
        there in proptest::collection::btree_map(0u64..2000, proptest::option::of((0u64..3, 0u32..3)), 0..60),
        size in 0usize..3,
        leaves_max in 1usize..100,
    ) {
        let side = |changes: BTreeMap<u64, Option<(u64, u32)>>| {
            let mut objects = shared.clone();
            for (number, change) in changes {
                match change {
                    Some(change) => objects.insert(number, change),
                    None => objects.remove(&number),
                };
            }
            objects.into_iter().map(|(number, (modified_ms, sum))| (name(number), clock(modified_ms, sum))).collect()
        };
        let (here, there): (Objects, Objects) = (side(here), side(there));
        let expected = differences(&here, &there);
        let (here, there) = (Memory::of(here), Memory::of(there));
        let size = TreeSize::ALL[size];
        let found = run(Exchange { size, leaves_max, ..exchange(&here, &there) }).unwrap();
        assert_eq!(found, expected);
    }
}
