//! Counts what passed and what failed, from the output of test programs and from steps that are one test each.
//!
//! May use: std. Must not know: which tests there are.

/// The word with which a test says that this machine could not let it run, and why.
const SKIPPED: &str = "SKIPPED ";

/// How many lines of reasons the report repeats, of how many characters.
const REASONS_MAX: usize = 40;
const REASON_CHARS_MAX: usize = 300;
/// How many lines behind a panic's first belong to it.
const PANIC_LINES: usize = 3;

/// What passed, what failed, and what did not run for a stated reason.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
    skipped: Vec<String>,
    /// The first lines that say why something failed: far up in a long output, and repeated at its end.
    reasons: Vec<String>,
    /// How many of the next lines belong to a panic.
    panic_lines: usize,
}

impl Tally {
    /// Reads one line of output and counts what it says, if it says anything.
    pub(crate) fn read_line(&mut self, line: &str) {
        if line.contains("panicked at ") {
            self.panic_lines = PANIC_LINES;
        }
        if self.panic_lines > 0 || (line.starts_with("seed ") && line.contains(" fails: ")) {
            self.panic_lines = self.panic_lines.saturating_sub(1);
            if self.reasons.len() < REASONS_MAX {
                self.reasons.push(line.chars().take(REASON_CHARS_MAX).collect());
            }
        }
        if let Some(result) = line.trim_start().strip_prefix("test result: ") {
            self.passed = self.passed.saturating_add(number_before(result, " passed"));
            self.failed = self.failed.saturating_add(number_before(result, " failed"));
        } else if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        } else if let Some(at) = line.find(SKIPPED) {
            // With one test thread the name of the test stands before it.
            self.skipped.extend(line.get(at..).map(str::to_owned));
        }
    }

    /// Counts a step that is one test.
    pub(crate) fn step(&mut self, name: &str, success: bool) {
        if success {
            self.passed = self.passed.saturating_add(1);
        } else {
            self.failed = self.failed.saturating_add(1);
            self.failures.push(name.to_owned());
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// What to look at, and the last line of every run: `N passed, N failed`.
    pub(crate) fn report(&self) -> String {
        let mut lines = self.skipped.clone();
        if self.failed > 0 {
            lines.extend(self.reasons.iter().map(|line| format!("    {line}")));
        }
        lines.extend(self.failures.iter().map(|name| format!("FAILED {name}")));
        lines.push(format!("{} passed, {} failed", self.passed, self.failed));
        lines.join("\n")
    }
}

/// The number that stands before the word: 12 in `ok. 12 passed; ..`.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split_once(word).map_or("", |(before, _)| before);
    before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn results_of_several_programs_and_steps_are_summed() {
        let mut tally = Tally::default();
        tally.read_line("running 3 tests");
        tally.read_line("test a::b ... FAILED");
        tally.read_line("thread 'a::b' (7) panicked at a.rs:1:2:");
        tally.read_line("left is not right");
        tally.read_line("seed 7 fails: check b: because");
        tally.read_line("note: of no interest");
        tally.read_line("seed 8 fails: check c: because");
        tally.read_line("seed 9 is well");
        tally.read_line(
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        tally.read_line(
            "test result: ok. 120 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        tally.read_line("test full_disk ... SKIPPED disk_full: not root");
        tally.step("example hello", true);
        tally.step("simulation", false);
        assert_eq!(tally.failed(), 2);
        let report = [
            "SKIPPED disk_full: not root",
            "    thread 'a::b' (7) panicked at a.rs:1:2:",
            "    left is not right",
            "    seed 7 fails: check b: because",
            "    seed 8 fails: check c: because",
            "FAILED a::b",
            "FAILED simulation",
            "123 passed, 2 failed",
        ];
        assert_eq!(tally.report(), report.join("\n"));
    }

    #[test]
    fn an_empty_run_still_says_so() {
        assert_eq!(Tally::default().report(), "0 passed, 0 failed");
    }
}
