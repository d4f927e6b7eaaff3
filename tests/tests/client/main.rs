//! The client library against the real server, and against a store in the process: the same calls, the same answers.
//!
//! `HOLDFAST_BIN` names the program; `cargo xtask test` sets it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod both_batch_tests;
mod both_feed_tests;
mod both_function_tests;
mod both_keys_tests;
mod both_listed_tests;
mod both_snapshot_tests;
mod both_space_tests;
mod both_tests;
mod both_transaction_tests;
mod both_volatile_tests;
mod cut;
mod cut_tests;
mod kill_tests;
mod run_tests;
mod scene;
mod task_tests;
mod wire_tests;
mod worker_tests;
