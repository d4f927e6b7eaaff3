//! One branch and nothing else: it commits in one phase, and no coordinator hears of it, unless its resource manager did something by
//! itself.
//!
//! ```text
//!  one phase ─ done ─▶ over
//!     │  ╰──── it could not ─▶ rolling back
//!     ╰ it did something by itself ─▶ recording ─ decided to commit ─▶ done ─▶ forgetting ─▶ over
//!                                         │  ╰─── refused ──────────▶ deeds ─▶ forgetting ─▶ over
//!                                         ╰ the answer was lost ─ which of both is asked ─ still unknown ─▶ over
//! ```
//!
//! What it did is recorded before it is told to forget it, or nobody would know of it but the program. The program wanted a
//! commit, so that is what the coordinator is told, and what the branch did stands with it, as with two phases. It is told late,
//! and refuses it when the deadline has passed or the owner has ended: then it stands with the rollback.
//!
//! That nobody knows how one ended that cannot be reached (`XAER_RMFAIL`) is the program's to hear, as of any commit whose answer is
//! lost. To tell the coordinator that it is rolled back would be wrong as often as right. Should the resource manager have done
//! something by itself that it remembers, recovery finds it and has it recorded when the program has ended.
//!
//! May use: `two_phase`. Must not know: how it is recorded.

use super::{Branch, BranchEnd, Call, Heuristic, Stage, State, TwoPhase, TwoPhaseDecision, Verb};

impl TwoPhase {
    pub(super) fn commit_in_one_phase(&mut self, branch: usize) {
        self.stage = Stage::OnePhase;
        self.ask(branch, Verb::OnePhase);
    }

    pub(super) fn after_one_phase(&mut self) {
        let deeds: Vec<usize> = self.remembered().into_iter().map(|(number, _)| number).collect();
        if self.branches.iter().any(|branch| branch.state == State::Active) {
            self.roll_back();
        } else if deeds.is_empty() {
            self.stage = Stage::Over;
        } else {
            self.stage = Stage::Recording;
            self.call_coordinator(Call::Decide(deeds));
        }
    }

    /// The coordinator's answer to the decision, or behind that, when it was lost, to the abort.
    pub(super) fn recorded(&mut self, decision: TwoPhaseDecision) {
        let did = self.remembered();
        let call = match decision {
            TwoPhaseDecision::Committed => {
                Call::Done(did.into_iter().map(|(number, deed)| (number, BranchEnd::Heuristic(deed))).collect())
            }
            // Also what was rolled back: the program wanted a commit.
            TwoPhaseDecision::Aborted => Call::Deeds(did),
            TwoPhaseDecision::Unknown if !self.abort_told => return self.tell_abort(),
            // The resource manager remembers, and recovery has it recorded.
            TwoPhaseDecision::Unknown => {
                self.stage = Stage::Over;
                return;
            }
        };
        self.decided = Some(decision);
        self.calls.push(call);
        self.forget();
    }

    fn remembered(&self) -> Vec<(usize, Heuristic)> {
        let deed = |(number, branch): (usize, &Branch)| match branch.state {
            State::Ended(BranchEnd::Heuristic(deed)) if branch.remembered => Some((number, deed)),
            _ => None,
        };
        self.branches.iter().enumerate().filter_map(deed).collect()
    }
}
