//! A MariaDB connection: the functions of libmariadb that two-phase commit needs.
//!
//! May use: `address`, `mariadb`. Must not know: branches.
#![allow(unsafe_code, reason = "libmariadb is a C library, and its connections are shared with a C program")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

use libloading::Library;

use super::address::{Address, Tls};
use super::mariadb::MariaDb;
use super::{Failure, Reply, Session, Standing};

const LIBRARY: &str = "libmariadb.so.3";
/// Errors of the client, all of which leave the connection unusable.
const CLIENT_ERRORS: std::ops::Range<u32> = 2000..3000;

/// What a server says before it closes a connection: shutting down, killed, idle for too long.
const LAST_WORDS: &[u32] = &[1053, 1927, 4031];

/// Of `enum mysql_option`.
const OPT_RECONNECT: c_uint = 20;
const OPT_SSL_VERIFY_SERVER_CERT: c_uint = 21;
const OPT_SSL_KEY: c_uint = 25;
const OPT_SSL_CERT: c_uint = 26;
const OPT_SSL_CA: c_uint = 27;
const OPT_SSL_ENFORCE: c_uint = 38;

type Connect = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    *const c_char,
    *const c_char,
    *const c_char,
    c_uint,
    *const c_char,
    c_ulong,
) -> *mut c_void;

/// The functions, with the names that libmariadb gives them.
struct Libmariadb {
    init: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    options: unsafe extern "C" fn(*mut c_void, c_uint, *const c_void) -> c_int,
    connect: Connect,
    close: unsafe extern "C" fn(*mut c_void),
    /// Not in every client that goes by the library's name.
    reconnect: Option<unsafe extern "C" fn(*mut c_void) -> c_char>,
    send_query: unsafe extern "C" fn(*mut c_void, *const c_char, c_ulong) -> c_int,
    read_query_result: unsafe extern "C" fn(*mut c_void) -> c_char,
    store_result: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    free_result: unsafe extern "C" fn(*mut c_void),
    num_fields: unsafe extern "C" fn(*mut c_void) -> c_uint,
    fetch_row: unsafe extern "C" fn(*mut c_void) -> *const *const c_char,
    fetch_lengths: unsafe extern "C" fn(*mut c_void) -> *const c_ulong,
    errno: unsafe extern "C" fn(*mut c_void) -> c_uint,
    error: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    sqlstate: unsafe extern "C" fn(*mut c_void) -> *const c_char,
}

impl Libmariadb {
    fn load() -> Result<Self, String> {
        let missing = |error: libloading::Error| format!("{LIBRARY} (Debian: libmariadb3) cannot be used: {error}");
        // SAFETY: libmariadb's initializers do nothing that could be unsafe here; every function has the form that its
        // documentation gives it, and the library is never unloaded.
        unsafe {
            let library = Library::new(LIBRARY).map_err(missing)?;
            let found = Self {
                init: *library.get(b"mysql_init\0").map_err(missing)?,
                options: *library.get(b"mysql_options\0").map_err(missing)?,
                connect: *library.get(b"mysql_real_connect\0").map_err(missing)?,
                close: *library.get(b"mysql_close\0").map_err(missing)?,
                reconnect: library.get(b"mariadb_reconnect\0").ok().map(|found| *found),
                send_query: *library.get(b"mysql_send_query\0").map_err(missing)?,
                read_query_result: *library.get(b"mysql_read_query_result\0").map_err(missing)?,
                store_result: *library.get(b"mysql_store_result\0").map_err(missing)?,
                free_result: *library.get(b"mysql_free_result\0").map_err(missing)?,
                num_fields: *library.get(b"mysql_num_fields\0").map_err(missing)?,
                fetch_row: *library.get(b"mysql_fetch_row\0").map_err(missing)?,
                fetch_lengths: *library.get(b"mysql_fetch_lengths\0").map_err(missing)?,
                errno: *library.get(b"mysql_errno\0").map_err(missing)?,
                error: *library.get(b"mysql_error\0").map_err(missing)?,
                sqlstate: *library.get(b"mysql_sqlstate\0").map_err(missing)?,
            };
            std::mem::forget(library);
            Ok(found)
        }
    }

