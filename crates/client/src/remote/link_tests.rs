//! The shared connection against servers that misbehave.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncReadExt, DuplexStream, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::super::connection::Input;
use super::super::options::ConnectOptions;
use super::super::wire::Words;
use super::*;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A runtime that a thread drives until the second is dropped.
fn serving() -> (tokio::runtime::Handle, crate::runtime::Runtime) {
    let runtime = crate::runtime::Runtime::start().unwrap();
    (runtime.handle().clone(), runtime)
}

fn target(server: &str, timeout: Duration) -> Arc<Target> {
    let options = ConnectOptions { timeout, ..ConnectOptions::new(server) };
    Arc::new(Target { options, tls: None })
}

fn asks(again: Again) -> Request {
    Request { bytes: Words::new("PING").to_bytes(), replies: 1, again }
}

/// A stream as TLS may be: what is written is flushed only when answers were read.
struct FlushesAfterReading {
    inner: DuplexStream,
    has_read: bool,
    waits: Option<Waker>,
}

impl AsyncRead for FlushesAfterReading {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_read(context, to);
        if polled.is_ready() {
            self.has_read = true;
            self.waits.take().into_iter().for_each(Waker::wake);
        }
        polled
    }
}

impl AsyncWrite for FlushesAfterReading {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_read {
            return Poll::Ready(Ok(()));
        }
        self.waits = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// A server with a full queue of answers reads no more until some are taken: who flushes and does not read waits for ever.
#[test]
fn answers_are_read_while_a_flush_waits() {
    runtime().block_on(async {
        let (inner, mut server) = tokio::io::duplex(64 << 10);
        let stream = Box::new(FlushesAfterReading { inner, has_read: false, waits: None });
        let (queue, requests) = mpsc::unbounded_channel();
        let mut task = Task::new(target("127.0.0.1:1", Duration::from_secs(30)), requests, 1 << 20);
        let link = Link { queue, room: Arc::new(Semaphore::new(1)), room_bytes: 1, timeout: Duration::from_secs(30) };
        let answer = link.send(asks(Again::May)).unwrap();
        drop(link);
        let serving = tokio::spawn(async move { task.serve(Connection { stream, input: Input::default() }).await });
        let mut asked = [0; 14];
        server.read_exact(&mut asked).await.unwrap();
        assert_eq!(&asked, b"*1\r\n$4\r\nPING\r\n");
        server.write_all(b"+PONG\r\n").await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(10), answer).await.expect("it is read").unwrap().unwrap();
        assert_eq!(answer, [Reply::Bytes(b"PONG".to_vec())]);
        assert!(matches!(serving.await.unwrap(), End::Done));
    });
}

/// How a server greets, and what it does then.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Silence,
    Closes,
    Answers,
    /// Answers, but turns the first away because it has too many clients.
    IsFullOnce,
}

/// Greets and does not answer; counts connections.
async fn greets(then: Then) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let number = counts.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(greet(socket, then, number));
        }
    });
    (address, connections)
}

async fn greet(mut socket: TcpStream, then: Then, number: usize) {
    let mut bytes = vec![0; 4096];
    if then == Then::IsFullOnce && number == 0 {
        socket.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
        // Until the client has closed, so that it gets to read it.
        while socket.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
        return;
    }
    for answer in [&b"%1\r\n+server\r\n+holdfast\r\n"[..], b"+OK\r\n"] {
        let _ = socket.read(&mut bytes).await.unwrap();
        socket.write_all(answer).await.unwrap();
    }
    while socket.read(&mut bytes).await.is_ok_and(|read| read > 0) {
        match then {
            Then::Silence => {}
            Then::Closes => return,
            Then::Answers | Then::IsFullOnce => socket.write_all(b"+PONG\r\n").await.unwrap(),
        }
    }
}

/// Each was sent again when the one before it was given up, so that the last of twenty failed after twenty times the time.
#[test]
fn reads_that_nobody_answers_fail_together() {
    let time = Duration::from_millis(200);
    runtime().block_on(async {
        let (address, _) = greets(Then::Silence).await;
        let link = Link::start(target(&address, time));
        let begin = Instant::now();
        let answers: Vec<_> = (0..20).map(|_| link.send(asks(Again::May)).unwrap()).collect();
        for answer in answers {
            let error = answer.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        }
        assert!(begin.elapsed() < time * 10, "after {:?}", begin.elapsed());
    });
}

