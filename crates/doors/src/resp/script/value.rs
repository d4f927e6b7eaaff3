//! Replies of commands as values of scripts, and values of scripts as replies.
//!
//! May use: `reply`, the crate `script`. Must not know: commands, how scripts run.

use script::Value;

use crate::resp::number::parse_i64;
use crate::resp::reply::Reply;

/// How deep replies of commands are nested at the most.
const DEPTH_MAX: usize = 16;

/// What one command wrote; nothing if that is not one reply.
pub(super) fn read(reply: &Reply) -> Option<Value> {
    let mut reader = Reader { rest: reply.as_bytes(), length: reply.as_bytes().len(), gaps: reply.gaps() };
    let value = reader.value(DEPTH_MAX)?;
    reader.rest.is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
    gaps: &'a [usize],
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.windows(2).position(|pair| pair == b"\r\n")?;
        let line = self.rest.get(..end)?;
        self.rest = self.rest.get(end + 2..)?;
        Some(line)
    }

    fn text(&mut self, length: i64) -> Option<&'a [u8]> {
        let length = usize::try_from(length).ok()?;
        let text = self.rest.get(..length)?;
        self.rest = self.rest.get(length..)?.strip_prefix(b"\r\n")?;
        Some(text)
    }

    fn values(&mut self, count: i64, depth_left: usize) -> Option<Vec<Value>> {
        (0..count).map(|_| self.value(depth_left)).collect()
    }

    fn value(&mut self, depth_left: usize) -> Option<Value> {
        let below = depth_left.checked_sub(1)?;
        if let Some((gap, gaps)) = self.gaps.split_first()
            && *gap == self.length - self.rest.len()
        {
            self.gaps = gaps;
            return Some(Value::CommitPosition);
        }
        let (kind, line) = self.line()?.split_first()?;
        let count = || parse_i64(line);
        Some(match kind {
            b'+' => Value::Status(line.to_vec()),
            b'-' => Value::Error(line.to_vec()),
            b':' => Value::Integer(count()?),
            b'_' => Value::Nil,
            b'#' => Value::Boolean(line == b"t"),
            b',' => Value::Double(std::str::from_utf8(line).ok()?.parse().ok()?),
            b'(' => Value::Text(line.to_vec()),
            b'$' | b'*' if line == b"-1" => Value::Nil,
            b'$' => Value::Text(self.text(count()?)?.to_vec()),
            b'=' => Value::Text(self.text(count()?)?.get(4..)?.to_vec()),
            b'*' | b'>' => Value::Array(self.values(count()?, below)?),
            b'~' => Value::Set(self.values(count()?, below)?),
            b'%' => {
                let pair = |_| Some((self.value(below)?, self.value(below)?));
                Value::Map((0..count()?).map(pair).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

/// Writes what a script returned. Its depth is bounded by the limits of scripts.
pub(super) fn write(reply: &mut Reply, value: &Value) {
    match value {
        Value::Nil => reply.null(),
        Value::Boolean(value) => reply.boolean(*value),
        Value::Integer(value) => reply.integer(*value),
        Value::Double(value) => reply.double(*value),
        Value::Text(text) => reply.bulk(text),
        Value::Status(text) => reply.simple(&String::from_utf8_lossy(text).replace(['\r', '\n'], " ")),
        Value::Error(text) => reply.error(&String::from_utf8_lossy(text)),
        Value::Array(values) => {
            reply.array(values.len());
            values.iter().for_each(|value| write(reply, value));
        }
        Value::Map(pairs) => {
            reply.map(pairs.len());
            for (key, value) in pairs {
                write(reply, key);
                write(reply, value);
            }
        }
        Value::Set(values) => {
            reply.set(values.len());
            values.iter().for_each(|value| write(reply, value));
        }
        Value::CommitPosition => reply.commit_position(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::resp::reply::Protocol;

    fn values() -> impl Strategy<Value = Value> {
        let text = || proptest::collection::vec(any::<u8>(), 0..20);
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<bool>().prop_map(Value::Boolean),
            any::<i64>().prop_map(Value::Integer),
            proptest::num::f64::NORMAL.prop_map(Value::Double),
            text().prop_map(Value::Text),
            "[a-zA-Z ]{0,10}".prop_map(|text| Value::Status(text.into_bytes())),
            "[a-zA-Z ]{0,10}".prop_map(|text| Value::Error(text.into_bytes())),
            Just(Value::CommitPosition),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Set),
                proptest::collection::vec((inner.clone(), inner), 0..6).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(value in values()) {
            let mut reply = Reply::new(1 << 20);
            reply.protocol = Protocol::Resp3;
            write(&mut reply, &value);
            prop_assert_eq!(read(&reply), Some(value));
        }
    }

    #[test]
    fn what_is_not_one_reply_is_none() {
        for bytes in
            ["", "+OK\r\n+OK\r\n", "$5\r\nab\r\n", "*2\r\n:1\r\n", "?\r\n", ":x\r\n", "$2\r\nabc\r\n", "=2\r\nab\r\n"]
        {
            let mut reply = Reply::new(1 << 20);
            reply.append(bytes.as_bytes());
            assert_eq!(read(&reply), None, "{bytes:?}");
        }
        let mut reply = Reply::new(1 << 20);
        reply.append("*1\r\n".repeat(100).as_bytes());
        assert_eq!(read(&reply), None);
        let mut reply = Reply::new(1 << 20);
        reply.append(b"*3\r\n$-1\r\n*-1\r\n=6\r\ntxt:hi\r\n");
        assert_eq!(read(&reply), Some(Value::Array(vec![Value::Nil, Value::Nil, Value::Text(b"hi".to_vec())])));
    }
}
