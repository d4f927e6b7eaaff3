//! Datagrams of lines: many in one call of the system, their points into the batch of the first thread.
//!
//! Nobody is answered. What is lost is counted: datagrams that the system dropped because nobody had received them yet (it says so
//! with those that come after), lines that are bad, points that the store refuses.
//!
//! May use: tokio, nix's `recvmmsg`, `batch`, `wire`. Must not know: how points are written.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket as StdSocket;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use nix::cmsg_space;
use nix::sys::socket::sockopt::{RcvBuf, RxqOvfl};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, getsockopt, recvmmsg, setsockopt,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::batch::{Reactor, Source};
use super::wire::{After, Step};

/// Datagrams that are received in one call, before connections have their turn.
const DATAGRAMS_MAX: usize = 32;
/// What a datagram over IP has at most.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// What is asked for of the system; it gives what it allows (`net.core.rmem_max`).
const BUFFER_BYTES: usize = 8 << 20;

/// Datagrams that were received in one call.
struct Received {
    /// Their lengths.
    lengths: Vec<usize>,
    /// How many were dropped since the socket was made, if the system said so.
    dropped: Option<u32>,
}

/// Prepares a socket, and says how many bytes wait in it at most.
pub(crate) fn prepare(socket: &StdSocket) -> io::Result<usize> {
    socket.set_nonblocking(true)?;
    setsockopt(socket, RxqOvfl, &1)?;
    // As much as is allowed: less only means that fewer datagrams can wait.
    let _ = setsockopt(socket, RcvBuf, &BUFFER_BYTES);
    Ok(getsockopt(socket, RcvBuf)?)
}

/// Receives datagrams until the task is ended.
pub(crate) async fn receive(reactor: Rc<Reactor>, socket: StdSocket) {
    let socket = match UdpSocket::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(%error, "cannot receive datagrams");
            return;
        }
    };
    let source = Rc::new(Source::new(0, 0, reactor.door.store.now_ms()));
    let mut buffers: Vec<Vec<u8>> = (0..DATAGRAMS_MAX).map(|_| vec![0; DATAGRAM_BYTES_MAX]).collect();
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        match socket.try_io(Interest::READABLE, || receive_some(&socket, &mut buffers)) {
            Ok(received) => take(&reactor, &source, &buffers, &received),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => tracing::debug!(%error, "cannot receive datagrams"),
        }
        // The connections first.
        tokio::task::yield_now().await;
    }
}

fn receive_some(socket: &UdpSocket, buffers: &mut [Vec<u8>]) -> io::Result<Received> {
    // Made anew, because the system leaves in the headers how much of them it has used.
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(DATAGRAMS_MAX, Some(cmsg_space!(u32)));
    let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
    let messages = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
    let mut received = Received { lengths: Vec::with_capacity(DATAGRAMS_MAX), dropped: None };
    for message in messages {
        received.lengths.push(message.bytes);
        for note in message.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::RxqOvfl(dropped) = note {
                received.dropped = Some(dropped);
            }
        }
    }
    Ok(received)
}

fn take(reactor: &Reactor, source: &Rc<Source>, buffers: &[Vec<u8>], received: &Received) {
    let counts = &reactor.door.points;
    counts.datagrams.fetch_add(received.lengths.len() as u64, Relaxed);
    if let Some(dropped) = received.dropped {
        counts.datagrams_dropped.store(u64::from(dropped), Relaxed);
    }
    for (buffer, length) in buffers.iter().zip(&received.lengths) {
        reactor.door.received_bytes.fetch_add(*length as u64, Relaxed);
        let mut rest = buffer.get(..*length).unwrap_or_default();
        while !rest.is_empty() {
            let gathered = reactor.gather(source, rest, After::Nothing);
            rest = rest.get(gathered.bytes..).unwrap_or_default();
            let Some(Step::Bad { bytes, .. } | Step::Word { bytes, .. }) = gathered.next else { break };
            counts.malformed.fetch_add(1, Relaxed);
            rest = rest.get(bytes..).unwrap_or_default();
        }
    }
}
