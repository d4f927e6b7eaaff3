//! A call: something that was asked for, to be awaited or waited for.
//!
//! Each operation is written once. In whatever way its caller wants the answer, the same closure begins it, told [`How`].
//!
//! May use: std, `canceled`. Must not know: stores, servers.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use holdfast::Result;
use holdfast::space::Cancel;

use crate::canceled::Canceled;

/// How the caller wants the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// As a future that never blocks.
    Await,
    /// The thread may block until it is there.
    Wait,
    /// The thread may block until it is on its way.
    Begin,
}

type Running<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// What a call has come to.
pub(crate) enum Step<T> {
    Done(Result<T>),
    Running(Running<T>),
}

type Begin<T> = Box<dyn FnOnce(How) -> Step<T> + Send>;

/// An operation that was asked for. It begins when it is polled first, waited for or told to [begin](Call::begin).
///
/// * Awaited, in any runtime, it never blocks a thread.
/// * [`Call::wait`] blocks the thread until the answer is there.
///
/// A call that is dropped before it has begun does not happen. One that is dropped later may happen or not; one that waits
/// for an entry stops waiting.
#[must_use = "a call that is neither awaited, waited for nor begun does not happen"]
pub struct Call<T>(State<T>);

enum State<T> {
    New(Begin<T>),
    Running(Running<T>),
    Done(Option<Result<T>>),
}

impl<T: Send + 'static> Call<T> {
    pub(crate) fn new(begin: impl FnOnce(How) -> Step<T> + Send + 'static) -> Self {
        Self(State::New(Box::new(begin)))
    }

    pub(crate) fn done(result: Result<T>) -> Self {
        Self(State::Done(Some(result)))
    }

    pub(crate) fn running(future: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self(State::Running(Box::pin(future)))
    }

    /// Another answer made of this one.
    pub(crate) fn then<U: Send + 'static>(self, make: impl FnOnce(T) -> Result<U> + Send + 'static) -> Call<U> {
        Call::new(move |how| match self.step(how) {
            Step::Done(result) => Step::Done(result.and_then(make)),
            Step::Running(running) => Step::Running(Box::pin(async move { make(running.await?) })),
        })
    }

    /// Another call made of this one's answer.
    pub(crate) fn and_then<U: Send + 'static>(self, make: impl FnOnce(T) -> Call<U> + Send + 'static) -> Call<U> {
        Call::new(move |how| match self.step(how) {
            Step::Done(Ok(value)) => make(value).step(how),
            Step::Done(Err(error)) => Step::Done(Err(error)),
            Step::Running(running) => Step::Running(Box::pin(async move { make(running.await?).await })),
        })
    }

    /// All of these, begun in their order and under way together.
    pub(crate) fn all(calls: Vec<Self>) -> Call<Vec<T>> {
        Call::new(move |how| {
            // Who blocks waits for room in the queue with each, so that they stay in order.
            let begun = calls.into_iter().map(|call| if how == How::Await { call } else { call.begin() });
            let all = futures_util::future::try_join_all(begun.collect::<Vec<_>>());
            Step::Running(Box::pin(all))
        })
    }

    pub(crate) fn step(self, how: How) -> Step<T> {
        match self.0 {
            State::New(begin) => begin(how),
            State::Running(running) => Step::Running(running),
            State::Done(result) => Step::Done(result.expect("a call is not polled after its answer")),
        }
    }

    /// Blocks the thread until the answer is there. Not for tasks of a runtime: await it there.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn wait(self) -> Result<T> {
        match self.step(How::Wait) {
            Step::Done(result) => result,
            Step::Running(running) => block_on(running),
        }
    }

    /// As [`Call::wait`], unless `cancel` is used before the answer is there: then the call is dropped, and this is `None`. For
    /// threads that have to stop while they wait. What blocks in a store of this process does so in another thread meanwhile, as
    /// if it were awaited.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn wait_unless(mut self, cancel: &Cancel) -> Result<Option<T>> {
        if cancel.is_canceled() {
            return Ok(None);
        }
        let mut canceled = Canceled::by(cancel);
        block_on(std::future::poll_fn(|context| {
            // An answer that is there is not thrown away.
            if let Poll::Ready(result) = Pin::new(&mut self).poll(context) {
                return Poll::Ready(result.map(Some));
            }
            Pin::new(&mut canceled).poll(context).map(|()| Ok(None))
        }))
    }

    /// Begins it now, so that others can be begun before it is answered: to a server they go in the order of beginning. Blocks
    /// while the queue to the server is full. To a store in the process it is done when this returns, and only durability is
    /// left to be waited for.
    pub fn begin(self) -> Self {
        match self.step(How::Begin) {
            Step::Done(result) => Self::done(result),
            Step::Running(mut running) => {
                // Once, so that whatever is only begun by polling is begun.
                match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(result) => Self::done(result),
                    Poll::Pending => Self(State::Running(running)),
                }
            }
        }
    }
}

// Nothing of the answer is referred to from within.
impl<T> Unpin for Call<T> {}

impl<T: Send + 'static> Future for Call<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(_) = &self.0
            && let State::New(begin) = std::mem::replace(&mut self.0, State::Done(None))
        {
            self.0 = match begin(How::Await) {
                Step::Done(result) => State::Done(Some(result)),
                Step::Running(running) => State::Running(running),
            };
        }
        match &mut self.0 {
            State::Running(running) => running.as_mut().poll(context),
            State::Done(result) => Poll::Ready(result.take().expect("a call is not polled after its answer")),
            State::New(_) => Poll::Pending,
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the thread until the future is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}
