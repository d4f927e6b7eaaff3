//! Questions that end though they are not done.

use std::time::Duration;

use holdfast::series::{Cancel, Points, Range, Reader, Select, SeriesError, SeriesId, Share, Source, Stop, Windows};

use super::*;

const HOSTS: i64 = 600;

/// Everything that may be asked; what is answered is shown, so that answers can be compared.
fn ask_all(reader: &Reader, id: SeriesId) -> Vec<(&'static str, Result<String, SeriesError>)> {
    let regex = Match::Regex(regex::Regex::new("h1.*").unwrap());
    let select = Select::metric(DATABASE, "m").and_tag("host", regex);
    let points = || {
        let mut points = Points::new();
        reader.points(id, Range::ALL, &mut points)?;
        Ok(format!("{:?}", points.iter().collect::<Vec<_>>()))
    };
    let windows = Windows { length: 3_600_000_000_000, offset: 0, share: Share::Part };
    let pieces = || {
        let mut count = 0;
        reader.pieces(id, Range::ALL, windows, &mut |_| {
            count += 1;
            Ok(())
        })?;
        Ok(count.to_string())
    };
    fn shown<T: std::fmt::Debug>(answer: Result<T, SeriesError>) -> Result<String, SeriesError> {
        answer.map(|answer| format!("{answer:?}"))
    }
    vec![
        ("series", shown(reader.series(&select))),
        ("points", points()),
        ("pieces", pieces()),
        ("last", shown(reader.last(id))),
        ("databases", shown(reader.databases())),
        ("metrics", shown(reader.metrics(DATABASE))),
        ("tag_names", shown(reader.tag_names(DATABASE))),
        ("tag_values", shown(reader.tag_values(DATABASE))),
        ("fields", shown(reader.fields(DATABASE))),
        ("kinds", shown(reader.kinds(DATABASE, "m", "value"))),
        ("tags", shown(reader.tags(DATABASE))),
        ("values", shown(reader.values(DATABASE, None, "host"))),
        ("hold", shown(reader.hold(1))),
    ]
}

/// Nothing ended a question about time series: OpenTSDB's and lists of series went on after their client had gone, and held a turn.
#[test]
fn whatever_is_asked_ends_when_its_time_is_over_or_it_is_canceled() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let clock = Arc::new(base::ManualClock::at(NOW_MS));
    let world = World { clock: Arc::clone(&clock) as _, ..world(&disk, &ledgers) };
    let store = Store::open_in(&world, Path::new("/store"), options()).unwrap();
    for seal in [true, false] {
        let mut rows = Rows::new(DATABASE);
        (0..HOSTS).for_each(|host| add(&mut rows, &key("m", &format!("h{host}"), "value"), host, ValueRef::Float(1.5)));
        flush(&store, &mut rows);
        if seal {
            store.series().seal().unwrap();
        }
    }
    let id = store.series().reader().series(&Select::metric(DATABASE, "m")).unwrap()[0].id;
    let without: Vec<_> =
        ask_all(&store.series().reader(), id).into_iter().map(|(_, answer)| answer.unwrap()).collect();

    let time_max = Duration::from_secs(60);
    let timed = || store.series().reader().until(Stop { time_max: Some(time_max), ..Stop::default() });
    let enough: Vec<_> = ask_all(&timed(), id).into_iter().map(|(_, answer)| answer.unwrap()).collect();
    assert_eq!(without, enough);

    let late = timed();
    clock.advance(Duration::from_secs(59));
    assert_eq!(late.go_on(), Ok(()));
    // While somebody takes what was answered.
    late.pause();
    clock.advance(Duration::from_secs(600));
    late.resume();
    assert_eq!(late.go_on(), Ok(()));
    clock.advance(Duration::from_secs(1));
    let cancel = Cancel::new();
    let canceled = store.series().reader().until(Stop { cancel: Some(cancel.clone()), ..Stop::default() });
    assert_eq!(canceled.go_on(), Ok(()));
    cancel.cancel();
    for (reader, wanted) in [(&late, SeriesError::Late { time_max }), (&canceled, SeriesError::Canceled)] {
        for (what, answer) in ask_all(reader, id) {
            assert_eq!(answer, Err(wanted.clone()), "{what}");
        }
    }
    let refused = |reader: &Reader| reader.cardinality(DATABASE).map_err(|error| (error.kind(), error.to_string()));
    let text =
        "the query was ended after 60 s: ask about fewer series, or a shorter time, or raise series.query_seconds_max";
    assert_eq!(refused(&late), Err((ErrorKind::Limit, text.to_owned())));
    let text = "the query was ended: nobody waits for its answer any more";
    assert_eq!(refused(&canceled), Err((ErrorKind::Timeout, text.to_owned())));
}
