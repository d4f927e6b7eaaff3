//! Transactions over the real PostgreSQL and MariaDB: what they promise, restarts, kills, and neighbours.
//!
//! `cargo xtask test` installs both. Each test has servers of its own and ends them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod audit;
mod bank;
mod bank_tests;
mod books;
mod certificates;
mod command_tests;
mod database_tests;
mod databases;
mod engine_tests;
mod full_disk_tests;
mod idle_database_tests;
mod kill_tests;
mod last_resource_database_tests;
mod last_resource_tests;
mod life_tests;
mod participants_tests;
mod pattern_tests;
mod patterns;
mod program_tests;
mod programs;
mod python_tests;
mod recovery_tests;
mod stage;
mod steps;
mod stop_tests;
mod stubborn;
mod tls_recovery_tests;
mod tls_tests;
