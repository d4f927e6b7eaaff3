//! Lines by their shape: what each is, what it means, and what is said about those that are wrong.

use holdfast::series::Value;
use proptest::prelude::*;

use super::*;

const NOW: i64 = 77;

fn times(unit: Unit) -> Times {
    Times { now: NOW, unit }
}

/// The points in `rows`, one a line: `metric{tags}field time value`.
fn shown(rows: &Rows) -> Vec<String> {
    let mut lines = Vec::new();
    for (_, pending) in rows.pending() {
        let tags: Vec<String> = pending.row.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        for (time, value) in pending.points.iter() {
            let value = match value.to_value() {
                Value::Float(value) => format!("{value:?}"),
                Value::Integer(value) => format!("{value}i"),
                Value::Unsigned(value) => format!("{value}u"),
                Value::Boolean(value) => value.to_string(),
                Value::Text(value) => format!("{value:?}"),
            };
            lines.push(format!("{}{{{}}}{} {time} {value}", pending.row.metric, tags.join(","), pending.field));
        }
    }
    lines
}

/// What a text holds: its points by series, and what was said about it. `piece` bytes arrive at a time.
fn read(text: &[u8], piece: usize, unit: Unit) -> (Vec<String>, Vec<String>) {
    let (mut reader, mut rows, mut said) = (Reader::default(), Rows::new("default"), Vec::new());
    let (mut begin, mut arrived) = (0, 0);
    loop {
        let after = if arrived == text.len() { After::Nothing } else { After::More };
        let seen = text.get(begin..arrived).unwrap();
        if seen.is_empty() && after == After::Nothing {
            return (shown(&rows), said);
        }
        let before = rows.len();
        let bytes = match reader.step(seen, after, times(unit), &mut rows) {
            Step::Incomplete => {
                assert_eq!(after, After::More, "there is nothing more to wait for");
                arrived = (arrived + piece).min(text.len());
                continue;
            }
            Step::Points { bytes, points, .. } => {
                assert_eq!(rows.len(), before + points);
                bytes
            }
            Step::Word { bytes, line } => {
                said.push(format!("word {}", excerpt(line)));
                bytes
            }
            Step::Bad { bytes, line, shape, reason } => {
                assert_eq!(rows.len(), before, "nothing of a bad line is kept");
                said.push(format!("{shape:?} {}: {reason}", excerpt(line)));
                bytes
            }
        };
        assert!(bytes > 0 && bytes <= seen.len());
        begin += bytes;
    }
}

fn one(line: &str) -> String {
    let (points, said) = read(line.as_bytes(), usize::MAX, Unit::Digits);
    points.into_iter().chain(said).collect::<Vec<_>>().join("; ")
}

#[test]
fn lines_are_recognised_by_their_shape() {
    for (line, wanted) in [
        ("put cpu 1356998400 1 host=a", "cpu{host=a}value 1356998400000000000 1i"),
        ("  put cpu 1356998400 1 host=a  ", "cpu{host=a}value 1356998400000000000 1i"),
        ("put\tcpu\t1356998400\t1\thost=a", "cpu{host=a}value 1356998400000000000 1i"),
        ("put  cpu  1356998400123  1.50   b=2  a=1", "cpu{a=1,b=2}value 1356998400123000000 1.5"),
        ("put cpu 1356998400 NaN", "cpu{}value 1356998400000000000 NaN"),
        ("put cpu 1356998400 -Infinity", "cpu{}value 1356998400000000000 -inf"),
        ("put temp\u{e9}rature 1 1 pi\u{e8}ce=\u{e9}=1", "temp\u{e9}rature{pi\u{e8}ce=\u{e9}=1}value 1000000000 1i"),
        ("put a=1 5", "put{}a 5000000000 1.0"),
        ("put,host=a v=1 5", "put{host=a}v 5000000000 1.0"),
        (
            "cpu,host=a user=1,system=2i 1356998400123456789",
            "cpu{host=a}user 1356998400123456789 1.0; cpu{host=a}system 1356998400123456789 2i",
        ),
        ("cpu v=1", "cpu{}v 77 1.0"),
        ("version", "word version"),
        ("stats all", "word stats all"),
        ("puts a b", "word puts a b"),
        ("# a=1", ""),
        ("", ""),
        ("   ", ""),
        ("\r\n\n", ""),
    ] {
        assert_eq!(one(line), wanted, "{line:?}");
        assert_eq!(one(&format!("{line}\r\n")), wanted, "{line:?}");
    }
}

