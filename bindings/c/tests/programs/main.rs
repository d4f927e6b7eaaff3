//! C programs against our headers and library: compiled by gcc, and run.
#![allow(clippy::unwrap_used, reason = "in a test a failure is a panic")]

mod codes_tests;
mod coordinator;
mod crash_tests;
mod databases_tests;
mod engines_crash_tests;
mod engines_tests;
mod hang_tests;
mod install_tests;
mod servers;
mod sharing_tests;
mod stage;
mod tls_tests;
mod tx_tests;
