//! The state table of X/Open TX (C504): which call is allowed when, and where it leads.
//!
//!   closed           S0   no resource managers are open
//!   idle             S1   open, not in a transaction, not chained
//!   idle chained     S2   open, not in a transaction, chained: the next one will be followed by another
//!   active           S3   in a transaction, not chained
//!   active chained   S4   in a transaction, which will be followed by another
//!
//! Suspending and resuming a transaction are ours: the standard has them in XA, and gives programs no call for them.
//!
//! May use: nothing. Must not know: what the calls do.

/// The state of a thread of control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    #[default]
    Closed,
    Idle,
    IdleChained,
    Active,
    ActiveChained,
}

/// What follows the end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Unchained,
    Chained,
}

/// A call that ended as it should, or ended a transaction in whatever way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Begin,
    Close,
    /// `tx_commit` or `tx_rollback`; whether the next transaction began, where one should.
    End(Next),
    Info,
    Open,
    Resume,
    SetCommitReturn,
    SetControl(Control),
    SetTimeout,
    Suspend,
}

/// Whether a chained transaction could begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It did, or none was wanted.
    Began,
    /// It did not: the codes `TX_..NO_BEGIN`.
    Refused,
}

impl State {
    /// The state that a call leads to; `None` when it is not allowed, which is `TX_PROTOCOL_ERROR` and changes nothing.
    pub(crate) fn after(self, call: Call) -> Option<Self> {
        use State::{Active, ActiveChained, Closed, Idle, IdleChained};
        match (call, self) {
            (Call::Begin | Call::Resume, Idle) => Some(Active),
            (Call::Begin | Call::Resume, IdleChained) => Some(ActiveChained),
            (Call::Suspend, Active) => Some(Idle),
            (Call::Suspend, ActiveChained) => Some(IdleChained),
            (Call::Close, Closed | Idle | IdleChained) => Some(Closed),
            (Call::End(Next::Began), Active) => Some(Idle),
            (Call::End(Next::Began), ActiveChained) => Some(ActiveChained),
            (Call::End(Next::Refused), ActiveChained) => Some(IdleChained),
            (Call::Open, Closed) => Some(Idle),
            (Call::Open, open) => Some(open),
            (Call::SetControl(Control::Chained), Idle | IdleChained) => Some(IdleChained),
            (Call::SetControl(Control::Chained), Active | ActiveChained) => Some(ActiveChained),
            (Call::SetControl(Control::Unchained), Idle | IdleChained) => Some(Idle),
            (Call::SetControl(Control::Unchained), Active | ActiveChained) => Some(Active),
            (Call::Info | Call::SetCommitReturn | Call::SetTimeout, open) if open != Closed => Some(open),
            _ => None,
        }
    }

    /// Whether the call is allowed at all.
    pub(crate) fn allows(self, call: Call) -> bool {
        self.after(call).is_some()
    }

    /// Whether there is a transaction.
    pub(crate) fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::ActiveChained)
    }

    /// What follows the end of a transaction.
    pub(crate) fn control(self) -> Control {
        match self {
            Self::IdleChained | Self::ActiveChained => Control::Chained,
            Self::Closed | Self::Idle | Self::Active => Control::Unchained,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Control, Next, State};

    /// The table as the standard prints it: a row for each call, a column for each state, `-` for what is not allowed.
    const TABLE: &str = "
        call                 S0 S1 S2 S3 S4
        begin                -  S3 S4 -  -
        close                S0 S0 S0 -  -
        end                  -  -  -  S1 S4
        end_no_begin         -  -  -  -  S2
        info                 -  S1 S2 S3 S4
        open                 S1 S1 S2 S3 S4
        set_commit_return    -  S1 S2 S3 S4
        set_chained          -  S2 S2 S4 S4
        set_unchained        -  S1 S1 S3 S3
        set_timeout          -  S1 S2 S3 S4
        suspend              -  -  -  S1 S2
        resume               -  S3 S4 -  -
    ";

    fn state(name: &str) -> Option<State> {
        match name {
            "S0" => Some(State::Closed),
            "S1" => Some(State::Idle),
            "S2" => Some(State::IdleChained),
            "S3" => Some(State::Active),
            "S4" => Some(State::ActiveChained),
            "-" => None,
            _ => panic!("{name} is no state"),
        }
    }

    fn call(name: &str) -> Call {
        match name {
            "begin" => Call::Begin,
            "close" => Call::Close,
            "end" => Call::End(Next::Began),
            "end_no_begin" => Call::End(Next::Refused),
            "info" => Call::Info,
            "open" => Call::Open,
            "set_commit_return" => Call::SetCommitReturn,
            "set_chained" => Call::SetControl(Control::Chained),
            "set_unchained" => Call::SetControl(Control::Unchained),
            "set_timeout" => Call::SetTimeout,
            "suspend" => Call::Suspend,
            "resume" => Call::Resume,
            _ => panic!("{name} is no call"),
        }
    }

    #[test]
    fn every_call_in_every_state_is_as_the_standard_has_it() {
        let mut rows = TABLE.lines().map(str::split_whitespace).filter(|words| words.clone().next().is_some());
        let states: Vec<State> = rows.next().unwrap().skip(1).map(|name| state(name).unwrap()).collect();
        let mut cells = 0;
        for mut row in rows {
            let call = call(row.next().unwrap());
            for (from, to) in states.iter().zip(row) {
                assert_eq!(from.after(call), state(to), "{call:?} in {from:?}");
                assert_eq!(from.allows(call), to != "-");
                cells += 1;
            }
        }
        assert_eq!(cells, 60);
    }

    #[test]
    fn states_know_their_control() {
        let chained = [State::IdleChained, State::ActiveChained];
        for state in [State::Closed, State::Idle, State::IdleChained, State::Active, State::ActiveChained] {
            assert_eq!(state.control() == Control::Chained, chained.contains(&state));
            assert_eq!(state.is_active(), state.allows(Call::End(Next::Began)));
        }
    }
}
