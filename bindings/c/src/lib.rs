//! `libholdfast`: Holdfast's transactions in C.
//!
//! Three interfaces, with a header each in `include/`: X/Open TX for programs (`tx.rs`), X/Open XA for resource managers
//! (`switch.rs` loads them, `ax.rs` is what they call), and transactions as objects (`holdfast.h`). All of them drive the
//! machine of two-phase commit in `drive.rs`, and decide at a coordinator of `tm`.
//!
//! This crate is a library for C; what is public in it is what C sees.
//!
//! May use: `tm`, `holdfast` for durability. Must not know: where the coordinator is, SQL other than of two-phase commit.

mod abi;
mod ax;
mod connection;
mod control;
mod coordinator;
mod drive;
mod exit;
mod holdfast_calls;
mod last_error;
mod manager;
mod native;
mod object;
mod object_calls;
mod opening;
mod own;
mod own_calls;
mod resource;
mod rounds;
mod side_by_side;
mod suspend;
mod switch;
mod thread;
mod tx;
mod tx_state;

#[cfg(test)]
mod tests;

pub use abi::{TxInfo, XaSwitch, XidData};
pub use ax::{ax_reg, ax_unreg};
pub use holdfast_calls::{
    RecoveredCounts, holdfast_id, holdfast_last_error, holdfast_mariadb_connection, holdfast_postgres_connection,
    holdfast_recover, holdfast_resume, holdfast_suspend,
};
pub use native::{holdfast_mariadb_switch, holdfast_postgres_switch};
pub use object_calls::{
    Tm, Tx, holdfast_tm_add_mariadb, holdfast_tm_add_postgres, holdfast_tm_add_postgres_asking, holdfast_tm_free,
    holdfast_tm_new, holdfast_tm_recover, holdfast_tm_set_order, holdfast_tx_begin, holdfast_tx_commit,
    holdfast_tx_finish, holdfast_tx_free, holdfast_tx_id, holdfast_tx_join, holdfast_tx_resume, holdfast_tx_rollback,
    holdfast_tx_suspend,
};
pub use own_calls::{
    holdfast_add_point, holdfast_declare, holdfast_delete, holdfast_free, holdfast_get, holdfast_put, holdfast_read,
    holdfast_take, holdfast_tm_declare, holdfast_tx_add_point, holdfast_tx_delete, holdfast_tx_get, holdfast_tx_put,
    holdfast_tx_read, holdfast_tx_take, holdfast_tx_write, holdfast_write,
};
pub use tx::{
    tx_begin, tx_close, tx_commit, tx_info, tx_open, tx_rollback, tx_set_commit_return, tx_set_transaction_control,
    tx_set_transaction_timeout,
};
