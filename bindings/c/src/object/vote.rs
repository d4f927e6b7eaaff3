//! A part of a transaction about which another program decides: all branches here are prepared, side by side, and the coordinator is told.
//!
//! May use: `side_by_side`, `object`. Must not know: C.

use std::rc::Rc;

use tm::{ErrorKind, OtherWork, Outcome, PrepareAnswer, Vote, XaCode};

use super::{Phase, TxObject, told_by_coordinator};
use crate::abi::{TMSUCCESS, TX_HAZARD, TX_MIXED, TX_OK, TX_ROLLBACK};
use crate::drive::Drive;
use crate::last_error;
use crate::resource::{Resource, Verb, code};
use crate::side_by_side::{Named, call_all};

impl TxObject {
    /// Prepares, and says so to the coordinator. When one branch cannot, nobody's can: all here are rolled back; and so
    /// they are when the coordinator says that the transaction is.
    pub(super) fn vote(&mut self) -> std::ffi::c_int {
        let well = self.leave_branches(TMSUCCESS) && self.prepare_and_tell();
        if !well {
            return self.rollback_voted();
        }
        self.leave(Phase::Voted);
        TX_OK
    }

    /// Whether all could be prepared, as far as the coordinator does not say otherwise.
    fn prepare_and_tell(&mut self) -> bool {
        let mut votes = self.prepare();
        let can = votes.iter().all(|(_, answer)| !is_refusal(*answer));
        if !can {
            // Nothing else matters.
            votes.retain(|(_, answer)| is_refusal(*answer));
        }
        for (resource, answer) in votes {
            let vote = match answer.as_vote() {
                PrepareAnswer::Prepared => Vote::Prepared,
                PrepareAnswer::ReadOnly => Vote::ReadOnly,
                PrepareAnswer::Gone | PrepareAnswer::Refused => Vote::Failed,
            };
            let told = self.tm.manager.decisions.prepared(self.id, resource.branch(), vote);
            // After any other error the vote may have been taken, and the transaction be committed by now: its answer was
            // lost, and the vote that was sent again came too late. What is prepared then waits for the verdict.
            if let Err(error) = told {
                told_by_coordinator(&error);
                if error.kind == ErrorKind::Aborted {
                    return false;
                }
            }
        }
        can
    }

    /// What each answers. Those of which nothing is left to end are let go of.
    fn prepare(&mut self) -> Vec<(Rc<dyn Resource>, XaCode)> {
        let resources = self.resources.clone();
        let branches: Vec<Named<'_>> = resources.iter().map(|own| (&**own, self.name(&**own))).collect();
        let mut answers = Vec::with_capacity(resources.len());
        call_all(Verb::Prepare, &branches, |place, answer| {
            let answer = code(answer);
            let resource = resources.get(place).expect("each has its place");
            if is_refusal(answer) {
                last_error::set_with_reason(&format!("`{}` cannot commit: {answer}", resource.branch()));
            }
            answers.push((place, answer));
        });
        answers.sort_by_key(|(place, _)| *place);
        let votes = resources.iter().zip(answers).map(|(resource, (_, answer))| (Rc::clone(resource), answer));
        let votes: Vec<_> = votes.collect();
        let is_left = |answer: XaCode| matches!(answer.as_vote(), PrepareAnswer::Prepared | PrepareAnswer::Refused);
        let left = votes.iter().filter(|(_, answer)| is_left(*answer));
        self.resources = left.map(|(resource, _)| Rc::clone(resource)).collect();
        votes
    }

    /// Rolls back what is prepared or ended here, and has the coordinator never commit.
    fn rollback_voted(&mut self) -> std::ffi::c_int {
        match self.drive_to_end(|id, resources| Drive::rollback(id, resources, OtherWork::Shared)) {
            Some(Outcome::Mixed) => TX_MIXED,
            Some(Outcome::Hazard) => TX_HAZARD,
            _ => TX_ROLLBACK,
        }
    }
}

fn is_refusal(answer: XaCode) -> bool {
    matches!(answer.as_vote(), PrepareAnswer::Gone | PrepareAnswer::Refused)
}
