//! Lines of Prometheus' text format, one by one.

use proptest::prelude::*;

use super::*;

fn one(line: &[u8]) -> String {
    let mut rows = Rows::new("default");
    if let Err(reason) = add(line, &Extra::default(), 77, &mut Vec::new(), &mut rows) {
        assert!(rows.is_empty());
        return reason.into_owned();
    }
    let (_, pending) = rows.pending().next().unwrap();
    let tags: Vec<String> = pending.row.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let (time, value) = pending.points.get(0).unwrap();
    format!("{}{{{}}} {time} {value:?}", pending.row.metric, tags.join(","))
}

#[test]
fn lines_are_read_in_every_form_that_is_written() {
    for (line, wanted) in [
        ("up 1", "up{} 77 Float(1.0)"),
        ("up\t1\t5", "up{} 5000000 Float(1.0)"),
        ("up{} 1", "up{} 77 Float(1.0)"),
        ("up {a=\"b\"} 1", "up{a=b} 77 Float(1.0)"),
        ("up{ b = \"2\" , a=\"1\", } 1e3 -5", "up{a=1,b=2} -5000000 Float(1000.0)"),
        (r#"up{a="x\\y\"z\n\d{}, "} +Inf"#, "up{a=x\\y\"z\n\\d{}, } 77 Float(inf)"),
        ("up{a=\"\",b=\"1\"} 1", "up{b=1} 77 Float(1.0)"),
        ("h_bucket{le=\"+Inf\"} 3 # {id=\"1\"} 0.5 1", "h_bucket{le=+Inf} 77 Float(3.0)"),
        ("{\"a b\", c=\"d\"} 1", "a b{c=d} 77 Float(1.0)"),
        ("{a=\"b\", __name__=\"up\", c=\"d\"} 1 5", "up{a=b,c=d} 5000000 Float(1.0)"),
        ("{\"a b\",\"c d\"=\"e\"} 1", "a b{c d=e} 77 Float(1.0)"),
    ] {
        assert_eq!(one(line.as_bytes()), wanted, "{line}");
    }
}

#[test]
fn what_is_wrong_is_told() {
    for (line, wanted) in [
        ("up", SHAPE),
        ("up{a=\"b\"}", SHAPE),
        ("up{a=\"b\" 1", SHAPE),
        ("up{a} 1", "a label is a name, = and a value in quotes"),
        ("up{a=b} 1", "a label is a name, = and a value in quotes"),
        ("up{a=\"b\" c=\"d\"} 1", "a label is a name, = and a value in quotes"),
        ("up{a=\"1\",a=\"2\"} 1", "the tag a is there twice"),
        ("{a=\"b\"} 1", "the name of the metric is empty"),
        ("up x", "invalid value 'x': write a number such as 7, 1.5, NaN or +Inf"),
        ("up 1 1 1", "'1' is too much: a line ends with its timestamp"),
        ("up 1 x", "invalid timestamp 'x': the time is not a number of digits; it is in milliseconds since 1970"),
    ] {
        assert_eq!(one(line.as_bytes()), wanted, "{line}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..60)) {
        one(&text);
    }

    #[test]
    fn no_pieces_make_it_panic(pieces in proptest::collection::vec(proptest::sample::select(vec![
        "up", "{", "}", "\"", "\\", ",", "=", " ", "1", "a", "#", "\u{e9}", "a=\"b\"",
    ]), 0..20)) {
        one(pieces.concat().as_bytes());
    }
}