    fn get() -> Result<&'static Self, Failure> {
        static LIBMARIADB: OnceLock<Result<Libmariadb, String>> = OnceLock::new();
        LIBMARIADB.get_or_init(Self::load).as_ref().map_err(|missing| Failure::Lost(missing.clone()))
    }
}

/// A connection, ours or the program's.
pub(crate) struct MariaSession {
    libmariadb: &'static Libmariadb,
    connection: *mut c_void,
    /// Whether it is closed with this.
    owned: bool,
}

impl MariaSession {
    /// Connects, as the open string says.
    pub(crate) fn connect(info: &str) -> Result<Self, Failure> {
        let address = Address::parse(info)?;
        let libmariadb = Libmariadb::get()?;
        // SAFETY: null asks for a new connection's memory.
        let connection = unsafe { (libmariadb.init)(std::ptr::null_mut()) };
        if connection.is_null() {
            return Err(Failure::Lost("there is no memory for a connection".to_owned()));
        }
        let session = Self { libmariadb, connection, owned: true };
        if let Some(tls) = &address.tls {
            session.secure(tls)?;
        }
        let text = |part: &Option<CString>| part.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        let (host, user, password) = (text(&address.host), text(&address.user), text(&address.password));
        let (database, socket, port) = (text(&address.database), text(&address.socket), c_uint::from(address.port));
        // SAFETY: the strings are null or end with a zero, and live during the call.
        let connected = unsafe { (libmariadb.connect)(connection, host, user, password, database, port, socket, 0) };
        if connected.is_null() { Err(session.failure()) } else { Ok(session) }
    }

    /// No connection but by TLS, to a server that is verified.
    fn secure(&self, tls: &Tls) -> Result<(), Failure> {
        let on: c_char = 1;
        let text = |part: Option<&CString>| part.map_or(std::ptr::null(), |text| text.as_ptr().cast::<c_void>());
        let flag = std::ptr::from_ref(&on).cast::<c_void>();
        for (option, value) in [
            (OPT_SSL_ENFORCE, flag),
            (OPT_SSL_VERIFY_SERVER_CERT, flag),
            (OPT_SSL_CA, text(Some(&tls.authorities))),
            (OPT_SSL_CERT, text(tls.certificate.as_ref())),
            (OPT_SSL_KEY, text(tls.key.as_ref())),
        ] {
            // SAFETY: the connection is ours and not open yet; a flag is one byte, a text ends with a zero or is null and is
            // left out, and both are copied during the call.
            let is_refused =
                !value.is_null() && unsafe { (self.libmariadb.options)(self.connection, option, value) } != 0;
            if is_refused {
                return Err(Failure::Lost(format!("{LIBRARY} does not take the option {option} of TLS")));
            }
        }
        Ok(())
    }

    /// Takes a `MYSQL*` of the program, which stays the program's.
    ///
    /// # Safety
    /// It is an open connection, outlives the session, and is not used by another thread at the same time.
    pub(crate) unsafe fn borrow(connection: *mut c_void) -> Result<Self, Failure> {
        Ok(Self { libmariadb: Libmariadb::get()?, connection, owned: false })
    }

    /// The `MYSQL*`.
    pub(crate) fn connection(&self) -> *mut c_void {
        self.connection
    }

    fn failure(&self) -> Failure {
        // SAFETY: the connection is libmariadb's; its strings end with a zero and are copied at once.
        let (number, state, message) = unsafe {
            let number = (self.libmariadb.errno)(self.connection);
            let state = CStr::from_ptr((self.libmariadb.sqlstate)(self.connection)).to_string_lossy().into_owned();
            (number, state, CStr::from_ptr((self.libmariadb.error)(self.connection)).to_string_lossy().into_owned())
        };
        if CLIENT_ERRORS.contains(&number) || LAST_WORDS.contains(&number) {
            return Failure::Lost(message);
        }
        Failure::Refused { state, number, text: message }
    }

