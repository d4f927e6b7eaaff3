//! The request side of RESP: bytes in, commands out. Pure, incremental and bounded.
//!
//! A request is one of
//!   array    `*<n>\r\n` then n times `$<len>\r\n<len bytes>\r\n`
//!   inline   words, then `\n` or `\r\n`; a word may be quoted: "..." with \n \r \t \b \a \xHH \" \\, or '...' with \'
//! An array with n <= 0 and an empty line are skipped. An array inside an array is refused: requests do not nest.
//!
//! The caller keeps the bytes from the start of the current command and calls [`Parser::parse`] again when more arrived;
//! the parser remembers how far it got, so that no byte is looked at twice however small the pieces are.
//! After an error the connection has lost its place in the stream and must be closed.
//!
//! May use: nothing. Must not know: sockets, commands, the store.

use std::fmt;

/// Where one argument lies in its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    start: u32,
    end: u32,
}

/// The arguments of one command; the first one is its name. Borrowed, and cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a> {
    bytes: &'a [u8],
    ranges: &'a [Range],
}

impl<'a> Args<'a> {
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The argument at `index`, or nothing behind the last one.
    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        let range = self.ranges.get(index)?;
        self.bytes.get(range.start as usize..range.end as usize)
    }

    /// Where the argument at `index` lies in the bytes that were parsed.
    pub(crate) fn place(&self, index: usize) -> Option<std::ops::Range<usize>> {
        let range = self.ranges.get(index)?;
        Some(range.start as usize..range.end as usize)
    }

    /// The argument at `index`; empty behind the last one, which the arity check of the table excludes for fixed arguments.
    pub(crate) fn at(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.ranges.iter().map(move |range| bytes.get(range.start as usize..range.end as usize).unwrap_or_default())
    }

    /// The arguments from `index` on, as a command of their own.
    pub(crate) fn from(&self, index: usize) -> Args<'a> {
        Args { bytes: self.bytes, ranges: self.ranges.get(index..).unwrap_or_default() }
    }

    /// The arguments before `index`.
    pub(crate) fn until(&self, index: usize) -> Args<'a> {
        Args { bytes: self.bytes, ranges: self.ranges.get(..index).unwrap_or(self.ranges) }
    }

    /// Bytes of all arguments together.
    pub(crate) fn bytes_len(&self) -> usize {
        self.ranges.iter().map(|range| (range.end - range.start) as usize).sum()
    }

    /// A copy that outlives the read buffer: for MULTI.
    pub(crate) fn to_owned(self) -> OwnedArgs {
        let mut owned =
            OwnedArgs { bytes: Vec::with_capacity(self.bytes_len()), ranges: Vec::with_capacity(self.len()) };
        for arg in self.iter() {
            owned.push(arg);
        }
        owned
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values may be secrets: only the shape is ever shown.
        write!(f, "Args({} arguments, {} bytes)", self.len(), self.bytes_len())
    }
}

/// Arguments with a buffer of their own.
#[derive(Default)]
pub(crate) struct OwnedArgs {
    bytes: Vec<u8>,
    ranges: Vec<Range>,
}

impl OwnedArgs {
    pub(crate) fn args(&self) -> Args<'_> {
        Args { bytes: &self.bytes, ranges: &self.ranges }
    }

    /// Adds one argument. The callers stay below `command_bytes_max`, which fits 32 bits.
    pub(crate) fn push(&mut self, arg: &[u8]) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(arg);
        self.ranges.push(Range { start, end: self.bytes.len() as u32 });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ranges.clear();
    }
}

/// The bounds that hold while parsing; they are narrower before authentication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireLimits {
    pub(crate) line_bytes_max: usize,
    pub(crate) bulk_bytes_max: usize,
    pub(crate) command_bytes_max: usize,
    pub(crate) args_max: usize,
    /// Set until the client has authenticated: bytes of one argument, and arguments.
    pub(crate) unauthenticated: Option<(usize, usize)>,
}

/// Why the bytes are not RESP, or more than is taken. Displays as Redis' own text, behind "Protocol error: "; a limit is named behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireError {
    InlineTooBig,
    ArrayHeaderTooBig,
    BulkHeaderTooBig,
    ArrayLength,
    /// More arguments than the limit, which it names.
    TooManyArguments(usize),
    BulkLength,
    /// More bytes than the limit, which it names.
    BulkTooBig(usize),
    UnauthenticatedArrayLength,
    UnauthenticatedBulkLength,
    ExpectedBulk(u8),
    UnbalancedQuotes,
    /// As [`WireError::BulkTooBig`], of a whole command.
    CommandTooBig(usize),
    BulkNotTerminated,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::InlineTooBig => f.write_str("too big inline request"),
            WireError::ArrayHeaderTooBig => f.write_str("too big mbulk count string"),
            WireError::BulkHeaderTooBig => f.write_str("too big bulk count string"),
            WireError::ArrayLength => f.write_str("invalid multibulk length"),
            WireError::TooManyArguments(most) => {
                write!(f, "invalid multibulk length: a command may have {most} arguments at the most")
            }
            WireError::BulkTooBig(most) => {
                write!(f, "invalid bulk length: an argument may have {most} bytes at the most (limits.value_bytes_max)")
            }
            WireError::BulkLength => f.write_str("invalid bulk length"),
            WireError::UnauthenticatedArrayLength => f.write_str("unauthenticated multibulk length"),
            WireError::UnauthenticatedBulkLength => f.write_str("unauthenticated bulk length"),
            WireError::ExpectedBulk(got) => write!(f, "expected '$', got '{}'", got.escape_ascii()),
            WireError::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            WireError::CommandTooBig(most) => {
                write!(f, "too big command: it may have {most} bytes at the most")
            }
            WireError::BulkNotTerminated => f.write_str("expected CRLF behind a bulk string"),
        }
    }
}

