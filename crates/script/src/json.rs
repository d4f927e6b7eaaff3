//! `cjson` of Redis: values of Luau as JSON (RFC 8259), and back.
//!
//! Whole numbers that no double is are tables with their digits, which are written as they were read.
//!
//! Tables are read raw: no code of the script runs here. The watch is asked now and then, and what is made is bounded.
//!
//! May use: `mlua`, `serde_json`. Must not know: how scripts run.

use std::cell::Cell;
use std::fmt;

use mlua::{Lua, Table, Value as Luau};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::number;

/// How deep values may lie in each other.
const DEPTH_MAX: usize = 128;
/// Elements that may be missing of a list by any means, as in lua-cjson; of a longer one, half of it.
const SPARSE_SAFE: usize = 10;
/// The watch is asked once in so many values.
const VALUES: u32 = 256;

/// Up to here every whole number is a double.
const EXACT_MAX: u64 = 1 << 53;

/// Says when to stop.
pub(crate) type Ask<'a> = &'a dyn Fn() -> mlua::Result<()>;

/// What tells some tables from others.
#[derive(Clone)]
pub(crate) struct Marks {
    /// The metatable of lists without elements, so that they are lists when they are written.
    pub(crate) empty: Table,
    /// The metatable of whole numbers that no double is.
    whole: Table,
    /// Stands for a position that is not known yet.
    pub(crate) commit: Table,
}

impl Marks {
    pub(crate) fn new(lua: &Lua, commit: Table) -> mlua::Result<Self> {
        let (empty, whole) = (lua.create_table()?, lua.create_table()?);
        let digits = |table: &Table| table.raw_get::<mlua::LuaString>(1);
        whole.raw_set("__tostring", lua.create_function(move |_, table: Table| digits(&table))?)?;
        let is_equal =
            move |_: &Lua, (one, other): (Table, Table)| Ok(one.raw_get::<Luau>(1)? == other.raw_get::<Luau>(1)?);
        whole.raw_set("__eq", lua.create_function(is_equal)?)?;
        whole.raw_set("__metatable", false)?;
        empty.set_readonly(true);
        whole.set_readonly(true);
        Ok(Self { empty, whole, commit })
    }

    fn of_digits(&self, lua: &Lua, digits: &str) -> mlua::Result<Luau> {
        let table = lua.create_table_with_capacity(1, 0)?;
        table.raw_push(digits)?;
        table.set_metatable(Some(self.whole.clone()))?;
        table.set_readonly(true);
        Ok(Luau::Table(table))
    }

    /// The digits, if the table is a whole number.
    pub(crate) fn digits(&self, table: &Table) -> Option<mlua::LuaString> {
        (table.metatable().as_ref() == Some(&self.whole)).then(|| table.raw_get(1).ok()).flatten()
    }
}

/// The value that a text means.
///
/// # Errors
/// A text of what is wrong with it, and where.
pub(crate) fn decode(lua: &Lua, text: &[u8], marks: &Marks, ask: Ask<'_>) -> mlua::Result<Luau> {
    let reading = Reading { lua, marks, ask, values: Cell::new(0), failed: Cell::new(None) };
    let mut from = serde_json::Deserializer::from_slice(text);
    let read = Seed(&reading).deserialize(&mut from).and_then(|value| from.end().map(|()| value));
    read.map_err(|error| {
        reading.failed.take().unwrap_or_else(|| mlua::Error::runtime(format!("cjson.decode: {error}")))
    })
}

struct Reading<'a> {
    lua: &'a Lua,
    marks: &'a Marks,
    ask: Ask<'a>,
    values: Cell<u32>,
    /// What Luau said, which is no fault of the text.
    failed: Cell<Option<mlua::Error>>,
}

impl Reading<'_> {
    fn keep<T, E: serde::de::Error>(&self, made: mlua::Result<T>) -> Result<T, E> {
        made.map_err(|error| {
            self.failed.set(Some(error));
            E::custom("it was stopped")
        })
    }
}

