//! The calls of `holdfast.h` about keys, entries and points of the coordinator's own store, for threads that use TX and for
//! objects. What they mean is in `own.rs`.
//!
//! Memory that a program gets is of the C library, with a zero behind it, so that JSON is a string.
//!
//! May use: `object_calls`, `opening`, `own`, `thread`. Must not know: how transactions end.
#![allow(unsafe_code, reason = "these are C functions, called by programs")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use holdfast::space::{Document, ValueRef};

use crate::abi::{TX_EINVAL, TX_ERROR, TX_FAIL, TX_OK, TX_PROTOCOL_ERROR};
use crate::last_error;
use crate::object_calls::{Tm, Tx};
use crate::own::{OwnWork, Point};
use crate::thread::{guard, with_thread};

/// `HOLDFAST_NOT_FOUND`.
const NOT_FOUND: c_int = 3;

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
}

type Work<'a, T> = &'a mut dyn FnMut(&mut OwnWork) -> holdfast::Result<T>;
type Coded<T> = Result<T, c_int>;
/// Of a space and a type, the entry with an id.
type GetEntry = fn(&mut OwnWork, &str, &str, &[u8]) -> holdfast::Result<Option<String>>;

/// Whose transaction is meant.
#[derive(Clone, Copy)]
enum Whose {
    Thread,
    Object(*mut Tx),
}

impl Whose {
    /// Makes a call, which answers `TX_OK` or what it says.
    ///
    /// # Safety
    /// An object is null or good, and used by one thread at a time.
    unsafe fn call(self, name: &str, call: impl FnOnce(Self) -> Coded<c_int>) -> c_int {
        last_error::of_call(name, || guard(TX_FAIL, || call(self).unwrap_or_else(|code| code)))
    }

    /// Works as part of the transaction.
    ///
    /// # Safety
    /// As for [`Self::call`].
    unsafe fn work<T>(self, work: Work<'_, T>) -> Coded<T> {
        match self {
            Self::Thread => {
                let mut done = Err(TX_PROTOCOL_ERROR);
                let code = with_thread(TX_FAIL, TX_PROTOCOL_ERROR, |thread| {
                    done = thread.work(|own| work(own));
                    TX_OK
                });
                if code == TX_OK { done } else { Err(code) }
            }
            // SAFETY: the caller says that it is null or good, and used by one thread at a time.
            Self::Object(tx) => match unsafe { tx.as_mut() } {
                Some(tx) => tx.work(|own| work(own)),
                None => Err(last_error::refuse(TX_EINVAL, "the transaction is NULL")),
            },
        }
    }

    /// What a program gets of something that is done already. It cannot go on without, so without memory for it the transaction can only be
    /// rolled back.
    ///
    /// # Safety
    /// As for [`Self::call`].
    unsafe fn given_of_change(self, bytes: &[u8]) -> Coded<*mut c_void> {
        given(bytes).or_else(|_| {
            let refuse = |_: &mut OwnWork| -> holdfast::Result<*mut c_void> {
                let text = "there is no memory for what the call returns: the transaction can only be rolled back";
                Err(holdfast::Error::new(holdfast::ErrorKind::Conflict, text))
            };
            // SAFETY: as the caller says.
            unsafe { self.work(&mut { refuse }) }
        })
    }
}

/// # Safety
/// `string` is null or ends with a zero, and stays as it is for as long.
unsafe fn bytes<'a>(string: *const c_char, what: &str) -> Coded<&'a [u8]> {
    if string.is_null() {
        return Err(last_error::refuse(TX_EINVAL, format!("{what} is NULL")));
    }
    // SAFETY: it is not null, and the caller says that it ends with a zero.
    Ok(unsafe { CStr::from_ptr(string) }.to_bytes())
}

/// # Safety
/// As for [`bytes`].
unsafe fn text<'a>(string: *const c_char, what: &str) -> Coded<&'a str> {
    // SAFETY: as the caller says.
    let bytes = unsafe { bytes(string, what) }?;
    std::str::from_utf8(bytes).map_err(|error| last_error::refuse(TX_EINVAL, format!("{what} is not UTF-8: {error}")))
}

