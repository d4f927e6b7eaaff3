//! A PostgreSQL connection: the dozen functions of libpq that two-phase commit needs.
//!
//! May use: `postgres`. Must not know: branches.
#![allow(unsafe_code, reason = "libpq is a C library, and its connections are shared with a C program")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use super::postgres::Postgres;
use super::{Failure, Reply, Session, Standing};

const LIBRARY: &str = "libpq.so.5";
const CONNECTION_OK: c_int = 0;
const COMMAND_OK: c_int = 1;
const TUPLES_OK: c_int = 2;
/// `PG_DIAG_SQLSTATE`.
const SQLSTATE: c_int = 'C' as c_int;
/// `PG_DIAG_MESSAGE_PRIMARY`.
const MESSAGE: c_int = 'M' as c_int;

/// The functions, with the names that libpq gives them.
struct Libpq {
    conninfo_parse: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> *mut c_void,
    conninfo_free: unsafe extern "C" fn(*mut c_void),
    freemem: unsafe extern "C" fn(*mut c_void),
    connect: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    finish: unsafe extern "C" fn(*mut c_void),
    status: unsafe extern "C" fn(*const c_void) -> c_int,
    error_message: unsafe extern "C" fn(*const c_void) -> *const c_char,
    transaction_status: unsafe extern "C" fn(*const c_void) -> c_int,
    send_query: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    get_result: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    clear: unsafe extern "C" fn(*mut c_void),
    result_status: unsafe extern "C" fn(*const c_void) -> c_int,
    result_error_field: unsafe extern "C" fn(*const c_void, c_int) -> *const c_char,
    result_error_message: unsafe extern "C" fn(*const c_void) -> *const c_char,
    cmd_status: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    ntuples: unsafe extern "C" fn(*const c_void) -> c_int,
    nfields: unsafe extern "C" fn(*const c_void) -> c_int,
    getvalue: unsafe extern "C" fn(*const c_void, c_int, c_int) -> *const c_char,
    getlength: unsafe extern "C" fn(*const c_void, c_int, c_int) -> c_int,
}

impl Libpq {
    fn load() -> Result<Self, String> {
        let missing = |error: libloading::Error| format!("{LIBRARY} (Debian: libpq5) cannot be used: {error}");
        // SAFETY: libpq's initializers do nothing that could be unsafe here; every function has the form that libpq's
        // documentation gives it, and the library is never unloaded.
        unsafe {
            let library = Library::new(LIBRARY).map_err(missing)?;
            let found = Self {
                conninfo_parse: *library.get(b"PQconninfoParse\0").map_err(missing)?,
                conninfo_free: *library.get(b"PQconninfoFree\0").map_err(missing)?,
                freemem: *library.get(b"PQfreemem\0").map_err(missing)?,
                connect: *library.get(b"PQconnectdb\0").map_err(missing)?,
                finish: *library.get(b"PQfinish\0").map_err(missing)?,
                status: *library.get(b"PQstatus\0").map_err(missing)?,
                error_message: *library.get(b"PQerrorMessage\0").map_err(missing)?,
                transaction_status: *library.get(b"PQtransactionStatus\0").map_err(missing)?,
                send_query: *library.get(b"PQsendQuery\0").map_err(missing)?,
                get_result: *library.get(b"PQgetResult\0").map_err(missing)?,
                clear: *library.get(b"PQclear\0").map_err(missing)?,
                result_status: *library.get(b"PQresultStatus\0").map_err(missing)?,
                result_error_field: *library.get(b"PQresultErrorField\0").map_err(missing)?,
                result_error_message: *library.get(b"PQresultErrorMessage\0").map_err(missing)?,
                cmd_status: *library.get(b"PQcmdStatus\0").map_err(missing)?,
                ntuples: *library.get(b"PQntuples\0").map_err(missing)?,
                nfields: *library.get(b"PQnfields\0").map_err(missing)?,
                getvalue: *library.get(b"PQgetvalue\0").map_err(missing)?,
                getlength: *library.get(b"PQgetlength\0").map_err(missing)?,
            };
            std::mem::forget(library);
            Ok(found)
        }
    }

