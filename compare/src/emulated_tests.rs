//! What is emulated, over a plain map.
//!
//! May use: `emulated.rs`. Must not know: real stores.

use std::collections::BTreeMap;

use clap::Parser;

use super::*;
use crate::workload::Filter;

#[derive(Default)]
struct Map(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Ordered for Map {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.lock().unwrap().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn change(&self, changes: &[Change<'_>]) -> Result<()> {
        for change in changes {
            match change {
                Change::Put(key, value) => self.put(key, value)?,
                Change::Remove(key) => drop(self.0.lock().unwrap().remove(key)),
            }
        }
        Ok(())
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.0.lock().unwrap().get(key).map(|value| see(value)).is_some())
    }

    fn holds(&self, key: &[u8]) -> Result<bool> {
        Ok(self.0.lock().unwrap().contains_key(key))
    }

    fn walk(&self, from: &[u8], until: &[u8], what: Walk, see: See<'_>) -> Result<()> {
        for (key, value) in self.0.lock().unwrap().range(from.to_vec()..until.to_vec()) {
            see(key, (what == Walk::Values).then_some(value));
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    plan: Plan,
}

fn emulated(said: &str) -> Emulated<Map> {
    let plan = Line::parse_from(["x", said]).plan;
    Emulated::new(Map::default(), Path::new("."), &plan)
}

fn entry(index: &'static str, term: &str) -> Entry {
    Entry { index, term: term.as_bytes().to_vec() }
}

fn found(store: &Emulated<Map>, index: &'static str, from: &str, to: &str, filter: Option<Filter>) -> Vec<String> {
    let range = TermRange { index, from: from.into(), to: to.into(), filter };
    let mut found = Vec::new();
    let see = &mut |term: &[u8], key: &[u8]| {
        found.push(format!("{} {}", String::from_utf8_lossy(term), String::from_utf8_lossy(key)));
    };
    { store }.index_range(&range, see).unwrap();
    found
}

#[test]
fn entries_come_and_go_with_their_object() {
    let store = emulated("index");
    let mut caller = &store;
    caller.put_indexed(b"k1", b"one", &[entry("a", "x"), entry("a", "y"), entry("b", "x")]).unwrap();
    caller.put_indexed(b"k2", b"two", &[entry("a", "x")]).unwrap();
    assert_eq!(found(&store, "a", "x", "y", None), ["x k1", "x k2", "y k1"]);
    assert_eq!(found(&store, "a", "x", "x", None), ["x k1", "x k2"]);
    caller.put_indexed(b"k1", b"new", &[entry("a", "y"), entry("a", "z")]).unwrap();
    assert_eq!(found(&store, "a", "", "~", None), ["x k2", "y k1", "z k1"]);
    assert!(found(&store, "b", "", "~", None).is_empty());
    caller.put(b"k1", b"last").unwrap();
    assert_eq!(found(&store, "a", "", "~", None), ["x k2"]);
    let mut value = Vec::new();
    assert!(caller.get(b"k1", &mut |seen| value = seen.to_vec()).unwrap());
    assert_eq!(
        (value.as_slice(), caller.head(b"k1").unwrap(), caller.head(b"k3").unwrap()),
        (&b"last"[..], true, false)
    );
}

#[test]
fn a_filter_leaves_out_what_does_not_match() {
    let store = emulated("index");
    (&store).put_indexed(b"k", b"", &[entry("d", "19800101|xyaz"), entry("d", "19800101|xyzz")]).unwrap();
    assert_eq!(found(&store, "d", "19800101", "19800102", Some(Filter::Born)), ["19800101|xyaz k"]);
}

#[test]
fn folds_and_trees_see_objects_and_not_entries() {
    for said in ["index", "get"] {
        let store = emulated(said);
        let mut caller = &store;
        for key in [b"k1", b"k2"] {
            if said == "index" {
                caller.put_indexed(key, b"value", &[entry("a", "x")]).unwrap();
            }
            caller.put(key, b"value").unwrap();
        }
        for (what, shown) in [(Fold::Heads, None), (Fold::Objects, Some(b"value".as_slice()))] {
            let mut keys = Vec::new();
            caller
                .fold(what, &mut |key, value| {
                    assert_eq!(value, shown);
                    keys.push(key.to_vec());
                })
                .unwrap();
            assert_eq!(keys, [b"k1", b"k2"]);
        }
        assert_eq!(store.rebuild_tree().unwrap(), 2);
    }
}
