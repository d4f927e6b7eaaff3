//! A connection of the program's as a resource manager of its transactions.
//!
//! May use: `native`, `object` for what is asked of it, `resource`. Must not know: transactions, C.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_long};

use tm::{BranchName, XaCode, Xid};

use crate::abi::{XAER_PROTO, XidData};
use crate::native::{BranchConnection, Session};
use crate::object::Added;
use crate::resource::{Collected, Resource, Verb};

pub(crate) struct Connection<S> {
    branch: BranchName,
    order: Cell<u32>,
    inner: RefCell<BranchConnection<S>>,
}

impl<S: Session> Connection<S> {
    pub(crate) fn new(branch: BranchName, session: S) -> Self {
        Self { branch, order: Cell::new(0), inner: RefCell::new(BranchConnection::new(session)) }
    }

    /// Its branches may be asked whether they changed anything.
    pub(crate) fn asking(self) -> Self {
        Self { inner: RefCell::new(self.inner.into_inner().asking()), ..self }
    }
}

impl<S: Session> Added for Connection<S> {
    fn set_order(&self, order: u32) {
        self.order.set(order);
    }
}

impl<S: Session> Resource for Connection<S> {
    fn branch(&self) -> &BranchName {
        &self.branch
    }

    fn order(&self) -> u32 {
        self.order.get()
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn call(&self, verb: Verb, xid: &XidData, flags: c_long) -> c_int {
        self.inner.try_borrow_mut().map_or(XAER_PROTO, |mut inner| inner.call(verb, xid, flags))
    }

    /// At once: objects wait for all that they begin.
    fn complete(&self, handle: c_int, _: Collected) -> c_int {
        self.inner.try_borrow_mut().map_or(XAER_PROTO, |mut inner| inner.complete(handle))
    }

    fn prepared(&self) -> Result<Vec<Xid>, XaCode> {
        self.inner.try_borrow_mut().map_err(|_| XaCode::Protocol)?.prepared()
    }
}

#[cfg(test)]
mod tests {
    use tm::BranchName;

    use super::Connection;
    use crate::native::{Failure, PgSession, Reply, Session, Standing};
    use crate::object::Added;
    use crate::resource::Resource;

    /// Nobody asks it anything.
    struct Silent;

    impl Session for Silent {
        type Dialect = <PgSession as Session>::Dialect;

        fn send(&mut self, _: &str) -> Result<(), Failure> {
            Err(Failure::Lost("nobody is there".to_owned()))
        }

        fn receive(&mut self) -> Result<Reply, Failure> {
            Err(Failure::Lost("nobody is there".to_owned()))
        }

        fn standing(&self) -> Standing {
            Standing::Idle
        }
    }

    #[test]
    fn a_connection_commits_in_the_order_that_was_said_last() {
        let connection = Connection::new(BranchName::new("pg").unwrap(), Silent);
        assert_eq!(connection.order(), 0);
        connection.set_order(7);
        assert_eq!((connection.order(), connection.asking().order()), (7, 7));
    }
}
