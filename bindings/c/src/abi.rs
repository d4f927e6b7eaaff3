//! The structures and numbers of `xa.h` and `tx.h`, for Rust.
//!
//! May use: `tm` for names of branches. Must not know: what any call does.

use std::ffi::{c_char, c_int, c_long};

use tm::{BranchName, TransactionId, Xid};

const XID_DATA_BYTES: usize = 128;
const NAME_BYTES: usize = 32;

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
    pub(crate) const NULL: Self = Self { format: -1, gtrid_length: 0, bqual_length: 0, data: [0; XID_DATA_BYTES] };

    /// The name of a branch of ours.
    pub(crate) fn of(xid: &Xid) -> Self {
        Self::of_branch(xid.transaction, &xid.branch)
    }

    /// The name of a transaction's branch.
    pub(crate) fn of_branch(id: TransactionId, branch: &BranchName) -> Self {
        Self::of_parts(&id.to_bytes(), branch.as_str().as_bytes())
    }

    /// The name of a transaction without a branch, for `tx_info`.
    pub(crate) fn of_parts(gtrid: &[u8], bqual: &[u8]) -> Self {
        let mut data = [0; XID_DATA_BYTES];
        for (to, byte) in data.iter_mut().zip(gtrid.iter().chain(bqual)) {
            *to = byte.cast_signed();
        }
        let length = |bytes: &[u8]| c_long::try_from(bytes.len()).expect("both names have at most 64 bytes");
        Self { format: c_long::from(tm::FORMAT_ID), gtrid_length: length(gtrid), bqual_length: length(bqual), data }
    }

    /// The branch, when it is one of ours; a resource manager lists those of others too.
    pub(crate) fn to_xid(self) -> Option<Xid> {
        let (first, second) = (usize::try_from(self.gtrid_length).ok()?, usize::try_from(self.bqual_length).ok()?);
        let bytes: Vec<u8> = self.data.iter().map(|byte| byte.cast_unsigned()).collect();
        let bqual = bytes.get(first..first.checked_add(second)?)?;
        Xid::of_parts(i32::try_from(self.format).ok()?, bytes.get(..first)?, bqual)
    }
}

pub(crate) type InfoCall = unsafe extern "C" fn(*mut c_char, c_int, c_long) -> c_int;
pub(crate) type XidCall = unsafe extern "C" fn(*mut XidData, c_int, c_long) -> c_int;
pub(crate) type RecoverCall = unsafe extern "C" fn(*mut XidData, c_long, c_int, c_long) -> c_int;
pub(crate) type CompleteCall = unsafe extern "C" fn(*mut c_int, *mut c_int, c_int, c_long) -> c_int;

/// `struct xa_switch_t`: what a resource manager offers. An entry that is null is not offered.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct XaSwitch {
    pub(crate) name: [c_char; NAME_BYTES],
    pub(crate) flags: c_long,
    pub(crate) version: c_long,
    pub(crate) open: Option<InfoCall>,
    pub(crate) close: Option<InfoCall>,
    pub(crate) start: Option<XidCall>,
    pub(crate) end: Option<XidCall>,
    pub(crate) rollback: Option<XidCall>,
    pub(crate) prepare: Option<XidCall>,
    pub(crate) commit: Option<XidCall>,
    pub(crate) recover: Option<RecoverCall>,
    pub(crate) forget: Option<XidCall>,
    pub(crate) complete: Option<CompleteCall>,
}

/// A switch's name, with zeros behind it.
pub(crate) const fn switch_name(text: &[u8]) -> [c_char; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    let mut at = 0;
    while at < text.len() && at < NAME_BYTES - 1 {
        name[at] = text[at].cast_signed();
        at += 1;
    }
    name
}

/// `TXINFO`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TxInfo {
    pub(crate) xid: XidData,
    pub(crate) when_return: c_long,
    pub(crate) transaction_control: c_long,
    pub(crate) transaction_timeout: c_long,
    pub(crate) transaction_state: c_long,
}

