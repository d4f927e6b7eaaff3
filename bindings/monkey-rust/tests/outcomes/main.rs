//! The whole matrix of answers of resource managers, as a program in Rust hears of it, and the monkey that gives them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod codes;
mod monkey;
mod pairs;
mod scene;
