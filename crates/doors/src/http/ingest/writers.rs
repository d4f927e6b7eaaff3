//! The threads that read and write the points of small requests: about as many as processors, so that what they keep for it in
//! memory is bounded, and so that no question, however long it takes, stands before a write.
//!
//! A thread takes some of the requests that wait, carries out one after the other, hands to the operating system in one call what
//! all of them wrote, and then lets them be answered. Waiting for the disk is not its business.
//!
//! May use: the facade, threads. Must not know: HTTP, points.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use holdfast::{Durability, Position, Store};

/// Requests, and bytes of their bodies, that one thread takes at a time: those who are answered first wait for the others.
const TAKEN_MAX: usize = 16;
const TAKEN_BYTES_MAX: usize = 256 << 10;

/// What one request wants done. Its size is that of its body, in bytes.
pub(crate) struct Job {
    pub(crate) bytes: usize,
    pub(crate) act: Box<dyn FnOnce(&Store) -> Done + Send>,
}

/// What is left when it is done.
pub(crate) struct Done {
    /// What has to be with the operating system before it is told, if anything, and by which promise.
    pub(crate) wanted: Option<(Position, Durability)>,
    /// Tells whoever waits; with an error if that could not be done.
    pub(crate) tell: Box<dyn FnOnce(holdfast::Result<()>) + Send>,
}

/// The threads. Dropping them ends what they do now, and forgets what waits.
pub(crate) struct Writers {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    asleep: usize,
    is_closed: bool,
}

impl Writers {
    /// Starts so many threads, at least one.
    ///
    /// # Errors
    /// When there is none to be had.
    pub(crate) fn start(store: &Store, threads: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let start = |number| {
            let (queue, store) = (Arc::clone(&queue), store.clone());
            let thread = std::thread::Builder::new().name(format!("http-write-{number}"));
            thread.spawn(move || while queue.work(&store) {})
        };
        let threads = (0..threads.max(1)).map(start).collect::<std::io::Result<Vec<_>>>()?;
        Ok(Writers { queue, threads: Mutex::new(threads) })
    }

    /// Has it done as soon as there is a thread. What waits is bounded by who asks: a connection has one request at a time.
    pub(crate) fn push(&self, job: Job) {
        let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return;
        }
        state.jobs.push_back(job);
        if state.asleep > 0 {
            self.queue.wake.notify_one();
        }
    }

    /// Ends the threads after what they do now.
    pub(crate) fn stop(&self) {
        let forgotten = {
            let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_closed = true;
            std::mem::take(&mut state.jobs)
        };
        drop(forgotten);
        self.queue.wake.notify_all();
        let own = std::thread::current().id();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if thread.thread().id() != own && thread.join().is_err() {
                tracing::error!("a thread that writes points has panicked");
            }
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Queue {
    /// Waits for something to do, and does it. Whether there may be more.
    fn work(&self, store: &Store) -> bool {
        let jobs = self.take();
        if jobs.is_empty() {
            return false;
        }
        let mut done = Vec::with_capacity(jobs.len());
        for job in jobs {
            // Who waits for it learns that there is no answer; the thread goes on.
            match catch_unwind(AssertUnwindSafe(|| (job.act)(store))) {
                Ok(one) => done.push(one),
                Err(_) => tracing::error!("a write over HTTP ended without an answer"),
            }
        }
        let mut promised: Vec<(Durability, Position, bool)> = Vec::new();
        for (position, durability) in done.iter().filter_map(|one| one.wanted) {
            match promised.iter_mut().find(|(known, ..)| *known == durability) {
                Some((_, newest, _)) => *newest = position.max(*newest),
                None => promised.push((durability, position, false)),
            }
        }
        for (durability, newest, is_kept) in &mut promised {
            *is_kept = store.wait(*newest, *durability).is_ok();
        }
        for Done { wanted, tell } in done {
            let is_kept = |durability| promised.iter().any(|(known, _, is_kept)| *known == durability && *is_kept);
            tell(match wanted {
                // What failed for the newest may have been done for the others.
                Some((position, durability)) if !is_kept(durability) => store.wait(position, durability),
                _ => Ok(()),
            });
        }
        true
    }

    /// The next jobs; none when it is closed.
    fn take(&self) -> Vec<Job> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.jobs.is_empty() && !state.is_closed {
            state.asleep += 1;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.asleep -= 1;
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < TAKEN_MAX && bytes < TAKEN_BYTES_MAX {
            let Some(job) = state.jobs.pop_front() else { break };
            bytes += job.bytes;
            taken.push(job);
        }
        if !state.jobs.is_empty() && state.asleep > 0 {
            self.wake.notify_one();
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_job_that_panics_costs_nobody_else_and_what_comes_after_the_end_is_forgotten() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = Store::open(folder.path(), holdfast::Options::default()).unwrap();
        let writers = Writers::start(&store, 1).unwrap();
        let (told, tells) = mpsc::channel();
        let job = |name: &'static str| {
            let told = told.clone();
            let tell = move |waited: holdfast::Result<()>| told.send((name, waited.is_ok())).unwrap();
            let wanted = Some((Position::ZERO, Durability::Written));
            Job { bytes: 1, act: Box::new(move |_| Done { wanted, tell: Box::new(tell) }) }
        };
        writers.push(job("before"));
        writers.push(Job { bytes: 1, act: Box::new(|_| panic!("this is a test")) });
        writers.push(job("after"));
        let patience = Duration::from_secs(60);
        assert_eq!(tells.recv_timeout(patience), Ok(("before", true)));
        assert_eq!(tells.recv_timeout(patience), Ok(("after", true)));
        writers.stop();
        writers.push(job("late"));
        drop((writers, told));
        assert_eq!(tells.recv_timeout(patience), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
