//! Runs redis-benchmark and reads what it says with `--csv`.
//!
//! May use: processes. Must not know: which server it is.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::workload::{Failure, Result};

/// What redis-benchmark does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    Get,
    Set,
    /// A script that does nothing.
    Eval,
}

/// One run of redis-benchmark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) test: Test,
    pub(crate) requests: u64,
    pub(crate) pipeline: u16,
    pub(crate) clients: u16,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
}

/// What it measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    /// Requests a second.
    pub(crate) rate: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Test {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
            Self::Eval => "EVAL",
        }
    }
}

impl Run {
    /// Runs it against the server at `address`.
    pub(crate) fn against(&self, address: SocketAddr) -> Result<Measured> {
        let name = self.test.name();
        if self.test == Test::Eval {
            return self.command(&["EVAL", "return 1", "0"].map(str::to_owned), address);
        }
        self.run(address, &["-t".to_owned(), name.to_lowercase()], &|text| parse(text, Some(name)))
    }

    /// Runs a command of its own instead of the test.
    pub(crate) fn command(&self, words: &[String], address: SocketAddr) -> Result<Measured> {
        // The row is named by the whole command, commas and all; there is no other.
        self.run(address, words, &|text| parse(text, None))
    }

    fn run(&self, address: SocketAddr, what: &[String], parse: &dyn Fn(&str) -> Option<Measured>) -> Result<Measured> {
        let mut command = Command::new("redis-benchmark");
        command.arg("-h").arg(address.ip().to_string()).arg("-p").arg(address.port().to_string());
        let numbers = [
            ("-c", u64::from(self.clients)),
            ("-n", self.requests),
            ("-P", u64::from(self.pipeline)),
            ("-r", self.keys),
            ("-d", self.value_bytes as u64),
        ];
        for (flag, number) in numbers {
            command.arg(flag).arg(number.to_string());
        }
        command.arg("--csv").args(what);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| Failure::from(format!("redis-benchmark: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        parse(&text).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            if output.status.success() && text.contains("\"inf\"") {
                let few = self.requests;
                return format!("{few} requests end within redis-benchmark's clock, a millisecond: ask for more")
                    .into();
            }
            Failure::from(format!("redis-benchmark ended with {} and said: {text}{errors}", output.status))
        })
    }
}

/// The row of `test` in redis-benchmark's table, whose first line names the columns; without one the last row. Columns are
/// counted from the end, because a row's name may have commas.
fn parse(text: &str, test: Option<&str>) -> Option<Measured> {
    let mut rows = text.lines().map(cells).skip_while(|row| row.first().map(String::as_str) != Some("test"));
    let head = rows.next()?;
    let row = match test {
        Some(test) => rows.find(|row| row.first().map(String::as_str) == Some(test))?,
        None => rows.last()?,
    };
    let number = |column: &str| -> Option<f64> {
        let at = head.iter().rev().position(|name| name == column)?;
        let number: f64 = row.iter().rev().nth(at)?.parse().ok()?;
        number.is_finite().then_some(number)
    };
    Some(Measured { rate: number("rps")?, p50_ms: number("p50_latency_ms")?, p99_ms: number("p99_latency_ms")? })
}

/// Cells of a line of quoted, comma-separated values without quotes inside.
fn cells(line: &str) -> Vec<String> {
    line.split(',').map(|cell| cell.trim().trim_matches('"').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                        \"p99_latency_ms\",\"max_latency_ms\"\n";

    #[test]
    fn the_row_of_the_test_is_found_by_the_names_of_its_columns() {
        let text = format!(
            "WARNING: Could not fetch server CONFIG\n{HEAD}\"SET\",\"1.00\",\"0\",\"0\",\"0\",\"0\",\"0\",\"0\"\n\
             \"GET\",\"123456.79\",\"0.205\",\"0.104\",\"0.199\",\"0.287\",\"0.359\",\"1.431\"\n"
        );
        assert_eq!(parse(&text, Some("GET")), Some(Measured { rate: 123_456.79, p50_ms: 0.199, p99_ms: 0.359 }));
    }

    #[test]
    fn a_command_with_commas_is_the_only_row() {
        let text = format!(
            "{HEAD}\"SPACE.WRITE b e {{\"id\":1,\"v\":2}}\",\"5.50\",\"0.2\",\"0.1\",\"0.3\",\"0.2\",\"0.4\",\"1\"\n"
        );
        assert_eq!(parse(&text, None), Some(Measured { rate: 5.5, p50_ms: 0.3, p99_ms: 0.4 }));
    }

    #[test]
    fn what_is_not_a_table_with_that_row_is_nothing() {
        let short = format!("{HEAD}\"GET\",\"1.0\"\n");
        let broken = format!("{HEAD}\"GET\",\"nan\",\"0\",\"0\",\"0\",\"0\",\"0\",\"0\"\n");
        for text in ["", HEAD, "Could not connect to Redis\n", &short, &broken, "\"GET\",\"1\"\n"] {
            assert_eq!(parse(text, Some("GET")), None, "{text}");
        }
    }
}
