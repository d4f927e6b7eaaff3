//! Mirrors and loaders with a real PostgreSQL, which is killed meanwhile.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[allow(dead_code, reason = "these tests use PostgreSQL alone")]
#[path = "../transactions/databases.rs"]
mod databases;
mod mirror_tests;
