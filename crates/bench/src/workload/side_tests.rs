//! Workloads over a plain map, which does everything right, or one thing wrong.
//!
//! May use: this folder. Must not know: real stores.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::workload::driver::{Fold, See, Session};
use crate::workload::outcome::{KindOutcome, Outcome};
use crate::workload::plan::tests::plan;
use crate::workload::terms::{Entry, TermRange};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    LosesSome,
    MixesUp,
    FoldsTooFew,
    NoIndex,
}

#[derive(Debug, Clone, Default)]
struct Object {
    value: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<Vec<u8>, Object>,
    index: BTreeSet<(&'static str, Vec<u8>, Vec<u8>)>,
}

struct Map {
    inner: Mutex<Inner>,
    fault: Fault,
}

impl Map {
    fn new(fault: Fault) -> Self {
        Self { inner: Mutex::default(), fault }
    }

    fn put(&self, key: &[u8], object: Object) {
        if self.fault == Fault::LosesSome && key.ends_with(b"e") {
            return;
        }
        let mut inner = self.inner.lock().unwrap();
        for entry in &object.entries {
            inner.index.insert((entry.index, entry.term.clone(), key.to_vec()));
        }
        let new = object.entries.clone();
        if let Some(old) = inner.objects.insert(key.to_vec(), object) {
            for entry in old.entries.into_iter().filter(|entry| !new.contains(entry)) {
                inner.index.remove(&(entry.index, entry.term, key.to_vec()));
            }
        }
    }
}

impl Driver for Map {
    fn session(&self) -> Result<Box<dyn Session + Send + '_>> {
        Ok(Box::new(self))
    }

    fn dir(&self) -> Option<&Path> {
        None
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn compact_loaded(&self) -> Result<Option<u64>> {
        Ok(Some(5))
    }

    fn rebuild_tree(&self) -> Result<u64> {
        Ok(self.inner.lock().unwrap().objects.len() as u64)
    }
}

impl Session for &Map {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Map::put(self, key, Object { value: value.to_vec(), ..Object::default() });
        Ok(())
    }

    fn put_indexed(&mut self, key: &[u8], value: &[u8], entries: &[Entry]) -> Result<()> {
        if self.fault == Fault::NoIndex {
            return Err(Unsupported("index entries").into());
        }
        Map::put(self, key, Object { value: value.to_vec(), entries: entries.to_vec() });
        Ok(())
    }

    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let inner = self.inner.lock().unwrap();
        let object = match self.fault {
            Fault::MixesUp => inner.objects.values().next(),
            _ => inner.objects.get(key),
        };
        object.inspect(|object| see(&object.value));
        Ok(object.is_some())
    }

    fn head(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.inner.lock().unwrap().objects.contains_key(key))
    }

    fn index_range(&mut self, range: &TermRange, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let inner = self.inner.lock().unwrap();
        let here = inner.index.iter().filter(|(index, term, _)| *index == range.index && range.admits(term));
        here.for_each(|(_, term, key)| see(term, key));
        Ok(())
    }

    fn fold(&mut self, what: Fold, see: See<'_>) -> Result<()> {
        let inner = self.inner.lock().unwrap();
        let skipped = usize::from(self.fault == Fault::FoldsTooFew);
        for (key, object) in inner.objects.iter().skip(skipped) {
            see(key, (what == Fold::Objects).then_some(&object.value));
        }
        Ok(())
    }
}

fn run(map: &Map, said: &str) -> Result<Vec<Said>> {
    let mut lines = Vec::new();
    let objects = if said.contains("--objects") { "" } else { "--objects 997" };
    let plan = plan(&format!("{objects} --clients 3 {said}"));
    run_steps(map, &plan, &mut |line| {
        lines.push(line);
        Ok(())
    })?;
    Ok(lines)
}

fn outcomes(said: &str) -> Vec<Outcome> {
    let whole = |line| match line {
        Said::Outcome(outcome) => Some(outcome),
        _ => None,
    };
    run(&Map::new(Fault::None), said).unwrap().into_iter().filter_map(whole).collect()
}

fn kind<'a>(outcome: &'a Outcome, name: &str) -> &'a KindOutcome {
    outcome.kinds.iter().find(|kind| kind.kind == name).unwrap_or_else(|| panic!("no {name} in {outcome:?}"))
}

