//! The real `holdfast` program, met by real clients and real faults.
//!
//! `HOLDFAST_BIN` names the program, `HOLDFAST_PYTHON` a Python that has redis-py; `cargo xtask test` sets both.

mod backup_tests;
mod bench_tests;
mod beside;
mod cli_tests;
mod collector_tests;
mod continuous_tests;
mod crash_tests;
mod damaged_points_tests;
mod export_tests;
mod flip_tests;
mod full_disk_tests;
mod group_tests;
mod hostile_tests;
mod http_tests;
mod kv_tests;
mod lease_clients;
mod lease_listener;
mod lease_oracle;
mod lease_tests;
mod ledger_tests;
mod life_tests;
mod load;
mod oracle;
mod promql_tests;
mod python_tests;
mod script_tests;
mod series_tests;
mod space_tests;
