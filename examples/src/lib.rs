//! Examples of the embedded library and of the client library: see the files beside this folder. Here is what they share.

mod server;

pub use server::{Outcome, Server};
