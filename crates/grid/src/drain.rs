//! A thread that does something again and again until it is dropped: listens for views and caches that nobody reads, because
//! their listeners keep the journal that they have not heard yet.
//!
//! May use: std. Must not know: what it does.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use holdfast::{Error, ErrorKind, Result};

/// How often views and caches listen that nobody reads.
pub(crate) const LISTEN_INTERVAL: Duration = Duration::from_millis(100);

/// The thread. Dropping it ends it.
pub(crate) struct Drain {
    stops: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Drain {
    /// Does `act` each `interval`.
    pub(crate) fn start(name: &str, interval: Duration, act: impl Fn() + Send + 'static) -> Result<Self> {
        let stops = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stops);
        let work = move || {
            let (stops, changed) = &*told;
            loop {
                let waiting = stops.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = changed.wait_timeout_while(waiting, interval, |stops| !*stops);
                let (stops, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if *stops {
                    return;
                }
                drop(stops);
                act();
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        let thread = thread.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread: {error}")))?;
        Ok(Self { stops, thread: Some(thread) })
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        let (stops, changed) = &*self.stops;
        *stops.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there leaves who reads to listen for himself.
            let _ = thread.join();
        }
    }
}