#[test]
fn lines_of_opentsdbs_files_are_put_lines_without_the_word() {
    for (line, wanted) in [
        ("cpu 1356998400 1.5 host=a", "cpu{host=a}value 1356998400000000000 1.5"),
        ("cpu 1356998400123 7  host=a dc=b", "cpu{dc=b,host=a}value 1356998400123000000 7i"),
        ("  cpu 1356998400 -2e9 host=a=b", "cpu{host=a=b}value 1356998400000000000 -2000000000.0"),
        ("put 1 2 host=a", "Put put 1 2 host=a: invalid value 'host=a': write a number such as 7, 1.5, -2e9 or NaN"),
        ("cpu 1 2 host=a b", "Put cpu 1 2 host=a b: invalid tag 'b': a tag is a name, = and a value"),
        ("cpu 1 2", "word cpu 1 2"),
        ("cpu 1=2 3", "cpu{}1 3000000000 2.0"),
    ] {
        assert_eq!(one(line), wanted, "{line:?}");
        assert_eq!(one(&format!("{line}\r\n")), wanted, "{line:?}");
    }
    // A tag, a comma or a word that is no number: somebody meant Influx's line.
    for line in ["cpu,host=a 1 2 v=1", "cpu 1 v=2 w=3", "cpu 1 x v=1", "cpu v 2 host=a", "cpu 1 2 host v=1"] {
        assert!(one(line).starts_with("Influx "), "{line:?}: {}", one(line));
    }
    let (points, said) = read(b"cpu 1356998400 1.5 host=a", usize::MAX, Unit::Nanos(1));
    assert!(
        points.is_empty() && said[0].starts_with("Influx cpu"),
        "whoever says a unit writes Influx's lines: {said:?}"
    );
}

