//! What one client knows about its keys: what was acknowledged, and what was on its way when the answers stopped.
//!
//! May use: std. Must not know: how it was sent.

use std::collections::{BTreeMap, VecDeque};

/// A value, or that there is none.
pub(crate) type State = Option<Vec<u8>>;

#[derive(Debug, Default)]
struct Key {
    acknowledged: State,
    /// States that follow one another if what was sent is carried out.
    sent: VecDeque<State>,
}

/// The keys of one client. No other client writes them.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    keys: BTreeMap<String, Key>,
}

impl Oracle {
    /// What the key holds once everything that was sent is carried out.
    pub(crate) fn latest(&self, key: &str) -> State {
        let key = self.keys.get(key);
        key.and_then(|key| key.sent.back().unwrap_or(&key.acknowledged).clone())
    }

    /// A write that makes this of the key is about to be sent.
    pub(crate) fn send(&mut self, key: &str, state: State) {
        self.keys.entry(key.to_owned()).or_default().sent.push_back(state);
    }

    /// The oldest write of the key that has no answer was acknowledged.
    pub(crate) fn acknowledge(&mut self, key: &str) {
        let key = self.keys.get_mut(key).expect("an answer follows a write");
        key.acknowledged = key.sent.pop_front().expect("an answer follows a write");
    }

    /// The keys ever written.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    /// After a restart: the key must hold what was acknowledged, or something that was on its way; from now on it is that.
    pub(crate) fn settle(&mut self, name: &str, found: State) -> Result<(), String> {
        let key = self.keys.get_mut(name).expect("only written keys are settled");
        if found != key.acknowledged && !key.sent.contains(&found) {
            let show = |state: &State| state.as_ref().map_or("nothing".to_owned(), |value| brief(value));
            let on_its_way: Vec<String> = key.sent.iter().map(show).collect();
            return Err(format!(
                "{name}: found {}, acknowledged {}, on its way {on_its_way:?}",
                show(&found),
                show(&key.acknowledged)
            ));
        }
        key.acknowledged = found;
        key.sent.clear();
        Ok(())
    }
}

/// A value short enough to print.
pub(crate) fn brief(value: &[u8]) -> String {
    let head = value.get(..24).unwrap_or(value).escape_ascii();
    format!("\"{head}\" ({} bytes)", value.len())
}