/// # Safety
/// `from` may be read for `size` bytes, and stays as it is for as long; without any it may be null.
unsafe fn sized<'a>(from: *const c_void, size: usize, what: &str) -> Coded<&'a [u8]> {
    if size == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(last_error::refuse(TX_EINVAL, format!("{what} is NULL, and is said to have {size} bytes")));
    }
    if isize::try_from(size).is_err() {
        return Err(last_error::refuse(TX_EINVAL, format!("{what} cannot have {size} bytes")));
    }
    // SAFETY: it is not null and not too long, and the caller says that it may be read.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), size) })
}

/// A place for what is returned, which holds nothing from now on.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn place<T>(place: *mut *mut T, what: &str) -> Coded<*mut *mut T> {
    if place.is_null() {
        return Err(last_error::refuse(TX_EINVAL, format!("the place for {what} is NULL")));
    }
    // SAFETY: it is not null, so the caller says that it may be written.
    unsafe { place.write(ptr::null_mut()) };
    Ok(place)
}

/// The bytes in memory that the program lets go of, and a zero behind them.
fn given(bytes: &[u8]) -> Coded<*mut c_void> {
    // SAFETY: a size is all it takes.
    let memory = unsafe { malloc(bytes.len() + 1) };
    if memory.is_null() {
        return Err(last_error::refuse(TX_ERROR, format!("there is no memory for {} bytes", bytes.len())));
    }
    // SAFETY: it was made for so many bytes and one more just now, and is nobody else's.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast(), bytes.len());
        memory.cast::<u8>().add(bytes.len()).write(0);
    }
    Ok(memory)
}

/// Lets go of memory that one of these calls returned.
///
/// # Safety
/// `memory` is null, or was returned by one of these calls and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_free(memory: *mut c_void) {
    // SAFETY: the caller says that it came from `malloc`, in `given`, or is null.
    unsafe { free(memory) };
}

/// # Safety
/// As [`holdfast_put`] and [`holdfast_tx_put`] say.
unsafe fn put(
    (whose, name): (Whose, &str),
    bucket: *const c_char,
    (key, key_size): (*const c_void, usize),
    (value, value_size): (*const c_void, usize),
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        whose.call(name, |whose| {
            let bucket = bytes(bucket, "the bucket")?;
            let (key, value) = (sized(key, key_size, "the key")?, sized(value, value_size, "the value")?);
            whose.work(&mut |own| own.put(bucket, key, value)).map(|()| TX_OK)
        })
    }
}

/// # Safety
/// As [`holdfast_get`] and [`holdfast_tx_get`] say.
unsafe fn get(
    (whose, name): (Whose, &str),
    bucket: *const c_char,
    (key, key_size): (*const c_void, usize),
    (value, value_size): (*mut *mut c_void, *mut usize),
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        whose.call(name, |whose| {
            let value = place(value, "the value")?;
            if value_size.is_null() {
                return Err(last_error::refuse(TX_EINVAL, "the place for the value's size is NULL"));
            }
            value_size.write(0);
            let (bucket, key) = (bytes(bucket, "the bucket")?, sized(key, key_size, "the key")?);
            let Some(found) = whose.work(&mut |own| own.get(bucket, key))? else { return Ok(NOT_FOUND) };
            value.write(given(&found)?);
            value_size.write(found.len());
            Ok(TX_OK)
        })
    }
}

/// # Safety
/// As [`holdfast_delete`] and [`holdfast_tx_delete`] say.
unsafe fn delete(
    (whose, name): (Whose, &str),
    bucket: *const c_char,
    (key, key_size): (*const c_void, usize),
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        whose.call(name, |whose| {
            let (bucket, key) = (bytes(bucket, "the bucket")?, sized(key, key_size, "the key")?);
            let was_there = whose.work(&mut |own| own.delete(bucket, key))?;
            Ok(if was_there { TX_OK } else { NOT_FOUND })
        })
    }
}

/// # Safety
/// As [`holdfast_write`] and [`holdfast_tx_write`] say.
unsafe fn write(
    (whose, name): (Whose, &str),
    (space, kind): (*const c_char, *const c_char),
    json: *const c_char,
    id: *mut *mut c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        whose.call(name, |whose| {
            let id = if id.is_null() { None } else { Some(place(id, "the id")?) };
            let (space, kind) = (text(space, "the space")?, text(kind, "the type")?);
            let json = bytes(json, "the entry")?;
            let written = whose.work(&mut |own| own.write(space, kind, json))?;
            if let Some(id) = id {
                id.write(whose.given_of_change(written.as_bytes())?.cast());
            }
            Ok(TX_OK)
        })
    }
}