    fn get() -> Result<&'static Self, Failure> {
        static LIBPQ: OnceLock<Result<Libpq, String>> = OnceLock::new();
        LIBPQ.get_or_init(Self::load).as_ref().map_err(|missing| Failure::Lost(missing.clone()))
    }

    /// Whether this is a connection string, all in all.
    fn understands(&self, info: &CStr) -> bool {
        let mut error = ptr::null_mut();
        // SAFETY: the string ends with a zero and lives during the call; libpq takes null for a list that there is not and for
        // an error that there is not, and what it made is let go once, here.
        unsafe {
            let parts = (self.conninfo_parse)(info.as_ptr(), &raw mut error);
            (self.conninfo_free)(parts);
            (self.freemem)(error.cast());
            !parts.is_null()
        }
    }
}

/// A connection, ours or the program's.
pub(crate) struct PgSession {
    libpq: &'static Libpq,
    connection: *mut c_void,
    /// Whether it is closed with this.
    owned: bool,
}

impl PgSession {
    /// Connects, as libpq's connection string says.
    pub(crate) fn connect(info: &CStr) -> Result<Self, Failure> {
        let libpq = Libpq::get()?;
        if !libpq.understands(info) {
            // libpq's own text quotes what it does not understand: a part of a password with a space in it, for example.
            let text = "the open string is no connection string of libpq: it is made of key=value parts with spaces between \
                        them, a value with spaces is in single quotes, and each key is one of libpq's";
            return Err(Failure::Refused { state: "08001".to_owned(), number: 0, text: text.to_owned() });
        }
        // SAFETY: the string ends with a zero and lives during the call.
        let connection = unsafe { (libpq.connect)(info.as_ptr()) };
        let session = Self { libpq, connection, owned: true };
        // SAFETY: the connection is what libpq returned just now; libpq takes null here too.
        if unsafe { (libpq.status)(connection) } != CONNECTION_OK {
            return Err(session.lost());
        }
        Ok(session)
    }

    /// Takes a `PGconn*` of the program, which stays the program's.
    ///
    /// # Safety
    /// It is an open connection, outlives the session, and is not used by another thread at the same time.
    pub(crate) unsafe fn borrow(connection: *mut c_void) -> Result<Self, Failure> {
        Ok(Self { libpq: Libpq::get()?, connection, owned: false })
    }

    /// The `PGconn*`.
    pub(crate) fn connection(&self) -> *mut c_void {
        self.connection
    }

    /// Refuses a server that keeps no prepared transactions, before a commit finds out.
    pub(super) fn check_settings(&mut self) -> Result<(), Failure> {
        self.send("SHOW max_prepared_transactions")?;
        let reply = self.receive()?;
        if reply.rows.first().and_then(|row| row.first()).is_some_and(|value| value == b"0") {
            let text = "max_prepared_transactions is 0: set it in postgresql.conf to at least the number of \
                        connections, and restart PostgreSQL";
            return Err(Failure::Refused { state: "55000".to_owned(), number: 0, text: text.to_owned() });
        }
        Ok(())
    }

    fn lost(&self) -> Failure {
        // SAFETY: the connection is libpq's; its message is a string, also for null.
        Failure::Lost(text(unsafe { (self.libpq.error_message)(self.connection) }))
    }

    fn reply(&self, result: *mut c_void) -> Reply {
        let libpq = self.libpq;
        // SAFETY: the result is one that libpq returned and that is not cleared; rows and columns are counted by libpq, and
        // a value is as long as libpq says.
        unsafe {
            let (rows, columns) = ((libpq.ntuples)(result), (libpq.nfields)(result));
            let value = |row, column| {
                let bytes = (libpq.getvalue)(result, row, column).cast::<u8>();
                let length = usize::try_from((libpq.getlength)(result, row, column)).unwrap_or_default();
                std::slice::from_raw_parts(bytes, length).to_vec()
            };
            let row = |row| (0..columns).map(|column| value(row, column)).collect();
            Reply { tag: text((libpq.cmd_status)(result)), rows: (0..rows).map(row).collect() }
        }
    }

