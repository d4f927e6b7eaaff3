//! What a connection waits for before its next command, and how it ends.
//!
//! May use: what `connection` may. Must not know: sockets.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use holdfast::{Backup, Position, Transaction};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::heavy::Heavy;
use super::{Connection, DOOR};
use crate::auth::User;
use crate::durable::State;
use crate::failed_logins::FailedLogin;
use crate::resp::clients::Ask;
use crate::resp::commands::backup::backed_up;
use crate::resp::commands::connection::{OTHER_DOOR, WRONG_PASSWORD, authenticated};
use crate::resp::commands::space::wait::Waited;
use crate::resp::handle;
use crate::resp::open::{self, Guard};
use crate::resp::session::{Hello, Pending};
use crate::resp::work::{Turn, Worked};

/// Whether a reply is not to be sent: CLIENT REPLY.
type IsSilent = bool;

/// What the connection waits for before its next command.
pub(super) enum Blocked {
    Auth(JoinHandle<Result<Arc<User>, &'static str>>, Option<Hello>),
    Backup(JoinHandle<holdfast::Result<Backup>>),
    Sync(Position, Option<Pin<Box<Sleep>>>),
    Work(Pin<Box<dyn Future<Output = Worked>>>, IsSilent),
    /// A command of an open transaction waits.
    Within(Pin<Box<dyn Future<Output = (Worked, Option<Transaction>)>>>, Guard, IsSilent),
    /// An entry is looked for, or waited for.
    Entry(Pin<Box<dyn Future<Output = Waited>>>, IsSilent),
    /// A command that is too much for the event loop runs in a thread.
    Heavy(Pin<Box<dyn Future<Output = Option<Heavy>>>>),
}

impl Blocked {
    /// Whether a thread works for the client, or is to, and may find that nobody waits for it any more.
    pub(super) fn works(&self) -> bool {
        matches!(self, Blocked::Work(..) | Blocked::Entry(..) | Blocked::Heavy(..))
    }
}

impl Connection {
    /// Starts to wait for what the last command asked for.
    pub(super) fn block(&mut self) {
        self.blocked = match self.session.pending.take() {
            None => return,
            // Whoever has its bytes has it run.
            Some(heavy @ Pending::Heavy { .. }) => {
                self.session.pending = Some(heavy);
                return;
            }
            Some(Pending::Auth { name, password, hello }) => {
                let users = self.reactor.door.options.users.clone();
                let address = Some(self.session.client.address);
                let verify = move || {
                    let user = match users.verify(&name, &password) {
                        None => Err(WRONG_PASSWORD),
                        // Said to nobody who does not know the password.
                        Some(user) if !user.may_enter(DOOR) => Err(OTHER_DOOR),
                        Some(user) => Ok(user),
                    };
                    if user.is_err() {
                        users.tell_failed(FailedLogin { door: DOOR, name: &name, address });
                    }
                    user
                };
                Some(Blocked::Auth(tokio::task::spawn_blocking(verify), hello))
            }
            Some(Pending::Backup { dir }) => {
                let store = self.reactor.door.store.clone();
                Some(Blocked::Backup(tokio::task::spawn_blocking(move || store.backup(dir))))
            }
            Some(Pending::Work(work)) => {
                let is_silent = work.is_silent;
                let turns = self.reactor.door.turns_of(&work);
                self.session.client.set_held(work.turn == Turn::Lock);
                let gone = self.session.client.gone.clone();
                Some(Blocked::Work(Box::pin(work.run_elsewhere(turns, gone)), is_silent))
            }
            Some(Pending::Script(later)) => {
                let door = self.reactor.door.clone();
                let is_silent = later.is_silent;
                let gone = self.session.client.gone.clone();
                Some(Blocked::Work(Box::pin(later.run_elsewhere(door, gone)), is_silent))
            }
            Some(Pending::Within(waiting)) => {
                let (is_silent, guard) = (waiting.is_silent, waiting.guard());
                let door = self.reactor.door.clone();
                self.session.client.set_waiting(true);
                Some(Blocked::Within(Box::pin(waiting.run(door)), guard, is_silent))
            }
            Some(Pending::Feed(follow)) => {
                let is_silent = follow.is_silent;
                self.session.client.set_held(true);
                Some(Blocked::Work(Box::pin(follow.run()), is_silent))
            }
            Some(Pending::Listen(listening)) => {
                let is_silent = listening.is_silent;
                self.session.client.set_held(true);
                Some(Blocked::Work(Box::pin(listening.run()), is_silent))
            }
            Some(Pending::Entry(wait)) => {
                let is_silent = wait.is_silent;
                self.session.client.set_waiting(wait.block.is_some());
                Some(Blocked::Entry(Box::pin(wait.run()), is_silent))
            }
            Some(Pending::Sync { position, timeout }) => {
                Some(Blocked::Sync(position, timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout)))))
            }
        };
    }

    /// Ends the waiting if its reason is gone, and writes the reply. Whether it ended.
    pub(super) fn poll_blocked(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.blocked {
            None => return false,
            Some(Blocked::Auth(verify, hello)) => {
                let Poll::Ready(user) = Pin::new(verify).poll(cx) else {
                    return false;
                };
                authenticated(&mut self.session, user.unwrap_or(Err(WRONG_PASSWORD)), hello.take(), &mut self.reply);
            }
            Some(Blocked::Backup(making)) => {
                let Poll::Ready(done) = Pin::new(making).poll(cx) else {
                    return false;
                };
                backed_up(&mut self.session, done.ok(), &mut self.reply);
            }
            Some(Blocked::Work(working, is_silent)) => {
                let Poll::Ready(worked) = working.as_mut().poll(cx) else {
                    return false;
                };
                self.session.client.set_held(false);
                let room = handle::worked(&mut self.session, worked, *is_silent, &mut self.reply);
                self.owed.merge(room);
            }
            Some(Blocked::Within(waiting, guard, is_silent)) => {
                if self.session.client.asked() != Ask::Nothing {
                    guard.end();
                }
                let Poll::Ready((worked, transaction)) = waiting.as_mut().poll(cx) else {
                    return false;
                };
                self.session.client.set_waiting(false);
                let worked = open::back(&self.reactor.door, &mut self.session, transaction, worked);
                let room = handle::worked(&mut self.session, worked, *is_silent, &mut self.reply);
                self.owed.merge(room);
            }
            Some(Blocked::Entry(waiting, is_silent)) => {
                let Poll::Ready(waited) = waiting.as_mut().poll(cx) else {
                    return false;
                };
                self.session.client.set_waiting(false);
                let (room, handed) = handle::waited(&mut self.session, waited, *is_silent, &mut self.reply);
                self.owed.merge(room);
                self.handing = handed;
            }
            Some(Blocked::Heavy(running)) => {
                let Poll::Ready(ran) = running.as_mut().poll(cx) else {
                    return false;
                };
                self.end_heavy(ran);
            }
            Some(Blocked::Sync(position, timeout)) => {
                let position = *position;
                let state = self.reactor.door.syncer.synced_for(&self.reactor.listener, position);
                let is_late = timeout.as_mut().is_some_and(|timeout| timeout.as_mut().poll(cx).is_ready());
                match state {
                    State::Waiting if !is_late => {
                        self.wait_for_sync(cx);
                        return false;
                    }
                    State::Failed(text) => {
                        self.reply.error(&text);
                        open::fail(&mut self.session, &text.into());
                    }
                    state => {
                        self.reply.array(2);
                        self.reply.integer(i64::from(state == State::Done));
                        self.reply.integer(0);
                    }
                }
                self.session.replies += 1;
            }
        }
        self.blocked = None;
        self.end_chunk();
        // What ran elsewhere may want to wait itself.
        self.block();
        true
    }
}
