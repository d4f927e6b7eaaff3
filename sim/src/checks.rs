//! What must hold, one check to a file.
//!
//! May use: the model, the store's public surface. Must not know: how runs are driven.

pub(crate) mod contents;
pub(crate) mod durable;
pub(crate) mod folds;
pub(crate) mod indexes;
pub(crate) mod live;
pub(crate) mod replay;
pub(crate) mod tree;
pub(crate) mod views;
pub(crate) mod xa;
