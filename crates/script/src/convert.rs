//! Values of RESP as values of Luau, and back, as Redis converts them.
//!
//! Tables are read raw: no code of the script runs here, where nothing watches it.
//!
//! May use: `mlua`, `value`. Must not know: how scripts run.

use mlua::{Lua, Table, Value as Luau};

use crate::error::ScriptError;
use crate::json::Marks;
use crate::limits::Limits;
use crate::value::Value;

/// A value for the script. `commit` stands for a position that is not known yet.
pub(crate) fn into_script(lua: &Lua, commit: &Table, value: Value, depth_left: usize) -> mlua::Result<Luau> {
    let Some(below) = depth_left.checked_sub(1) else {
        return Err(mlua::Error::runtime("a reply is nested too deeply"));
    };
    let field = |name: &str, value: Luau| -> mlua::Result<Luau> {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Luau::Table(table))
    };
    Ok(match value {
        Value::Nil => Luau::Boolean(false),
        Value::Boolean(value) => Luau::Boolean(value),
        Value::Integer(value) => Luau::Number(value as f64),
        Value::Double(value) => field("double", Luau::Number(value))?,
        Value::Text(text) => Luau::String(lua.create_string(text)?),
        Value::Status(text) => field("ok", Luau::String(lua.create_string(text)?))?,
        Value::Error(text) => field("err", Luau::String(lua.create_string(text)?))?,
        Value::Array(values) => {
            let table = lua.create_table_with_capacity(values.len(), 0)?;
            for (index, value) in values.into_iter().enumerate() {
                table.raw_set(index + 1, into_script(lua, commit, value, below)?)?;
            }
            Luau::Table(table)
        }
        Value::Map(pairs) => {
            let table = lua.create_table_with_capacity(0, pairs.len())?;
            for (key, value) in pairs {
                // A key that is a list or not a number would not be found again.
                if let Value::Text(_) | Value::Status(_) | Value::Integer(_) | Value::Boolean(_) = key {
                    let key = match key {
                        Value::Status(text) => Value::Text(text),
                        key => key,
                    };
                    let key = into_script(lua, commit, key, below)?;
                    table.raw_set(key, into_script(lua, commit, value, below)?)?;
                }
            }
            field("map", Luau::Table(table))?
        }
        Value::Set(values) => {
            let table = lua.create_table_with_capacity(0, values.len())?;
            for value in values {
                if let Value::Text(_) | Value::Integer(_) = value {
                    table.raw_set(into_script(lua, commit, value, below)?, true)?;
                }
            }
            field("set", Luau::Table(table))?
        }
        Value::CommitPosition => Luau::Table(commit.clone()),
    })
}

/// Reads what a script returned.
pub(crate) struct FromScript<'a> {
    marks: &'a Marks,
    limits: &'a Limits,
    elements: usize,
    bytes: usize,
}

impl<'a> FromScript<'a> {
    pub(crate) fn new(marks: &'a Marks, limits: &'a Limits) -> Self {
        FromScript { marks, limits, elements: 0, bytes: 0 }
    }

    pub(crate) fn value(&mut self, value: &Luau) -> Result<Value, ScriptError> {
        let read = self.at(value, self.limits.depth_max)?;
        if self.bytes > self.limits.result_bytes_max {
            return Err(ScriptError::TooLarge { what: "it is too big", bytes: self.bytes });
        }
        Ok(read)
    }

    /// Texts beyond what is allowed are counted and not copied, so that it is known how large it would have been.
    fn text(&mut self, text: &mlua::LuaString) -> Vec<u8> {
        let text = text.as_bytes();
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > self.limits.result_bytes_max { Vec::new() } else { text.to_vec() }
    }

    fn at(&mut self, value: &Luau, depth_left: usize) -> Result<Value, ScriptError> {
        self.elements += 1;
        if self.elements > self.limits.elements_max {
            return Err(ScriptError::TooLarge { what: "it has too many elements", bytes: self.bytes });
        }
        let Some(below) = depth_left.checked_sub(1) else {
            return Err(ScriptError::Result { what: "its tables are nested too deeply, or contain themselves" });
        };
        Ok(match value {
            Luau::Nil | Luau::Boolean(false) => Value::Nil,
            Luau::Boolean(true) => Value::Integer(1),
            Luau::Integer(number) => Value::Integer(*number),
            // A fraction is cut off, as in Redis; what is no number is 0, and the rest saturates.
            Luau::Number(number) => Value::Integer(*number as i64),
            Luau::String(text) => Value::Text(self.text(text)),
            Luau::Table(table) if *table == self.marks.commit => Value::CommitPosition,
            Luau::Table(table) => self.table(table, below)?,
            // Functions, coroutines and their like are nothing, as in Redis.
            _ => Value::Nil,
        })
    }

    fn table(&mut self, table: &Table, below: usize) -> Result<Value, ScriptError> {
        if let Some(digits) = self.marks.digits(table) {
            let number = std::str::from_utf8(&digits.as_bytes()).ok().and_then(|digits| digits.parse().ok());
            return Ok(number.map_or_else(|| Value::Text(self.text(&digits)), Value::Integer));
        }
        let get = |name: &str| table.raw_get::<Luau>(name).unwrap_or(Luau::Nil);
        if let Luau::String(text) = get("err") {
            return Ok(Value::Error(self.text(&text)));
        }
        if let Luau::String(text) = get("ok") {
            return Ok(Value::Status(self.text(&text)));
        }
        match get("double") {
            Luau::Number(number) => return Ok(Value::Double(number)),
            Luau::Integer(number) => return Ok(Value::Double(number as f64)),
            _ => {}
        }
        if let Luau::Table(pairs) = get("map") {
            let mut map = Vec::new();
            for pair in pairs.pairs::<Luau, Luau>() {
                let (key, value) = pair.map_err(|_| ScriptError::Result { what: "a map cannot be read" })?;
                map.push((self.at(&key, below)?, self.at(&value, below)?));
            }
            return Ok(Value::Map(map));
        }
        if let Luau::Table(members) = get("set") {
            let mut set = Vec::new();
            for pair in members.pairs::<Luau, Luau>() {
                let (member, _) = pair.map_err(|_| ScriptError::Result { what: "a set cannot be read" })?;
                set.push(self.at(&member, below)?);
            }
            return Ok(Value::Set(set));
        }
        // A list ends where there is nothing, as in Redis.
        let mut list = Vec::new();
        loop {
            match table.raw_get::<Luau>(list.len() + 1) {
                Ok(Luau::Nil) | Err(_) => return Ok(Value::Array(list)),
                Ok(value) => list.push(self.at(&value, below)?),
            }
        }
    }
}
