//! One state of Luau, in which scripts run one after the other and leave nothing behind.
//!
//! All tables that runs share are frozen. What a run makes lies in globals of its own, which go with it. A state in which a
//! script was stopped, or took much memory, is spent: make another.
//!
//! May use: `mlua`, `convert`, `source`. Must not know: stores, protocols, clocks, threads.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as Luau, Variadic, VmState};

use crate::convert::{FromScript, into_script};
use crate::error::{ScriptError, Stop};
use crate::json::{self, Encoding, Marks};
use crate::limits::{LOADED_BYTES_MAX, LOG_BYTES_MAX, Limits, MOVE_MAX, REP_MAX, SCAN_LONG, SCAN_MAX, TICKS};
use crate::source::Script;
use crate::value::Value;
use crate::{number, sha1hex};

/// Everything that a script reaches outside of itself.
pub trait Host {
    /// Runs a command, its name first. What fails is [`Value::Error`].
    fn call(&mut self, arguments: &[Vec<u8>]) -> Value;
    /// Has the replies of commands be those of RESP 2 or 3.
    fn set_protocol(&mut self, version: u8);
    /// Notes a line, of bounded length. Levels are 0 (debug), 1 (verbose), 2 (notice), 3 (warning).
    fn log(&mut self, level: u8, text: &str);
}

/// Asked again and again while a script runs: whether it is to end.
pub type Watch = Box<dyn Fn() -> Option<Stop>>;

/// Where a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The text itself, with `KEYS` and `ARGV`.
    Text,
    /// A function that the text registers, with both as its arguments.
    Function(&'a str),
}

/// What a run is given.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The script or library.
    pub script: &'a Script,
    /// Where it begins.
    pub entry: Entry<'a>,
    /// `KEYS`.
    pub keys: &'a [&'a [u8]],
    /// `ARGV`.
    pub arguments: &'a [&'a [u8]],
    /// Where the script's random numbers begin.
    pub seed: u32,
    /// What it may take.
    pub limits: &'a Limits,
}

/// A function that a library registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// Whether it has the flag `no-writes`.
    pub is_reading: bool,
    /// What it says of itself.
    pub description: Option<String>,
}

#[derive(Default)]
struct Watching {
    watch: RefCell<Option<Watch>>,
    stopped: Cell<Option<Stop>>,
    ticks: Cell<u32>,
    /// How many steps the run may make yet.
    steps_left: Cell<u64>,
    /// What the run may take of memory.
    bytes_max: Cell<usize>,
}

/// One state of Luau.
pub struct Sandbox {
    lua: Lua,
    /// Makes the globals of a script, and of a library.
    script: Function,
    library: Function,
    /// Calls and catches.
    catch: Function,
    marks: Marks,
    loaded: RefCell<Loaded>,
    watching: Rc<Watching>,
    /// Bytes that are taken when nothing runs.
    base_bytes: usize,
    is_spent: bool,
}

impl Sandbox {
    /// Makes a state: some hundred microseconds.
    ///
    /// # Errors
    /// `Setup`, which is a fault of the program.
    pub fn new() -> Result<Self, ScriptError> {
        Self::make().map_err(|error| ScriptError::Setup { text: bounded(error.to_string().as_bytes(), 512) })
    }

    fn make() -> mlua::Result<Self> {
        let libraries = StdLib::COROUTINE | StdLib::TABLE | StdLib::STRING | StdLib::UTF8 | StdLib::BIT;
        let lua = Lua::new_with(libraries | StdLib::MATH | StdLib::BUFFER, LuaOptions::default())?;
        let commit = lua.create_table()?;
        commit.set_readonly(true);
        let catch: Function = lua.globals().raw_get("pcall")?;
        let watching = Rc::new(Watching::default());
        let soon = watching.clone();
        let ask_soon = lua.create_function(move |_, ()| {
            soon.ticks.set(TICKS - 1);
            Ok(())
        })?;
        let marks = Marks::new(&lua, commit)?;
        let prelude = lua.load(include_str!("prelude.luau")).set_name("=holdfast").set_mode(ChunkMode::Text);
        let (script, library): (Function, Function) = prelude.call((
            SCAN_MAX as f64,
            SCAN_LONG as f64,
            MOVE_MAX as f64,
            REP_MAX as f64,
            &marks.commit,
            ask_soon,
            cjson(&lua, &marks, &watching)?,
        ))?;
        lua.sandbox(true)?;
        let asked = watching.clone();
        lua.set_interrupt(move |_| asked.ask());
        lua.gc_collect()?;
        let base_bytes = lua.used_memory();
        let loaded = RefCell::default();
        Ok(Sandbox { lua, script, library, catch, marks, loaded, watching, base_bytes, is_spent: false })
    }