struct Seed<'a>(&'a Reading<'a>);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Luau;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Luau, D::Error> {
        let values = self.0.values.get().wrapping_add(1);
        self.0.values.set(values);
        if values.is_multiple_of(VALUES) {
            self.0.keep((self.0.ask)())?;
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Luau;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Luau, E> {
        Ok(Luau::NULL)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Luau, E> {
        Ok(Luau::Boolean(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Luau, E> {
        if value.unsigned_abs() <= EXACT_MAX {
            return Ok(Luau::Number(value as f64));
        }
        self.0.keep(self.0.marks.of_digits(self.0.lua, &value.to_string()))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Luau, E> {
        if value <= EXACT_MAX {
            return Ok(Luau::Number(value as f64));
        }
        self.0.keep(self.0.marks.of_digits(self.0.lua, &value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Luau, E> {
        Ok(Luau::Number(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Luau, E> {
        self.0.keep(self.0.lua.create_string(value)).map(Luau::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Luau, A::Error> {
        let table = self.0.keep(self.0.lua.create_table())?;
        let mut is_empty = true;
        while let Some(value) = from.next_element_seed(Seed(self.0))? {
            is_empty = false;
            self.0.keep(table.raw_push(value))?;
        }
        if is_empty {
            self.0.keep(table.set_metatable(Some(self.0.marks.empty.clone())))?;
        }
        Ok(Luau::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Luau, A::Error> {
        let table = self.0.keep(self.0.lua.create_table())?;
        while let Some(key) = from.next_key_seed(Seed(self.0))? {
            let value = from.next_value_seed(Seed(self.0))?;
            if !matches!(key, Luau::String(_)) {
                return Err(A::Error::custom("a key is no text"));
            }
            self.0.keep(table.raw_set(key, value))?;
        }
        Ok(Luau::Table(table))
    }
}

/// What an encoding needs to know.
pub(crate) struct Encoding<'a> {
    /// Bytes of a text at the most.
    pub(crate) bytes_max: usize,
    pub(crate) ask: Ask<'a>,
    pub(crate) marks: &'a Marks,
}

/// The value as a text.
///
/// # Errors
/// A text of what has no JSON.
pub(crate) fn encode(value: &Luau, how: &Encoding<'_>) -> mlua::Result<Vec<u8>> {
    let mut writing = Writing { how, values: 0, to: Vec::new() };
    writing.value(value, DEPTH_MAX)?;
    Ok(writing.to)
}

struct Writing<'a> {
    how: &'a Encoding<'a>,
    values: u32,
    to: Vec<u8>,
}

fn refused(what: impl fmt::Display) -> mlua::Error {
    mlua::Error::runtime(format!("cjson.encode: {what}"))
}

impl Writing<'_> {
    fn value(&mut self, value: &Luau, depth_left: usize) -> mlua::Result<()> {
        self.values = self.values.wrapping_add(1);
        if self.values.is_multiple_of(VALUES) {
            (self.how.ask)()?;
        }
        if self.to.len() > self.how.bytes_max {
            return Err(refused("the text is too long"));
        }
        match value {
            Luau::Nil => self.to.extend_from_slice(b"null"),
            Luau::LightUserData(it) if it.0.is_null() => self.to.extend_from_slice(b"null"),
            Luau::Boolean(true) => self.to.extend_from_slice(b"true"),
            Luau::Boolean(false) => self.to.extend_from_slice(b"false"),
            Luau::Integer(number) => self.to.extend_from_slice(number.to_string().as_bytes()),
            Luau::Number(number) if number.is_finite() => self.to.extend_from_slice(number::text(*number).as_bytes()),
            Luau::Number(_) => return Err(refused("a number that is infinite, or none, has no JSON")),
            Luau::String(text) => self.text(&text.as_bytes())?,
            Luau::Table(table) => self.table(table, depth_left)?,
            other => return Err(refused(format_args!("a {} has no JSON", other.type_name()))),
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> mlua::Result<()> {
        if self.to.len().saturating_add(text.len()) > self.how.bytes_max {
            return Err(refused("the text is too long"));
        }
        let text = std::str::from_utf8(text).map_err(|_| refused("a text that is not UTF-8 has no JSON"))?;
        serde_json::to_writer(&mut self.to, text).map_err(refused)
    }

    fn table(&mut self, table: &Table, depth_left: usize) -> mlua::Result<()> {
        let Some(below) = depth_left.checked_sub(1) else {
            return Err(refused(format_args!("tables lie in each other more than {DEPTH_MAX} deep, or in themselves")));
        };
        if let Some(digits) = self.how.marks.digits(table) {
            self.to.extend_from_slice(&digits.as_bytes());
            return Ok(());
        }
        if *table == self.how.marks.commit {
            return Err(refused("COMMIT_POSITION is not known before the script has ended"));
        }
        match list_len(table)? {
            Some(0) if table.metatable().as_ref() != Some(&self.how.marks.empty) => self.to.extend_from_slice(b"{}"),
            Some(len) => {
                self.to.push(b'[');
                for index in 1..=len {
                    if index > 1 {
                        self.to.push(b',');
                    }
                    self.value(&table.raw_get(index)?, below)?;
                }
                self.to.push(b']');
            }
            None => self.object(table, below)?,
        }
        Ok(())
    }

    fn object(&mut self, table: &Table, below: usize) -> mlua::Result<()> {
        self.to.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Luau, Luau>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.to.push(b',');
            }
            match &key {
                Luau::String(text) => self.text(&text.as_bytes())?,
                Luau::Integer(number) => self.text(number.to_string().as_bytes())?,
                Luau::Number(number) => self.text(number::text(*number).as_bytes())?,
                other => return Err(refused(format_args!("a key is a text or a number, not a {}", other.type_name()))),
            }
            self.to.push(b':');
            self.value(&value, below)?;
        }
        self.to.push(b'}');
        Ok(())
    }
}

/// How long the list is that a table is, if it is one: all keys are places, and not too many of them are empty.
fn list_len(table: &Table) -> mlua::Result<Option<usize>> {
    let (mut count, mut last) = (0usize, 0usize);
    for pair in table.pairs::<Luau, Luau>() {
        let place = match pair?.0 {
            Luau::Integer(place) => usize::try_from(place).ok(),
            Luau::Number(place) if place.fract() == 0.0 && place >= 1.0 && place <= f64::from(u32::MAX) => {
                Some(place as usize)
            }
            _ => None,
        };
        let Some(place) = place.filter(|place| *place > 0) else { return Ok(None) };
        (count, last) = (count + 1, last.max(place));
    }
    if last > SPARSE_SAFE && last > count * 2 {
        return Err(refused("a list misses more than half of its elements"));
    }
    Ok(Some(last))
}