/// How far one call of [`Parser::parse`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More bytes are needed.
    Incomplete,
    /// A command is complete and `consumed` bytes long; [`Parser::args`] shows it until the next call of `parse`.
    Command { consumed: usize },
    /// Nothing to do: `consumed` bytes of an empty request.
    Skip { consumed: usize },
}

enum State {
    Start,
    /// Inside an array: arguments still to come.
    Bulks(usize),
    /// Inside an array, inside a bulk string of this many bytes; arguments still to come, including this one.
    Bulk(usize, usize),
}

/// Parses the requests of one connection.
pub(crate) struct Parser {
    state: State,
    /// Everything before is parsed.
    at: usize,
    /// Everything before has been searched for the end of the line that starts at `at`.
    searched: usize,
    ranges: Vec<Range>,
    inline: OwnedArgs,
    is_inline: bool,
}

impl Parser {
    pub(crate) fn new() -> Self {
        Parser {
            state: State::Start,
            at: 0,
            searched: 0,
            ranges: Vec::new(),
            inline: OwnedArgs::default(),
            is_inline: false,
        }
    }

    /// Continues with `input`, which starts with the first byte of the current command and is the last input plus more.
    pub(crate) fn parse(&mut self, input: &[u8], limits: &WireLimits) -> Result<Progress, WireError> {
        loop {
            match self.state {
                State::Start => {
                    if self.at == 0 && self.searched == 0 {
                        self.ranges.clear();
                        self.inline.clear();
                    }
                    match input.first() {
                        None => return Ok(Progress::Incomplete),
                        Some(b'*') => {
                            self.is_inline = false;
                            let Some(line) = self.header(input, limits.line_bytes_max, WireError::ArrayHeaderTooBig)?
                            else {
                                return Ok(Progress::Incomplete);
                            };
                            let count = length(line).ok_or(WireError::ArrayLength)?;
                            if count <= 0 {
                                return Ok(self.skip());
                            }
                            let count = usize::try_from(count).map_err(|_| WireError::ArrayLength)?;
                            if count > limits.args_max {
                                return Err(WireError::TooManyArguments(limits.args_max));
                            }
                            if limits.unauthenticated.is_some_and(|(_, args_max)| count > args_max) {
                                return Err(WireError::UnauthenticatedArrayLength);
                            }
                            self.state = State::Bulks(count);
                        }
                        Some(_) => return self.inline(input, limits),
                    }
                }
                State::Bulks(0) => {
                    let consumed = self.at;
                    self.reset();
                    return Ok(Progress::Command { consumed });
                }
                State::Bulks(left) => {
                    // A wrong type byte is reported as soon as it is seen, not when its line is complete.
                    match input.get(self.at) {
                        None => return Ok(Progress::Incomplete),
                        Some(b'$') => {}
                        Some(other) => return Err(WireError::ExpectedBulk(*other)),
                    }
                    let Some(line) = self.header(input, limits.line_bytes_max, WireError::BulkHeaderTooBig)? else {
                        return Ok(Progress::Incomplete);
                    };
                    let bytes = length(line).ok_or(WireError::BulkLength)?;
                    let bytes = usize::try_from(bytes).map_err(|_| WireError::BulkLength)?;
                    if bytes > limits.bulk_bytes_max {
                        return Err(WireError::BulkTooBig(limits.bulk_bytes_max));
                    }
                    if limits.unauthenticated.is_some_and(|(bytes_max, _)| bytes > bytes_max) {
                        return Err(WireError::UnauthenticatedBulkLength);
                    }
                    let command_bytes_max = limits.command_bytes_max.min(u32::MAX as usize - 2);
                    if self.at.saturating_add(bytes) > command_bytes_max {
                        return Err(WireError::CommandTooBig(command_bytes_max));
                    }
                    self.state = State::Bulk(bytes, left);
                }
                State::Bulk(bytes, left) => {
                    let end = self.at + bytes;
                    let Some(terminator) = input.get(end..end + 2) else {
                        return Ok(Progress::Incomplete);
                    };
                    if terminator != b"\r\n" {
                        return Err(WireError::BulkNotTerminated);
                    }
                    self.ranges.push(Range { start: self.at as u32, end: end as u32 });
                    self.at = end + 2;
                    self.searched = self.at;
                    self.state = State::Bulks(left - 1);
                }
            }
        }
    }

