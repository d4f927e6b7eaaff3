//! What types say they take of memory, against what an allocator handed out for them.
//!
//! Rows and tables of hashes double when they are full, so at one number of entries they have room for up to twice as many and at another
//! for none: what is counted for each entry is the mean. So a type is loaded to several sizes, spread over one doubling, and the sums are compared.
#![allow(unsafe_code, reason = "an allocator is unsafe by its interface")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use holdfast_space::{AtLimit, Command, Definition, Document, Engine, IndexKind, Order, TypeId, Value};
use journal::Position;

/// Counts what a thread has of memory, so that tests count nothing of each other.
struct Counting;

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// What a request takes with the allocator of the program (mimalloc): sixteen bytes and their multiples up to 64, then four sizes for each
/// doubling. Large ones are whole pages, which are little beside them.
fn handed_out(size: usize) -> i64 {
    let step = match size {
        0..=64 => 16,
        65..=0x2_0000 => (size - 1).next_power_of_two() / 8,
        _ => 1,
    };
    size.next_multiple_of(step) as i64
}

fn count(by: i64) {
    // Threads that end free what they had when this is gone.
    let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + by));
}

// SAFETY: everything is passed on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(handed_out(layout.size()));
        // SAFETY: the caller's promises are those of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-handed_out(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const OF: TypeId = TypeId(1);
/// Entries of the largest load, half of them of the smallest; and how many loads there are between.
const ENTRIES: f64 = 16_000.0;
const LOADS: i32 = 8;

/// How far what is counted may be from what was handed out. What a document's and a key's block are rounded up by, some ten bytes of a hundred,
/// depends on their lengths, and how full the nodes of a map are on the order in which keys come; one constant stands for all of them.
const OFF_MAX: f64 = 0.06;

fn apply(engine: &mut Engine, command: &Command<'_>) {
    let mut part = Vec::new();
    command.encode(&mut part);
    engine.apply(Position::new(1), &part, &mut |_| ()).unwrap();
}

/// What is counted and what was handed out for each entry, the document's own bytes apart, as a mean over all loads.
fn measure(definition: &Definition, expires_ms: fn(u64) -> u64, group: u64) -> (f64, f64) {
    let (mut counted, mut real, mut all) = (0.0, 0.0, 0.0);
    for load in 0..LOADS {
        let entries = (ENTRIES * 2f64.powf(-f64::from(load) / f64::from(LOADS))) as u64;
        let mut engine = Engine::default();
        apply(&mut engine, &Command::Declare { of: OF, definition: definition.clone() });
        let before = BYTES.get();
        let (mut documents, empty) = (0, engine.bytes());
        for id in 0..entries {
            // In no order, and each another one.
            let number = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
            let text = format!("{number:016x}");
            // As many have one of these as make a group.
            let of = (id / group).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
            let pairs = [("id", Value::from(id)), ("number", Value::from(number)), ("text", Value::from(text))];
            let document = Document::from_pairs(pairs).with("group", Value::from(of));
            documents += document.as_bytes().len();
            let expires_ms = expires_ms(number);
            apply(&mut engine, &Command::Write { of: OF, expires_ms, document: document.fields(), before: None });
        }
        counted += (engine.bytes() - empty) as f64 - documents as f64;
        real += (BYTES.get() - before) as f64 - documents as f64;
        all += entries as f64;
    }
    (counted / all, real / all)
}

/// Two at a key were counted as 16 bytes, and took 64.
#[test]
fn keys_with_several_entries_are_counted_as_well() {
    for kind in [IndexKind::Hash, IndexKind::Ordered] {
        for group in [1, 2, 3, 5, 6, 8, 11, 12, 14, 20, 50, 300, 8_000] {
            let definition = plain().index("group", kind).unwrap();
            let (counted, real) = measure(&definition, |_| 0, group);
            println!("{kind:?} of {group}: {counted:.1} counted, {real:.1} handed out");
            let off = (counted / real - 1.0).abs();
            // A twelfth entry makes three nodes of one, with room for those behind it; one constant stands for what is more.
            let off_max = if (12..=17).contains(&group) { 2.0 * OFF_MAX } else { OFF_MAX };
            assert!(off < off_max, "{kind:?} of {group}: {counted:.1} are counted, {real:.1} were handed out");
        }
    }
}

fn plain() -> Definition {
    Definition::new("shop", "orders")
}

#[test]
fn what_is_counted_is_what_is_handed_out() {
    let evicting = Definition { memory_bytes_max: 1 << 40, at_limit: AtLimit::Evict, ..plain() };
    let never: fn(u64) -> u64 = |_| 0;
    let types = [
        ("plain", plain(), never),
        ("evicting", evicting, never),
        ("in order", Definition { order: Order::Fifo, ..plain() }, never),
        ("with leases", plain(), |number| number + 1),
        ("hash index of numbers", plain().index("number", IndexKind::Hash).unwrap(), never),
        ("hash index of texts", plain().index("text", IndexKind::Hash).unwrap(), never),
        ("ordered index of numbers", plain().index("number", IndexKind::Ordered).unwrap(), never),
        ("ordered index of texts", plain().index("text", IndexKind::Ordered).unwrap(), never),
    ];
    for (what, definition, expires_ms) in types {
        let (counted, real) = measure(&definition, expires_ms, 1);
        println!("{what}: {counted:.1} counted, {real:.1} handed out");
        let off = (counted / real - 1.0).abs();
        assert!(off < OFF_MAX, "{what}: {counted:.1} bytes beside the document are counted, {real:.1} were handed out");
    }
}