    fn refusal(&self, result: *mut c_void) -> Failure {
        // SAFETY: the result is one that libpq returned and that is not cleared; a missing field is null.
        let (state, message, all) = unsafe {
            let field = |field| text((self.libpq.result_error_field)(result, field));
            (field(SQLSTATE), field(MESSAGE), text((self.libpq.result_error_message)(result)))
        };
        // A program may have set its connection to say the SQLSTATE alone.
        let text = if all.contains(&message) { all } else { message };
        Failure::Refused { state, number: 0, text }
    }
}

impl Session for PgSession {
    type Dialect = Postgres;

    fn send(&mut self, statement: &str) -> Result<(), Failure> {
        let statement = CString::new(statement).expect("statements have no zeros in them");
        // SAFETY: the connection is open, and the string ends with a zero and lives during the call.
        let sent = unsafe { (self.libpq.send_query)(self.connection, statement.as_ptr()) };
        if sent == 1 { Ok(()) } else { Err(self.lost()) }
    }

    fn receive(&mut self) -> Result<Reply, Failure> {
        let mut answer = None;
        loop {
            // SAFETY: the connection is open; null says that the answer is complete.
            let result = unsafe { (self.libpq.get_result)(self.connection) };
            if result.is_null() {
                break;
            }
            // SAFETY: the result is not null and not cleared.
            let status = unsafe { (self.libpq.result_status)(result) };
            let this = if [COMMAND_OK, TUPLES_OK].contains(&status) {
                Ok(self.reply(result))
            } else {
                Err(self.refusal(result))
            };
            // SAFETY: the result is cleared once, here.
            unsafe { (self.libpq.clear)(result) };
            // Of several statements in one the last says what was done, or the one that failed, which nothing follows.
            answer = Some(this);
        }
        // SAFETY: the connection is libpq's.
        let connected = unsafe { (self.libpq.status)(self.connection) } == CONNECTION_OK;
        match answer {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(refusal)) if connected => Err(refusal),
            _ => Err(self.lost()),
        }
    }

    fn last_failure(&self) -> Option<String> {
        // SAFETY: the connection is libpq's; its message is a string, empty after what went well.
        let said = text(unsafe { (self.libpq.error_message)(self.connection) });
        (!said.is_empty()).then_some(said)
    }

    fn standing(&self) -> Standing {
        // SAFETY: the connection is libpq's.
        match unsafe { (self.libpq.transaction_status)(self.connection) } {
            0 => Standing::Idle,
            1 | 2 => Standing::Open,
            3 => Standing::Failed,
            _ => Standing::Untold,
        }
    }
}

impl Drop for PgSession {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: it is ours, and nobody uses it after this.
            unsafe { (self.libpq.finish)(self.connection) };
        }
    }
}

/// A string of libpq's; empty for null.
fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, and libpq's strings end with a zero.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::PgSession;

    fn refusal(info: &str) -> String {
        PgSession::connect(&CString::new(info).unwrap()).err().unwrap().to_string()
    }

    #[test]
    fn a_string_that_libpq_does_not_understand_is_not_shown() {
        let wrong = [
            "host=/none password=two words",
            "host=/none password=two words=three",
            "host=/none password='words",
            "postgres://user:two%zzwords@/none",
            "postgres://user:two%00words@/none",
            "postgres://user@[words/none",
        ];
        for info in wrong {
            let said = refusal(info);
            assert!(said.contains("no connection string") && !said.contains("words"), "{info}: {said}");
        }
        // What is wrong otherwise libpq says best.
        for info in ["host=/none password='two words'", "postgres://user:two%20words@/d?host=/none"] {
            let said = refusal(info);
            assert!(said.contains("/none") && !said.contains("words"), "{info}: {said}");
        }
    }
}
