//! Prometheus over HTTP.
