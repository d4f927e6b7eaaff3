//! The structures and numbers of X/Open XA (C193), as a resource manager needs them.
//!
//! They are written here again, and not taken from `libholdfast`, because a resource manager is somebody else's: this one
//! loads into any transaction manager, and carries no part of ours along.
//!
//! May use: std. Must not know: what any call does.
#![allow(missing_docs, reason = "names and numbers are the standard's")]

use std::ffi::{c_char, c_int, c_long};

pub(crate) const XID_DATA_BYTES: usize = 128;
const NAME_BYTES: usize = 32;

/// A branch's name: `data` holds the transaction's and right behind it the branch's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Xid {
    pub format: c_long,
    pub gtrid_length: c_long,
    pub bqual_length: c_long,
    pub data: [c_char; XID_DATA_BYTES],
}

type InfoCall = unsafe extern "C" fn(*mut c_char, c_int, c_long) -> c_int;
type XidCall = unsafe extern "C" fn(*mut Xid, c_int, c_long) -> c_int;
type RecoverCall = unsafe extern "C" fn(*mut Xid, c_long, c_int, c_long) -> c_int;
type CompleteCall = unsafe extern "C" fn(*mut c_int, *mut c_int, c_int, c_long) -> c_int;

/// What a resource manager offers.
#[repr(C)]
#[derive(Debug)]
pub struct Switch {
    pub name: [c_char; NAME_BYTES],
    pub flags: c_long,
    pub version: c_long,
    pub open: InfoCall,
    pub close: InfoCall,
    pub start: XidCall,
    pub end: XidCall,
    pub rollback: XidCall,
    pub prepare: XidCall,
    pub commit: XidCall,
    pub recover: RecoverCall,
    pub forget: XidCall,
    pub complete: CompleteCall,
}

pub(crate) const TMREGISTER: c_long = 0x1;
pub(crate) const TMNOMIGRATE: c_long = 0x2;
pub(crate) const TMUSEASYNC: c_long = 0x4;
pub(crate) const TMASYNC: c_long = 0x8000_0000;
pub(crate) const TMSTARTRSCAN: c_long = 0x0100_0000;

pub(crate) const XA_OK: c_int = 0;
pub(crate) const XAER_RMERR: c_int = -3;
pub(crate) const XAER_INVAL: c_int = -5;
pub(crate) const XAER_PROTO: c_int = -6;

pub(crate) const TMER_TMERR: c_int = -1;

/// Every answer that a script may give by name.
pub(crate) const ANSWERS: &[(&str, c_int)] = &[
    ("XA_OK", XA_OK),
    ("XA_RDONLY", 3),
    ("XA_RETRY", 4),
    ("XA_HEURMIX", 5),
    ("XA_HEURRB", 6),
    ("XA_HEURCOM", 7),
    ("XA_HEURHAZ", 8),
    ("XA_NOMIGRATE", 9),
    ("XA_RBROLLBACK", 100),
    ("XA_RBCOMMFAIL", 101),
    ("XA_RBDEADLOCK", 102),
    ("XA_RBINTEGRITY", 103),
    ("XA_RBOTHER", 104),
    ("XA_RBPROTO", 105),
    ("XA_RBTIMEOUT", 106),
    ("XA_RBTRANSIENT", 107),
    ("XAER_ASYNC", -2),
    ("XAER_RMERR", XAER_RMERR),
    ("XAER_NOTA", -4),
    ("XAER_INVAL", XAER_INVAL),
    ("XAER_PROTO", XAER_PROTO),
    ("XAER_RMFAIL", -7),
    ("XAER_DUPID", -8),
    ("XAER_OUTSIDE", -9),
];

/// A switch's name, with zeros behind it.
pub(crate) const fn name(text: &[u8]) -> [c_char; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    let mut at = 0;
    while at < text.len() && at < NAME_BYTES - 1 {
        name[at] = text[at].cast_signed();
        at += 1;
    }
    name
}
