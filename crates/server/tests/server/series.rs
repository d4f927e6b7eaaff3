//! `series export`: what was written comes out as CSV.

use holdfast::series::{Rows, Slot, ValueRef};
use holdfast::{Options, Store};
use tempfile::TempDir;

use crate::program::run;

fn slot(rows: &mut Rows, raw: &str, field: &str) -> Slot {
    let parse = |raw: &[u8]| {
        let mut parts = std::str::from_utf8(raw).unwrap().split(';');
        let metric = parts.next().unwrap().to_owned();
        Ok((metric, parts.map(|tag| tag.split_once('=').unwrap()).map(|(a, b)| (a.into(), b.into())).collect()))
    };
    let row = rows.row(raw.as_bytes(), parse).unwrap();
    rows.field(row, 0, field.as_bytes(), |raw| Ok(String::from_utf8_lossy(raw).into_owned())).unwrap()
}

/// A stopped store with points of all types.
fn store() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().to_str().unwrap().to_owned();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let mut rows = Rows::new("default");
    let floats = slot(&mut rows, "cpu;host=a;rack=1", "value");
    for (time, value) in
        [(2_000_000_001, 0.1), (1_000_000_000, 1e300), (3_000_000_000, f64::NEG_INFINITY), (4_000_000_000, 7.0)]
    {
        rows.push_float(floats, time, value);
    }
    let integers = slot(&mut rows, "cpu;host=b", "count");
    rows.push(integers, 5, ValueRef::Integer(-7));
    let texts = slot(&mut rows, "disk;host=a, or \"b\"", "name");
    rows.push(texts, 6, ValueRef::Text("s\nd"));
    store.series().write(&mut rows).unwrap();
    store.close().unwrap();
    (folder, dir)
}

#[test]
fn every_point_is_a_line_with_its_type() {
    let (_folder, dir) = store();
    let (code, said, complained) = run(&["series", "export", "--data", &dir]);
    assert_eq!((code, complained.as_str()), (Some(0), ""));
    let wanted = "time_ns,metric,field,type,value,tag:host,tag:rack\n\
        1000000000,cpu,value,float,1e300,a,1\n\
        2000000001,cpu,value,float,0.1,a,1\n\
        3000000000,cpu,value,float,-inf,a,1\n\
        4000000000,cpu,value,float,7.0,a,1\n\
        5,cpu,count,integer,-7,b,\n\
        6,disk,name,string,\"s\nd\",\"a, or \"\"b\"\"\",\n";
    assert_eq!(said, wanted);
}

#[test]
fn series_and_times_can_be_chosen() {
    let (_folder, dir) = store();
    for (options, wanted) in [
        (
            &["--metric", "cpu", "--tag", "host=a", "--from", "1.001", "--to", "1970-01-01T00:00:03Z"][..],
            "2000000001 3000000000",
        ),
        (&["--field", "count"], "5"),
        (&["--to", "2"], "1000000000 2000000001 5 6"),
        (&["--database", "other"], ""),
        (&["--tag", "rack=2"], ""),
    ] {
        let arguments: Vec<&str> = ["series", "export", "--dir", &dir].iter().chain(options).copied().collect();
        let (code, said, _) = run(&arguments);
        assert_eq!(code, Some(0), "{said}");
        let lines = said.lines().skip(1).filter_map(|line| line.split_once(',')).map(|(time, _)| time);
        let times: Vec<&str> = lines.filter(|time| time.bytes().all(|byte| byte.is_ascii_digit())).collect();
        assert_eq!(times.join(" "), wanted, "{options:?}");
    }
}

#[test]
fn an_export_of_no_store_makes_none() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("none");
    let (code, said, complained) = run(&["series", "export", "--dir", dir.to_str().unwrap()]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(complained.contains("there is no store in"), "{complained}");
    assert!(!dir.exists());
}
