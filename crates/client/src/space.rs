//! Named spaces and their types, in the process or on a server.
//!
//! May use: `client`, `entries`, `words`, `read`. Must not know: sockets.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast::space::{Definition, SpaceUsage};
use holdfast::{Error, ErrorKind, Result};

use crate::call::Call;
use crate::client::Place;
use crate::entries::Entries;
use crate::read;
use crate::remote::{Again, Remote, Reply, Words};
use crate::words;

/// A named space: types, and entries of them. See [`holdfast::space::Space`].
#[derive(Clone)]
pub struct Space {
    pub(crate) place: Place,
    name: String,
}

impl Space {
    pub(crate) fn new(place: Place, name: &str) -> Self {
        Self { place, name: name.to_owned() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Declares a type, or changes one that is there: [`holdfast::space::Space::declare`].
    ///
    /// # Errors
    /// As there.
    pub fn declare(&self, definition: Definition) -> Call<Entries> {
        match &self.place {
            Place::Here(here) => {
                let (space, of) = (here.store().space(&self.name), here.clone());
                here.elsewhere(move || Ok(Entries::here(of, space.declare(definition)?)))
            }
            Place::There(there) => {
                let check = || -> Result<()> {
                    if definition.space != self.name {
                        let text = format!("the definition is of the space {}, not of {}", definition.space, self.name);
                        return Err(Error::new(ErrorKind::Invalid, text));
                    }
                    Ok(definition.check()?)
                };
                if let Err(error) = check() {
                    return Call::done(Err(error));
                }
                let of = there.clone();
                // Declared twice it is the same.
                let declared =
                    there.call_alone(&words::declare(&definition), Again::May, Some(Default::default()), |reply| {
                        reply.ok()
                    });
                declared.then(move |()| Ok(Entries::there(of, Arc::new(definition))))
            }
        }
    }

    /// The entries of a type.
    ///
    /// # Errors
    /// `Invalid` when there is no such type: declare it first.
    pub fn entries(&self, name: &str) -> Call<Entries> {
        match &self.place {
            Place::Here(here) => {
                let entries = here.store().space(&self.name).entries(name);
                Call::done(entries.map(|entries| Entries::here(here.clone(), entries)))
            }
            Place::There(there) => {
                let of = there.clone();
                definition(there, &self.name, name).then(move |definition| Ok(Entries::there(of, Arc::new(definition))))
            }
        }
    }

    /// Removes a type with all its entries. False if there is none.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn drop_type(&self, name: &str) -> Call<bool> {
        match &self.place {
            Place::Here(here) => {
                let (space, name) = (here.store().space(&self.name), name.to_owned());
                here.elsewhere(move || space.drop_type(&name))
            }
            Place::There(there) => {
                let words = Words::new("SPACE.DROP").and(&self.name).and(name);
                there.call_alone(&words, Again::MustNot, Some(Default::default()), |reply| Ok(reply.unsigned()? != 0))
            }
        }
    }

    /// Limits the memory of all types together: [`holdfast::space::Space::limit_memory`].
    ///
    /// # Errors
    /// As there.
    pub fn limit_memory(&self, bytes_max: Option<u64>) -> Call<()> {
        match &self.place {
            Place::Here(here) => {
                let space = here.store().space(&self.name);
                here.elsewhere(move || space.limit_memory(bytes_max))
            }
            Place::There(there) => {
                let words = Words::new("SPACE.LIMIT").and(&self.name).and(bytes_max.unwrap_or(0).to_string());
                // Said twice it is the same.
                there.call_alone(&words, Again::May, Some(Default::default()), |reply| reply.ok())
            }
        }
    }

    /// What all entries take of memory, and may: [`holdfast::space::Space::memory`].
    ///
    /// # Errors
    /// As there.
    pub fn memory(&self) -> Call<SpaceUsage> {
        match &self.place {
            Place::Here(here) => {
                let space = here.store().space(&self.name);
                here.elsewhere(move || space.memory())
            }
            Place::There(there) => {
                let words = Words::new("SPACE.INFO").and(&self.name);
                there.call(&words, Again::May, |reply| {
                    let reply = reply.good()?;
                    let number = |name: &str| reply.field(name).and_then(Reply::unsigned);
                    let bytes_max = Some(number("memory")?).filter(|max| *max > 0);
                    Ok(SpaceUsage { bytes: number("bytes")?, bytes_max })
                })
            }
        }
    }

    /// The names of the types that were declared.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn types(&self) -> Call<Vec<String>> {
        match &self.place {
            Place::Here(here) => {
                let types = here.store().space(&self.name).types();
                Call::done(Ok(types.iter().map(|definition| definition.name.clone()).collect()))
            }
            Place::There(there) => {
                let name = |reply: Reply| {
                    let [_, name] = reply.items()?;
                    Ok(name.text()?.into_owned())
                };
                let words = Words::new("SPACE.TYPES").and(&self.name);
                there.call(&words, Again::May, move |reply| reply.list()?.into_iter().map(name).collect())
            }
        }
    }
}

/// The names of all spaces, in order.
pub(crate) fn names(place: &Place) -> Call<Vec<String>> {
    match place {
        Place::Here(here) => Call::done(Ok(here.store().spaces())),
        Place::There(there) => there.call(&Words::new("SPACE.TYPES"), Again::May, |reply| {
            let name = |reply: Reply| {
                let [space, _] = reply.items()?;
                Ok(space.text()?.into_owned())
            };
            // A space is told with each of its types.
            let names: BTreeSet<String> = reply.list()?.into_iter().map(name).collect::<Result<_>>()?;
            Ok(names.into_iter().collect())
        }),
    }
}

fn definition(there: &Remote, space: &str, name: &str) -> Call<Definition> {
    let words = Words::new("SPACE.INFO").and(space).and(name);
    there.call(&words, Again::May, |reply| Ok(read::info(&reply.good()?)?.0))
}
