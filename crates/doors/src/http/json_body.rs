//! Bodies of JSON: unpacked, and counted with what they become in memory, before anything of that is there.
//!
//! A document becomes its stored form, which is about as long as its text. Everything else becomes values, and one of those takes many
//! times as much as its text: `[],` is three bytes and half a hundred, `{"":0},` seven and a thousand. So they are counted as they
//! stand in the text, each with the most that it takes, and that is taken from what all bodies may have together.
//!
//! May use: `failure`, `upload`, `ingest::body`, the budget. Must not know: what bodies mean.

use std::sync::Arc;

use axum::http::StatusCode;
use holdfast::Store;
use holdfast::space::Value;

use super::failure::Failure;
use super::handle::Asked;
use super::ingest::body::{Encoding, plain};
use super::upload::Upload;
use crate::argument::regexes_in;
use crate::budget::Share;

/// Bodies so short are read by the thread that all connections share; of longer ones others would feel it.
const SHORT_BYTES: usize = 16 << 10;
/// Regular expressions in such a body: each may take ten milliseconds to be compiled.
const REGEXES_MAX: usize = 2;
/// A text, its stored form, that while it grows, and what the store keeps of it.
const STORED_FACTOR: usize = 4;
/// An item of a list: the list has room for twice as many, and for its old items beside while it grows.
const ITEM_BYTES: usize = 3 * size_of::<Value>();
/// A list: the store gives the first item the room of four.
const LIST_BYTES: usize = 4 * size_of::<Value>() + 16;
/// A map's first node, which has room for eleven names and values.
const MAP_BYTES: usize = 11 * (size_of::<Value>() + size_of::<String>()) + 64;
/// A field of a map: nodes may be no more than half full.
const FIELD_BYTES: usize = MAP_BYTES / 5;
/// One of the two quotes of a text, which takes of the heap.
const QUOTE_BYTES: usize = 16;

/// What a body becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Becomes {
    /// A document in stored form.
    Document,
    /// Values that own what they hold.
    Values,
}

impl Becomes {
    /// The most that it takes of memory together with its text.
    fn bytes(self, text: &[u8]) -> usize {
        match self {
            Becomes::Document => text.len().saturating_mul(STORED_FACTOR),
            Becomes::Values => values_bytes(text),
        }
    }

    /// Whether reading a short text may take long all the same. Letters that are escaped may be those of any word.
    fn takes_long(self, text: &[u8]) -> bool {
        let is_escaped = || text.windows(2).any(|pair| pair == b"\\u");
        self == Becomes::Values && (regexes_in(text) > REGEXES_MAX || is_escaped())
    }
}

/// The most that the values of a text take, and the text. It need not be JSON: then it has few values or is refused when it is read.
fn values_bytes(text: &[u8]) -> usize {
    let (mut bytes, mut is_text, mut is_escaped) = (text.len().saturating_mul(STORED_FACTOR), false, false);
    for byte in text {
        let more = match byte {
            _ if is_escaped => {
                is_escaped = false;
                continue;
            }
            b'\\' if is_text => {
                is_escaped = true;
                continue;
            }
            b'"' => {
                is_text = !is_text;
                QUOTE_BYTES
            }
            _ if is_text => continue,
            b',' => ITEM_BYTES,
            b'[' => LIST_BYTES,
            b'{' => MAP_BYTES,
            b':' => FIELD_BYTES,
            _ => continue,
        };
        bytes = bytes.saturating_add(more);
    }
    bytes
}

