//! Values and documents as arguments and in replies.
//!
//! An id in a reply is written such that it can be sent back as an argument.
//!
//! May use: `crate::argument`, `call`, the facade. Must not know: commands.

use holdfast::space::{Document, Value};

use crate::argument;
use crate::resp::call::Fail;
use crate::resp::reply::Reply;

/// The value that an argument says.
pub(crate) fn value(argument: &[u8]) -> Result<Value, Fail> {
    Ok(argument::value(argument)?)
}

/// The document that an argument says.
pub(crate) fn document(argument: &[u8]) -> Result<Document, Fail> {
    Document::from_json(argument).map_err(|error| Fail::Store(error.into()))
}

/// An id: an integer where RESP has it.
pub(crate) fn write_id(reply: &mut Reply, id: &Value) {
    match id {
        Value::I64(number) => reply.integer(*number),
        id => reply.text(&argument::text_of(id)),
    }
}
