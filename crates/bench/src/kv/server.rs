//! A server that speaks the Redis protocol, behind the workloads.
//!
//! May use: `client.rs`, `workload`. Must not know: which server it is, who started it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::client::Client;
use crate::workload::{Driver, Failure, Result, Session};

/// A server that runs.
pub(crate) struct Served {
    address: SocketAddr,
    process: Option<u32>,
    dir: Option<PathBuf>,
}

impl Served {
    /// The server at an address; its folder, where that is known.
    pub(crate) fn find(address: SocketAddr, dir: Option<PathBuf>) -> Result<Self> {
        let mut text = String::new();
        let see = &mut |info: &[u8]| text = String::from_utf8_lossy(info).into_owned();
        Client::connect(address)?.bulk(&[b"INFO", b"server"], see)?;
        // A process of another machine says nothing about this one's.
        let process = process_id(&text).filter(|_| address.ip().is_loopback());
        Ok(Self { address, process, dir })
    }
}

impl Driver for Served {
    fn session(&self) -> Result<Box<dyn Session + Send + '_>> {
        Ok(Box::new(Client::connect(self.address)?))
    }

    fn process(&self) -> Option<u32> {
        // An unknown process must not become this one; no process has the greatest number.
        Some(self.process.unwrap_or(u32::MAX))
    }

    fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }
}

impl Session for Client {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.call(&[b"SET", key, value])?.as_str() {
            "+OK" => Ok(()),
            other => Err(Failure::from(format!("the server answered `{other}` to SET"))),
        }
    }

    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.bulk(&[b"GET", key], see)
    }

    fn head(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.call(&[b"EXISTS", key])? == ":1")
    }
}

/// The process in what `INFO server` says.
fn process_id(info: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix("process_id:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_found_in_what_a_server_says() {
        assert_eq!(process_id("# Server\r\nredis_version:7\r\nprocess_id:4711\r\n"), Some(4711));
        assert_eq!(process_id("# Server\r\nprocess_id:x\r\n"), None);
    }
}