/// Reads or takes.
///
/// # Safety
/// As [`holdfast_read`] and [`holdfast_tx_read`] say.
unsafe fn entry(
    (whose, name): (Whose, &str),
    (space, kind): (*const c_char, *const c_char),
    id: *const c_char,
    json: *mut *mut c_char,
    get: GetEntry,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        whose.call(name, |whose| {
            let json = place(json, "the entry")?;
            let (space, kind) = (text(space, "the space")?, text(kind, "the type")?);
            let id = bytes(id, "the id")?;
            let Some(found) = whose.work(&mut |own| get(own, space, kind, id))? else { return Ok(NOT_FOUND) };
            json.write(whose.given_of_change(found.as_bytes())?.cast());
            Ok(TX_OK)
        })
    }
}

/// # Safety
/// As [`holdfast_add_point`] and [`holdfast_tx_add_point`] say.
unsafe fn add_point(
    (whose, name): (Whose, &str),
    (metric, tags): (*const c_char, *const c_char),
    time: i64,
    value: f64,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        whose.call(name, |whose| {
            let metric = text(metric, "the metric")?.to_owned();
            let tags = if tags.is_null() { Vec::new() } else { tags_of(bytes(tags, "the tags")?)? };
            let point = Point { metric, tags, time, value };
            whose.work(&mut |own| own.add_point(&point)).map(|()| TX_OK)
        })
    }
}

/// The tags that a JSON object of strings says.
fn tags_of(json: &[u8]) -> Coded<Vec<(String, String)>> {
    let refused = |text: String| last_error::refuse(TX_EINVAL, format!("the tags of the point: {text}"));
    let document = Document::from_json(json).map_err(|error| refused(error.to_string()))?;
    let tags = document.fields().iter().map(|(name, value)| match value {
        ValueRef::String(value) => Ok((name.to_owned(), value.to_owned())),
        _ => Err(refused(format!("the value of {name} is no string"))),
    });
    tags.collect()
}

/// Puts a key as part of the thread's transaction.
///
/// # Safety
/// `bucket` is null or ends with a zero; `key` and `value` may be read for so many bytes, or are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_put(
    bucket: *const c_char,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { put((Whose::Thread, "holdfast_put"), bucket, (key, key_size), (value, value_size)) }
}

/// Puts a key as part of a transaction.
///
/// # Safety
/// As for [`holdfast_put`]; `tx` is null or came from one of the calls that make one, and is used by one thread at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_put(
    tx: *mut Tx,
    bucket: *const c_char,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { put((Whose::Object(tx), "holdfast_tx_put"), bucket, (key, key_size), (value, value_size)) }
}

/// Gets a key as the thread's transaction has it.
///
/// # Safety
/// As for [`holdfast_put`]; `value` and `value_size` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_get(
    bucket: *const c_char,
    key: *const c_void,
    key_size: usize,
    value: *mut *mut c_void,
    value_size: *mut usize,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { get((Whose::Thread, "holdfast_get"), bucket, (key, key_size), (value, value_size)) }
}

/// Gets a key as a transaction has it.
///
/// # Safety
/// As for [`holdfast_get`] and [`holdfast_tx_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_get(
    tx: *mut Tx,
    bucket: *const c_char,
    key: *const c_void,
    key_size: usize,
    value: *mut *mut c_void,
    value_size: *mut usize,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { get((Whose::Object(tx), "holdfast_tx_get"), bucket, (key, key_size), (value, value_size)) }
}

/// Deletes a key as part of the thread's transaction.
///
/// # Safety
/// As for [`holdfast_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_delete(bucket: *const c_char, key: *const c_void, key_size: usize) -> c_int {
    // SAFETY: as the caller says.
    unsafe { delete((Whose::Thread, "holdfast_delete"), bucket, (key, key_size)) }
}

/// Deletes a key as part of a transaction.
///
/// # Safety
/// As for [`holdfast_tx_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_delete(
    tx: *mut Tx,
    bucket: *const c_char,
    key: *const c_void,
    key_size: usize,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { delete((Whose::Object(tx), "holdfast_tx_delete"), bucket, (key, key_size)) }
}

