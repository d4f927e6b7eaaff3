//! Data points as JSON: what they mean, what is said about those that are wrong, and that no bytes do harm.

use proptest::prelude::*;

use super::*;

/// The points, the complaints, and how it ended.
fn read(text: &[u8]) -> (Vec<String>, Vec<String>, Option<NoJson>) {
    let (mut rows, mut name, mut said) = (Rows::new("default"), Vec::new(), Vec::new());
    let mut points = DataPoints::new(text);
    let end = loop {
        match points.next() {
            Ok(Some(point)) => {
                let before = rows.len();
                match point.add(&mut name, &mut rows) {
                    Ok(()) => assert_eq!(rows.len(), before + 1),
                    Err(reason) => {
                        assert_eq!(rows.len(), before);
                        said.push(reason.into_owned());
                    }
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let mut shown = Vec::new();
    for (_, pending) in rows.pending() {
        for (time, value) in pending.points.iter() {
            let tags: Vec<String> = pending.row.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
            shown.push(format!("{}{{{}}} {time} {value:?}", pending.row.metric, tags.join(",")));
        }
    }
    (shown, said, end)
}

#[test]
fn data_points_are_read_in_every_form_that_clients_send() {
    for (text, wanted) in [
        (r#"{"metric":"m","timestamp":1,"value":2,"tags":{"a":"b"}}"#, "m{a=b} 1000000000 Integer(2)"),
        (
            r#" [ { "tags" : { "b" : "2" , "a" : "1" } , "value" : 2.5 , "timestamp" : 1356998400123 , "metric" : "m" } ] "#,
            "m{a=1,b=2} 1356998400123000000 Float(2.5)",
        ),
        (r#"{"metric":"m","timestamp":"1","value":"2.5"}"#, "m{} 1000000000 Float(2.5)"),
        (r#"{"metric":"m","timestamp":1.5,"value":"NaN","tags":null}"#, "m{} 1500000000 Float(NaN)"),
        (r#"{"metric":"m","timestamp":1,"value":NaN,"tags":{}}"#, "m{} 1000000000 Float(NaN)"),
        (r#"{"metric":"m","timestamp":1,"value":-Infinity}"#, "m{} 1000000000 Float(-inf)"),
        (
            r#"{"metric":"m\u00e9\"","timestamp":1,"value":1e3,"tags":{"a\u0062":"\n\\"}}"#,
            "m\u{e9}\"{ab=\n\\} 1000000000 Float(1000.0)",
        ),
        (
            r#"{"metric":"m","timestamp":1,"value":1,"tags":{"n":5,"t":true},"other":[{"a":[1,"]"]},{}]}"#,
            "m{n=5,t=true} 1000000000 Integer(1)",
        ),
        (r#"{"metric":"m","metric":"n","timestamp":1,"value":1}"#, "n{} 1000000000 Integer(1)"),
    ] {
        let (points, said, end) = read(text.as_bytes());
        assert_eq!((points, said, end), (vec![wanted.to_owned()], vec![], None), "{text}");
    }
    assert_eq!(read(b"[]"), (vec![], vec![], None));
}

#[test]
fn a_data_point_that_makes_no_sense_is_passed_over_with_the_reason() {
    for (text, wanted) in [
        (r#"{"timestamp":1,"value":1}"#, "there is no metric: it is a text"),
        (
            r#"{"metric":"m","value":1}"#,
            "there is no timestamp: seconds since 1970, or with 13, 16 or 19 digits ms, us or ns",
        ),
        (r#"{"metric":"m","timestamp":1}"#, "there is no value: it is a number"),
        (r#"{"metric":"m","timestamp":1,"value":true}"#, "unable to parse value 'true' to a number"),
        (r#"{"metric":"m","timestamp":1,"value":null}"#, "unable to parse value 'null' to a number"),
        (r#"{"metric":"m","timestamp":1,"value":{"a":1}}"#, "unable to parse value '{\"a\":1}' to a number"),
        (
            r#"{"metric":"m","timestamp":"now","value":1}"#,
            "invalid timestamp 'now': the time is not a number of digits",
        ),
        (r#"{"metric":5,"timestamp":1,"value":1}"#, "the metric is no text in quotes"),
        (r#"{"metric":"","timestamp":1,"value":1}"#, "the name of the metric is empty"),
        (r#"{"metric":"m","timestamp":1,"value":1,"tags":[]}"#, "tags are no object: write {\"name\":\"value\"}"),
        (r#"{"metric":"m","timestamp":1,"value":1,"tags":{"a":{}}}"#, "the tag a has no text as its value"),
        (r#"{"metric":"m","timestamp":1,"value":1,"tags":{"a":""}}"#, "the tag a has no value: leave it out"),
        ("{}", "there is no metric: it is a text"),
    ] {
        let whole =
            format!(r#"[{{"metric":"g","timestamp":1,"value":1}},{text},{{"metric":"g","timestamp":2,"value":1}}]"#);
        let (points, said, end) = read(whole.as_bytes());
        assert_eq!((points.len(), said, end), (2, vec![wanted.to_owned()], None), "{text}");
    }
}

#[test]
fn what_is_no_json_is_told_with_its_place() {
    for (text, at, wanted) in [
        ("", 0, "{"),
        ("x", 0, "{"),
        ("[", 1, "{"),
        ("[1]", 1, "{"),
        ("{", 1, "a key in quotes"),
        ("{\"a\"", 4, ":"),
        ("{\"a\":", 5, "a value"),
        ("{\"a\":1", 6, ", or }"),
        ("{\"a\":1,}", 7, "a key in quotes"),
        ("{\"a\":\"x", 5, "a string that ends"),
        ("{\"a\":\"x\\", 5, "a string that ends"),
        ("{}x", 2, "the end"),
        ("[{}", 3, ", or ]"),
        ("[{},]", 4, "{"),
        ("{\"a\":{\"b\" 1}}", 10, ":"),
        ("{\"a\":[1 2]}", 8, "a comma, or the end of the value"),
    ] {
        assert_eq!(read(text.as_bytes()).2, Some(NoJson { at, wanted }), "{text}");
    }
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    assert_eq!(read(deep.as_bytes()).2.unwrap().wanted, "values that are not so deep in each other");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..100)) {
        read(&text);
    }

    #[test]
    fn no_pieces_of_json_make_it_panic(pieces in proptest::collection::vec(proptest::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"", "\\", "\"metric\"", "\"m\"", "\"value\":1", "\"timestamp\":1", "\"tags\":{}", " ", "1", "null",
    ]), 0..30)) {
        read(pieces.concat().as_bytes());
    }

    #[test]
    fn what_serde_writes_is_read(metric in "\\PC{1,8}", value in any::<f64>(), at in 0u32.., tag in "\\PC{1,8}") {
        let text = serde_json::json!([{ "metric": metric, "timestamp": at, "value": value, "tags": { "t": tag } }]).to_string();
        let (points, said, end) = read(text.as_bytes());
        let is_finite = value.is_finite();
        prop_assert_eq!((points.len() + said.len(), end), (1, None));
        prop_assert_eq!(points.len() == 1, is_finite, "{}: {:?}", text, said);
    }
}
