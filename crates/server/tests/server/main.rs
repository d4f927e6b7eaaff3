//! The program as users meet it: started, asked, stopped, inspected. Everything listens on free ports, and every wait ends.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect ends")]

mod files;
mod life;
mod program;
mod security;
mod series;
mod transactions;
