//! `series export`: what was written comes out, as CSV, Arrow and Parquet.

use std::io::Write;

use holdfast::series::{Rows, Slot, ValueRef};
use holdfast::{Options, Store};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::printer::print_schema;
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
        (&["--from", "2100-01-01T00:00:00Z"], ""),
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
fn an_export_of_nothing_says_so() {
    let (_folder, dir) = store();
    for format in ["csv", "arrow", "parquet"] {
        for (options, wanted) in [
            (&["--database", "other"][..], "there is no database other: --database is one of default"),
            (&["--metric", "cpus"], "there is no metric cpus in the database default: --metric is one of cpu, disk"),
            (&["--tag", "rack=2"], "no series of the database default has this field and these tags"),
            (
                &["--metric", "cpu", "--field", "none"],
                "no series of the database default has this field and these tags",
            ),
        ] {
            let given = ["series", "export", "--dir", &dir, "--format", format];
            let (code, said, complained) = run(&given.iter().chain(options).copied().collect::<Vec<_>>());
            assert_eq!((code, said.as_str()), (Some(1), ""), "{options:?}");
            assert!(complained.contains(&format!("nothing was exported: {wanted}")), "{complained}");
        }
    }
}

/// What a program writes, byte by byte.
fn bytes_of(arguments: &[&str]) -> Vec<u8> {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast")).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

#[test]
fn parquet_has_a_column_for_each_type_and_tag() {
    let (_folder, dir) = store();
    let read = |options: &[&str]| -> (String, Vec<String>) {
        let given = ["series", "export", "--dir", &dir, "--format", "parquet"];
        let bytes = bytes_of(&given.iter().chain(options).copied().collect::<Vec<_>>());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let mut schema = Vec::new();
        print_schema(&mut schema, reader.metadata().file_metadata().schema());
        let rows = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        (String::from_utf8(schema).unwrap(), rows)
    };
    let (schema, rows) = read(&[]);
    for column in [
        "REQUIRED INT64 time (TIMESTAMP(NANOS,true));",
        "REQUIRED BYTE_ARRAY metric (STRING);",
        "OPTIONAL DOUBLE value_float;",
        "OPTIONAL INT64 value_integer;",
        "OPTIONAL BYTE_ARRAY value_string (STRING);",
        "OPTIONAL BYTE_ARRAY tag:rack (STRING);",
    ] {
        assert!(schema.contains(column), "no {column} in {schema}");
    }
    assert_eq!(rows.len(), 6);
    assert!(
        rows[0].contains("value_float: 1E300, value_integer: null, value_string: null, tag:host: \"a\""),
        "{rows:?}"
    );
    assert!(rows[4].contains("metric: \"cpu\", field: \"count\", value_float: null, value_integer: -7"), "{rows:?}");
    assert!(rows[5].contains("value_string: \"s\nd\", tag:host: \"a, or \"b\"\", tag:rack: null"), "{rows:?}");
    let (schema, rows) = read(&["--field", "count"]);
    assert!(schema.contains("REQUIRED INT64 value;"), "{schema}");
    assert_eq!(rows.len(), 1);
    let (schema, rows) = read(&["--from", "2100-01-01T00:00:00Z"]);
    assert!(schema.contains("value_string") && rows.is_empty(), "{schema}");
}

/// Arrow's own library reads it in the end-to-end tests; here is what can be seen without it.
#[test]
fn arrow_is_messages_up_to_an_end() {
    let (_folder, dir) = store();
    let bytes = bytes_of(&["series", "export", "--dir", &dir, "--format", "arrow"]);
    let (mut rest, mut messages) = (&bytes[..], 0);
    let number = |bytes: &[u8]| usize::try_from(u32::from_le_bytes(bytes[..4].try_into().unwrap())).unwrap();
    loop {
        assert_eq!(&rest[..4], [0xff; 4]);
        let length = number(&rest[4..]);
        if length == 0 {
            break;
        }
        messages += 1;
        assert_eq!(length % 8, 0);
        rest = &rest[8 + length..];
        // The next message begins where the body ends.
        let next = rest.windows(8).step_by(8).position(|eight| eight[..4] == [0xff; 4]).unwrap();
        rest = &rest[next * 8..];
    }
    assert_eq!((rest.len(), messages), (8, 6), "a schema, four dictionaries, one batch");
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
