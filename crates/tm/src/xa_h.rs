//! The structures of `xa.h`, for Rust: what a resource manager's library offers, and how it names branches.
//!
//! May use: `xa`. Must not know: what any call does but the one that lists branches.
#![allow(unsafe_code, reason = "a switch is a table of C functions in a library that somebody else made")]

use std::ffi::{c_char, c_int, c_long};

use xa::{BranchName, FORMAT_ID, TransactionId, XaCode, Xid};

const XID_DATA_BYTES: usize = 128;
const NAME_BYTES: usize = 32;
/// The flag of a switch that works on while the program does other things: it alone needs `xa_complete`.
pub const TMUSEASYNC: c_long = 0x4;
/// Branches asked for at a time.
const LIST_BATCH: usize = 64;

/// No flags.
pub const TMNOFLAGS: c_long = 0;
/// A list begins.
pub const TMSTARTRSCAN: c_long = 0x0100_0000;
/// A list ends.
pub const TMENDRSCAN: c_long = 0x0080_0000;

/// `XID`: a branch's name; `data` holds the transaction's and right behind it the branch's.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XidData {
    /// Whose names these are; -1 when there is none.
    pub format: c_long,
    /// Bytes of the transaction's name.
    pub gtrid_length: c_long,
    /// Bytes of the branch's name.
    pub bqual_length: c_long,
    /// Both names.
    pub data: [c_char; XID_DATA_BYTES],
}

impl XidData {
    /// No name.
    pub const NULL: Self = Self { format: -1, gtrid_length: 0, bqual_length: 0, data: [0; XID_DATA_BYTES] };

    /// The name of a branch of ours.
    pub fn of(xid: &Xid) -> Self {
        Self::of_branch(xid.transaction, &xid.branch)
    }

    /// The name of a transaction's branch.
    pub fn of_branch(id: TransactionId, branch: &BranchName) -> Self {
        Self::of_parts(&id.to_bytes(), branch.as_str().as_bytes())
    }

    /// The name of a transaction without a branch, for `tx_info`.
    pub fn of_parts(gtrid: &[u8], bqual: &[u8]) -> Self {
        let mut data = [0; XID_DATA_BYTES];
        for (to, byte) in data.iter_mut().zip(gtrid.iter().chain(bqual)) {
            *to = byte.cast_signed();
        }
        let length = |bytes: &[u8]| c_long::try_from(bytes.len()).expect("both names have at most 64 bytes");
        Self { format: c_long::from(FORMAT_ID), gtrid_length: length(gtrid), bqual_length: length(bqual), data }
    }

    /// The branch, when it is one of ours; a resource manager lists those of others too.
    pub fn to_xid(self) -> Option<Xid> {
        let (gtrid, bqual) = self.parts()?;
        Xid::of_parts(i32::try_from(self.format).ok()?, &gtrid, &bqual)
    }

    /// The name in hexadecimal, the transaction's part, a colon, the branch's, when it has our format and is no name of ours.
    pub fn unreadable(self) -> Option<String> {
        if self.format != c_long::from(FORMAT_ID) || self.to_xid().is_some() {
            return None;
        }
        let Some((gtrid, bqual)) = self.parts() else {
            return Some(format!("a name of {} and {} bytes", self.gtrid_length, self.bqual_length));
        };
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Some(format!("{}:{}", hex(gtrid), hex(bqual)))
    }

    fn parts(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (first, second) = (usize::try_from(self.gtrid_length).ok()?, usize::try_from(self.bqual_length).ok()?);
        let bytes: Vec<u8> = self.data.iter().map(|byte| byte.cast_unsigned()).collect();
        let bqual = bytes.get(first..first.checked_add(second)?)?;
        Some((bytes.get(..first)?.to_vec(), bqual.to_vec()))
    }
}

/// `xa_open` and `xa_close`: the string of the profile, the resource manager's number, flags.
pub type InfoCall = unsafe extern "C" fn(*mut c_char, c_int, c_long) -> c_int;
/// The calls about one branch.
pub type XidCall = unsafe extern "C" fn(*mut XidData, c_int, c_long) -> c_int;
/// `xa_recover`: where branches are put, how many fit, the resource manager's number, flags. Answers how many there are.
pub type RecoverCall = unsafe extern "C" fn(*mut XidData, c_long, c_int, c_long) -> c_int;
/// `xa_complete`: the handle, its answer, the resource manager's number, flags.
pub type CompleteCall = unsafe extern "C" fn(*mut c_int, *mut c_int, c_int, c_long) -> c_int;

