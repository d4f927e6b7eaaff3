//! Finds objects by secondary indexes, and goes through many of one instant with a fold.
//!
//! Run it: `cargo run -p holdfast-examples --example indexes_and_folds`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::ops::ControlFlow;

use holdfast::{Fold, FoldOrder, IndexQuery, Indexes, Options, PutOptions, Store, Term, regex};

const PEOPLE: [(&str, i64, &str); 5] = [
    ("ada", 1815, "London"),
    ("charles", 1791, "London"),
    ("emmy", 1882, "Erlangen"),
    ("grace", 1906, "New York"),
    ("mary", 1780, "Jedburgh"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options::default())?;

    // Index entries are given with the object and change with it, in the same batch.
    for (name, born, city) in PEOPLE {
        let city = Term::Binary(city.as_bytes().to_vec());
        let indexes = Indexes::from_pairs([("born", Term::Integer(born)), ("city", city)]);
        let options = PutOptions { indexes, ..PutOptions::default() };
        store.kv().put(b"people", name.as_bytes(), format!("{name}, born in {born}").as_bytes(), &options)?;
    }

    // A range of integers, in pages of two: both ends are included, the order is that of terms, then keys.
    let query = IndexQuery {
        bucket: b"people",
        index: b"born",
        from: &Term::Integer(1780),
        to: &Term::Integer(1899),
        term_regex: None,
        limit: 2,
        after: None,
    };
    let (mut found, mut next) = (Vec::new(), None);
    loop {
        let page = store.kv().index(&IndexQuery { after: next.as_ref(), ..query })?.value;
        found.extend(page.entries.iter().map(|(_, key)| String::from_utf8_lossy(key).into_owned()));
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    println!("born from 1780 to 1899: {}", found.join(", "));
    assert_eq!(found, ["mary", "charles", "ada", "emmy"]);

    // A fold is over one instant, whatever is changed meanwhile; without values it reads none.
    let snapshot = store.snapshot()?;
    store.kv().put(b"people", b"alan", b"too late for this snapshot", &PutOptions::default())?;
    let with_a = regex("^[a-e]")?;
    let fold = Fold { bucket: Some(b"people"), key_regex: Some(&with_a), order: FoldOrder::Key, ..Fold::default() };
    let (mut names, mut bytes) = (Vec::new(), 0);
    let ended = snapshot.fold(&fold, &mut |object| {
        names.push(String::from_utf8_lossy(object.key()).into_owned());
        bytes += object.value_bytes();
        Ok(ControlFlow::Continue(()))
    })?;
    println!("from a to e: {} with {bytes} bytes of values", names.join(", "));
    assert_eq!((names, ended), (vec!["ada".to_owned(), "charles".to_owned(), "emmy".to_owned()], None));
    // A snapshot keeps what it shows on disk; compaction waits for it to be dropped.
    drop(snapshot);

    store.kv().put(b"people", b"ada", b"moved", &PutOptions::default())?;
    let london = Term::Binary(b"London".to_vec());
    let query = IndexQuery { index: b"city", from: &london, to: &london, limit: 10, ..query };
    let left = store.kv().index(&query)?.value.entries;
    println!("still in London: {}", left.len());
    assert_eq!(left.to_vec(), [(london.clone(), b"charles".to_vec())]);
    store.close()?;
    Ok(())
}
