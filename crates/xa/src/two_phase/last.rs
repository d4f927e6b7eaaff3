//! Where a last resource decides.
//!
//! ```text
//!  preparing all others ─ all can ─▶ deciding ─ it committed ─▶ committing
//!     │                                │  ╰──── it refused ───▶ rolling back
//!     │                                ╰─ its answer was lost ─▶ in doubt ─ it is asked ─▶ committing, rolling back
//!     │                                                             ╰─ no answer ─▶ handing over to recovery ─▶ over
//!     ╰ a refusal ─▶ rolling back
//!  committing ─ all know ─▶ over
//!     ╰ one does not, or remembers ─▶ copying to the coordinator ─▶ forgetting ─▶ over
//! ```
//!
//! A *last resource* (the "last agent" of Samaras, Britton, Citron and Mohan, Two-Phase Commit Optimizations and Tradeoffs in
//! the Commercial Environment, 1993) is not prepared: it commits in one phase when all others are prepared, and its commit is
//! the decision. That is one write to a disk less for it, and none for the
//! coordinator, which is not even asked. It is when a branch cannot be told: then it gets a copy of the decision (*copying*).
//!
//! May use: `two_phase`. Must not know: how a resource manager keeps a decision.

use super::{Branch, BranchEnd, Call, Ended, Stage, State, TwoPhase, TwoPhaseDecision, XaCode};

impl TwoPhase {
    /// The last resource's answer to `CommitLast`. Whatever is no answer of its own leaves open whether it committed.
    pub(super) fn last_answered(&mut self, number: usize, code: XaCode) {
        self.awaited -= 1;
        match code.after_one_phase() {
            Some(Ended { end: BranchEnd::Committed, .. }) => self.last_decided(number, TwoPhaseDecision::Committed),
            Some(Ended { end: BranchEnd::RolledBack, .. }) => self.last_decided(number, TwoPhaseDecision::Aborted),
            // Out of reach, or it did something by itself.
            Some(_) => {
                self.stage = Stage::InDoubt;
                self.call_coordinator(Call::AskLast(number));
            }
            // It has not begun to, and is rolled back with the others.
            None => self.roll_back(),
        }
        self.proceed();
    }

    pub(super) fn last_decided(&mut self, number: usize, decision: TwoPhaseDecision) {
        let end = if decision == TwoPhaseDecision::Committed { BranchEnd::Committed } else { BranchEnd::RolledBack };
        self.branches.get_mut(number).expect("the machine numbers its own branches").state = State::Ended(end);
        self.decided = Some(decision);
        match decision {
            TwoPhaseDecision::Committed => self.stage = Stage::Committing,
            _ => self.roll_back(),
        }
    }

    /// All were told what the last resource decided. While a branch is pending, and while a resource manager remembers what it did
    /// by itself, somebody has to know of the decision who is asked for it although this program lives: the coordinator.
    pub(super) fn after_last(&mut self) {
        let is_left = |branch: &Branch| branch.remembered || branch.state == State::Ended(BranchEnd::Pending);
        if !self.branches.iter().any(is_left) {
            self.calls.push(Call::LetGo);
            self.stage = Stage::Over;
            return;
        }
        let was_prepared = |(number, branch): &(usize, &Branch)| {
            self.last != Some(*number) && branch.state != State::Ended(BranchEnd::ReadOnly)
        };
        let prepared = self.branches.iter().enumerate().filter(was_prepared).map(|(number, _)| number).collect();
        self.stage = Stage::Copying;
        self.call_coordinator(Call::Decide(prepared));
    }

    /// The coordinator's answer to that. Without a copy, also because it cannot write now, it is to say at least that the last
    /// resource is to be asked, to recovery.
    pub(super) fn copied(&mut self, decision: TwoPhaseDecision) {
        match decision {
            TwoPhaseDecision::Committed => {
                self.calls.push(Call::LetGo);
                self.note_done();
            }
            TwoPhaseDecision::Aborted | TwoPhaseDecision::Unknown => {
                self.stage = Stage::HandingOver;
                self.tell_abort();
            }
        }
    }

    /// The coordinator's answer when it was told that this program decides nothing any more.
    pub(super) fn handed_over(&mut self, decision: TwoPhaseDecision) {
        // It had a copy already.
        if decision == TwoPhaseDecision::Committed && self.decided == Some(TwoPhaseDecision::Committed) {
            self.copied(decision);
        } else {
            self.stage = Stage::Over;
        }
    }

    /// The last resource does not answer. The coordinator is told that this program decides nothing any more, so that recovery
    /// need not wait for the program's end to ask the last resource.
    pub(super) fn hand_over(&mut self) {
        self.leave_in_doubt();
        self.stage = Stage::HandingOver;
        self.tell_abort();
    }
}