    /// The command that the last `parse` completed; `input` is what it was given.
    pub(crate) fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        if self.is_inline { self.inline.args() } else { Args { bytes: input, ranges: &self.ranges } }
    }

    /// How many bytes of input, counted from the start of the command, are needed at least before it can be complete.
    pub(crate) fn needed(&self) -> usize {
        match self.state {
            State::Bulk(bytes, _) => self.at + bytes + 2,
            State::Start | State::Bulks(_) => self.searched.max(self.at) + 1,
        }
    }

    /// Gives back memory that one unusually big command left behind.
    pub(crate) fn shrink(&mut self) {
        if self.ranges.capacity() > 1024 && matches!(self.state, State::Start) {
            self.ranges = Vec::new();
        }
        if self.inline.bytes.capacity() > 4096 {
            self.inline = OwnedArgs::default();
        }
    }

    fn reset(&mut self) {
        self.state = State::Start;
        self.at = 0;
        self.searched = 0;
    }

    fn skip(&mut self) -> Progress {
        let consumed = self.at;
        self.reset();
        Progress::Skip { consumed }
    }

    /// The digits of the header line at `self.at`, without type byte and line end, and `self.at` behind it.
    fn header<'a>(
        &mut self,
        input: &'a [u8],
        bytes_max: usize,
        too_big: WireError,
    ) -> Result<Option<&'a [u8]>, WireError> {
        let from = self.searched.max(self.at);
        let found = input.get(from..).unwrap_or_default().iter().position(|byte| *byte == b'\r');
        let Some(end) = found.map(|offset| from + offset) else {
            self.searched = input.len();
            return if input.len() - self.at > bytes_max { Err(too_big) } else { Ok(None) };
        };
        if input.len() < end + 2 {
            self.searched = end;
            return Ok(None);
        }
        let line = input.get(self.at + 1..end).unwrap_or_default();
        self.at = end + 2;
        self.searched = self.at;
        Ok(Some(line))
    }

    fn inline(&mut self, input: &[u8], limits: &WireLimits) -> Result<Progress, WireError> {
        let from = self.searched;
        let found = input.get(from..).unwrap_or_default().iter().position(|byte| *byte == b'\n');
        let Some(end) = found.map(|offset| from + offset) else {
            self.searched = input.len();
            return if input.len() > limits.line_bytes_max {
                Err(WireError::InlineTooBig)
            } else {
                Ok(Progress::Incomplete)
            };
        };
        let line = input.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.at = end + 1;
        self.is_inline = true;
        if !split_words(line, &mut self.inline) {
            return Err(WireError::UnbalancedQuotes);
        }
        let consumed = self.at;
        self.reset();
        if self.inline.ranges.is_empty() { Ok(Progress::Skip { consumed }) } else { Ok(Progress::Command { consumed }) }
    }
}

/// A length as Redis reads it: digits, one leading minus, no leading zeros, no plus.
fn length(line: &[u8]) -> Option<i64> {
    super::number::parse_i64(line)
}

/// Splits a line as `redis-cli` would. False when a quote is not closed, or is closed in the middle of a word.
fn split_words(line: &[u8], words: &mut OwnedArgs) -> bool {
    // As in Redis, a zero byte ends the line.
    let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut rest = line;
    loop {
        while let Some((byte, tail)) = rest.split_first()
            && is_space(*byte)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return true;
        }
        let start = words.bytes.len() as u32;
        match word(rest, &mut words.bytes) {
            Some(tail) => rest = tail,
            None => return false,
        }
        words.ranges.push(Range { start, end: words.bytes.len() as u32 });
    }
}

fn word<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return Some(rest),
            [b' ' | b'\n' | b'\r' | b'\t', ..] => return Some(rest),
            [b'"', tail @ ..] => rest = quoted(tail, out)?,
            [b'\'', tail @ ..] => rest = single_quoted(tail, out)?,
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
        // A closing quote ends the word; `quoted` made sure that a space or the end follows.
    }
}

fn quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(hex(*high) << 4 | hex(*low));
                rest = tail;
            }
            [b'\\', byte, tail @ ..] => {
                out.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = tail;
            }
            [b'"', tail @ ..] => return closed(tail),
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\\', b'\'', tail @ ..] => {
                out.push(b'\'');
                rest = tail;
            }
            [b'\'', tail @ ..] => return closed(tail),
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

fn closed(tail: &[u8]) -> Option<&[u8]> {
    match tail.first() {
        Some(byte) if !is_space(*byte) => None,
        _ => Some(tail),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

fn hex(digit: u8) -> u8 {
    char::from(digit).to_digit(16).map_or(0, |value| value as u8)
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
