//! Writes points of some hosts, together with a key, and reads them again: point by point, and by a mean over each minute.
//!
//! Run it: `cargo run -p holdfast-examples --example time_series`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use holdfast::series::{Match, Points, Range, Rows, Select, Source, ValueRef};
use holdfast::{Durability, Options, PutOptions, Scope, Store};

const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_700_000_000 * SECOND;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options::default())?;
    let series = store.series();

    // Names are given as they are at hand; what they mean is asked once.
    let mut rows = Rows::new("default");
    for second in 0..180 {
        for (host, base) in [("a", 10), ("b", 50)] {
            let row = rows.row(host.as_bytes(), |_| Ok(("load".into(), vec![("host".into(), host.into())])))?;
            let slot = rows.field(row, 0, b"value", |_| Ok("value".into()))?;
            rows.push(slot, START + second * SECOND, ValueRef::Integer(base + second % 60));
        }
    }
    // One batch with a key: both are there after a crash, or neither.
    store.series().make_room(rows.len())?;
    let mut exclusive = store.exclusive(&Scope::Keys(&[(b"state", b"imported")]))?;
    exclusive.put(b"state", b"imported", b"yes", &PutOptions::default())?;
    exclusive.add_points(&mut rows)?;
    store.wait(exclusive.commit()?.position, Durability::Synced)?;

    let reader = series.reader();
    for found in reader.series(&Select::metric("default", "load").and_tag("host", Match::is("b")))? {
        let mut points = Points::new();
        let minute = Range { from: START, to: START + 59 * SECOND };
        reader.points(found.id, minute, &mut points)?;
        let sum: f64 = points.numbers().map(|(_, number)| number).sum();
        println!(
            "{} of host {}: {} points, mean {}",
            found.key.metric,
            found.key.tag("host"),
            points.len(),
            sum / 60.0
        );
        let last = reader.last(found.id)?.ok_or("there is a last point")?;
        println!("last: {:?} at {} s", last.1, last.0 / SECOND);
        assert_eq!((points.len(), sum / 60.0), (60, 79.5));
    }
    reader.settle()?;

    // Out of memory into a file, and read from there.
    series.seal()?;
    let stats = store.stats().series;
    println!("{} series, {} points in {} bytes of file", stats.series, stats.points, stats.file_bytes);
    assert_eq!((stats.series, stats.points), (2, 360));
    Ok(store.close()?)
}