    /// Whether no other script should run here.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Runs a script against `host`, until it ends or `watch` ends it.
    ///
    /// # Errors
    /// What the script failed of. Whatever it did by the host is for the host to undo.
    pub fn run(&mut self, run: &Run<'_>, watch: Watch, host: &mut dyn Host) -> Result<Value, ScriptError> {
        self.watched(run.limits, watch, |this| this.run_in_scope(run, host))
    }

    /// Loads a library and says what it registers.
    ///
    /// # Errors
    /// What it failed of; `Failed` also if it registers nothing.
    pub fn functions(
        &mut self,
        script: &Script,
        limits: &Limits,
        watch: Watch,
    ) -> Result<Vec<Registered>, ScriptError> {
        self.watched(limits, watch, |this| this.functions_in(script, limits))
    }

    fn watched<T>(
        &mut self,
        limits: &Limits,
        watch: Watch,
        run: impl FnOnce(&Self) -> Result<T, ScriptError>,
    ) -> Result<T, ScriptError> {
        let setup = |error: mlua::Error| ScriptError::Setup { text: error.to_string() };
        self.lua.set_memory_limit(limits.memory_bytes_max.max(self.base_bytes + (64 << 10))).map_err(setup)?;
        self.watching.begin(Some(watch));
        self.watching.bytes_max.set(limits.memory_bytes_max);
        self.watching.steps_left.set(limits.steps_max);
        let ran = run(self);
        let stopped = self.watching.stopped.get();
        self.watching.begin(None);
        // Without limits while it is cleaned up.
        self.lua.set_memory_limit(0).map_err(setup)?;
        // Whoever catches that the time is over has not made it longer.
        let ran = match stopped {
            Some(stop) => Err(ScriptError::Stopped(stop)),
            None => ran,
        };
        self.is_spent |=
            matches!(ran, Err(ScriptError::Stopped(_) | ScriptError::Memory { .. } | ScriptError::Setup { .. }));
        if !self.is_spent && self.lua.used_memory() > self.base_bytes + limits.memory_bytes_max / 8 {
            // What is kept loaded takes a few times its bytecode.
            let kept = self.base_bytes * 2 + self.loaded.get_mut().bytes * 4;
            self.is_spent = self.lua.gc_collect().is_err() || self.lua.used_memory() > kept;
        }
        ran
    }

    fn run_in_scope(&self, run: &Run<'_>, host: &mut dyn Host) -> Result<Value, ScriptError> {
        let limits = run.limits;
        let mut value = Err(ScriptError::NoFunction);
        let (marks, depth) = (&self.marks, limits.depth_max);
        let done = self.lua.scope(|scope| {
            let host = scope.create_function_mut(|lua, arguments: Variadic<Luau>| {
                answer(lua, marks, depth, &arguments, &mut *host)
            })?;
            value = self.run_with(run, host)?;
            Ok(())
        });
        match done {
            Ok(()) => value,
            Err(error) => Err(failure(&error, limits)),
        }
    }

    /// The outer error is of the preparation, the inner one of the script.
    fn run_with(&self, run: &Run<'_>, host: Function) -> mlua::Result<Result<Value, ScriptError>> {
        let texts = |texts: &[&[u8]]| -> mlua::Result<Table> {
            let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
            for text in texts {
                table.raw_push(self.lua.create_string(text)?)?;
            }
            Ok(table)
        };
        let (keys, arguments) = (texts(run.keys)?, texts(run.arguments)?);
        let returned = match run.entry {
            Entry::Text => {
                let globals: Table = self.script.call((host, run.seed, keys, arguments))?;
                self.catch_body(run.script, globals)?
            }
            Entry::Function(name) => {
                let (globals, functions, ready): (Table, Table, Function) = self.library.call((host, run.seed))?;
                let loaded = self.catch_body(run.script, globals)?;
                if let Err(error) = caught(loaded, run.limits) {
                    return Ok(Err(error));
                }
                ready.call::<()>(())?;
                let Luau::Table(registered) = functions.raw_get(name)? else {
                    return Ok(Err(ScriptError::NoFunction));
                };
                let callback: Function = registered.raw_get("callback")?;
                self.catch.call::<MultiValue>((callback, keys, arguments))?
            }
        };
        Ok(caught(returned, run.limits).and_then(|returned| FromScript::new(&self.marks, run.limits).value(&returned)))
    }

