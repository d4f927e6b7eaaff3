//! The line door.

mod influx;
mod number;
mod put;
mod wire;
