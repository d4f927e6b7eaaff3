//! What a store holds, as the tests look at it; and its index of names against an implementation that is slow and obvious.

use std::collections::BTreeMap;

use holdfast::Store;
use holdfast::series::{Key, Points, PointsOnly, Range, Reader, Select, Source, Value};

use super::DATABASE;

/// Points by series and time.
pub(crate) type Contents = BTreeMap<Key, BTreeMap<i64, Value>>;

/// All that there is in a database.
pub(crate) fn contents(store: &Store) -> Contents {
    let reader = store.series().reader();
    check_names(&reader);
    let all = reader.series(&Select { database: DATABASE.into(), ..Select::default() }).unwrap();
    let mut contents = Contents::new();
    for series in all {
        let mut points = Points::new();
        reader.points(series.id, Range::ALL, &mut points).unwrap();
        assert!(points.is_sorted());
        assert_eq!(reader.last(series.id).unwrap(), points.last(), "{:?}", series.key);
        let points = points.iter().map(|(time, value)| (time, value.to_value())).collect();
        contents.insert(Key::clone(&series.key), points);
    }
    contents
}

/// What the index says of names is what the series say that there are.
fn check_names(reader: &Reader) {
    // It answers from the series.
    let slow = PointsOnly(reader);
    let (fields, tags) = (reader.fields(DATABASE).unwrap(), reader.tags(DATABASE).unwrap());
    assert_eq!((&fields, &tags), (&slow.fields(DATABASE).unwrap(), &slow.tags(DATABASE).unwrap()));
    for (metric, field) in &fields {
        assert_eq!(reader.kinds(DATABASE, metric, field).unwrap(), slow.kinds(DATABASE, metric, field).unwrap());
    }
    for (metric, tag) in &tags {
        for metric in [Some(metric.as_str()), None] {
            assert_eq!(reader.values(DATABASE, metric, tag).unwrap(), slow.values(DATABASE, metric, tag).unwrap());
        }
    }
}
