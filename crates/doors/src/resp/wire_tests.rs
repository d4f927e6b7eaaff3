//! Tests of the request parser: rules, every way to cut the bytes, and garbage.
//!
//! May use: `wire`, proptest. Must not know: sockets, commands.

use proptest::prelude::*;

use super::*;

const LIMITS: WireLimits = WireLimits {
    line_bytes_max: 64 << 10,
    bulk_bytes_max: 512 << 20,
    command_bytes_max: 1 << 30,
    args_max: 1 << 20,
    unauthenticated: None,
};

type Commands = Vec<Vec<Vec<u8>>>;

/// Feeds the pieces one after the other; the commands so far and the error, if one ended it.
fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: &WireLimits) -> (Commands, Option<WireError>) {
    let mut parser = Parser::new();
    let mut buffer = Vec::new();
    let mut commands = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.parse(&buffer, limits) {
                Ok(Progress::Incomplete) => {
                    assert!(parser.needed() >= buffer.len(), "needs no more than it has");
                    break;
                }
                Ok(Progress::Command { consumed }) => {
                    commands.push(parser.args(&buffer).iter().map(<[u8]>::to_vec).collect());
                    buffer.drain(..consumed);
                }
                Ok(Progress::Skip { consumed }) => {
                    buffer.drain(..consumed);
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fn all(input: &[u8]) -> (Commands, Option<WireError>) {
    feed([input], &LIMITS)
}

fn words(command: &[&str]) -> Vec<Vec<u8>> {
    command.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn arrays_and_lines_become_commands() {
    let input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n\r\n*0\r\n*-1\r\nset k \"a b\"\n*1\r\n$0\r\n\r\n";
    let expected = vec![words(&["GET", "k"]), words(&["PING"]), words(&["set", "k", "a b"]), words(&[""])];
    assert_eq!(all(input), (expected, None));
}

#[test]
fn the_quoting_rules_are_those_of_redis() {
    for (line, expected) in [
        (r#"a "b c" 'd e'"#, Some(vec!["a", "b c", "d e"])),
        (r#""\x41\n\r\t\b\a\q\"""#, Some(vec!["A\n\r\t\u{8}\u{7}q\""])),
        (r#"'it\'s' '\n'"#, Some(vec!["it's", "\\n"])),
        (r#"ab"c d"e"#, None),
        (r#"ab"c d" e"#, Some(vec!["abc d", "e"])),
        (r#""unclosed"#, None),
        (r#"'unclosed"#, None),
        (r#""a"b"#, None),
        ("  spaces \t between  ", Some(vec!["spaces", "between"])),
        (r#""""#, Some(vec![""])),
        (r#""\xZZ""#, Some(vec!["xZZ"])),
    ] {
        let input = format!("{line}\r\n");
        match expected {
            Some(expected) => assert_eq!(all(input.as_bytes()), (vec![words(&expected)], None), "{line}"),
            None => assert_eq!(all(input.as_bytes()), (vec![], Some(WireError::UnbalancedQuotes)), "{line}"),
        }
    }
}

#[test]
fn errors_are_found_as_soon_as_they_can_be() {
    let cases: &[(&[u8], WireError, &str)] = &[
        (b"*1\r\n$-1\r\n", WireError::BulkLength, "invalid bulk length"),
        (
            b"*1\r\n$536870913\r\n",
            WireError::BulkTooBig(536_870_912),
            "invalid bulk length: an argument may have 536870912 bytes at the most (limits.value_bytes_max)",
        ),
        (b"*1\r\n$99999999999999999999\r\n", WireError::BulkLength, "invalid bulk length"),
        (b"*1\r\n$x\r\n", WireError::BulkLength, "invalid bulk length"),
        (
            b"*1048577\r\n",
            WireError::TooManyArguments(1_048_576),
            "invalid multibulk length: a command may have 1048576 arguments at the most",
        ),
        (b"*99999999999999999999\r\n", WireError::ArrayLength, "invalid multibulk length"),
        (b"*x\r\n", WireError::ArrayLength, "invalid multibulk length"),
        (b"*1\r\nx", WireError::ExpectedBulk(b'x'), "expected '$', got 'x'"),
        (b"*1\r\n*", WireError::ExpectedBulk(b'*'), "expected '$', got '*'"),
        (b"*1\r\n$1\r\nabc", WireError::BulkNotTerminated, "expected CRLF behind a bulk string"),
    ];
    for (input, error, text) in cases {
        assert_eq!(all(input).1, Some(*error));
        assert_eq!(error.to_string(), *text);
    }
}

#[test]
fn nested_arrays_are_refused_at_the_second_level() {
    let input = b"*1\r\n".repeat(100_000);
    assert_eq!(all(&input), (vec![], Some(WireError::ExpectedBulk(b'*'))));
}

#[test]
fn lines_without_end_are_refused() {
    let long = vec![b'1'; (64 << 10) + 2];
    assert_eq!(all(&long).1, Some(WireError::InlineTooBig));
    assert_eq!(all(&[b"*", long.as_slice()].concat()).1, Some(WireError::ArrayHeaderTooBig));
    assert_eq!(all(&[b"*1\r\n$", long.as_slice()].concat()).1, Some(WireError::BulkHeaderTooBig));
}

#[test]
fn a_client_that_has_not_authenticated_is_kept_short() {
    let limits = WireLimits { unauthenticated: Some((16, 2)), ..LIMITS };
    assert_eq!(feed([b"*3\r\n".as_slice()], &limits).1, Some(WireError::UnauthenticatedArrayLength));
    assert_eq!(feed([b"*1\r\n$17\r\n".as_slice()], &limits).1, Some(WireError::UnauthenticatedBulkLength));
}

#[test]
fn the_size_of_a_whole_command_is_bounded() {
    let limits = WireLimits { command_bytes_max: 100, ..LIMITS };
    let input = b"*3\r\n$60\r\n".to_vec();
    let input = [input, vec![b'x'; 60], b"\r\n$60\r\n".to_vec()].concat();
    assert_eq!(feed([input.as_slice()], &limits).1, Some(WireError::CommandTooBig(100)));
}

#[test]
fn a_giant_announcement_allocates_nothing() {
    let mut parser = Parser::new();
    let input = b"*1048576\r\n$536870912\r\nabc";
    assert_eq!(parser.parse(input, &LIMITS), Ok(Progress::Incomplete));
    assert!(parser.ranges.capacity() < 16);
    assert_eq!(parser.needed(), 22 + 536_870_912 + 2);
}

#[test]
fn every_cut_gives_the_same_commands() {
    let input =
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\na\r\nb\r\r\nPING \"x y\"\r\n\r\n*0\r\n*1\r\n$4\r\nQUIT\r\n*1\r\nq";
    let expected = all(input);
    assert_eq!(expected.0.len(), 3);
    for first in 0..input.len() {
        for second in first..input.len() {
            let pieces = [&input[..first], &input[first..second], &input[second..]];
            assert_eq!(feed(pieces, &LIMITS), expected, "cut at {first} and {second}");
        }
    }
    assert_eq!(feed(input.chunks(1), &LIMITS), expected);
}

#[test]
fn single_bytes_of_a_big_request_take_linear_time() {
    // Half a megabyte in pieces of one byte would take minutes if lines or arguments were searched again each time.
    let mut input = b"*5000\r\n".to_vec();
    for _ in 0..5_000 {
        input.extend_from_slice(b"$10\r\n0123456789\r\n");
    }
    let mut parser = Parser::new();
    for end in 0..input.len() {
        assert_eq!(parser.parse(&input[..end], &LIMITS), Ok(Progress::Incomplete));
    }
    assert_eq!(parser.parse(&input, &LIMITS), Ok(Progress::Command { consumed: input.len() }));
    assert_eq!(parser.args(&input).len(), 5_000);
}

proptest! {
    #[test]
    fn garbage_never_panics_and_cuts_do_not_matter(
        input in proptest::collection::vec(prop_oneof![
            Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'"'), Just(b'\\'), b'0'..=b'9', any::<u8>()
        ], 0..200),
        cut in 0usize..200,
    ) {
        let limits = WireLimits { bulk_bytes_max: 64, args_max: 16, line_bytes_max: 32, command_bytes_max: 512, ..LIMITS };
        let (first, second) = input.split_at(cut.min(input.len()));
        let whole = feed([input.as_slice()], &limits);
        let pieces = feed([first, second], &limits);
        // A line that is too long may be found complete or not, depending on the cut: both refuse it or both go on.
        if whole.1.is_none() && pieces.1.is_none() {
            prop_assert_eq!(whole, pieces);
        }
    }

    #[test]
    fn what_is_encoded_is_decoded(commands in proptest::collection::vec(
        proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..8), 0..8
    )) {
        let mut input = Vec::new();
        for command in &commands {
            input.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            for arg in command {
                input.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                input.extend_from_slice(arg);
                input.extend_from_slice(b"\r\n");
            }
        }
        prop_assert_eq!(feed(input.chunks(7), &LIMITS), (commands, None));
    }
}
