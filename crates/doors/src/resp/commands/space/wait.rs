//! Reading and taking that cannot be answered at once: nothing is there and the client waits for it, or finding it takes
//! long. The connection waits, not its event loop; what it is sent meanwhile is handled afterwards.
//!
//! Those who wait are served in the order in which they came. Who goes away while waiting gets nothing; what was taken for
//! them by then goes back: [`Handed`].
//!
//! May use: `work`, `handed`, `through`, the facade, tokio's time and semaphore. Must not know: sockets, dispatch.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use holdfast::space::{Entries, Entry, ReadOptions, Taking, Wanted};
use holdfast::{Durability, Position, Shown, Store};

use super::{need_of, write_entry};
use crate::budget::Share;
use crate::handed::Handed;
use crate::resp::call::Fail;
use crate::resp::clients::{Ask, Client};
use crate::resp::reply::{Form, Reply};
use crate::resp::work::{Elsewhere, Written};
use crate::through::{ReadThrough, load_and_look};

/// What who waits for a row is told when its connection is to end.
const STOPS: &str = "UNAVAILABLE the connection is closed before the table was read";

/// The longest that IFEXISTS waits, which takes a thread.
const IF_EXISTS_MAX: Duration = Duration::from_secs(60);

/// What an entry of a reply has beside its document.
const ENTRY_REPLY_BYTES: usize = 96;

/// A reply, what it rests on, and the entries in it that the client does not have yet.
pub(crate) type Waited = Result<(Written, Vec<Handed>), Fail>;

/// A READ or TAKE that was accepted.
pub(crate) struct Wait {
    pub(crate) store: Store,
    pub(crate) entries: Arc<Entries>,
    pub(crate) wanted: Wanted,
    pub(crate) taking: Taking,
    pub(crate) version: Option<Position>,
    /// How long to wait; zero is without end.
    pub(crate) block: Option<Duration>,
    pub(crate) if_exists: bool,
    /// Of MTAKE.
    pub(crate) many: Option<Many>,
    /// Whether even looking is for a thread.
    pub(crate) is_long: bool,
    pub(crate) client: Arc<Client>,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) form: Form,
    pub(crate) output_bytes_max: usize,
    pub(crate) durability: Durability,
    /// Whether its reply is to be sent.
    pub(crate) is_silent: bool,
    /// Who loads it, as it was not there.
    pub(crate) through: Option<Arc<dyn ReadThrough>>,
}

/// How many entries a reply may hold.
#[derive(Clone, Copy)]
pub(crate) struct Many {
    pub(crate) count: usize,
    /// Bytes of documents; the entry that exceeds it is still there.
    pub(crate) bytes: usize,
    /// How long to look for more of them.
    pub(crate) time: Duration,
}

impl Many {
    pub(crate) fn is_enough(&self, taken: &[Entry]) -> bool {
        taken.iter().map(|entry| entry.document.as_bytes().len()).sum::<usize>() >= self.bytes
    }

    /// Takes what is there.
    pub(crate) fn take(&self, entries: &Entries, wanted: &Wanted) -> Result<(Vec<Entry>, Position), Fail> {
        let (mut taken, mut newest, mut bytes, began) = (Vec::new(), Position::ZERO, 0, Instant::now());
        while taken.len() < self.count && bytes < self.bytes && (taken.is_empty() || began.elapsed() < self.time) {
            let shown = match entries.take_shown(wanted, &ReadOptions::default()) {
                Ok(shown) => shown,
                // What was taken before has to be answered; who asks again is told the error.
                Err(_) if !taken.is_empty() => break,
                Err(error) => return Err(error.into()),
            };
            newest = newest.max(shown.position);
            let Some(entry) = shown.value else { break };
            bytes += entry.document.as_bytes().len();
            taken.push(entry);
        }
        Ok((taken, newest))
    }

    pub(crate) fn write(&self, reply: &mut Reply, entries: &[Entry]) {
        let bytes = |entry: &Entry| entry.document.as_bytes().len() + ENTRY_REPLY_BYTES;
        reply.reserve(entries.iter().map(bytes).sum());
        reply.array(entries.len());
        entries.iter().for_each(|entry| write_entry(reply, entry));
    }
}

/// What was got, to be answered.
struct Got {
    entries: Vec<Entry>,
    handed: Vec<Handed>,
    position: Position,
    room: Share,
}

impl Wait {
    /// Looks and waits for as long as it was asked to.
    pub(crate) async fn run(self) -> Waited {
        let asked = self.durability;
        self.try_run().await.map_err(|fail| fail.resting(asked, Position::ZERO))
    }

    async fn try_run(mut self) -> Waited {
        let mut got = match self.through.take() {
            Some(through) => self.load(&*through).await?,
            None => self.look().await?,
        };
        if got.entries.is_empty() && self.block.is_some() && !self.if_exists {
            got = self.wait().await?;
        }
        let mut reply = Reply::of_form(self.form, self.output_bytes_max);
        match (&self.many, got.entries.first()) {
            (Some(many), _) => many.write(&mut reply, &got.entries),
            (None, Some(entry)) => write_entry(&mut reply, entry),
            (None, None) => reply.null(),
        }
        if reply.take_overflow() {
            return Err(Fail::TooBig(self.output_bytes_max));
        }
        let need = need_of(&self.entries, self.durability, got.position);
        Ok((Written { room: got.room, ..Written::new(reply.take(Vec::new()), need) }, got.handed))
    }