#[test]
fn values_of_influx_have_their_types() {
    for (value, wanted) in [
        ("1", "1.0"),
        ("1.5", "1.5"),
        ("-0", "-0.0"),
        ("-0.0", "-0.0"),
        ("-0e3", "-0.0"),
        ("-00000000000000000000", "-0.0"),
        ("-0i", "0i"),
        ("0", "0.0"),
        ("-1.5e-3", "-0.0015"),
        ("+7", "7.0"),
        ("7i", "7i"),
        ("-7i", "-7i"),
        ("9223372036854775807i", "9223372036854775807i"),
        ("-9223372036854775808i", "-9223372036854775808i"),
        ("7u", "7u"),
        ("18446744073709551615u", "18446744073709551615u"),
        ("NaN", "NaN"),
        ("+Inf", "inf"),
        ("t", "true"),
        ("T", "true"),
        ("true", "true"),
        ("True", "true"),
        ("TRUE", "true"),
        ("f", "false"),
        ("F", "false"),
        ("false", "false"),
        ("False", "false"),
        ("FALSE", "false"),
        ("\"\"", "\"\""),
        ("\"a, b=c\"", "\"a, b=c\""),
        (r#""a\"b\\c\d""#, r#""a\"b\\c\\d""#),
        ("\"a\nb\"", "\"a\\nb\""),
        ("\"\u{e9}\"", "\"\u{e9}\""),
    ] {
        assert_eq!(one(&format!("m v={value} 5")), format!("m{{}}v 5000000000 {wanted}"), "{value}");
        assert_eq!(one(&format!("m v={value}\r\n")), format!("m{{}}v 77 {wanted}"), "{value}");
        let both = format!("m{{}}v 77 {wanted}; m{{}}w 77 1.0");
        assert_eq!(one(&format!("m v={value},w=1")), both, "{value}");
    }
}

#[test]
fn escapes_of_influx_are_those_of_its_own_parser() {
    for (line, wanted) in [
        (r"a\ b\,c=d v=1", "a b,c=d{}v 77 1.0"),
        (r"a\=b v=1", r"a\=b{}v 77 1.0"),
        (r"m,k\ 1\,\==v\,\ \= f\ 1\,\==1", "m{k 1,==v, =}f 1,= 77 1.0"),
        (r"m\d,k=C:\dir v=1", r"m\d{k=C:\dir}v 77 1.0"),
        (r"m,a=1,b=2 v=1", "m{a=1,b=2}v 77 1.0"),
        (r"m,b=2,a=1 v=1", "m{a=1,b=2}v 77 1.0"),
        (r"m,a=b=c v=1", "m{a=b=c}v 77 1.0"),
        (r#"m "v"=1"#, "m{}\"v\" 77 1.0"),
        ("m   v=1   5  ", "m{}v 5000000000 1.0"),
    ] {
        assert_eq!(one(line), wanted, "{line}");
    }
}

#[test]
fn a_bad_line_is_told_with_what_would_be_right() {
    for (line, wanted) in [
        (
            "put cpu 1356998400",
            "Put put cpu 1356998400: not enough arguments: put needs a metric, a time and a value, and then tags, such as put cpu 1356998400 1.5 host=a",
        ),
        (
            "put",
            "Put put: not enough arguments: put needs a metric, a time and a value, and then tags, such as put cpu 1356998400 1.5 host=a",
        ),
        (
            "put cpu now 1 host=a",
            "Put put cpu now 1 host=a: invalid time 'now': the time is not a number of digits; write seconds since 1970, or with 13, 16 or 19 digits ms, us or ns",
        ),
        ("put cpu 1 x host=a", "Put put cpu 1 x host=a: invalid value 'x': write a number such as 7, 1.5, -2e9 or NaN"),
        ("put cpu 1 1 host", "Put put cpu 1 1 host: invalid tag 'host': a tag is a name, = and a value"),
        ("put cpu 1 1 host=", "Put put cpu 1 1 host=: the tag host has no value: leave it out"),
        ("put cpu 1 1 a=1 a=2", "Put put cpu 1 1 a=1 a=2: the tag a is there twice"),
        ("cpu,host=a", "Influx cpu,host=a: missing fields: write a measurement, a blank, and field=value"),
        ("cpu,host=a ", "Influx cpu,host=a : missing fields: write a measurement, a blank, and field=value"),
        ("cpu,host v=1", "Influx cpu,host v=1: invalid tag 'host': a tag is a name, = and a value"),
        ("cpu,host= v=1", "Influx cpu,host= v=1: the tag host has no value: leave it out"),
        (",host=a v=1", "Influx ,host=a v=1: the name of the metric is empty"),
        ("cpu v=", "Influx cpu v=: missing field value: a field is a name, = and a value"),
        ("cpu =1", "Influx cpu =1: missing field key: a field is a name, = and a value"),
        ("cpu v=1,", "Influx cpu v=1,: invalid field format: write field=value, parted by commas"),
        ("cpu v=1,w 5", "Influx cpu v=1,w 5: invalid field format: write field=value, parted by commas"),
        ("cpu v=\"a\"b", "Influx cpu v=\"a\"b: invalid field format: write field=value, parted by commas"),
        ("cpu v=\"a", "Influx cpu v=\"a: unbalanced quotes: a text begins and ends with \""),
        ("cpu v=1 x", "Influx cpu v=1 x: bad timestamp 'x': the time is not a number of digits"),
        ("cpu v=1 5 6", "Influx cpu v=1 5 6: bad timestamp '5 6': the time is not a number of digits"),
    ] {
        assert_eq!(one(line), wanted, "{line}");
    }
    // Each field takes far more memory than it has bytes.
    let said = one(&format!("cpu {}", ["v=1"; 4097].join(",")));
    assert!(said.ends_with(": a line has at most 4096 fields: make what tells them apart a tag"), "it is taken");
    for value in ["1.5i", "9223372036854775808i", "-1u", "tRUE", "1e", "x", "''", "0x10"] {
        let said = one(&format!("cpu v={value}"));
        assert!(said.contains(&format!(": invalid value '{value}': write a number such as")), "{said}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused_wherever_they_stand() {
    for line in [
        &b"put c\xff 1 1 a=b"[..],
        b"put c 1 1 a=\xff",
        b"put c 1 1 a=\x01",
        b"c\xff v=1",
        b"c,a=\xff v=1",
        b"c \xff=1",
        b"c v=\"\xff\"",
        b"c v=\xff",
    ] {
        let (points, said) = read(line, usize::MAX, Unit::Digits);
        assert_eq!((points.len(), said.len()), (0, 1), "{said:?}");
    }
}

#[test]
fn good_lines_around_a_bad_one_are_kept() {
    let text =
        "put a 1 1\nput b x 1\ncpu v=\"x\ny\",w=2 3\ncpu v=\"z\" q\nput c 1 2\ncpu v=\"open\nput d 1 3\nput e 1 4";
    let (points, said) = read(text.as_bytes(), usize::MAX, Unit::Nanos(1));
    let wanted = [
        "a{}value 1000000000 1i",
        "cpu{}v 3 \"x\\ny\"",
        "cpu{}w 3 2.0",
        "c{}value 1000000000 2i",
        "d{}value 1000000000 3i",
        "e{}value 1000000000 4i",
    ];
    assert_eq!(points, wanted);
    assert_eq!(said.len(), 3, "{said:?}");
}

#[test]
fn texts_that_open_again_and_again_take_time_in_proportion_to_their_length() {
    let text = "m v=\"\n".repeat(200_000);
    let begin = std::time::Instant::now();
    read(text.as_bytes(), usize::MAX, Unit::Digits);
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
}

fn lines() -> impl Strategy<Value = Vec<u8>> {
    let word = proptest::sample::select(vec![
        "put ",
        "cpu",
        ",host=a",
        " ",
        "  ",
        "v=",
        "1.5",
        "7i",
        "\"te xt\"",
        "\"",
        "\\",
        ",",
        "=",
        "\n",
        "\r\n",
        "#",
        "1356998400",
        "t",
        "NaN",
        "\u{e9}",
        "version",
    ]);
    let known = proptest::sample::select(vec![
        "put cpu 1356998400 1.5 host=a\n",
        "cpu,host=a v=1,w=2i 5\n",
        "cpu s=\"a\nb\\\"\" 5\n",
        "help\r\n",
    ]);
    let junk = proptest::collection::vec(any::<u8>(), 0..6);
    let piece = prop_oneof![
        4 => word.prop_map(|text| text.as_bytes().to_vec()),
        3 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => junk,
    ];
    proptest::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn how_bytes_are_cut_into_pieces_does_not_matter(text in lines(), piece in 1usize..20) {
        prop_assert_eq!(read(&text, piece, Unit::Digits), read(&text, usize::MAX, Unit::Digits));
    }

    #[test]
    fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        read(&text, usize::MAX, Unit::Digits);
    }
}
