//! Lines to standard output and standard error that never fail the program: whoever reads them may be gone.
//!
//! May use: `std`. Must not know: what is said.

use std::fmt::{self, Display};
use std::io::{self, Write};

/// A line for people and scripts, on standard output.
pub(crate) fn say(line: impl Display) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A line about something that went wrong or goes on, on standard error.
pub(crate) fn complain(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Bytes as people read them: three digits and a binary unit.
pub(crate) struct Bytes(pub(crate) u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64;
        let mut unit = "";
        for name in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
            if value < 1024.0 {
                break;
            }
            (value, unit) = (value / 1024.0, name);
        }
        write!(f, "{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn bytes_get_the_unit_that_fits() {
        let cases = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (64 << 20, "64.0 MiB"), (3 << 29, "1.5 GiB")];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(Bytes(u64::MAX).to_string(), "16.0 EiB");
    }
}
