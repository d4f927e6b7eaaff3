//! The server of the tests: it understands HELLO and opens owners by itself, and asks a closure about everything else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What to do about a request.
pub(super) enum Act {
    /// These bytes are sent.
    Say(String),
    /// Of these the second are sent a while behind the first.
    InTwo(String, String),
    /// These bytes are sent, and the connection is closed.
    Last(String),
    /// The connection is closed.
    Break,
    /// The connection is closed, and there is no server any more.
    Vanish,
}

impl Act {
    pub(super) fn say(reply: &str) -> Self {
        Self::Say(format!("{reply}\r\n"))
    }
}

/// Connections end when the clients close theirs.
pub(super) struct Fake {
    shared: Arc<Shared>,
    port: u16,
    folder: tempfile::TempDir,
}

type Acts = Box<dyn FnMut(&[String]) -> Act + Send>;

struct Shared {
    act: Mutex<Acts>,
    heard: Mutex<Vec<String>>,
    greetings: Mutex<Vec<String>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
    owners: AtomicUsize,
    gone: AtomicBool,
    tls: Option<Arc<ServerConfig>>,
}

impl Fake {
    pub(super) fn start(act: impl FnMut(&[String]) -> Act + Send + 'static) -> Self {
        Self::start_as(None, tempfile::tempdir().unwrap(), Box::new(act))
    }

    pub(super) fn start_with_tls(act: impl FnMut(&[String]) -> Act + Send + 'static) -> Self {
        Self::start_with_certificate(2100, act)
    }

    /// With a certificate that is good until this year begins.
    pub(super) fn start_with_certificate(last_year: i32, act: impl FnMut(&[String]) -> Act + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Self::start_as(Some(Arc::new(config)), folder, Box::new(act))
    }

    fn start_as(tls: Option<Arc<ServerConfig>>, folder: tempfile::TempDir, act: Acts) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            act: Mutex::new(act),
            heard: Mutex::default(),
            greetings: Mutex::default(),
            connections: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            owners: AtomicUsize::new(0),
            gone: AtomicBool::new(false),
            tls,
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.gone.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, shared) = (stream.unwrap(), Arc::clone(&accepting));
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self { shared, port, folder }
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn authorities(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Every request but greetings, in order of arrival.
    pub(super) fn heard(&self) -> Vec<String> {
        self.shared.heard.lock().unwrap().clone()
    }

    pub(super) fn greetings(&self) -> Vec<String> {
        self.shared.greetings.lock().unwrap().clone()
    }

    /// Connections that this side has closed.
    pub(super) fn closed(&self) -> usize {
        self.shared.closed.load(Ordering::SeqCst)
    }

    pub(super) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        match &self.tls {
            None => self.talk(stream.try_clone().unwrap(), stream),
            Some(config) => {
                let session = ServerConnection::new(Arc::clone(config)).unwrap();
                let both = Arc::new(Mutex::new(StreamOwned::new(session, stream)));
                self.talk(Locked(Arc::clone(&both)), Locked(both));
            }
        }
        self.closed.fetch_add(1, Ordering::SeqCst);
    }

    fn talk(&self, from: impl Read, mut to: impl Write) {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let mut from = BufReader::new(from);
        while let Some(words) = request(&mut from) {
            let line = words.join(" ");
            let act = if words[0] == "HELLO" {
                self.greetings.lock().unwrap().push(line);
                Act::say("%1\r\n+proto\r\n:3")
            } else {
                self.heard.lock().unwrap().push(line);
                match words.get(1).map(String::as_str) {
                    Some("OPEN") => {
                        let owner = self.owners.fetch_add(1, Ordering::SeqCst) + 1;
                        Act::Say(format!("*4\r\n+00000000000000ab\r\n:{owner}\r\n:10000\r\n:1000000\r\n"))
                    }
                    None => Act::say("+PONG"),
                    Some(_) => (self.act.lock().unwrap())(&words),
                }
            };
            match act {
                Act::Say(bytes) => {
                    if to.write_all(bytes.as_bytes()).and_then(|()| to.flush()).is_err() {
                        return;
                    }
                }
                Act::InTwo(first, second) => {
                    let _ = to.write_all(first.as_bytes());
                    thread::sleep(Duration::from_millis(50));
                    let _ = to.write_all(second.as_bytes());
                }
                Act::Last(bytes) => {
                    let _ = to.write_all(bytes.as_bytes());
                    return;
                }
                Act::Break => return,
                Act::Vanish => {
                    self.gone.store(true, Ordering::SeqCst);
                    return;
                }
            }
            if self.gone.load(Ordering::SeqCst) {
                return;
            }
        }
    }
}

/// A request's words; `None` at the end of the connection.
fn request(from: &mut impl BufRead) -> Option<Vec<String>> {
    let mut number = |kind: char| {
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|length| *length > 0)?;
        line.trim_end().strip_prefix(kind)?.parse::<usize>().ok()
    };
    let count = number('*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        let length: usize = line.trim_end().strip_prefix('$')?.parse().ok()?;
        let mut word = vec![0; length + 2];
        from.read_exact(&mut word).ok()?;
        word.truncate(length);
        words.push(String::from_utf8(word).unwrap());
    }
    Some(words)
}

/// One thread reads and writes in turn, so it never waits for itself.
struct Locked(Arc<Mutex<StreamOwned<ServerConnection, TcpStream>>>);

impl Read for Locked {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().read(to)
    }
}

impl Write for Locked {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.lock().unwrap().flush()
    }
}
