//! What is wrong with a configuration: where, which key, what, and what to do.
//!
//! The text never repeats a value that may be a secret.
//!
//! May use: nothing. Must not know: keys.

use std::fmt;
use std::path::{Path, PathBuf};

/// One mistake in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    file: Option<PathBuf>,
    line: Option<usize>,
    key: String,
    problem: String,
}

impl ConfigError {
    /// A mistake at a key, or at an option of the command line. `problem` says what to do as well.
    pub(crate) fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { file: None, line: None, key: key.into(), problem: problem.into() }
    }

    pub(crate) fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    /// Lines count from 1.
    pub(crate) fn at_line(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some(line) = self.line {
                write!(f, ", line {line}")?;
            }
            f.write_str(": ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ConfigError {}
