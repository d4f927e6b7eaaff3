//! The signals that end the program.
//!
//! May use: tokio. Must not know: what ending takes.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A file would become larger than the process may make one (`ulimit -f`). Nobody waits for it: where it is watched it does not kill the
/// program, and the write fails with an error, as on a full disk. The number is Linux' on x86 and Arm.
const FILE_SIZE: i32 = 25;

/// SIGTERM and SIGINT (Ctrl-C), from the moment this is made: they do not kill the program any more.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    _file_size: Signal,
}

/// One signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caught {
    pub(crate) name: &'static str,
    /// What a shell would see had the signal killed the program.
    pub(crate) exit_code: i32,
}

impl Signals {
    pub(crate) fn watch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _file_size: signal(SignalKind::from_raw(FILE_SIZE))?,
        })
    }

    pub(crate) async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.terminate.recv() => Caught { name: "SIGTERM", exit_code: 143 },
            _ = self.interrupt.recv() => Caught { name: "SIGINT", exit_code: 130 },
        }
    }
}
