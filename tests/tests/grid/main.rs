//! Mirrors and loaders, in this process and in a server's, with a real PostgreSQL and a real MariaDB, which are killed meanwhile.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod aside_tests;
mod awaited_tests;
mod bookmark_tests;
#[path = "../transactions/certificates.rs"]
mod certificates;
mod column_tests;
#[allow(dead_code, reason = "these tests prepare nothing")]
#[path = "../transactions/databases.rs"]
mod databases;
mod example_tests;
mod mariadb_tests;
mod mirror_tests;
mod power_tests;
mod scene;
mod server_tests;
mod server_through_tests;
mod through_tests;
mod tls_tests;