/// `struct xa_switch_t`: what a resource manager offers. An entry that is null is not offered.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct XaSwitch {
    /// For people, with zeros behind it.
    pub name: [c_char; NAME_BYTES],
    /// How it works: `TMREGISTER`, `TMNOMIGRATE`, `TMUSEASYNC`.
    pub flags: c_long,
    /// Of the structure; 0.
    pub version: c_long,
    /// Opens a resource manager for the thread.
    pub open: Option<InfoCall>,
    /// Closes it for the thread.
    pub close: Option<InfoCall>,
    /// Begins work on a branch.
    pub start: Option<XidCall>,
    /// Ends or suspends it.
    pub end: Option<XidCall>,
    /// Rolls a branch back.
    pub rollback: Option<XidCall>,
    /// Prepares it.
    pub prepare: Option<XidCall>,
    /// Commits it.
    pub commit: Option<XidCall>,
    /// Lists what is prepared.
    pub recover: Option<RecoverCall>,
    /// Lets go what was ended by itself.
    pub forget: Option<XidCall>,
    /// Waits for a call that goes on.
    pub complete: Option<CompleteCall>,
}

/// What is prepared in a resource manager.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The branches whose names are ours.
    pub found: Vec<Xid>,
    /// The names that have our format and cannot be read, in hexadecimal: the transaction's part, a colon, the branch's.
    pub unreadable: Vec<String>,
    /// Whether there are no more.
    pub is_all: bool,
}

impl XaSwitch {
    /// The function that is missing, by its name in `xa.h`.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        let entries = [
            ("xa_open_entry", self.open.is_some()),
            ("xa_close_entry", self.close.is_some()),
            ("xa_start_entry", self.start.is_some()),
            ("xa_end_entry", self.end.is_some()),
            ("xa_rollback_entry", self.rollback.is_some()),
            ("xa_prepare_entry", self.prepare.is_some()),
            ("xa_commit_entry", self.commit.is_some()),
            ("xa_recover_entry", self.recover.is_some()),
            ("xa_forget_entry", self.forget.is_some()),
            ("xa_complete_entry", self.complete.is_some() || self.flags & TMUSEASYNC == 0),
        ];
        entries.into_iter().find_map(|(entry, is_there)| (!is_there).then_some(entry))
    }

    /// The branches that are prepared in the resource manager of this number, which is open for the thread, as far as their names are
    /// ours. It is asked no further once it has listed `max`, of anybody.
    ///
    /// # Safety
    /// `recover` is a function as the standard has it.
    ///
    /// # Errors
    /// What it answered.
    pub unsafe fn prepared(&self, rmid: c_int, max: usize) -> Result<Listed, XaCode> {
        let Some(entry) = self.recover else { return Err(XaCode::Protocol) };
        let list = |xids: &mut [XidData], flags: c_long| {
            let count = c_long::try_from(xids.len()).expect("a batch of branches is small");
            // SAFETY: the entry writes at most `count` names; the caller answers for it.
            unsafe { entry(xids.as_mut_ptr(), count, rmid, flags) }
        };
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        let (mut seen, mut flags) = (0, TMSTARTRSCAN);
        let is_all;
        loop {
            let mut batch = [XidData::NULL; LIST_BATCH];
            let answer = list(&mut batch, flags);
            let Ok(count) = usize::try_from(answer) else { return Err(code(answer)) };
            found.extend(batch.iter().take(count).filter_map(|xid| xid.to_xid()));
            unreadable.extend(batch.iter().take(count).filter_map(|xid| xid.unreadable()));
            seen += count;
            flags = TMNOFLAGS;
            if count < LIST_BATCH || seen >= max {
                is_all = count < LIST_BATCH;
                break;
            }
        }
        // The list is closed with a call that takes nothing more from it. What it answers changes nothing.
        let _ = list(&mut [], TMENDRSCAN);
        Ok(Listed { found, unreadable, is_all })
    }
}

/// A number that a resource manager answered. What the standard does not have is read as `XAER_PROTO`: nothing is known to
/// have happened.
#[must_use]
pub fn code(number: c_int) -> XaCode {
    XaCode::of_number(number).unwrap_or(XaCode::Protocol)
}
