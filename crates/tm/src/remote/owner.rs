//! This program's run, as the coordinator numbers it.
//!
//! May use: `pipe`. Must not know: leases, other threads.

use std::time::{Duration, Instant};

use xa::{CoordinatorId, OwnerId, TransactionId};

use super::options::RemoteOptions;
use super::pipe::Pipe;
use super::{good, strange, unavailable};
use crate::decisions::Result;
use crate::{Begin, Sharing};

/// An owner: it makes ids.
pub(super) struct Owner {
    id: OwnerId,
    sequence: u64,
    /// What the coordinator's clock showed, and when it said so: deadlines are by its clock.
    coordinator_ms: u64,
    heard: Instant,
}

impl Owner {
    /// Asks for a number.
    pub(super) fn open(pipe: &Pipe, options: &RemoteOptions) -> Result<(CoordinatorId, Self)> {
        let lease = options.lease.as_millis().to_string();
        let mut words = vec!["XA.OWNER", "OPEN", "LEASE", &lease];
        if let Some(name) = &options.name {
            words.extend(["NAME", name]);
        }
        // An owner that was opened in vain ends by itself, so asking again is harmless.
        let again = |_| pipe.call(&words, Duration::ZERO);
        let reply = pipe.call(&words, Duration::ZERO).or_else(again);
        let reply = good(reply.map_err(|broken| unavailable(broken.text))?)?;
        let Some([coordinator, owner, _lease, now]) = reply.list() else { return Err(strange(&reply)) };
        let coordinator = coordinator.text().and_then(|digits| u64::from_str_radix(&digits, 16).ok());
        let (Some(coordinator), Some(id), Some(now)) = (coordinator, owner.number(), now.number()) else {
            return Err(strange(&reply));
        };
        let owner = Self { id: OwnerId(id), sequence: 0, coordinator_ms: now, heard: Instant::now() };
        Ok((CoordinatorId(coordinator), owner))
    }

    pub(super) fn id(&self) -> OwnerId {
        self.id
    }

    pub(super) fn begin(&mut self, coordinator: CoordinatorId, begin: Begin) -> TransactionId {
        self.sequence += 1;
        let deadline_ms = begin.timeout.map_or(0, |timeout| {
            let from_now = self.heard.elapsed().saturating_add(timeout).as_millis();
            self.coordinator_ms.saturating_add(u64::try_from(from_now).unwrap_or(u64::MAX)).min((1 << 48) - 1)
        });
        TransactionId {
            coordinator,
            owner: self.id,
            sequence: self.sequence,
            deadline_ms,
            shared: begin.sharing == Sharing::Shared,
            last_resource: None,
        }
    }
}
