//! A multiset with leases: what a type may hold, after what clients have sent and what they were answered.
//!
//! Each entry has a number that is written once, so that the multiset is a map. Its life is known from two sides: answers say what must have happened,
//! and the type's events, each told once and in order, say what became of what was not answered.
//!
//! The server adds a lease to its clock at some moment between those at which the command was sent and answered, and the clients read the same clock.
//! So the end of a lease is known to lie between two milliseconds, and exactly once the entry was shown.
//!
//! May use: the JSON of documents. Must not know: connections, when the server dies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_tests::Random;

/// What is wrong, in words.
pub(crate) type Check<T = ()> = Result<T, String>;

/// The end of a lease that has none.
pub(crate) const NEVER: u64 = u64::MAX;

/// The clock that leases end by: milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    u64::try_from(since.as_millis()).expect("it is not that late")
}

/// An entry as somebody was shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) document: String,
    pub(crate) expires_ms: u64,
}

/// What a document says.
struct Fields {
    number: u64,
    step: u64,
    count: u64,
}

impl Fields {
    fn of(document: &str) -> Check<Self> {
        let json: serde_json::Value = serde_json::from_str(document).map_err(|error| format!("{document}: {error}"))?;
        let field = |name: &str| json[name].as_u64().ok_or_else(|| format!("{document} has no {name}"));
        Ok(Self { number: field("id")?, step: field("step")?, count: field("count")? })
    }
}

/// The number of the entry in a document.
pub(crate) fn number_of(document: &str) -> Check<u64> {
    Fields::of(document).map(|fields| fields.number)
}

/// When a lease may end; both are possible.
#[derive(Debug, Clone, Copy)]
struct End {
    first: u64,
    last: u64,
}

/// A number that only grows: what was acknowledged of it, and what was sent.
#[derive(Debug, Clone, Copy, Default)]
struct Grows {
    acknowledged: u64,
    sent: u64,
}

impl Grows {
    fn check(self, what: &str, found: u64) -> Check {
        if (self.acknowledged..=self.sent).contains(&found) {
            return Ok(());
        }
        Err(format!("{what} is {found}; {} was acknowledged, and {} sent", self.acknowledged, self.sent))
    }

    fn is(found: u64) -> Self {
        Self { acknowledged: found, sent: found }
    }
}

/// Why an entry is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    Taken,
    Expired,
}

#[derive(Debug, Default)]
struct Entry {
    is_acknowledged: bool,
    /// The leases that it may have now.
    ends: Vec<End>,
    /// All that it may ever have had.
    ever: Vec<End>,
    /// Set by the client that wrote it.
    step: Grows,
    /// Added to by all clients.
    count: Grows,
    /// What the one who has taken it was shown.
    taken: Option<Sight>,
    /// What somebody knew who was told that it is not there when its lease had not ended.
    missed: Option<Known>,
    /// What it was by the last event, and why it went.
    told: Option<String>,
    gone: Option<Gone>,
}

impl Entry {
    /// Its lease may have ended by this moment.
    fn may_have_ended(&self, now_ms: u64) -> bool {
        self.ends.iter().any(|end| end.first <= now_ms)
    }

    /// Whether it may be, or have been, as it was shown.
    fn check(&self, shown: &Sight, ends: &[End]) -> Check {
        self.check_fields(&shown.document)?;
        if ends.iter().any(|end| (end.first..=end.last).contains(&shown.expires_ms)) {
            return Ok(());
        }
        Err(format!("it is shown with a lease until {}; it can be {ends:?}", shown.expires_ms))
    }

    fn check_fields(&self, document: &str) -> Check {
        let fields = Fields::of(document)?;
        self.step.check("step", fields.step)?;
        self.count.check("count", fields.count)
    }
}

/// What was certain of an entry before somebody asked for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    number: u64,
    step: u64,
    count: u64,
    is_written: bool,
    is_gone: bool,
    asked_ms: u64,
}

/// How much was seen.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) written: u64,
    pub(crate) updated: u64,
    pub(crate) renewed: u64,
    pub(crate) taken: u64,
    pub(crate) expired: u64,
    pub(crate) events: u64,
    pub(crate) shown: u64,
    /// Times that an entry was there when a server had started.
    pub(crate) kept: u64,
    /// Takes without an answer, and of those the ones that did take.
    pub(crate) lost_takes: u64,
    pub(crate) taken_unanswered: u64,
    /// Writes without an answer that did not happen.
    pub(crate) not_written: u64,
}

/// The entries of one type.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    entries: BTreeMap<u64, Entry>,
    /// Those that were there, and can never be again.
    gone: BTreeSet<u64>,
    pub(crate) figures: Figures,
}