    fn functions_in(&self, script: &Script, limits: &Limits) -> Result<Vec<Registered>, ScriptError> {
        let listed = || -> mlua::Result<Result<Vec<Registered>, ScriptError>> {
            let nothing = self.lua.create_function(|_, _: Variadic<Luau>| Ok(()))?;
            let (globals, functions, _): (Table, Table, Function) = self.library.call((nothing, 0))?;
            let loaded = self.catch_body(script, globals)?;
            if let Err(error) = caught(loaded, limits) {
                return Ok(Err(error));
            }
            let mut list = Vec::new();
            for pair in functions.pairs::<String, Table>() {
                let (name, function) = pair?;
                let description: Option<mlua::LuaString> = function.raw_get("description")?;
                list.push(Registered {
                    name,
                    is_reading: function.raw_get("is_reading")?,
                    description: description.map(|text| bounded(&text.as_bytes(), limits.error_bytes_max)),
                });
            }
            list.sort_unstable_by(|left, right| left.name.cmp(&right.name));
            if list.is_empty() {
                let text = "the library registers no function: call redis.register_function".to_owned();
                return Ok(Err(ScriptError::Failed { text }));
            }
            Ok(Ok(list))
        };
        listed().unwrap_or_else(|error| Err(failure(&error, limits)))
    }

    /// Calls the text as a function with these globals.
    fn catch_body(&self, script: &Script, globals: Table) -> mlua::Result<MultiValue> {
        let body = self.load(script)?;
        body.set_environment(globals)?;
        let returned = self.catch.call::<MultiValue>(&body);
        // What the run has made goes with it.
        body.set_environment(self.marks.commit.clone())?;
        returned
    }

    /// The text as a function, whose globals are to be set. It has no variables from outside and no state, so runs may share it;
    /// functions inside of it are made anew wherever its globals are others.
    fn load(&self, script: &Script) -> mlua::Result<Function> {
        let mut loaded = self.loaded.borrow_mut();
        if let Some(body) = loaded.bodies.get(&script.id) {
            return Ok(body.clone());
        }
        // Made by `Script::compile`, of text.
        let chunk = self.lua.load(script.bytecode.as_slice()).set_mode(ChunkMode::Binary);
        let body = chunk.set_name(&script.name).set_environment(self.marks.commit.clone()).into_function()?;
        if loaded.bytes + script.bytecode.len() > LOADED_BYTES_MAX {
            *loaded = Loaded::default();
        }
        if script.bytecode.len() <= LOADED_BYTES_MAX {
            loaded.bytes += script.bytecode.len();
            loaded.bodies.insert(script.id, body.clone());
        }
        Ok(body)
    }
}

/// Texts that were loaded, by the number of their script.
#[derive(Default)]
struct Loaded {
    bodies: BTreeMap<u64, Function>,
    /// Of their bytecode.
    bytes: usize,
}

impl Watching {
    fn begin(&self, watch: Option<Watch>) {
        self.stopped.set(None);
        self.ticks.set(0);
        // Cleaning up has no end of its own.
        self.steps_left.set(u64::MAX);
        self.watch.replace(watch);
    }

    fn ask(&self) -> mlua::Result<VmState> {
        if self.stopped.get().is_none() {
            match self.steps_left.get().checked_sub(1) {
                Some(left) => self.steps_left.set(left),
                None => self.stopped.set(Some(Stop::Steps)),
            }
        }
        if self.stopped.get().is_none() {
            let ticks = self.ticks.get().wrapping_add(1);
            self.ticks.set(ticks);
            if !ticks.is_multiple_of(TICKS) {
                return Ok(VmState::Continue);
            }
        }
        self.ask_now().map(|()| VmState::Continue)
    }

    fn ask_now(&self) -> mlua::Result<()> {
        if self.stopped.get().is_none() {
            let stop = self.watch.borrow().as_ref().and_then(|watch| watch());
            self.stopped.set(stop);
        }
        // Again and again, so that no `pcall` goes on.
        self.stopped.get().map_or(Ok(()), |stop| Err(mlua::Error::runtime(ScriptError::Stopped(stop))))
    }
}

/// What `cjson` is.
fn cjson(lua: &Lua, marks: &Marks, watching: &Rc<Watching>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let (asked, kept) = (watching.clone(), marks.clone());
    let decode = lua.create_function(move |lua, text: mlua::LuaString| {
        json::decode(lua, &text.as_bytes(), &kept, &|| asked.ask_now())
    })?;
    let (asked, kept) = (watching.clone(), marks.clone());
    let encode = lua.create_function(move |lua, value: Luau| {
        let (bytes_max, ask) = (asked.bytes_max.get(), &|| asked.ask_now());
        let text = json::encode(&value, &Encoding { bytes_max, ask, marks: &kept })?;
        lua.create_string(text)
    })?;
    table.raw_set("decode", decode)?;
    table.raw_set("encode", encode)?;
    table.raw_set("null", Luau::NULL)?;
    table.raw_set("empty_array_mt", &marks.empty)?;
    Ok(table)
}