#[test]
fn a_load_puts_every_object_once_and_others_find_what_they_should() {
    let done = outcomes("get,head,get-absent,update --keys uniform --ops 3001");
    let names: Vec<_> = done.iter().map(|outcome| outcome.workload.as_str()).collect();
    assert_eq!(names, ["load", "get", "head", "get-absent", "update"]);
    assert_eq!((kind(&done[0], "put").operations, done[0].used.live_objects), (997, 997));
    assert_eq!((done[0].used.live_bytes, done[0].used.put_bytes), (99_700, 99_700));
    for (at, name, found) in [(1, "get", 3_001), (2, "head", 3_001), (3, "get", 0), (4, "put", 3_001)] {
        assert_eq!((kind(&done[at], name).operations, kind(&done[at], name).found), (3_001, found), "{name}");
    }
    assert_eq!((done[4].used.live_bytes, done[4].used.put_bytes), (99_700, 300_100));
}

#[test]
fn the_mix_from_empty_finds_more_and_more() {
    let done = outcomes("mix5 --keys 8020 --ops 6000");
    let [mix] = done.as_slice() else { panic!("{done:?}") };
    let (get, put) = (kind(mix, "get"), kind(mix, "put"));
    assert_eq!(get.operations + put.operations, 6_000);
    assert!((4..=6).contains(&(get.operations / put.operations)), "{mix:?}");
    assert!(get.found > 0 && get.found < get.operations, "{mix:?}");
}

#[test]
fn the_index_mix_and_ranges_show_entries() {
    let done = outcomes("index,index-range --objects 2000 --ops 3000");
    for name in ["get", "put", "put-indexed", "range-births", "range-postcodes"] {
        assert!(kind(&done[0], name).operations > 0);
    }
    let range = kind(done.last().unwrap(), "range");
    assert!((800..1_200).contains(&(range.items / range.operations)), "{range:?}");
}

#[test]
fn folds_trees_and_compaction_are_done_beside_the_load() {
    let done = outcomes("fold-heads,fold-objects,aae,compact --ops 30 --value mix --objects 50");
    for at in [1, 2] {
        assert_eq!(kind(&done[at], "fold").items, 30 * 50);
    }
    let rebuild = kind(&done[3], "rebuild");
    assert!(rebuild.operations > 0 && rebuild.items >= 50 * rebuild.operations);
    assert_eq!((kind(&done[4], "settle").operations, kind(&done[4], "compact").operations), (1, 1));
    assert_eq!(kind(&done[4], "put").operations, 30);
}

#[test]
fn intervals_add_up_to_the_whole() {
    let lines = run(&Map::new(Fault::None), "mix5 --seconds 0.2 --interval 0.03").unwrap();
    let (mut intervals, mut whole) = (Vec::new(), None);
    for line in lines {
        match line {
            Said::Interval(outcome) => intervals.push(outcome),
            Said::Outcome(outcome) => whole = Some(outcome),
            Said::Skipped { .. } => panic!("{line:?}"),
        }
    }
    let whole = whole.unwrap();
    assert!(intervals.len() >= 6, "{}", intervals.len());
    for name in ["get", "put"] {
        let of = |outcome: &Outcome| outcome.kinds.iter().find(|k| k.kind == name).map_or(0, |k| k.operations);
        assert_eq!(intervals.iter().map(of).sum::<u64>(), kind(&whole, name).operations);
    }
    assert_eq!(intervals.iter().map(|part| part.used.put_bytes).sum::<u64>(), whole.used.put_bytes);
    assert!(intervals.windows(2).all(|pair| pair[0].from_seconds < pair[1].from_seconds));
}

#[test]
fn an_open_loop_does_its_rate() {
    let done = outcomes("get --seconds 0.1 --rate 1000");
    let get = kind(&done[1], "get");
    assert_eq!(get.operations + done[1].not_begun, 100);
}

#[test]
fn wrong_answers_end_the_run() {
    for (fault, said) in [
        (Fault::LosesSome, "get --ops 3000"),
        (Fault::LosesSome, "head --ops 3000"),
        (Fault::MixesUp, "get --ops 3000"),
        (Fault::FoldsTooFew, "fold-heads --ops 3"),
    ] {
        let failure = run(&Map::new(fault), said).unwrap_err().to_string();
        assert!(failure.starts_with("object 0") || failure.starts_with("a fold"), "{failure}");
    }
}

#[test]
fn what_a_store_cannot_do_is_skipped_and_said() {
    let lines = run(&Map::new(Fault::NoIndex), "index,head --ops 300").unwrap();
    assert!(
        matches!(&lines[0], Said::Skipped { workload, reason } if workload == "index" && reason.contains("supported"))
    );
    assert!(matches!(lines.last(), Some(Said::Outcome(outcome)) if outcome.workload == "head"));
}
