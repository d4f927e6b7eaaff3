//! The HTTP door: objects in buckets, as Riak's clients know them, and how the server is, for probes, Prometheus and people.
//!
//! `serve` listens, `connection` drives one socket, `handle` answers by the `table` of routes, after `guard` has looked who
//! asks. `object`, `listing` and `index` ask the store; `metadata`, `indexes` and `conditions` are headers and what they
//! mean; `metrics` and `numbers` are the two forms in which the store's statistics go out. HTTP itself is `hyper`'s.
//! docs/reference/http.md is what clients may rely on.
//!
//! May use: the facade, tokio, axum, rustls. Must not know: the other doors, engines.

mod table;

mod serve;

mod connection;
mod lingering;
mod places;
mod stalling;

mod guard;
mod handle;
mod upload;

mod finding;
mod index;
mod listing;
mod object;
mod pages;
mod space;
mod space_json;
mod spaces;
mod spaces_table;

mod json_body;

mod batch;
mod event_json;
mod event_stream;
mod events;
mod execute;
mod many;
mod many_writes;
mod scripts;
mod scripts_table;

mod message;

mod influx;
mod ingest;
mod opentsdb;
mod prometheus;

mod conditions;
mod indexes;
mod metadata;

mod admin;
mod metrics;
mod numbers;
mod openapi;

mod base64;
mod credentials;
mod failure;
mod fields;
mod gone;
mod limits;
mod options;
mod shared;
mod showing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_batch;
#[cfg(test)]
mod tests_client;
#[cfg(test)]
mod tests_events;
#[cfg(test)]
mod tests_execute;
#[cfg(test)]
mod tests_finding;
#[cfg(test)]
mod tests_held;
#[cfg(test)]
mod tests_indexes;
#[cfg(test)]
mod tests_iot_benchmark;
#[cfg(test)]
mod tests_json;
#[cfg(test)]
mod tests_listings;
#[cfg(test)]
mod tests_many;
#[cfg(test)]
mod tests_many_writes;
#[cfg(test)]
mod tests_memory;
#[cfg(test)]
mod tests_objects;
#[cfg(test)]
mod tests_questions;
#[cfg(test)]
mod tests_refused;
#[cfg(test)]
mod tests_scripts;
#[cfg(test)]
mod tests_spaces;
#[cfg(test)]
mod tests_transactions;
#[cfg(test)]
mod tests_volatile;
#[cfg(test)]
mod tests_wire;
mod turns;
mod unserved;
mod uri;

pub use limits::Limits;
pub use options::{NumbersSource, Options};
pub use serve::{Running, serve};

pub use crate::numbers::DoorNumbers;