    fn got(&self, taken: Vec<Entry>, position: Position) -> Got {
        let hand = |entry: &Entry| Handed::new(&self.store, &self.entries, entry.clone());
        let handed = if self.taking == Taking::Take { taken.iter().map(hand).collect() } else { Vec::new() };
        Got { entries: taken, handed, position, room: Share::default() }
    }

    fn got_one(&self, Shown { value, position }: Shown<Option<Entry>>) -> Got {
        self.got(value.into_iter().collect(), position)
    }

    /// There is none, as who has just looked knows.
    fn got_none(&self) -> Result<Got, Fail> {
        Ok(self.got(Vec::new(), self.entries.absence(&self.wanted)?))
    }

    /// What is there once it is loaded by its id, by which it is found at once.
    async fn load(&self, through: &dyn ReadThrough) -> Result<Got, Fail> {
        let Some(id) = self.wanted.by_id() else { return self.got_none() };
        let look = || std::future::ready(self.look_here().map(|got| (!got.entries.is_empty()).then_some(got)));
        let mut loading = pin!(load_and_look(through, (&self.entries, id, self.wanted.routing()), look));
        let got = poll_fn(|cx| match loading.as_mut().poll(cx) {
            Poll::Pending if self.client.asked() != Ask::Nothing => Poll::Ready(Err(Fail::from(STOPS))),
            polled => polled,
        });
        got.await?.map_or_else(|| self.got_none(), Ok)
    }

    /// Looks in a thread, where that was not done before; IFEXISTS waits there too.
    async fn look(&self) -> Result<Got, Fail> {
        if !self.is_long && !self.if_exists {
            return self.got_none();
        }
        let this = self.looking();
        let bytes = |got: &Got| got.entries.iter().map(|entry| entry.document.as_bytes().len()).sum();
        let got = self.elsewhere.run(move || this.look_here()).await?;
        let room = self.elsewhere.room_for(bytes(&got));
        Ok(Got { room, ..got })
    }

    /// What looking needs, for another thread.
    fn looking(&self) -> Self {
        Wait {
            store: self.store.clone(),
            entries: self.entries.clone(),
            wanted: self.wanted.clone(),
            client: self.client.clone(),
            elsewhere: self.elsewhere.clone(),
            through: None,
            ..*self
        }
    }

    fn look_here(&self) -> Result<Got, Fail> {
        if let Some(many) = &self.many {
            let (taken, position) = many.take(&self.entries, &self.wanted)?;
            return Ok(self.got(taken, position));
        }
        let block = self.block.filter(|_| self.if_exists);
        let wait = block.map(|block| if block.is_zero() { IF_EXISTS_MAX } else { block.min(IF_EXISTS_MAX) });
        let options = ReadOptions {
            wait,
            if_exists: self.if_exists,
            version: self.version,
            // Here nothing is waited for that the connection waits for.
            durability: Some(Durability::Written),
            cancel: None,
        };
        let (entries, wanted) = (&self.entries, &self.wanted);
        let shown = match (self.taking, wait) {
            (Taking::Read, None) => entries.read_shown(wanted, &options)?,
            (Taking::Take, None) => entries.take_shown(wanted, &options)?,
            (Taking::Read, Some(_)) => self.shown_now(entries.read(wanted, &options)?),
            (Taking::Take, Some(_)) => self.shown_now(entries.take(wanted, &options)?),
        };
        Ok(self.got_one(shown))
    }

    /// What was shown just now rests on what the journal has by now.
    fn shown_now(&self, value: Option<Entry>) -> Shown<Option<Entry>> {
        let appended = self.store.watermarks().appended.get();
        Shown { value, position: Position::new(appended.saturating_sub(1)) }
    }

    /// Waits in the queue.
    async fn wait(&self) -> Result<Got, Fail> {
        let (entries, wanted, taking) = (self.entries.clone(), self.wanted.clone(), self.taking);
        // Entering the queue looks once more.
        let waiting = if self.is_long {
            self.elsewhere.run(move || Ok(Box::pin(entries.waiting(&wanted, taking)?))).await?
        } else {
            Box::pin(entries.waiting(&wanted, taking)?)
        };
        let mut waiting = pin!(waiting);
        let block = self.block.filter(|block| !block.is_zero());
        let mut late = pin!(async move {
            match block {
                Some(block) => tokio::time::sleep(block).await,
                None => std::future::pending().await,
            }
        });
        let granted = poll_fn(|cx| {
            if let Poll::Ready(granted) = waiting.as_mut().poll(cx) {
                return Poll::Ready(Some(granted));
            }
            // Who is asked to finish gets its reply now, or closing the door would wait for it.
            if self.client.asked() != Ask::Nothing {
                return Poll::Ready(None);
            }
            late.as_mut().poll(cx).map(|()| None)
        });
        let Some(Shown { value, position }) = granted.await.transpose()? else { return self.got_none() };
        let mut got = self.got_one(Shown { value: Some(value), position });
        if let Some(many) = &self.many {
            let more = Many { count: many.count.saturating_sub(1), ..*many };
            let (taken, position) = more.take(&self.entries, &self.wanted).unwrap_or_default();
            let more = self.got(taken, position.max(got.position));
            got.entries.extend(more.entries);
            got.handed.extend(more.handed);
            got.position = more.position;
        }
        Ok(got)
    }
}