    /// The rows of a result.
    fn rows(&self, result: *mut c_void) -> Vec<Vec<Vec<u8>>> {
        let libmariadb = self.libmariadb;
        let mut rows = Vec::new();
        // SAFETY: the result is one that libmariadb returned and that is not freed; a row has as many values and lengths as
        // there are fields, and a value is null or as long as its length says.
        unsafe {
            let columns = usize::try_from((libmariadb.num_fields)(result)).unwrap_or_default();
            loop {
                let row = (libmariadb.fetch_row)(result);
                if row.is_null() {
                    return rows;
                }
                let lengths = (libmariadb.fetch_lengths)(result);
                let value = |column: usize| {
                    let (bytes, length) = (*row.add(column), *lengths.add(column));
                    let length = usize::try_from(length).unwrap_or_default();
                    if bytes.is_null() { Vec::new() } else { std::slice::from_raw_parts(bytes.cast(), length).to_vec() }
                };
                rows.push((0..columns).map(value).collect());
            }
        }
    }
}

impl Session for MariaSession {
    type Dialect = MariaDb;

    fn send(&mut self, statement: &str) -> Result<(), Failure> {
        let length = c_ulong::try_from(statement.len()).expect("statements are short");
        // SAFETY: the connection is open, and the statement lives during the call and is as long as said.
        let sent = unsafe { (self.libmariadb.send_query)(self.connection, statement.as_ptr().cast(), length) };
        if sent == 0 { Ok(()) } else { Err(self.failure()) }
    }

    fn receive(&mut self) -> Result<Reply, Failure> {
        // SAFETY: the connection is open, and a statement was sent.
        if unsafe { (self.libmariadb.read_query_result)(self.connection) } != 0 {
            return Err(self.failure());
        }
        // SAFETY: the answer was read, and its rows are taken at once.
        let result = unsafe { (self.libmariadb.store_result)(self.connection) };
        if result.is_null() {
            // SAFETY: the connection is libmariadb's. Without rows to come there is no error either.
            let failed = unsafe { (self.libmariadb.errno)(self.connection) } != 0;
            return if failed { Err(self.failure()) } else { Ok(Reply::default()) };
        }
        let rows = self.rows(result);
        // SAFETY: the result is freed once, here.
        unsafe { (self.libmariadb.free_result)(result) };
        Ok(Reply { tag: String::new(), rows })
    }

    fn standing(&self) -> Standing {
        Standing::Untold
    }

    /// A reset of the session does less: InnoDB refuses every statement after it (MariaDB 10.11).
    fn reopen(&mut self) -> Option<Result<(), Failure>> {
        if !self.owned {
            return None;
        }
        let Some(reconnect) = self.libmariadb.reconnect else {
            return Some(Err(Failure::Lost(format!("{LIBRARY} cannot reconnect"))));
        };
        // Allowed for this call alone: a connection that is lost must never come back by itself, without its branch.
        let (on, off): (c_char, c_char) = (1, 0);
        // SAFETY: the connection is ours and open; a flag is one byte and copied during the call.
        let failed = unsafe {
            (self.libmariadb.options)(self.connection, OPT_RECONNECT, std::ptr::from_ref(&on).cast());
            let failed = reconnect(self.connection) != 0;
            (self.libmariadb.options)(self.connection, OPT_RECONNECT, std::ptr::from_ref(&off).cast());
            failed
        };
        Some(if failed { Err(self.failure()) } else { Ok(()) })
    }
}

impl Drop for MariaSession {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: it is ours, and nobody uses it after this.
            unsafe { (self.libmariadb.close)(self.connection) };
        }
    }
}
