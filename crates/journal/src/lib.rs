//! The one ordered durable log of Holdfast.
//!
//! A [`Journal`] is a directory of append-only segments. A [`Batch`] is the unit of atomicity; it gets a [`Position`]
//! when it is appended and is durable once a watermark has passed that position. Writers share syncs: whoever finds no
//! sync running leads the next one for all that wait; where syncs take long some overlap.
//!
//! What others need of a log is the [`Log`] trait; what a log needs of its readers is [`StateMachine`]. The local
//! segments are the first `Log`; a replicated log service can be another.
//!
//! May use: `base`. Must not know: engines, stores, protocols.

mod batch;
mod begin;
mod bytes;
mod chain;
mod commit;
mod damage;
mod error;
mod footer;
mod header;
mod journal;
mod link;
mod log;
mod manifest;
mod position;
mod read;
mod record;
mod recovery;
mod release;
mod scan;
mod scrub;
mod segment;
mod spare;
mod stats;
mod survey;
mod syncing;
mod tail;
mod unsealed;
mod upkeep;
mod verify;

pub use batch::{Appended, Batch};
pub use begin::FILE as BEGIN_FILE;
pub use chain::PartitionState;
pub use damage::{Damage, DamageKind};
pub use error::{Error, Result};
pub use journal::{Journal, Options};
pub use link::{Examined, Hold, Linked, MANIFEST_FILE, examine, read_manifest};
pub use log::{Level, Log, Record, RecordSection, StateMachine, Visit, Watermarks, Window};
pub use manifest::{Manifest, ManifestSegment};
pub use position::{PartitionId, Position};
pub use recovery::{Recovery, identify, is_empty, next_position};
pub use scrub::{Scrub, Scrubbed};
pub use stats::{SegmentStats, Stats};
pub use survey::{Survey, SurveyedSegment};
pub use verify::Verified;

#[cfg(test)]
mod begin_tests;
#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod overlap_tests;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod spare_tests;
#[cfg(test)]
mod steps_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unsynced_tests;
#[cfg(test)]
mod zeros_tests;
