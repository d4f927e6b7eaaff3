//! What waits for entries and for locks in a store of this process, without a thread for each where that is awaited.
//!
//! May use: `embedded`, the facade. Must not know: servers.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use holdfast::space::{Entries, Entry, ReadOptions, Taking, Wanted};
use holdfast::{Durability, ErrorKind, Result, Shown};

use crate::call::{Call, How, Step};
use crate::canceled::Canceled;
use crate::embedded::Embedded;

/// The longest time that is waited when no end was said: longer than any program runs.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How often who waits for a lock looks whether the entry is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Reads or takes what is there now.
fn look(entries: &Entries, wanted: &Wanted, options: &ReadOptions, taking: Taking) -> Result<Shown<Option<Entry>>> {
    match taking {
        Taking::Read => entries.read_shown(wanted, options),
        Taking::Take => entries.take_shown(wanted, options),
    }
}

impl Embedded {
    /// Does something for which a transaction's lock may have to be waited for: then in another thread, if it is awaited.
    pub(crate) fn locking<T: Send + 'static>(
        &self,
        durability: Option<Durability>,
        lock_timeout: Option<Duration>,
        run: impl Fn(Option<Duration>) -> Result<Shown<T>> + Send + 'static,
    ) -> Call<T> {
        let this = self.clone();
        Call::new(move |how| {
            if how == How::Wait {
                return this.settle(how, run(lock_timeout), durability);
            }
            match run(Some(Duration::ZERO)) {
                Err(error) if error.kind() == ErrorKind::Timeout && lock_timeout != Some(Duration::ZERO) => {
                    let locked = this.off_for_lock(move || run(lock_timeout));
                    Step::Running(Box::pin(async move { this.answer(locked.await, durability).await }))
                }
                ran => this.settle(how, ran, durability),
            }
        })
    }

    /// Reads or takes one entry.
    pub(crate) fn get(
        &self,
        entries: &Entries,
        wanted: &Wanted,
        options: &ReadOptions,
        taking: Taking,
        is_durable: bool,
    ) -> Call<Option<Entry>> {
        let (this, entries, wanted, options) = (self.clone(), entries.clone(), wanted.clone(), options.clone());
        Call::new(move |how| {
            let blocking = move |entries: &Entries, wanted: &Wanted, options: &ReadOptions| match taking {
                Taking::Read => entries.read(wanted, options),
                Taking::Take => entries.take(wanted, options),
            };
            // A store that waits for a lock cannot be canceled.
            let waits_for_lock = options.if_exists && options.wait.is_some();
            if how == How::Wait && !(waits_for_lock && options.cancel.is_some()) {
                return Step::Done(blocking(&entries, &wanted, &options));
            }
            let durability = match taking {
                Taking::Read => this.store().durability(),
                Taking::Take => options.durability.unwrap_or(this.store().durability()),
            };
            let durability = is_durable.then_some(durability);
            let shown = match look(&entries, &wanted, &options, taking) {
                Err(error) => return this.settle(how, Err(error), durability),
                Ok(shown) => shown,
            };
            let wait = options.wait.filter(|wait| !wait.is_zero());
            // It enters the queue now, so that who asked first is first.
            let waits = shown.value.is_none() && wait.is_some();
            let waiting = match waits {
                false => None,
                true => match entries.waiting(&wanted, taking) {
                    Ok(waiting) => Some(waiting),
                    Err(error) => return Step::Done(Err(error)),
                },
            };
            Step::Running(Box::pin(async move {
                let wait = wait.unwrap_or(FOR_EVER);
                let came = match waiting {
                    Some(waiting) if waits_for_lock => {
                        let unlocked = this.unlocked(&entries, &wanted, waiting);
                        this.until(unlocked, wait, &options).await.map(Option::flatten)
                    }
                    Some(waiting) => this.until(waiting, wait, &options).await,
                    None => Ok(None),
                };
                let found = came.and_then(|came| match came {
                    Some(Shown { value, position }) => Ok(Shown { value: Some(value), position }),
                    None if waits => Ok(Shown { value: None, position: entries.absence(&wanted)? }),
                    None => Ok(shown),
                });
                this.answer(found, durability).await
            }))
        })
    }

    /// What comes for who waits in the queue, which the end of a lock wakes; nothing once what was locked is gone, which is told to
    /// nobody, and looked for.
    async fn unlocked(
        &self,
        entries: &Entries,
        wanted: &Wanted,
        waiting: impl Future<Output = Result<Shown<Entry>>>,
    ) -> Result<Option<Shown<Entry>>> {
        let mut waiting = pin!(waiting);
        loop {
            // Reading many shows also what is locked.
            let is_gone = entries.read_many_shown(wanted, 1)?.value.is_empty();
            let mut pause = pin!(self.sleep(LOOK_INTERVAL));
            let came = std::future::poll_fn(|context| match waiting.as_mut().poll(context) {
                Poll::Ready(came) => Poll::Ready(came.map(Some)),
                Poll::Pending if is_gone => Poll::Ready(Ok(None)),
                Poll::Pending => pause.as_mut().poll(context).map(|()| Ok(None)),
            });
            let came = came.await?;
            if came.is_some() || is_gone {
                return Ok(came);
            }
        }
    }

    /// What is waited for, unless it takes too long or is canceled.
    async fn until<T>(
        &self,
        waiting: impl Future<Output = Result<T>>,
        wait: Duration,
        options: &ReadOptions,
    ) -> Result<Option<T>> {
        let mut waiting = pin!(waiting);
        let mut late = pin!(self.sleep(wait.min(FOR_EVER)));
        let mut canceled = options.cancel.as_ref().map(Canceled::by);
        std::future::poll_fn(|context| {
            if let Poll::Ready(result) = waiting.as_mut().poll(context) {
                return Poll::Ready(result.map(Some));
            }
            if let Some(canceled) = &mut canceled
                && pin!(canceled).poll(context).is_ready()
            {
                return Poll::Ready(Ok(None));
            }
            late.as_mut().poll(context).map(|()| Ok(None))
        })
        .await
    }
}

#[cfg(test)]
#[path = "here_tests.rs"]
mod tests;