/// What the host is asked for by the prelude.
fn answer(lua: &Lua, marks: &Marks, depth: usize, arguments: &[Luau], host: &mut dyn Host) -> mlua::Result<Luau> {
    let (what, rest) = arguments.split_first().ok_or_else(|| mlua::Error::runtime("nothing is asked for"))?;
    let what = what.as_string().ok_or_else(|| mlua::Error::runtime("nothing is asked for"))?;
    match &*what.as_bytes() {
        b"call" => {
            let value = match texts(rest, marks) {
                Some(texts) if texts.is_empty() => Value::Error(b"ERR a call names at least a command".to_vec()),
                Some(texts) => host.call(&texts),
                None => Value::Error(b"ERR the arguments of a command are texts or numbers".to_vec()),
            };
            into_script(lua, &marks.commit, value, depth)
        }
        b"sha1hex" => {
            let texts = texts(rest, marks).ok_or_else(|| mlua::Error::runtime("sha1hex takes a text or a number"))?;
            Ok(Luau::String(lua.create_string(sha1hex(texts.first().map_or(&[], Vec::as_slice)))?))
        }
        b"log" => {
            let level = rest.first().map_or(0, small);
            if let Some(text) = rest.get(1).and_then(Luau::as_string) {
                host.log(level, &bounded(&text.as_bytes(), LOG_BYTES_MAX));
            }
            Ok(Luau::Nil)
        }
        _ => {
            host.set_protocol(rest.first().map_or(0, small));
            Ok(Luau::Nil)
        }
    }
}

fn small(value: &Luau) -> u8 {
    match value {
        Luau::Integer(value) => u8::try_from(*value).unwrap_or_default(),
        Luau::Number(value) => *value as u8,
        _ => 0,
    }
}

fn texts(values: &[Luau], marks: &Marks) -> Option<Vec<Vec<u8>>> {
    let text = |value: &Luau| match value {
        Luau::String(text) => Some(text.as_bytes().to_vec()),
        Luau::Number(value) => Some(number::text(*value).into_bytes()),
        Luau::Integer(value) => Some(value.to_string().into_bytes()),
        Luau::Table(table) => marks.digits(table).map(|digits| digits.as_bytes().to_vec()),
        _ => None,
    };
    values.iter().map(text).collect()
}

/// What `pcall` returned: the value, or the error that was raised.
fn caught(returned: MultiValue, limits: &Limits) -> Result<Luau, ScriptError> {
    let mut returned = returned.into_iter();
    let is_good = matches!(returned.next(), Some(Luau::Boolean(true)));
    let value = returned.next().unwrap_or(Luau::Nil);
    if is_good {
        return Ok(value);
    }
    let bounded = |text: &[u8]| bounded(text, limits.error_bytes_max);
    Err(match &value {
        Luau::Error(error) => failure(error, limits),
        Luau::String(text) if &*text.as_bytes() == b"not enough memory" => {
            ScriptError::Memory { bytes_max: limits.memory_bytes_max }
        }
        Luau::String(text) => ScriptError::Failed { text: bounded(&text.as_bytes()) },
        Luau::Number(value) => ScriptError::Failed { text: number::text(*value) },
        Luau::Table(table) => match table.raw_get::<Luau>("err") {
            Ok(Luau::String(text)) => ScriptError::Raised { text: bounded(&text.as_bytes()) },
            _ => ScriptError::Failed { text: "the script raised a table without the text `err`".to_owned() },
        },
        other => ScriptError::Failed { text: format!("the script raised a {}", other.type_name()) },
    })
}

fn failure(error: &mlua::Error, limits: &Limits) -> ScriptError {
    match error {
        mlua::Error::MemoryError(_) => ScriptError::Memory { bytes_max: limits.memory_bytes_max },
        mlua::Error::CallbackError { cause, .. } => failure(cause, limits),
        mlua::Error::RuntimeError(text) => {
            ScriptError::Failed { text: bounded(text.as_bytes(), limits.error_bytes_max) }
        }
        other => ScriptError::Failed { text: bounded(other.to_string().as_bytes(), limits.error_bytes_max) },
    }
}

/// Text of bounded length, on one line.
pub(crate) fn bounded(text: &[u8], bytes_max: usize) -> String {
    let is_cut = text.len() > bytes_max;
    let text = String::from_utf8_lossy(text.get(..bytes_max).unwrap_or(text));
    let mut text: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    if is_cut {
        text.push_str("...");
    }
    text
}

#[cfg(test)]
#[path = "sandbox_tests.rs"]
mod tests;
