//! A coordinator of the tests: the `XA` commands over RESP, decided in memory.
//!
//! An owner lives as long as the connection that opened it, so that a program that dies loses what it did not decide.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

#[derive(Default)]
struct Table {
    connections: u64,
    /// Connections that are still read from.
    open: u64,
    owners: u64,
    ended: BTreeSet<u64>,
    /// Branches that do not know of the decision so far.
    decided: BTreeMap<String, BTreeSet<String>>,
    /// Votes of shared transactions.
    votes: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// Transactions that were suspended, and who resumed them since.
    suspended: BTreeMap<String, Option<[String; 2]>>,
    aborted: BTreeSet<String>,
    /// Whether whoever asks for a decision is hung up on.
    hangs_up: bool,
}

pub(crate) struct Coordinator {
    port: u16,
    table: Arc<Mutex<Table>>,
}

impl Coordinator {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// The same by TLS, and by nothing else.
    pub(crate) fn start_with_tls(config: ServerConfig) -> Self {
        Self::start_with(Some(Arc::new(config)))
    }

    fn start_with(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let table = Arc::new(Mutex::new(Table::default()));
        let shared = Arc::clone(&table);
        // It ends with the test program.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, table, tls) = (stream.unwrap(), Arc::clone(&shared), tls.clone());
                thread::spawn(move || match tls {
                    Some(config) => serve(StreamOwned::new(ServerConnection::new(config).unwrap(), stream), &table),
                    None => serve(stream, &table),
                });
            }
        });
        Self { port, table }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Decisions that some branch does not know of, when the programs have ended: what they said last waits for no answer.
    pub(crate) fn undone(&self) -> usize {
        loop {
            let table = self.table.lock().unwrap();
            if table.open == 0 {
                return table.decided.len();
            }
            drop(table);
            thread::yield_now();
        }
    }

    /// Connections that were made, and owners that were opened, so far.
    pub(crate) fn visits(&self) -> (u64, u64) {
        let table = self.table.lock().unwrap();
        (table.connections, table.owners)
    }

    /// From now on decisions are not answered, or are again.
    pub(crate) fn hang_up(&self, hangs_up: bool) {
        self.table.lock().unwrap().hangs_up = hangs_up;
    }

    /// Whether every owner so far has ended.
    pub(crate) fn is_alone(&self) -> bool {
        let table = self.table.lock().unwrap();
        table.ended.len() as u64 == table.owners
    }
}

fn serve(stream: impl Read + Write, table: &Mutex<Table>) {
    {
        let mut table = table.lock().unwrap();
        table.connections += 1;
        table.open += 1;
    }
    let mut own = Vec::new();
    let mut from = BufReader::new(stream);
    while let Some(words) = request(&mut from) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let is_decision = matches!(words[0], "XA.COMMIT" | "XA.ROLLBACK" | "XA.RECOVER");
        if is_decision && table.lock().unwrap().hangs_up {
            break;
        }
        let reply = answer(&mut table.lock().unwrap(), &words, &mut own);
        if from.get_mut().write_all(reply.as_bytes()).and_then(|()| from.get_mut().flush()).is_err() {
            break;
        }
    }
    let mut table = table.lock().unwrap();
    table.ended.extend(own);
    table.open -= 1;
}

