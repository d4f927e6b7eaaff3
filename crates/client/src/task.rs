//! Tasks: closures that work beside the data of a store in the process. They do not travel to a server, which runs functions by name.
//!
//! May use: `call`, `space`, the facade. Must not know: what tasks do.

use holdfast::space::{Task, Value};
use holdfast::{Durability, Error, ErrorKind, Result};

use crate::call::Call;
use crate::client::Place;
use crate::space::Space;

impl Space {
    /// Runs a task in the partition of a routing value: [`holdfast::space::Space::execute`]. The answer comes when what it changed is as
    /// durable as asked.
    ///
    /// A call that is dropped before it has begun does not happen; one that is dropped later goes on to its end, all or nothing.
    ///
    /// # Errors
    /// Those of the task, and `Internal` when it panics while it is awaited: then nothing has happened. `Invalid` over a server, which
    /// has functions instead: [`Space::call`].
    pub fn execute<T: Send + 'static>(
        &self,
        routing: &Value,
        durability: Option<Durability>,
        task: impl FnOnce(&mut Task<'_>) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        let routing = routing.clone();
        self.only_here(move |space| space.execute(&routing, durability, task))
    }

    /// Runs a task where the entries of a type lie that lie together: [`holdfast::space::Space::execute_beside`]. Otherwise as
    /// [`Space::execute`].
    ///
    /// # Errors
    /// As there; `Invalid` when there is no such type, or its entries do not lie together.
    pub fn execute_beside<T: Send + 'static>(
        &self,
        type_name: &str,
        durability: Option<Durability>,
        task: impl FnOnce(&mut Task<'_>) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        let type_name = type_name.to_owned();
        self.only_here(move |space| space.execute_beside(&type_name, durability, task))
    }

    /// Runs a task in every partition, one after another, and reduces what they answer to one value; all that they change is one batch:
    /// [`holdfast::space::Space::execute_all`]. Otherwise as [`Space::execute`].
    ///
    /// # Errors
    /// As there; `Limit` when they change more than one batch holds.
    pub fn execute_all<T: Send + 'static>(
        &self,
        durability: Option<Durability>,
        task: impl FnMut(&mut Task<'_>) -> Result<T> + Send + 'static,
        reduce: impl FnMut(T, T) -> T + Send + 'static,
    ) -> Call<T> {
        self.only_here(move |space| space.execute_all(durability, task, reduce))
    }

    fn only_here<T: Send + 'static>(
        &self,
        run: impl FnOnce(&holdfast::space::Space) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        match &self.place {
            Place::Here(here) => {
                let space = here.store().space(self.name());
                here.elsewhere(move || run(&space))
            }
            Place::There(_) => {
                let text = "tasks are closures, which do not travel to a server: load a function there, and call it by Space::call";
                Call::done(Err(Error::new(ErrorKind::Invalid, text)))
            }
        }
    }
}
