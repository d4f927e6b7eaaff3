//! Holdfast for programs: a store in the same process, or one on a server, with the same calls.
//!
//! ```
//! use holdfast::space::{Definition, Document, ReadOptions, Wanted, WriteOptions};
//! use holdfast_client::Client;
//!
//! # fn main() -> holdfast::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let store = holdfast::Store::open(folder.path(), holdfast::Options::default())?;
//! // Or: Client::connect(ConnectOptions::new("127.0.0.1:7411")).wait()?
//! let client = Client::embedded(&store)?;
//! let jobs = client.space("shop").declare(Definition::new("shop", "jobs")).wait()?;
//! jobs.write(&Document::from_pairs([("what", "sweep")]), &WriteOptions::default()).wait()?;
//! let job = jobs.take(&Wanted::all(), &ReadOptions::default()).wait()?;
//! assert!(job.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! Every operation is a [`Call`]: `call.wait()` blocks, `call.await` does not. Names, arguments, answers and errors are those of
//! [`holdfast`], whose page says what each operation means; `docs/reference/client.md` says what is different on a server.
//!
//! May use: `holdfast`, sockets, async. Must not know: engines, doors, journals.

mod batch;
mod call;
mod canceled;
mod client;
mod embedded;
mod entries;
mod feed;
mod follow;
mod kv;
mod listen;
mod near;
mod read;
mod remote;
mod runtime;
mod scripts;
mod series;
mod snapshot;
mod space;
mod task;
mod transaction;
mod view;
mod words;

pub use batch::{Batch, Done, Made};
pub use call::Call;
pub use client::Client;
pub use entries::{Entries, Iteration};
pub use feed::Feed;
pub use kv::{IndexRange, Keys, Kv};
pub use listen::{Events, Listener};
pub use near::{NearCache, NearStats};
pub use remote::{ConnectOptions, Tls};
pub use scripts::{Script, Scripts};
pub use series::{Point, Series, SeriesName};
pub use snapshot::{FoldPage, FoldShow, FoldedObject, Snapshot};
pub use space::Space;
pub use transaction::{Through, Transaction, TransactionOptions, WithinIteration};
pub use view::LocalView;
