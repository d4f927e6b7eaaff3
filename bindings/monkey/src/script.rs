//! What the monkey answers: a text file, read when a thread opens it. For users it is in `docs/reference/monkey.md`.
//!
//! A line is a verb and the answers to its calls, one after the other; the last is repeated. Answers are names of the XA
//! standard. `VERB@N` is for the Nth thread that opened a monkey in this process, counted from 1, and goes before a line
//! for all threads. What is not in the file is answered with XA_OK. Everything behind `#` is for people.
//!
//!   prepare    XA_OK XA_RDONLY
//!   commit@2   XA_HEURMIX
//!   rollback   kill-before          the process dies before the branch is rolled back
//!   commit     XA_OK kill-after     the second branch is committed, but nobody hears of it
//!
//! Verbs: open close start end prepare commit rollback recover forget complete.
//!
//! May use: `abi`. Must not know: files.

use std::collections::BTreeMap;
use std::ffi::c_int;

use crate::abi::{ANSWERS, XA_OK};

const VERBS: &[&str] =
    &["open", "close", "start", "end", "prepare", "commit", "rollback", "recover", "forget", "complete"];

/// What to do when called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Do it and answer so.
    Answer(c_int),
    /// The process dies, and nothing was done.
    KillBefore,
    /// It is done, and the process dies.
    KillAfter,
}

/// A script, and how far a thread has come in it.
#[derive(Debug, Default)]
pub(crate) struct Script {
    lines: BTreeMap<String, Vec<Act>>,
    calls: BTreeMap<String, usize>,
}

impl Script {
    /// Reads the lines that are for this thread.
    pub(crate) fn parse(text: &str, thread: usize) -> Result<Self, String> {
        let mut script = Self::default();
        let mut own = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(first) = words.next() else { continue };
            let (verb, number) = first.split_once('@').map_or((first, None), |(verb, number)| (verb, Some(number)));
            if !VERBS.contains(&verb) {
                return Err(format!("`{verb}` is no verb"));
            }
            let acts = words.map(act).collect::<Result<Vec<Act>, String>>()?;
            match number.map(str::parse::<usize>) {
                None => drop(script.lines.insert(verb.to_owned(), acts)),
                Some(Ok(number)) if number == thread => drop(own.insert(verb.to_owned(), acts)),
                Some(Ok(_)) => (),
                Some(Err(_)) => return Err(format!("`{first}` has no number of a thread behind the @")),
            }
        }
        script.lines.extend(own);
        Ok(script)
    }

    /// The act of this call.
    pub(crate) fn next(&mut self, verb: &str) -> Act {
        let call = self.calls.entry(verb.to_owned()).or_default();
        let acts = self.lines.get(verb).map(Vec::as_slice).unwrap_or_default();
        let act = acts.get(*call).or(acts.last()).copied();
        *call = call.saturating_add(1);
        act.unwrap_or(Act::Answer(XA_OK))
    }
}

fn act(word: &str) -> Result<Act, String> {
    match word {
        "kill-before" => Ok(Act::KillBefore),
        "kill-after" => Ok(Act::KillAfter),
        name => {
            let known = ANSWERS.iter().find(|(known, _)| *known == name);
            known.map(|(_, code)| Act::Answer(*code)).ok_or_else(|| format!("`{name}` is no answer"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Act, Script};

    #[test]
    fn answers_come_in_order_and_the_last_is_repeated() {
        let mut script = Script::parse("prepare XA_RDONLY XA_RBOTHER # why\n\n", 1).unwrap();
        let answers: Vec<Act> = (0..3).map(|_| script.next("prepare")).collect();
        assert_eq!(answers, [Act::Answer(3), Act::Answer(104), Act::Answer(104)]);
        assert_eq!(script.next("commit"), Act::Answer(0));
    }

    #[test]
    fn a_line_for_one_thread_goes_before_a_line_for_all() {
        let text = "commit@2 kill-after\ncommit XA_RETRY\n";
        assert_eq!(Script::parse(text, 1).unwrap().next("commit"), Act::Answer(4));
        assert_eq!(Script::parse(text, 2).unwrap().next("commit"), Act::KillAfter);
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for text in ["dance XA_OK", "commit XA_PERHAPS", "commit@x XA_OK"] {
            assert!(Script::parse(text, 1).is_err(), "{text}");
        }
    }
}
