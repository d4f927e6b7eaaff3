//! A server that speaks the Redis protocol, behind the workloads.
//!
//! Objects are put and got by commands that every such server has; what goes beyond that is said in Holdfast's, and is not
//! supported where they are not known.
//!
//! May use: `client.rs`, `workload`. Must not know: which server it is, who started it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::client::{Answer, Client};
use crate::workload::{Driver, Entry, Failure, Fold, Result, See, Session, TermRange, Unsupported};

/// The bucket that stands behind `SELECT 0`.
const BUCKET: &[u8] = b"db0";
/// Entries or objects of one answer, the most that may be asked for.
const PAGE: &[u8] = b"10000";
/// How long a fold's snapshot may be needed, in seconds.
const SNAPSHOT_SECONDS: &[u8] = b"3600";
/// Leaves of the tree that is built, the most there are.
const LEAVES: &[u8] = b"1048576";
/// Background work that has not gone on for so long has come to its end.
const QUIET: Duration = Duration::from_secs(3);
/// How often it is asked whether a compaction has ended.
const PAUSE: Duration = Duration::from_millis(50);

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

    fn settle(&self) -> Result<()> {
        let mut client = Client::connect(self.address)?;
        let mut status = || client.ours("compact", &[b"KV.COMPACT", b"STATUS"]);
        let mut before = status()?;
        loop {
            thread::sleep(QUIET);
            let now = status()?;
            if now == before {
                return Ok(());
            }
            before = now;
        }
    }

    fn compact(&self) -> Result<()> {
        let mut client = Client::connect(self.address)?;
        client.ours("compact", &[b"KV.COMPACT"])?;
        loop {
            let status = client.ours("compact", &[b"KV.COMPACT", b"STATUS"])?;
            if number_behind(&status, "running").ok_or("the server does not say whether it compacts")? == 0 {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
    }

    fn rebuild_tree(&self) -> Result<u64> {
        let mut client = Client::connect(self.address)?;
        let root = client.ours("rebuild of a tree", &[b"KV.TREE", b"ROOT", LEAVES])?;
        std::hint::black_box(&root);
        let objects = client.ask(&[b"DBSIZE"])?;
        number(&objects).ok_or_else(|| "the server does not say how many objects it has".into())
    }
}

impl Client {
    /// Sends one command of Holdfast's, which another server need not have.
    fn ours(&mut self, what: &'static str, parts: &[&[u8]]) -> Result<Answer> {
        self.ask(parts).map_err(|failure| match failure.to_string().contains("unknown command") {
            true => Unsupported(what).into(),
            false => failure,
        })
    }

    /// Asks for one page after the other: shows the parts of each. `parts` are all of the command but where it goes on.
    fn pages(&mut self, what: &'static str, parts: &[&[u8]], see: &mut dyn FnMut(&Answer) -> Option<()>) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let mut parts = parts.to_vec();
            if !after.is_empty() {
                parts.extend([b"AFTER", after.as_slice()]);
            }
            let page = self.ours(what, &parts)?;
            let (Some(Answer::Many(shown)), Some(next)) = (page.part(0), page.part(1)) else {
                return Err(format!("the server's answer to {what} has no pages").into());
            };
            if shown.iter().try_for_each(&mut *see).is_none() {
                return Err(format!("the server's answer to {what} has another form").into());
            }
            match next.text() {
                Some(next) => after = next.as_bytes().to_vec(),
                None => return Ok(()),
            }
        }
    }
}

fn bytes(answer: &Answer) -> Option<&[u8]> {
    if let Answer::Bulk(bytes) = answer { Some(bytes) } else { None }
}

fn number(answer: &Answer) -> Option<u64> {
    answer.text()?.parse().ok()
}

/// The number that stands behind a name in a map.
fn number_behind(map: &Answer, name: &str) -> Option<u64> {
    let Answer::Many(parts) = map else { return None };
    let (pairs, _) = parts.as_chunks::<2>();
    pairs.iter().find(|[key, _]| key.text() == Some(name)).and_then(|[_, value]| number(value))
}

impl Session for Client {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.call(&[b"SET", key, value])?.as_str() {
            "+OK" => Ok(()),
            other => Err(Failure::from(format!("the server answered `{other}` to SET"))),
        }
    }

    fn put_indexed(&mut self, key: &[u8], value: &[u8], entries: &[Entry]) -> Result<()> {
        let mut parts: Vec<&[u8]> = vec![b"KV.PUT", BUCKET, key, value];
        parts.extend(entries.iter().flat_map(|entry| [b"INDEX", entry.index.as_bytes(), entry.term.as_slice()]));
        match self.ours("index entries", &parts)? {
            Answer::Many(_) => Ok(()),
            other => Err(format!("the server answered {other:?} to KV.PUT").into()),
        }
    }

    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.bulk(&[b"GET", key], see)
    }

    fn index_range(&mut self, range: &TermRange, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut parts: Vec<&[u8]> = vec![b"KV.INDEX", BUCKET, range.index.as_bytes()];
        parts.extend([b"FROM", range.from.as_slice(), b"TO", &range.to, b"TERMS", b"LIMIT", PAGE]);
        if let Some(filter) = range.filter {
            parts.extend([b"REGEX", filter.regex().as_bytes()]);
        }
        self.pages("index ranges", &parts, &mut |entry| {
            see(entry.part(1).and_then(bytes)?, entry.part(0).and_then(bytes)?);
            Some(())
        })
    }

    fn fold(&mut self, what: Fold, see: See<'_>) -> Result<()> {
        let snapshot = self.ours("folds", &[b"KV.SNAPSHOT", b"OPEN", b"TTL", SNAPSHOT_SECONDS])?;
        let id = snapshot.part(0).and_then(Answer::text).ok_or("the server opened no snapshot")?.as_bytes();
        let (order, show): (&[u8], &[u8]) = match what {
            Fold::Heads => (b"key", b"HEADS"),
            Fold::Objects => (b"write", b"OBJECTS"),
        };
        let parts: &[&[u8]] = &[b"KV.FOLD", b"BUCKET", BUCKET, b"ORDER", order, show, b"LIMIT", PAGE, b"SNAPSHOT", id];
        self.pages("folds", parts, &mut |object| {
            let value = object.part(3).and_then(bytes);
            see(object.part(1).and_then(bytes)?, value);
            Some(())
        })?;
        self.ask(&[b"KV.SNAPSHOT", b"CLOSE", id]).map(|_| ())
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
    fn a_number_is_found_behind_its_name() {
        let text = |text: &str| Answer::Bulk(text.into());
        let map = Answer::Many(vec![text("running"), Answer::Line("1".into()), text("7"), Answer::Line("9".into())]);
        assert_eq!((number_behind(&map, "running"), number_behind(&map, "7")), (Some(1), Some(9)));
        assert_eq!((number_behind(&map, "1"), number_behind(&Answer::Nil, "7")), (None, None));
    }

    #[test]
    fn the_process_is_found_in_what_a_server_says() {
        assert_eq!(process_id("# Server\r\nredis_version:7\r\nprocess_id:4711\r\n"), Some(4711));
        assert_eq!(process_id("# Server\r\nprocess_id:x\r\n"), None);
    }
}