impl Asked<'_> {
    /// Reads a body of JSON, and has it `read` by who has time for it. What it takes of memory stays taken from what all bodies have
    /// for as long as the share lives: until what was read is gone.
    ///
    /// # Errors
    /// 413 when it is too long, or its values take more than there is for all bodies; 503 when that is not there now; 415 when it is
    /// compressed in a way that is not known; those of [`Upload::read`], and what reading says.
    pub(crate) async fn json<T: Send + 'static>(
        &self,
        upload: &mut Upload,
        becomes: Becomes,
        read: impl FnOnce(&[u8]) -> Result<T, Failure> + Send + 'static,
    ) -> Result<(T, Share), Failure> {
        let encoding = Encoding::of(&self.parts.headers)?;
        let limits = &self.shared.options.limits;
        let bytes_max = match becomes {
            Becomes::Document => self.shared.body_bytes_max(),
            Becomes::Values => limits.json_body_bytes_max.min(self.shared.body_bytes_max()),
        };
        upload.limit(bytes_max)?;
        let sent = upload.read().await?;
        let mut share = upload.take_share();
        let is_short = encoding == Encoding::Plain && sent.len() <= SHORT_BYTES && !becomes.takes_long(&sent);
        let shared = Arc::clone(self.shared);
        let act = move |_: &Store| {
            let most = usize::try_from(bytes_max).unwrap_or(usize::MAX);
            let text = plain(&shared, encoding, &sent, most, &mut share)?.ok_or_else(|| {
                let text = format!("a body holds at most {bytes_max} bytes, and this one more when it is decompressed");
                Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
            })?;
            let (bytes, all) = (becomes.bytes(&text), shared.budget.bytes());
            if becomes == Becomes::Values && bytes > all {
                let text = "the JSON has too many values: in memory they take more than all bodies may have together \
                            (http.bodies_bytes_max); send them in several requests";
                return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text));
            }
            // The longest document always fits, by itself.
            shared.budget.grow(&mut share, bytes.min(all))?;
            Ok((read(&text)?, share))
        };
        if is_short { act(&self.shared.store) } else { self.shared.ask(act).await? }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a value takes on the heap, as the allocator gives it: in steps of 16 bytes, with 8 of its own.
    fn heap_bytes(value: &Value) -> usize {
        let piece = |bytes: usize| if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16) };
        match value {
            Value::String(text) => piece(text.capacity()),
            Value::List(items) => {
                piece(items.capacity() * size_of::<Value>()) + items.iter().map(heap_bytes).sum::<usize>()
            }
            Value::Map(fields) => {
                let nodes = fields.len().div_ceil(5);
                let held = |(name, value): (&String, &Value)| piece(name.capacity()) + heap_bytes(value);
                piece(nodes * MAP_BYTES) + fields.iter().map(held).sum::<usize>()
            }
            _ => 0,
        }
    }

    /// Sixty expressions of a kilobyte kept all connections waiting for half a second.
    #[test]
    fn short_questions_that_take_long_to_read_are_read_in_a_thread() {
        let of = |word: &str, times: usize| {
            format!(r#"{{"where":"{}"}}"#, vec![format!("a {word} 'b'"); times].join(" OR "))
        };
        for (text, expected) in
            [(of("RLIKE", 2), false), (of("RLike", 3), true), (of("LIKE", 50), false), (of("\\u0072like", 1), true)]
        {
            assert_eq!(Becomes::Values.takes_long(text.as_bytes()), expected, "{text}");
            assert!(!Becomes::Document.takes_long(text.as_bytes()));
        }
    }

    #[test]
    fn what_is_counted_is_no_less_than_what_values_take() {
        let row = |item: &str| format!("[{}{item}]", format!("{item},").repeat(999));
        let named = |value: &str| {
            let fields: Vec<String> = (0..1000).map(|at| format!("\"{at}\":{value}")).collect();
            format!("{{{}}}", fields.join(","))
        };
        let texts =
            ["1", "[]", "{}", "[1]", r#"{"":0}"#, r#""""#, r#""a""#, r#""\"[[[,""#, "null", "[[1,2],[3]]", "1e9"];
        for text in texts {
            for text in [text.to_owned(), row(text), named(text), row(&row(text)[..]), named(&named(text))] {
                let value = Value::from_json(text.as_bytes()).unwrap();
                let (counted, takes) = (values_bytes(text.as_bytes()), text.len() + heap_bytes(&value));
                assert!(counted >= takes, "{counted} < {takes}: {text:.60}");
            }
        }
        // A text is a text: what stands in it is none of the rest.
        assert_eq!(values_bytes(br#""[{:,\"[""#), 4 * 9 + 2 * QUOTE_BYTES);
    }
}
