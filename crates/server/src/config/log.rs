//! How much is logged.
//!
//! May use: clap, serde, tracing. Must not know: what is logged.

use clap::ValueEnum;
use serde::Deserialize;
use tracing::level_filters::LevelFilter;

/// How much is logged, each with all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// What failed and will not mend itself
    Error,
    /// What should not be
    Warn,
    /// What happens rarely
    #[default]
    Info,
    /// What single clients do wrong
    Debug,
    /// Everything
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}
