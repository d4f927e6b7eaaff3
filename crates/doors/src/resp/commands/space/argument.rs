//! Values and documents as arguments and in replies.
//!
//! An id in a reply is written such that it can be sent back as an argument.
//!
//! May use: `crate::argument`, `call`, the facade. Must not know: commands.

use holdfast::ErrorKind;
use holdfast::space::{Document, Value};

use crate::argument;
use crate::resp::call::Fail;
use crate::resp::reply::Reply;

/// The value that an argument says.
pub(crate) fn value(argument: &[u8]) -> Result<Value, Fail> {
    Ok(argument::value(argument)?)
}

/// The document that an argument says, as JSON or MessagePack: no JSON object begins with a byte with which a map of the other
/// begins.
pub(crate) fn document(argument: &[u8]) -> Result<Document, Fail> {
    if matches!(argument.first(), Some(0x80..=0x8f | 0xde | 0xdf)) {
        // What a client sends is not what is stored, so that it is no damage.
        return Document::from_msgpack(argument).map_err(|error| match holdfast::Error::from(error) {
            error if error.kind() == ErrorKind::Corrupt => Fail::from(format!("ERR {error}")),
            error => Fail::Store(error),
        });
    }
    Document::from_json(argument).map_err(|error| Fail::Store(error.into()))
}

/// An id: an integer where RESP has it.
pub(crate) fn write_id(reply: &mut Reply, id: &Value) {
    match id {
        Value::I64(number) => reply.integer(*number),
        id => reply.text(&argument::text_of(id)),
    }
}