fn answer(table: &mut Table, words: &[&str], own: &mut Vec<u64>) -> String {
    let ok = "+OK\r\n".to_owned();
    match words {
        ["HELLO", ..] => "%1\r\n+proto\r\n:3\r\n".to_owned(),
        ["XA.OWNER", "OPEN", ..] => {
            table.owners += 1;
            own.push(table.owners);
            format!("*4\r\n+00000000000000ab\r\n:{}\r\n:10000\r\n:1000000\r\n", table.owners)
        }
        ["XA.OWNER", "END", owner] => {
            table.ended.insert(owner.parse().unwrap());
            ok
        }
        ["XA.COMMIT", id, "BRANCHES", count, rest @ ..] => {
            if table.aborted.contains(*id) {
                return "-ABORTED it was rolled back\r\n".to_owned();
            }
            let branches = rest.iter().take(count.parse().unwrap()).map(|name| (*name).to_owned());
            let mut branches: BTreeSet<String> = branches.collect();
            for (branch, vote) in table.votes.remove(*id).unwrap_or_default() {
                match vote.as_deref() {
                    Some("READONLY") => {}
                    Some("") => drop(branches.insert(branch)),
                    _ => {
                        table.aborted.insert((*id).to_owned());
                        return "-ABORTED a branch is not prepared\r\n".to_owned();
                    }
                }
            }
            table.decided.insert((*id).to_owned(), branches);
            ok
        }
        ["XA.FORGET", id, rest @ ..] => {
            let known = rest.windows(2).filter(|pair| pair[0] == "BRANCH").map(|pair| pair[1]);
            if let Some(left) = table.decided.get_mut(*id) {
                left.retain(|branch| !known.clone().any(|known| known == branch));
                if left.is_empty() {
                    table.decided.remove(*id);
                }
            }
            ok
        }
        ["XA.ROLLBACK", id, ..] if table.decided.contains_key(*id) => "-ERR it is committed\r\n".to_owned(),
        ["XA.ROLLBACK", id, ..] => {
            table.aborted.insert((*id).to_owned());
            ok
        }
        ["XA.RESUME", id, "BY", by, "NUMBER", number] => {
            let resumer = [(*by).to_owned(), (*number).to_owned()];
            if table.aborted.contains(*id) {
                return "-ABORTED it was rolled back\r\n".to_owned();
            }
            let Some(resumed) = table.suspended.get_mut(*id) else { return "-ERR it is not suspended\r\n".to_owned() };
            if *resumed.get_or_insert_with(|| resumer.clone()) == resumer {
                return ok;
            }
            "-ERR another program has resumed it\r\n".to_owned()
        }
        ["XA.SUSPEND", id, branches @ ..] => {
            table.suspended.insert((*id).to_owned(), None);
            answer(table, &[&["XA.ENLIST", id], branches].concat(), own)
        }
        ["XA.ENLIST", id, "BY", _, branches @ ..] | ["XA.ENLIST", id, branches @ ..] => {
            let votes = table.votes.entry((*id).to_owned()).or_default();
            votes.extend(branches.iter().map(|name| ((*name).to_owned(), None)));
            ok
        }
        ["XA.PREPARED", id, branch, vote @ ..] => {
            let vote = vote.first().map_or_else(String::new, |vote| (*vote).to_owned());
            table.votes.entry((*id).to_owned()).or_default().insert((*branch).to_owned(), Some(vote));
            ok
        }
        ["XA.RECOVER", ids @ ..] => {
            let verdicts: Vec<String> = ids.iter().map(|id| format!("+{}\r\n", verdict(table, id))).collect();
            format!("*{}\r\n{}", ids.len(), verdicts.concat())
        }
        _ => ok,
    }
}

fn verdict(table: &Table, id: &str) -> &'static str {
    let known = id.parse::<tm::TransactionId>().unwrap();
    let owner = known.owner.0;
    if table.decided.contains_key(id) {
        "commit"
    } else if table.aborted.contains(id) || table.ended.contains(&owner) {
        if known.last_resource.is_some() { "last-resource" } else { "rollback" }
    } else {
        "leave"
    }
}

/// A request's words; `None` at the end of the connection.
fn request(from: &mut impl BufRead) -> Option<Vec<String>> {
    let mut line = |kind: char| {
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|length| *length > 0)?;
        Some((line.trim_end().strip_prefix(kind)?.parse::<usize>().ok()?, line))
    };
    let (count, _) = line('*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut head = String::new();
        from.read_line(&mut head).ok()?;
        let length: usize = head.trim_end().strip_prefix('$')?.parse().ok()?;
        let mut word = vec![0; length + 2];
        from.read_exact(&mut word).ok()?;
        word.truncate(length);
        words.push(String::from_utf8(word).ok()?);
    }
    Some(words)
}
