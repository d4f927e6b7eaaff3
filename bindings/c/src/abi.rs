//! The structures and numbers of `tx.h`, and the numbers of `xa.h`, for Rust; its structures are `tm`'s.
//!
//! May use: `tm`. Must not know: what any call does.

use std::ffi::{c_char, c_int, c_long};

pub(crate) use tm::xa_h::{InfoCall, TMENDRSCAN, TMNOFLAGS, TMSTARTRSCAN, TMUSEASYNC, XidCall};
pub use tm::xa_h::{XaSwitch, XidData};

const NAME_BYTES: usize = 32;

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

pub(crate) const TMREGISTER: c_long = 0x1;
pub(crate) const TMNOMIGRATE: c_long = 0x2;
pub(crate) const TMASYNC: c_long = 0x8000_0000;
pub(crate) const TMONEPHASE: c_long = 0x4000_0000;
pub(crate) const TMFAIL: c_long = 0x2000_0000;
pub(crate) const TMRESUME: c_long = 0x0800_0000;
pub(crate) const TMSUCCESS: c_long = 0x0400_0000;
pub(crate) const TMSUSPEND: c_long = 0x0200_0000;
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