pub(crate) const TMNOFLAGS: c_long = 0;
pub(crate) const TMREGISTER: c_long = 0x1;
pub(crate) const TMNOMIGRATE: c_long = 0x2;
pub(crate) const TMUSEASYNC: c_long = 0x4;
pub(crate) const TMASYNC: c_long = 0x8000_0000;
pub(crate) const TMONEPHASE: c_long = 0x4000_0000;
pub(crate) const TMFAIL: c_long = 0x2000_0000;
pub(crate) const TMRESUME: c_long = 0x0800_0000;
pub(crate) const TMSUCCESS: c_long = 0x0400_0000;
pub(crate) const TMSUSPEND: c_long = 0x0200_0000;
pub(crate) const TMSTARTRSCAN: c_long = 0x0100_0000;
pub(crate) const TMENDRSCAN: c_long = 0x0080_0000;
pub(crate) const TMJOIN: c_long = 0x0020_0000;
pub(crate) const TMMIGRATE: c_long = 0x0010_0000;

pub(crate) const TM_RESUME: c_int = 1;
pub(crate) const TM_OK: c_int = 0;
pub(crate) const TMER_TMERR: c_int = -1;
pub(crate) const TMER_INVAL: c_int = -2;
pub(crate) const TMER_PROTO: c_int = -3;

pub(crate) const XA_OK: c_int = 0;
pub(crate) const XA_RDONLY: c_int = 3;
pub(crate) const XA_RETRY: c_int = 4;
pub(crate) const XA_HEURHAZ: c_int = 8;
pub(crate) const XA_NOMIGRATE: c_int = 9;
pub(crate) const XA_RBROLLBACK: c_int = 100;
pub(crate) const XA_RBCOMMFAIL: c_int = 101;
pub(crate) const XA_RBDEADLOCK: c_int = 102;
pub(crate) const XA_RBINTEGRITY: c_int = 103;
pub(crate) const XA_RBOTHER: c_int = 104;
pub(crate) const XA_RBTIMEOUT: c_int = 106;
pub(crate) const XA_RBTRANSIENT: c_int = 107;
pub(crate) const XAER_ASYNC: c_int = -2;
pub(crate) const XAER_RMERR: c_int = -3;
pub(crate) const XAER_NOTA: c_int = -4;
pub(crate) const XAER_INVAL: c_int = -5;
pub(crate) const XAER_PROTO: c_int = -6;
pub(crate) const XAER_RMFAIL: c_int = -7;
pub(crate) const XAER_DUPID: c_int = -8;
pub(crate) const XAER_OUTSIDE: c_int = -9;

pub(crate) const TX_OK: c_int = 0;
pub(crate) const TX_OUTSIDE: c_int = -1;
pub(crate) const TX_ROLLBACK: c_int = -2;
pub(crate) const TX_MIXED: c_int = -3;
pub(crate) const TX_HAZARD: c_int = -4;
pub(crate) const TX_PROTOCOL_ERROR: c_int = -5;
pub(crate) const TX_ERROR: c_int = -6;
pub(crate) const TX_FAIL: c_int = -7;
pub(crate) const TX_EINVAL: c_int = -8;
pub(crate) const TX_COMMITTED: c_int = -9;
pub(crate) const TX_NO_BEGIN: c_int = -100;

pub(crate) const TX_COMMIT_COMPLETED: c_long = 0;
pub(crate) const TX_COMMIT_DECISION_LOGGED: c_long = 1;
pub(crate) const TX_UNCHAINED: c_long = 0;
pub(crate) const TX_CHAINED: c_long = 1;
pub(crate) const TX_ACTIVE: c_long = 0;
pub(crate) const TX_TIMEOUT_ROLLBACK_ONLY: c_long = 1;
pub(crate) const TX_ROLLBACK_ONLY: c_long = 2;
