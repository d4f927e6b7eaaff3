//! The configuration file as it is written: TOML, unknown keys are errors, nothing is checked beyond its shape.
//!
//! docs/operations/configuration.md describes every key. Numbers are read as 64 bits wide so that what is out of range gets
//! an answer of ours, with the range in it.
//!
//! May use: serde, toml, the library's words. Must not know: defaults, ranges.

use std::ops::Range;
use std::path::PathBuf;

use holdfast::Compression;
use serde::Deserialize;

use super::error::ConfigError;
use super::log::LogLevel;

/// The whole file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct File {
    pub(crate) dir: Option<PathBuf>,
    pub(crate) durability: Option<String>,
    pub(crate) partitions: Option<i64>,
    pub(crate) compression: Option<CompressionWord>,
    pub(crate) ledger_compression: Option<CompressionWord>,
    pub(crate) log: Option<LogLevel>,
    pub(crate) allow_insecure_bind: Option<bool>,
    pub(crate) tree: TreeTable,
    pub(crate) compaction: CompactionTable,
    pub(crate) scrub: ScrubTable,
    pub(crate) limits: LimitsTable,
    pub(crate) resp: RespTable,
    pub(crate) http: HttpTable,
    pub(crate) line: LineTable,
    pub(crate) series: SeriesTable,
    pub(crate) space: SpaceTable,
    pub(crate) script: ScriptTable,
    pub(crate) xa: XaTable,
    pub(crate) mirrors: Vec<MirrorTable>,
    pub(crate) users: Vec<UserTable>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CompressionWord {
    None,
    Lz4,
    Zstd,
}