impl Oracle {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All entries that may be there.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.entries.keys().copied().collect()
    }

    /// One of them.
    pub(crate) fn any(&self, random: &mut Random) -> Option<u64> {
        let place = random.below(self.entries.len().max(1));
        self.entries.keys().nth(place).copied()
    }

    fn entry(&mut self, number: u64) -> Check<&mut Entry> {
        let what = if self.gone.contains(&number) { "is gone" } else { "was never written" };
        self.entries.get_mut(&number).ok_or_else(|| format!("entry {number} {what}, and is seen"))
    }

    /// An entry is about to be written, or given another lease.
    pub(crate) fn send_lease(&mut self, number: u64, lease_ms: Option<u64>) -> u64 {
        let sent_ms = now_ms();
        let end = lease_ms.map_or(End { first: NEVER, last: NEVER }, |it| End { first: sent_ms + it, last: NEVER - 1 });
        let entry = self.entries.entry(number).or_default();
        entry.ends.push(end);
        entry.ever.push(end);
        sent_ms
    }

    /// The lease that was sent then is the entry's.
    pub(crate) fn acknowledge_lease(&mut self, number: u64, lease_ms: Option<u64>, sent_ms: u64) -> Check {
        let answered_ms = now_ms();
        let last = |it| End { first: sent_ms + it, last: answered_ms + it };
        let end = lease_ms.map_or(End { first: NEVER, last: NEVER }, last);
        self.figures.renewed += u64::from(self.entry(number)?.is_acknowledged);
        self.figures.written += u64::from(!self.entry(number)?.is_acknowledged);
        let entry = self.entry(number)?;
        entry.is_acknowledged = true;
        entry.ends = vec![end];
        if let Some(newest) = entry.ever.last_mut() {
            *newest = end;
        }
        Ok(())
    }

    /// The lease that was sent last was refused, because the entry is not there.
    pub(crate) fn refuse_lease(&mut self, known: Known) -> Check {
        let entry = self.entry(known.number)?;
        entry.ends.pop();
        entry.ever.pop();
        self.miss(known)
    }

    /// The next step of an entry is about to be sent.
    pub(crate) fn send_step(&mut self, number: u64) -> Check<u64> {
        let entry = self.entry(number)?;
        entry.step.sent += 1;
        Ok(entry.step.sent)
    }

    pub(crate) fn acknowledge_step(&mut self, number: u64, step: u64) -> Check {
        self.figures.updated += 1;
        self.entry(number)?.step.acknowledged = step;
        Ok(())
    }

    /// Somebody is about to add one to an entry's count.
    pub(crate) fn send_count(&mut self, number: u64) -> Check {
        self.entry(number)?.count.sent += 1;
        Ok(())
    }

    pub(crate) fn acknowledge_count(&mut self, number: u64) -> Check {
        self.figures.updated += 1;
        self.entry(number)?.count.acknowledged += 1;
        Ok(())
    }

    /// Somebody is about to ask for an entry.
    pub(crate) fn ask(&mut self, number: u64) -> Check<Known> {
        let entry = self.entry(number)?;
        let (step, count) = (entry.step.acknowledged, entry.count.acknowledged);
        let (is_written, is_gone) = (entry.is_acknowledged, entry.taken.is_some() || entry.gone.is_some());
        Ok(Known { number, step, count, is_written, is_gone, asked_ms: now_ms() })
    }

    /// Who asked was shown the entry.
    pub(crate) fn show(&mut self, known: Known, shown: &Sight) -> Check {
        self.figures.shown += 1;
        let Known { number, step, count, is_gone, asked_ms, .. } = known;
        let wrong = |what: String| Err(format!("entry {number} as {shown:?}: {what}"));
        if is_gone {
            return wrong("it was gone before".to_owned());
        }
        if shown.expires_ms <= asked_ms {
            return wrong(format!("its lease had ended when it was asked for, at {asked_ms}"));
        }
        let entry = self.entry(number)?;
        let (step, count) = (Grows { acknowledged: step, ..entry.step }, Grows { acknowledged: count, ..entry.count });
        let before = Entry { step, count, ..Entry::default() };
        before.check(shown, &entry.ever).or_else(wrong)
    }

    /// Who asked was answered that the entry is not there.
    pub(crate) fn miss(&mut self, known: Known) -> Check {
        let answered_ms = now_ms();
        let entry = self.entry(known.number)?;
        if known.is_written && !entry.may_have_ended(answered_ms) {
            entry.missed = Some(known);
        }
        Ok(())
    }

    /// Somebody who asked then was given the entry.
    pub(crate) fn take(&mut self, asked_ms: u64, shown: Sight) -> Check {
        self.figures.taken += 1;
        let number = number_of(&shown.document)?;
        let entry = self.entry(number)?;
        if shown.expires_ms <= asked_ms {
            return Err(format!("entry {number} was taken as {shown:?}: its lease had ended by {asked_ms}"));
        }
        match entry.taken.replace(shown) {
            None => Ok(()),
            Some(before) => Err(format!("entry {number} was taken twice, before as {before:?}")),
        }
    }

    /// Somebody who wanted to take was not answered.
    pub(crate) fn lose_take(&mut self) {
        self.figures.lost_takes += 1;
    }

    /// An event: what the entry was before it, and what it is now.
    pub(crate) fn hear(&mut self, kind: &str, before: Option<String>, now: Option<String>) -> Check {
        let heard_ms = now_ms();
        self.figures.events += 1;
        let document = now.as_ref().or(before.as_ref()).ok_or("an event of nothing")?;
        let number = number_of(document)?;
        let text = format!("{kind} from {before:?} to {now:?}");
        let entry = self.entry(number)?;
        let wrong = |what: String| Err(format!("entry {number}: {text}: {what}"));
        if entry.gone.is_some() || entry.told != before {
            return wrong(format!("it was {:?}, gone {:?}", entry.told, entry.gone));
        }
        match (kind, &before, &now) {
            ("written", None, Some(_)) => {}
            ("updated", Some(before), Some(now)) => {
                let (was, is) = (Fields::of(before)?, Fields::of(now)?);
                let (is_step, is_count) = (is.step > was.step, is.count == was.count + 1);
                if !(is_step && is.count == was.count || is_count && is.step == was.step) {
                    return wrong("nobody does this in one update".to_owned());
                }
            }
            ("taken", Some(_), None) => entry.gone = Some(Gone::Taken),
            ("expired", Some(_), None) => {
                entry.gone = Some(Gone::Expired);
                if !entry.may_have_ended(heard_ms) {
                    return wrong(format!("at {heard_ms}, when its lease can be {:?}", entry.ends));
                }
            }
            _ => return wrong("nobody does this".to_owned()),
        }
        entry.told = now.or(before.filter(|_| entry.gone.is_some()));
        Ok(())
    }

    /// Nobody is at work: this is all that there is, asked for and answered then, and all events are told. What was not answered
    /// is known from now on.
    pub(crate) fn settle(&mut self, mut all: BTreeMap<u64, Sight>, asked_ms: u64, answered_ms: u64) -> Check {
        let mut left = BTreeMap::new();
        for (number, mut entry) in std::mem::take(&mut self.entries) {
            let found = all.remove(&number);
            let wrong = |entry: &Entry, what: &str| Err(format!("entry {number}: {what}: found {found:?}, {entry:?}"));
            let Some(told) = entry.told.clone() else {
                if entry.is_acknowledged || entry.taken.is_some() || found.is_some() {
                    return wrong(&entry, "no event told that it was written");
                }
                self.figures.not_written += 1;
                continue;
            };
            entry.check_fields(&told).or_else(|what| wrong(&entry, &what))?;
            match (entry.gone, &entry.taken, &found) {
                (Some(Gone::Taken), taken, None) => match taken {
                    Some(taken) if taken.document != told => return wrong(&entry, "it was another when it was taken"),
                    Some(taken) => entry.check(taken, &entry.ends).or_else(|what| wrong(&entry, &what))?,
                    None => self.figures.taken_unanswered += 1,
                },
                (Some(Gone::Expired), None, _) if entry.missed.is_none() => self.figures.expired += 1,
                (None, None, Some(found)) if entry.missed.is_none() => {
                    entry.check(found, &entry.ends).or_else(|what| wrong(&entry, &what))?;
                    if found.document != told || found.expires_ms <= asked_ms {
                        return wrong(&entry, &format!("it is not what was told, or had ended by {asked_ms}"));
                    }
                    let (fields, end) = (Fields::of(&told)?, End { first: found.expires_ms, last: found.expires_ms });
                    self.figures.kept += 1;
                    entry.is_acknowledged = true;
                    (entry.step, entry.count) = (Grows::is(fields.step), Grows::is(fields.count));
                    (entry.ends, entry.ever) = (vec![end], vec![end]);
                }
                (None, None, None) if entry.missed.is_none() && entry.may_have_ended(answered_ms) => {}
                _ => return wrong(&entry, &format!("this cannot be, at {answered_ms}")),
            }
            if entry.gone.is_some() {
                self.gone.insert(number);
            } else {
                left.insert(number, entry);
            }
        }
        self.entries = left;
        if let Some((number, shown)) = all.first_key_value() {
            return Err(format!("entry {number} is there, and must not be: {shown:?}"));
        }
        if self.figures.taken_unanswered > self.figures.lost_takes {
            return Err(format!("more are taken than anybody asked for: {:?}", self.figures));
        }
        Ok(())
    }
}
