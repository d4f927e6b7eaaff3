//! How much one command may do where it runs.
//!
//! On the event loop that is little, because all other clients wait meanwhile. A command that comes upon more fails with
//! [`Fail::Heavy`] before it has changed anything, and is begun again in a thread (`connection/heavy.rs`), where it may do as much
//! as it likes, but is owed no more than there was room for.
//!
//!   touched   bytes of values and arguments that are read, checked, compared or copied
//!   owed      bytes of values among them that go into the reply, and lie in memory until the client has taken them; what is more than
//!             any reply may have is refused before it is read
//!
//! May use: `call` for the failure. Must not know: threads, what commands do.

use super::call::Fail;

/// What an argument, or a key that is gone by, counts at least: looking it up costs about as much as copying so many bytes.
pub(crate) const ITEM_BYTES: u64 = 256;

/// What a byte of a text counts that is parsed, as documents, queries and changes are: what it becomes takes longer than copying it.
pub(crate) const PARSED_BYTES: u64 = 16;

/// What a regular expression counts: compiling a large one takes up to ten milliseconds.
pub(crate) const REGEX_BYTES: u64 = 384 << 10;

/// What a value is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// To be in the reply.
    Show,
    /// To see something in it, or to make another of it.
    Look,
}

/// What a command has done, and may.
#[derive(Debug, Clone)]
pub(crate) struct Effort {
    touched: u64,
    touched_max: u64,
    owed: u64,
    owed_max: u64,
    reply_max: u64,
}

impl Effort {
    /// As much as is needed.
    pub(crate) const ANY: Self = Self::new(u64::MAX, u64::MAX);

    const fn new(touched_max: u64, owed_max: u64) -> Self {
        Effort { touched: 0, touched_max, owed: 0, owed_max, reply_max: u64::MAX }
    }

    /// On the event loop.
    pub(crate) fn here(bytes_max: usize) -> Self {
        Self::new(bytes_max as u64, u64::MAX)
    }

    /// In a thread, with so much room for what the client will be owed.
    pub(crate) fn elsewhere(owed_max: u64) -> Self {
        Self::new(u64::MAX, owed_max)
    }

    /// For a reply of so many bytes at the most.
    pub(crate) fn with_reply_max(self, bytes: usize) -> Self {
        Effort { reply_max: bytes as u64, ..self }
    }

    /// The largest value that may be read.
    pub(crate) fn value_max(&self, to: Use) -> u64 {
        let touched = self.touched_max.saturating_sub(self.touched);
        match to {
            Use::Look => touched,
            Use::Show => touched.min(self.owed_max.min(self.reply_max).saturating_sub(self.owed)),
        }
    }

    /// Notes what is done.
    ///
    /// # Errors
    /// `Heavy` when that is more than may be done here; `TooBig` when no reply may have so much.
    pub(crate) fn add(&mut self, bytes: u64, to: Use) -> Result<(), Fail> {
        self.touched = self.touched.saturating_add(bytes);
        if to == Use::Show {
            self.owed = self.owed.saturating_add(bytes);
        }
        if self.owed > self.reply_max {
            return Err(Fail::TooBig(usize::try_from(self.reply_max).unwrap_or(usize::MAX)));
        }
        if self.touched > self.touched_max || self.owed > self.owed_max {
            return Err(Fail::Heavy { owed: self.owed });
        }
        Ok(())
    }

    /// Notes what takes so long that it is for no event loop.
    ///
    /// # Errors
    /// As [`Effort::add`].
    pub(crate) fn add_long(&self) -> Result<(), Fail> {
        if self.touched_max == u64::MAX { Ok(()) } else { Err(Fail::Heavy { owed: self.owed }) }
    }

    /// Notes so many things that are gone by.
    ///
    /// # Errors
    /// As [`Effort::add`].
    pub(crate) fn add_items(&mut self, items: usize) -> Result<(), Fail> {
        self.add((items as u64).saturating_mul(ITEM_BYTES), Use::Look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_here_says_how_much_will_be_owed() {
        let mut effort = Effort::here(1000);
        assert!(effort.add(400, Use::Look).is_ok() && effort.value_max(Use::Show) == 600);
        assert!(matches!(effort.add(601, Use::Show), Err(Fail::Heavy { owed: 601 })));
        let mut effort = Effort::here(1000);
        assert!(matches!(effort.add_items(4), Err(Fail::Heavy { owed: 0 })));
    }

    #[test]
    fn in_a_thread_only_what_is_owed_is_bounded() {
        let mut effort = Effort::elsewhere(1000);
        assert!(effort.add(u64::MAX, Use::Look).is_ok() && effort.value_max(Use::Look) == 0);
        let mut effort = Effort::elsewhere(1000);
        assert!(effort.add(900, Use::Show).is_ok() && effort.value_max(Use::Show) == 100);
        assert!(matches!(effort.add(200, Use::Show), Err(Fail::Heavy { owed: 1100 })));
        assert!(Effort::ANY.clone().add(u64::MAX, Use::Show).is_ok());
    }

    #[test]
    fn what_no_reply_may_have_is_refused_before_it_is_read() {
        for effort in [Effort::here(1000), Effort::elsewhere(1000), Effort::ANY.clone()] {
            let mut effort = effort.with_reply_max(500);
            assert!(effort.add(400, Use::Show).is_ok() && effort.value_max(Use::Show) == 100);
            assert!(effort.add(300, Use::Look).is_ok(), "what is only looked at is in no reply");
            assert!(matches!(effort.add(101, Use::Show), Err(Fail::TooBig(500))));
        }
    }
}
