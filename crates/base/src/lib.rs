//! The outside world of Holdfast behind traits, and the small ground everything stands on.
//!
//! [`Files`], [`Clock`] and [`Random`] are the only ways by which the crates above reach the operating system. The real
//! ones are [`OsFiles`] and [`OsClock`]; [`memory::Disk`] and [`ManualClock`] belong to tests and to the simulator: a
//! disk that loses what was not synced, tears writes, runs full, and fails on demand.
//!
//! May use: the operating system, checksum libraries. Must not know: journals, engines, protocols.

mod ahead;
mod allocator;
mod around;
mod calendar;
mod checksum;
mod clock;
mod fields;
mod files;
mod histogram;
mod limits;
mod mapped;
pub mod memory;
mod os;
mod pages;
mod random;
mod shared_bytes;
mod thread;
mod yielder;

pub use ahead::{Area, Line, fetch_ahead};
pub use allocator::LargeApart;
pub use around::{Around, AroundFiles, Handle};
pub use calendar::{date_of_day, day_of_date, days_in_month};
pub use checksum::{Crc32c, Hash64, crc32c, hash64, hash128};
pub use clock::{Clock, ManualClock, OsClock, Time};
pub use fields::{Fields, put_string, put_varint, unzigzag, zigzag};
pub use files::{
    DirLock, File, Files, Placed, SMALL_WRITE_BYTES_MAX, copy_whole, is_unreadable, link_or_copy, read_exact_at,
    read_whole, remove_if_there, write_new_file,
};
pub use histogram::{Histogram, Quantiles};
pub use limits::Limits;
pub use os::OsFiles;
pub use pages::{LargePages, use_small_pages};
pub use random::{Random, entropy};
pub use shared_bytes::SharedBytes;
pub use thread::{Gate, Signal, Worker, lock_soon, processors, stand_back, step_aside, yield_now};
pub use yielder::{Yielder, rest_behind};
