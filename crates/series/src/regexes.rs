//! The regular expressions of one request: how many there may be, and how large each may become.
//!
//! A text of a few bytes may compile to megabytes, and all expressions of a request are there at once.
//!
//! May use: `error`. Must not know: the languages that they stand in.

use regex::RegexBuilder;

use crate::error::{Error, Result};

/// The largest program that an expression may become.
const BYTES_MAX: usize = 1 << 20;
/// Expressions of one request that may be so large.
const LARGE_MAX: usize = 64;
/// Bytes that each of the others may take.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Expressions of one request.
const COUNT_MAX: usize = 1024;

/// Counts the expressions of one request.
#[derive(Debug, Default)]
pub(crate) struct Regexes {
    count: usize,
}

impl Regexes {
    /// Counts one more, and says what builds it within what it may take.
    ///
    /// # Errors
    /// [`Error::Limit`] when there are too many.
    pub(crate) fn builder(&mut self, text: &str) -> Result<RegexBuilder> {
        self.count += 1;
        if self.count > COUNT_MAX {
            let (actual, limit) = (self.count as u64, COUNT_MAX as u64);
            return Err(Error::Limit { what: "number of regular expressions", actual, limit });
        }
        let mut builder = RegexBuilder::new(text);
        builder.size_limit(if self.count <= LARGE_MAX { BYTES_MAX } else { SMALL_BYTES_MAX });
        Ok(builder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_may_be_large_and_no_more_come_than_there_may_be() {
        let mut regexes = Regexes::default();
        let large = r"\w{5}";
        for count in 0..COUNT_MAX {
            let built = regexes.builder(large).unwrap().build();
            assert_eq!(built.is_ok(), count < LARGE_MAX, "{count}");
        }
        assert!(matches!(regexes.builder("a"), Err(Error::Limit { .. })));
        assert!(Regexes::default().builder(r"\w{9999}").unwrap().build().is_err());
    }
}