/// It went round as fast as connections are made, and took all that others had under way with it each time.
#[test]
fn a_read_that_breaks_every_connection_fails_after_a_few() {
    let time = Duration::from_secs(1);
    runtime().block_on(async {
        let (address, connections) = greets(Then::Closes).await;
        let link = Link::start(target(&address, time));
        let error = link.send(asks(Again::May)).unwrap().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let connections = connections.load(Ordering::SeqCst);
        assert!((2..=20).contains(&connections), "{connections} connections");
    });
}

/// A server closes the connection upon an argument that is too long, and what others have under way on it is unknown then. Sent
/// here, it would wait for a server that is silent.
#[test]
fn what_is_too_long_is_not_sent() {
    let max = 100 << 10;
    let (serving, _ends) = serving();
    let (address, _) = serving.block_on(greets(Then::Silence));
    let options =
        ConnectOptions { timeout: Duration::from_secs(30), value_bytes_max: max, ..ConnectOptions::new(&address) };
    let client = crate::Client::connect(options).wait().unwrap();
    let long = vec![b'x'; max + 1];
    let plain = holdfast::PutOptions::default();
    let metadata = holdfast::Metadata::from_pairs(vec![(b"name".to_vec(), long.clone())]);
    let indexes = holdfast::Indexes::from_pairs(vec![(b"by".to_vec(), holdfast::Term::Binary(long.clone()))]);
    let with_metadata = holdfast::PutOptions { metadata, ..plain.clone() };
    let with_index = holdfast::PutOptions { indexes, ..plain.clone() };
    let cases =
        [(&long[..], &plain, "value of"), (b"v", &with_metadata, "argument of"), (b"v", &with_index, "argument of")];
    let begin = Instant::now();
    for (value, options, text) in cases {
        let mut batch = client.batch();
        let _ = batch.put(b"bucket", b"key", value, options);
        let error = batch.commit().wait().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        let error = client.kv().put(b"bucket", b"key", value, options, None).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "nothing was waited for");
}

/// It was taken for a server that does not let this client in, and so each call failed as if its options were wrong.
#[test]
fn a_server_with_too_many_clients_is_asked_again() {
    runtime().block_on(async {
        let (address, connections) = greets(Then::IsFullOnce).await;
        let link = Link::start(target(&address, Duration::from_secs(20)));
        let answer = link.send(asks(Again::MustNot)).unwrap().await.unwrap().unwrap();
        assert_eq!(answer, [Reply::Bytes(b"PONG".to_vec())]);
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    });
}

/// Who blocks on all connections kept everybody else waiting without end.
#[test]
fn a_call_that_does_not_block_waits_for_a_connection_as_long_as_for_an_answer() {
    runtime().block_on(async {
        let (address, _) = greets(Then::Silence).await;
        let options =
            ConnectOptions { timeout: Duration::from_millis(100), connections_max: 1, ..ConnectOptions::new(&address) };
        let pool = super::super::pool::Pool::new(Arc::new(Target { options, tls: None }));
        let ping = asks(Again::May).bytes;
        let blocks = pool.call(&ping, Again::MustNot, None);
        let asked = async {
            // The other has the connection by now: they are polled in this order.
            pool.call(&ping, Again::May, Some(Duration::ZERO)).await
        };
        tokio::select! {
            biased;
            _ = blocks => panic!("nobody answers"),
            asked = asked => {
                let error = asked.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("all 1 connections"), "{error}");
            }
        }
    });
}

#[test]
fn sockets_ask_whether_the_other_machine_is_there() {
    runtime().block_on(async {
        let (address, _) = greets(Then::Silence).await;
        let tcp = super::super::connection::tcp(&address).await.unwrap();
        assert!(socket2::SockRef::from(&tcp).keepalive().unwrap());
    });
}

/// Instants that no clock can tell made the client panic.
#[test]
fn a_timeout_may_be_as_long_as_can_be_said() {
    let (serving, _ends) = serving();
    let (address, _) = serving.block_on(greets(Then::Answers));
    let options = ConnectOptions { timeout: Duration::MAX, ..ConnectOptions::new(&address) };
    let client = crate::Client::connect(options).wait().unwrap();
    // What the server says is no answer to these, but it came.
    let error = client.kv().head(b"bucket", b"key").wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let entries = client.space("shop").declare(holdfast::space::Definition::new("shop", "jobs")).wait();
    assert!(entries.is_err());
}
