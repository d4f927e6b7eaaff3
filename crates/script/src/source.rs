//! Source text: its first line, and what it is compiled to.
//!
//! The first line may be `#!luau` or `#!lua`, for libraries with `name=NAME`, for scripts with `flags=FLAG,...`. Lines
//! keep their numbers.
//!
//! Only text is ever compiled. Luau does not check bytecode, so what is loaded as such was made here.
//!
//! May use: `mlua`. Must not know: how scripts run.

use std::sync::atomic::{AtomicU64, Ordering};

use mlua::chunk::Compiler;

use crate::error::ScriptError;
use crate::limits::Limits;
use crate::sandbox::bounded;

/// How many scripts were compiled.
static IDS: AtomicU64 = AtomicU64::new(0);

/// What the first line says, if it begins with `#!`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The library's name.
    pub name: Option<String>,
    /// Whether the flag `no-writes` is there.
    pub is_reading: bool,
}

impl Header {
    /// Reads the first line, and says where the rest begins. Without `#!` there is nothing to read.
    ///
    /// # Errors
    /// [`ScriptError::Header`] says what is wrong.
    pub fn read(source: &[u8]) -> Result<(Option<Header>, &[u8]), ScriptError> {
        let wrong = |text: String| ScriptError::Header { text };
        let Some(line) = source.strip_prefix(b"#!") else { return Ok((None, source)) };
        let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
        let (line, rest) = line.split_at(end);
        let line = std::str::from_utf8(line).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        let mut words = line.split_whitespace();
        match words.next() {
            Some("lua" | "luau") => {}
            other => {
                let engine: String = other.unwrap_or_default().chars().take(32).collect();
                return Err(wrong(format!("there is no engine '{engine}': write #!luau")));
            }
        }
        let mut header = Header::default();
        for word in words {
            match word.split_once('=') {
                Some(("name", name)) if header.name.is_none() => {
                    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                    if name.is_empty() || name.len() > 128 || !is_name(name) {
                        return Err(wrong(
                            "the name of a library is letters, digits and underscores, 128 at most".to_owned(),
                        ));
                    }
                    header.name = Some(name.to_owned());
                }
                Some(("flags", flags)) => {
                    for flag in flags.split(',') {
                        match flag {
                            "no-writes" => header.is_reading = true,
                            // Redis has these; here they change nothing.
                            "" | "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                            other => {
                                let other: String = other.chars().take(32).collect();
                                return Err(wrong(format!("there is no flag '{other}'")));
                            }
                        }
                    }
                }
                _ => {
                    let word: String = word.chars().take(32).collect();
                    return Err(wrong(format!("'{word}' is neither name=NAME nor flags=FLAG,...")));
                }
            }
        }
        Ok((Some(header), rest))
    }
}

/// A script that was compiled. It may run in any sandbox, any number of times.
#[derive(Debug)]
pub struct Script {
    /// Another for each in this process.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) bytecode: Vec<u8>,
    header: Option<Header>,
}

impl Script {
    /// Compiles source text. `name` stands before the line in the text of errors.
    ///
    /// # Errors
    /// `TooLong`, `Header`, and `Compile` with the line that is wrong.
    pub fn compile(name: &str, source: &[u8], limits: &Limits) -> Result<Self, ScriptError> {
        if source.len() > limits.source_bytes_max {
            return Err(ScriptError::TooLong { bytes: source.len(), bytes_max: limits.source_bytes_max });
        }
        let (header, text) = Header::read(source)?;
        let name = format!("={name}");
        let failed = |text: &str| {
            let text = format!("{}:{}", name.trim_start_matches('='), text.trim_start_matches(':'));
            ScriptError::Compile { text: bounded(text.as_bytes(), limits.error_bytes_max) }
        };
        // Luau takes it for the end of the text: what is behind it would be left out, and nobody told.
        if let Some(at) = text.iter().position(|byte| *byte == 0) {
            let line = 1 + text.iter().take(at).filter(|byte| **byte == b'\n').count();
            return Err(failed(&format!("{line}: a script has no NUL byte: in a text it is written \\0")));
        }
        let bytecode = Compiler::new().compile(text).map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => failed(&message),
            error => failed(&error.to_string()),
        })?;
        Ok(Script { id: IDS.fetch_add(1, Ordering::Relaxed), name, bytecode, header })
    }

    /// What the first line says.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Bytes that it takes in memory, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytecode.len() + self.name.len() + 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_library_and_lines_keep_their_numbers() {
        let (header, rest) = Header::read(b"#!lua name=stock flags=no-writes\nreturn 1").unwrap();
        assert_eq!(header, Some(Header { name: Some("stock".to_owned()), is_reading: true }));
        assert_eq!(rest, b"\nreturn 1");
        assert_eq!(Header::read(b"return 1").unwrap(), (None, b"return 1".as_slice()));
        let error = Script::compile("s", b"#!luau\n\nreturn +", &Limits::default()).unwrap_err();
        assert!(error.to_string().contains(":3:"), "{error}");
    }

    #[test]
    fn a_wrong_first_line_is_said_to_be_wrong() {
        for (line, part) in [
            ("#!python name=a", "no engine 'python'"),
            ("#!luau name=", "letters, digits"),
            ("#!luau name=a-b", "letters, digits"),
            ("#!luau name=a name=b", "'name=b' is neither"),
            ("#!luau flags=fast", "no flag 'fast'"),
            ("#!luau what", "'what' is neither"),
        ] {
            let error = Header::read(line.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
        assert!(Header::read(b"#!luau \xff\n").is_err());
    }

    #[test]
    fn bytecode_is_refused() {
        let compiled = Script::compile("s", b"return 1", &Limits::default()).unwrap();
        assert!(matches!(
            Script::compile("s", &compiled.bytecode, &Limits::default()),
            Err(ScriptError::Compile { .. })
        ));
        assert!(matches!(Script::compile("s", b"\x1bLua", &Limits::default()), Err(ScriptError::Compile { .. })));
    }

    #[test]
    fn a_text_that_is_too_long_or_too_deep_is_refused() {
        let limits = Limits::tiny();
        let long = vec![b' '; limits.source_bytes_max + 1];
        assert!(matches!(Script::compile("s", &long, &limits), Err(ScriptError::TooLong { .. })));
        let deep = format!("return {}1{}", "(".repeat(100_000), ")".repeat(100_000));
        let error = Script::compile("s", deep.as_bytes(), &Limits::default()).unwrap_err();
        assert!(matches!(error, ScriptError::Compile { .. }), "{error}");
    }
}
