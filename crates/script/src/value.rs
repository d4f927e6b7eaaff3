//! A value on its way into a script or out of it: the types of RESP.
//!
//! May use: nothing. Must not know: Luau.

/// What a command answers, and what a script returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing. In a script it is `false`, as in Redis.
    Nil,
    /// True or false. A script that returns `true` returns the number 1, as in Redis.
    Boolean(bool),
    /// A whole number. In a script it is a double: above 2^53 it is rounded.
    Integer(i64),
    /// A number with a fraction: `{double = 1.5}` in a script.
    Double(f64),
    /// A text of any bytes.
    Text(Vec<u8>),
    /// `{ok = "OK"}`.
    Status(Vec<u8>),
    /// `{err = "ERR text"}`.
    Error(Vec<u8>),
    /// A list.
    Array(Vec<Value>),
    /// `{map = {key = value}}`.
    Map(Vec<(Value, Value)>),
    /// `{set = {value = true}}`.
    Set(Vec<Value>),
    /// The position at which what the script changes will be committed: nobody knows it before.
    CommitPosition,
}
