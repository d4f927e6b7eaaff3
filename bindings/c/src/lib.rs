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
mod control;
mod drive;
mod last_error;
mod manager;
mod native;
mod resource;
mod switch;
mod thread;
mod tx_state;

#[cfg(test)]
mod tests;

pub use abi::{TxInfo, XaSwitch, XidData};
pub use ax::{ax_reg, ax_unreg};
pub use native::{holdfast_mariadb_switch, holdfast_postgres_switch};