/// Writes an entry as part of the thread's transaction.
///
/// # Safety
/// `space`, `kind` and `json` are null or end with a zero; `id` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_write(
    space: *const c_char,
    kind: *const c_char,
    json: *const c_char,
    id: *mut *mut c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { write((Whose::Thread, "holdfast_write"), (space, kind), json, id) }
}

/// Writes an entry as part of a transaction.
///
/// # Safety
/// As for [`holdfast_write`] and [`holdfast_tx_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_write(
    tx: *mut Tx,
    space: *const c_char,
    kind: *const c_char,
    json: *const c_char,
    id: *mut *mut c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { write((Whose::Object(tx), "holdfast_tx_write"), (space, kind), json, id) }
}

/// Takes an entry as part of the thread's transaction.
///
/// # Safety
/// `space`, `kind` and `id` are null or end with a zero; `json` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_take(
    space: *const c_char,
    kind: *const c_char,
    id: *const c_char,
    json: *mut *mut c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { entry((Whose::Thread, "holdfast_take"), (space, kind), id, json, OwnWork::take) }
}

/// Takes an entry as part of a transaction.
///
/// # Safety
/// As for [`holdfast_take`] and [`holdfast_tx_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_take(
    tx: *mut Tx,
    space: *const c_char,
    kind: *const c_char,
    id: *const c_char,
    json: *mut *mut c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { entry((Whose::Object(tx), "holdfast_tx_take"), (space, kind), id, json, OwnWork::take) }
}

/// Reads an entry as the thread's transaction has it.
///
/// # Safety
/// As for [`holdfast_take`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_read(
    space: *const c_char,
    kind: *const c_char,
    id: *const c_char,
    json: *mut *mut c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { entry((Whose::Thread, "holdfast_read"), (space, kind), id, json, OwnWork::read) }
}

/// Reads an entry as a transaction has it.
///
/// # Safety
/// As for [`holdfast_take`] and [`holdfast_tx_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_read(
    tx: *mut Tx,
    space: *const c_char,
    kind: *const c_char,
    id: *const c_char,
    json: *mut *mut c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { entry((Whose::Object(tx), "holdfast_tx_read"), (space, kind), id, json, OwnWork::read) }
}

/// Adds a point as part of the thread's transaction.
///
/// # Safety
/// `metric` and `tags` are null or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_add_point(
    metric: *const c_char,
    tags: *const c_char,
    time: i64,
    value: f64,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { add_point((Whose::Thread, "holdfast_add_point"), (metric, tags), time, value) }
}

/// Adds a point as part of a transaction.
///
/// # Safety
/// As for [`holdfast_add_point`] and [`holdfast_tx_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_add_point(
    tx: *mut Tx,
    metric: *const c_char,
    tags: *const c_char,
    time: i64,
    value: f64,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { add_point((Whose::Object(tx), "holdfast_tx_add_point"), (metric, tags), time, value) }
}

/// Sees to it that a type of entries is there, in the store of the thread's coordinator.
///
/// # Safety
/// `space` and `kind` are null or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_declare(space: *const c_char, kind: *const c_char) -> c_int {
    last_error::of_call("holdfast_declare", || {
        with_thread(TX_FAIL, TX_PROTOCOL_ERROR, |thread| {
            let Some(manager) = &thread.manager else { return thread.misplaced() };
            // SAFETY: as the caller says.
            let names = unsafe { text(space, "the space").and_then(|space| Ok((space, text(kind, "the type")?))) };
            coded(names.and_then(|(space, kind)| manager.declare(space, kind)))
        })
    })
}

/// Sees to it that a type of entries is there, in the store of a manager's coordinator.
///
/// # Safety
/// As for [`holdfast_declare`]; `tm` is null or came from `holdfast_tm_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tm_declare(tm: *mut Tm, space: *const c_char, kind: *const c_char) -> c_int {
    last_error::of_call("holdfast_tm_declare", || {
        guard(TX_FAIL, || {
            // SAFETY: the caller says that it is null or good.
            let Some(tm) = (unsafe { tm.as_ref() }) else { return last_error::refuse(TX_EINVAL, "tm is NULL") };
            // SAFETY: as the caller says.
            let names = unsafe { text(space, "the space").and_then(|space| Ok((space, text(kind, "the type")?))) };
            coded(names.and_then(|(space, kind)| tm.manager().declare(space, kind)))
        })
    })
}

fn coded(done: Coded<()>) -> c_int {
    done.map_or_else(|code| code, |()| TX_OK)
}
