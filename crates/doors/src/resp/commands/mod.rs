//! The handlers, by group. Every function here is named in a row of `rows.rs` and writes one reply.
//!
//! May use: `call` and what it gives. Must not know: sockets, dispatch.

pub(crate) mod backup;
pub(crate) mod client;
pub(crate) mod command;
pub(crate) mod compact;
pub(crate) mod connection;
pub(crate) mod counters;
pub(crate) mod expiry;
pub(crate) mod feed;
pub(crate) mod fold;
pub(crate) mod function;
pub(crate) mod index;
pub(crate) mod info;
pub(crate) mod keyspace;
pub(crate) mod own;
pub(crate) mod pages;
pub(crate) mod scan;
pub(crate) mod script;
pub(crate) mod series;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod slow;
pub(crate) mod snapshot;
pub(crate) mod space;
pub(crate) mod strings;
pub(crate) mod tracking;
pub(crate) mod transaction;
pub(crate) mod tree;
pub(crate) mod tx;
pub(crate) mod xa;
