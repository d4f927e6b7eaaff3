//! A transaction without a thread: suspended by one, and resumed by the same or another.
//!
//! XA has it all (`TMSUSPEND`, `TMMIGRATE`, `TMRESUME`), and TX has no call for it; these are ours. A transaction that has a
//! branch in a resource manager whose branches do not migrate goes on in the thread that suspended it.
//!
//! May use: `control`. Must not know: C strings.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tm::TransactionId;

use crate::abi::{
    TMMIGRATE, TMRESUME, TMSUSPEND, TX_EINVAL, TX_OK, TX_OUTSIDE, TX_PROTOCOL_ERROR, XA_NOMIGRATE, XA_OK,
};
use crate::control::{Association, Thread, Transaction, name};
use crate::last_error;
use crate::manager::Manager;
use crate::own::OwnWork;
use crate::resource::{Resource, Verb, code};
use crate::tx_state::Call;

struct Suspended {
    manager: Arc<Manager>,
    transaction: Transaction,
    associations: Vec<Association>,
    own: Option<OwnWork>,
}

static SUSPENDED: Mutex<BTreeMap<TransactionId, Suspended>> = Mutex::new(BTreeMap::new());

fn suspended() -> std::sync::MutexGuard<'static, BTreeMap<TransactionId, Suspended>> {
    SUSPENDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a suspended transaction of this manager goes on in this thread alone.
pub(crate) fn is_bound_here(manager: &Arc<Manager>) -> bool {
    let here = thread::current().id();
    suspended().values().any(|it| it.transaction.bound_to == Some(here) && Arc::ptr_eq(&it.manager, manager))
}

impl Thread {
    /// Whether the thread is where it may resume one.
    pub(crate) fn allows_resume(&self) -> bool {
        self.state.allows(Call::Resume)
    }

    /// Takes the transaction from the thread, which is idle then.
    pub(crate) fn suspend(&mut self) -> Result<TransactionId, c_int> {
        let Some(state) = self.state.after(Call::Suspend) else { return Err(self.misplaced()) };
        let (Some(mut transaction), Some(manager)) = (self.transaction, self.manager.clone()) else {
            return Err(self.misplaced());
        };
        for (place, resource) in manager.resources.iter().enumerate() {
            if self.association(place) != Association::Active {
                continue;
            }
            let bound = resource.is_bound_to_threads();
            let flags = if bound { TMSUSPEND } else { TMSUSPEND | TMMIGRATE };
            last_error::clear();
            let answer = resource.call(Verb::End, &name(resource, transaction.id), flags);
            if bound || answer == XA_NOMIGRATE {
                transaction.bound_to = Some(thread::current().id());
            }
            if ![XA_OK, XA_NOMIGRATE].contains(&answer) {
                last_error::set_with_reason(&format!("xa_end of `{}` answered {}", resource.branch, code(answer)));
                transaction.rollback_only = true;
            }
            self.associate(place, Association::Suspended);
        }
        let none = vec![Association::None; manager.resources.len()];
        let associations = std::mem::replace(&mut self.associations, none);
        self.transaction = None;
        self.state = state;
        let own = self.own.take();
        suspended().insert(transaction.id, Suspended { manager, transaction, associations, own });
        Ok(transaction.id)
    }

    /// Gives a suspended transaction to this thread.
    pub(crate) fn resume(&mut self, id: TransactionId) -> c_int {
        self.finish();
        let (Some(state), Some(manager)) = (self.state.after(Call::Resume), self.manager.clone()) else {
            return self.misplaced();
        };
        if self.associations.contains(&Association::Outside) {
            return last_error::refuse(TX_OUTSIDE, "a resource manager is working outside of transactions");
        }
        let found = match suspended().entry(id) {
            std::collections::btree_map::Entry::Vacant(_) => {
                last_error::set(format!("{id} is not suspended in this process"));
                return TX_EINVAL;
            }
            std::collections::btree_map::Entry::Occupied(entry) => {
                let found = entry.get();
                if !Arc::ptr_eq(&found.manager, &manager) {
                    last_error::set(format!("{id} belongs to another profile"));
                    return TX_EINVAL;
                }
                if found.transaction.bound_to.is_some_and(|thread| thread != thread::current().id()) {
                    last_error::set(format!("{id} has a branch that does not leave the thread that suspended it"));
                    return TX_PROTOCOL_ERROR;
                }
                entry.remove()
            }
        };
        let mut transaction = found.transaction;
        self.associations = found.associations;
        for (place, resource) in manager.resources.iter().enumerate() {
            // One that registers itself says by itself when work goes on in it.
            if self.association(place) != Association::Suspended || resource.is_dynamic() {
                continue;
            }
            last_error::clear();
            let answer = resource.call(Verb::Start, &name(resource, id), TMRESUME);
            if answer == XA_OK {
                self.associate(place, Association::Active);
            } else {
                last_error::set_with_reason(&format!("xa_start of `{}` answered {}", resource.branch, code(answer)));
                transaction.rollback_only = true;
            }
        }
        (self.transaction, self.own) = (Some(transaction), found.own);
        self.state = state;
        TX_OK
    }
}