impl From<CompressionWord> for Compression {
    fn from(word: CompressionWord) -> Self {
        match word {
            CompressionWord::None => Self::None,
            CompressionWord::Lz4 => Self::Lz4,
            CompressionWord::Zstd => Self::Zstd,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TreeTable {
    pub(crate) leaves: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CompactionTable {
    pub(crate) schedule: Option<String>,
    pub(crate) bytes_per_second: Option<i64>,
    pub(crate) dead_percent: Option<i64>,
    pub(crate) keep_bytes: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScrubTable {
    pub(crate) bytes_per_second: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsTable {
    pub(crate) value_bytes_max: Option<i64>,
    pub(crate) segment_bytes: Option<i64>,
    pub(crate) ledger_cache_bytes: Option<i64>,
    pub(crate) ledger_memory_bytes: Option<i64>,
    pub(crate) value_cache_bytes: Option<i64>,
    pub(crate) listener_retain_bytes_max: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RespTable {
    pub(crate) listen: Option<String>,
    pub(crate) reactors: Option<i64>,
    pub(crate) pipeline_reactors: Option<i64>,
    pub(crate) connections_max: Option<i64>,
    pub(crate) idle_timeout_seconds: Option<i64>,
    pub(crate) output_bytes_max: Option<i64>,
    pub(crate) input_bytes_max: Option<i64>,
    pub(crate) replies_bytes_max: Option<i64>,
    pub(crate) tls: Option<TlsTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpTable {
    pub(crate) listen: Option<String>,
    pub(crate) connections_max: Option<i64>,
    pub(crate) threads_max: Option<i64>,
    pub(crate) queries_max: Option<i64>,
    pub(crate) body_bytes_max: Option<i64>,
    pub(crate) bodies_bytes_max: Option<i64>,
    pub(crate) tls: Option<TlsTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LineTable {
    pub(crate) listen: Option<String>,
    pub(crate) udp_listen: Option<String>,
    pub(crate) reactors: Option<i64>,
    pub(crate) connections_max: Option<i64>,
    pub(crate) idle_timeout_seconds: Option<i64>,
    pub(crate) delay_milliseconds: Option<i64>,
    pub(crate) durability: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) user: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SeriesTable {
    pub(crate) memory_bytes: Option<i64>,
    pub(crate) query_memory_bytes: Option<i64>,
    pub(crate) query_seconds_max: Option<i64>,
    pub(crate) series_max: Option<i64>,
    pub(crate) free_bytes_min: Option<i64>,
    pub(crate) merge_bytes_per_second: Option<i64>,
    pub(crate) retention: Vec<RetentionTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SpaceTable {
    pub(crate) query_seconds_max: Option<i64>,
    pub(crate) query_memory_bytes: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScriptTable {
    pub(crate) memory_bytes_max: Option<i64>,
    pub(crate) steps_max: Option<i64>,
    pub(crate) time_milliseconds_max: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetentionTable {
    pub(crate) database: Option<String>,
    pub(crate) metric: Option<String>,
    pub(crate) keep_hours: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct XaTable {
    pub(crate) profiles_file: Option<PathBuf>,
    pub(crate) profiles: Option<Vec<String>>,
    pub(crate) interval_seconds: Option<i64>,
    pub(crate) sweep_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MirrorTable {
    pub(crate) name: Option<String>,
    pub(crate) space: Option<String>,
    #[serde(rename = "type")]
    pub(crate) type_name: Option<String>,
    pub(crate) address: Option<String>,
    pub(crate) address_file: Option<PathBuf>,
    pub(crate) table: Option<String>,
    pub(crate) id: Option<IdWord>,
    pub(crate) key: Option<String>,
    pub(crate) columns: Vec<MirrorColumnTable>,
    pub(crate) rest: Option<String>,
    pub(crate) leave_out: Option<bool>,
    pub(crate) unique_ids: Option<bool>,
    pub(crate) load: Option<bool>,
    pub(crate) read_through: Option<bool>,
    pub(crate) refused: Option<RefusedWord>,
    pub(crate) tls: Option<MirrorTlsTable>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IdWord {
    Integer,
    String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RefusedWord {
    Stop,
    SetAside,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MirrorColumnTable {
    pub(crate) name: Option<String>,
    pub(crate) field: Option<String>,
    pub(crate) kind: Option<KindWord>,
    pub(crate) scale: Option<i64>,
    #[serde(rename = "type")]
    pub(crate) sql_type: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KindWord {
    Integer,
    Double,
    Decimal,
    String,
    Boolean,
    Timestamp,
    Nanoseconds,
    Bytes,
    Json,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MirrorTlsTable {
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TlsTable {
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UserTable {
    pub(crate) name: Option<String>,
    pub(crate) password_hash: Option<String>,
    pub(crate) doors: Vec<String>,
    pub(crate) buckets: Option<Vec<BucketTable>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BucketTable {
    pub(crate) pattern: Option<String>,
    pub(crate) right: Option<RightWord>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RightWord {
    Read,
    Write,
    Admin,
}

/// Reads the file's text.
pub(crate) fn parse(text: &str) -> Result<File, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let (line, key) = place(text, error.span());
        let found = ConfigError::new(key, in_our_words(error.message()));
        match line {
            Some(line) => found.at_line(line),
            None => found,
        }
    })
}

/// The parser's words, without the value: it may be a secret that stands under the wrong key.
fn in_our_words(message: &str) -> String {
    let message = message.trim_end();
    if let Some(rest) = message.strip_prefix("invalid type: ") {
        let kind = rest.split([' ', '`', '"']).next().unwrap_or("something else");
        let wanted = rest.rsplit_once("expected ").map_or("something else", |(_, wanted)| wanted);
        return format!("this must be {}, not {}", plain(wanted), plain(kind));
    }
    let message = message.replace("unknown field", "there is no key").replace("unknown variant", "it cannot be");
    message.replace(", expected one of", "; there are").replace(", expected", "; there is")
}

/// The parser's word for a kind of value, in TOML's words.
fn plain(kind: &str) -> &str {
    match kind {
        "string" | "a string" | "path string" | "a path string" => "a string in quotes",
        "i64" | "integer" => "a number",
        "floating" => "a fraction",
        "a boolean" | "boolean" => "true or false",
        "a sequence" | "sequence" => "a list in [ ]",
        "map" | "a map" => "a table",
        other => other.strip_prefix("struct ").map_or(other, |_| "a table"),
    }
}

/// The line, counted from 1, and the key in it with the table it belongs to.
fn place(text: &str, span: Option<Range<usize>>) -> (Option<usize>, String) {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else { return (None, String::new()) };
    let line = before.matches('\n').count();
    let lines: Vec<&str> = text.lines().collect();
    let here = lines.get(line).copied().unwrap_or_default().trim();
    let is_header = |line: &&&str| line.trim_start().starts_with('[') && !line.contains('=');
    let table = lines.iter().take(line + 1).rev().find(is_header);
    let table = table.map_or("", |line| line.trim().trim_matches(['[', ']']));
    let key = here.split_once('=').map_or("", |(key, _)| key.trim());
    let key = if key.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) { key } else { "" };
    let dot = if table.is_empty() || key.is_empty() { "" } else { "." };
    (Some(line + 1), format!("{table}{dot}{key}"))
}
