//! The clinic in a space of this process. What belongs to an owner is routed by the owner, so a page looks into one partition.
//!
//! May use: the store. Must not know: pages, HTTP.

use std::path::Path;

use holdfast::space::{
    Definition, Document, Entries, IndexKind, Path as Field, ReadOptions, Value, Wanted, WriteMode, WriteOptions,
};
use holdfast::{Durability, Options, Store};

use crate::clinic::{Clinic, Desk, Failure, Owner, OwnerFile, PAGE, Pet, PetFile, Visit, behind};

/// The types; clones share the store.
#[derive(Clone)]
pub(crate) struct InSpace {
    owners: Entries,
    pets: Entries,
    visits: Entries,
}

impl InSpace {
    /// Opens or makes it.
    pub(crate) fn open(dir: &Path, durability: Durability) -> Result<Self, Failure> {
        let store = Store::open(dir, Options { durability, ..Options::default() })?;
        let clinic = store.space("clinic");
        let of_owner = |name| -> Result<Definition, Failure> {
            let routed = Definition { routing: Some(Field::parse("owner")?), ..Definition::new("clinic", name) };
            Ok(routed.index("owner", IndexKind::Hash)?)
        };
        Ok(Self {
            owners: clinic.declare(Definition::new("clinic", "owner").index("last", IndexKind::Ordered)?)?,
            pets: clinic.declare(of_owner("pet")?)?,
            visits: clinic.declare(of_owner("visit")?)?,
        })
    }
}

impl Clinic for InSpace {
    fn desk(&self) -> Result<Box<dyn Desk>, Failure> {
        Ok(Box::new(self.clone()))
    }
}

/// Everything of an owner.
fn of_owner(owner: u64) -> Wanted {
    Wanted::template(&Document::from_pairs([("owner", owner)])).routed(owner)
}

impl Desk for InSpace {
    fn owners(&mut self) -> Result<u64, Failure> {
        Ok(self.owners.count(&Wanted::all())?)
    }

    fn find(&mut self, last: &str) -> Result<Vec<Owner>, Failure> {
        let limit = Value::from(PAGE as u64);
        let wanted = match behind(last) {
            Some(end) => {
                Wanted::query("last >= ? AND last < ? ORDER BY last LIMIT ?", &[last.into(), end.into(), limit])?
            }
            None => Wanted::query("last >= ? ORDER BY last LIMIT ?", &[last.into(), limit])?,
        };
        let found = self.owners.read_many(&wanted, PAGE)?;
        Ok(found.iter().map(|owner| owner.document.deserialize()).collect::<Result<_, _>>()?)
    }

    fn owner(&mut self, id: u64) -> Result<Option<OwnerFile>, Failure> {
        let Some(owner) = self.owners.read(&Wanted::id(id), &ReadOptions::default())? else { return Ok(None) };
        let mut pets = Vec::new();
        for pet in self.pets.read_many(&of_owner(id), usize::MAX)? {
            pets.push(PetFile { pet: pet.document.deserialize()?, visits: Vec::new() });
        }
        pets.sort_by_key(|file: &PetFile| file.pet.id);
        for visit in self.visits.read_many(&of_owner(id), usize::MAX)? {
            let visit: Visit = visit.document.deserialize()?;
            if let Some(file) = pets.iter_mut().find(|file| file.pet.id == visit.pet) {
                file.visits.push(visit);
            }
        }
        pets.iter_mut().for_each(|file| file.visits.sort_by(|a, b| a.date.cmp(&b.date)));
        Ok(Some(OwnerFile { owner: owner.document.deserialize()?, pets }))
    }

    fn visit(&mut self, visit: &Visit) -> Result<bool, Failure> {
        let pet = Wanted::id(visit.pet).routed(visit.owner);
        if self.pets.read(&pet, &ReadOptions::default())?.is_none() {
            return Ok(false);
        }
        self.visits.write(&Document::from_serialize(visit)?, &WriteOptions::default())?;
        Ok(true)
    }

    fn enrol(&mut self, owner: &Owner, pets: &[Pet]) -> Result<(), Failure> {
        let new = WriteOptions { mode: WriteMode::Insert, ..WriteOptions::default() };
        self.owners.write(&Document::from_serialize(owner)?, &new)?;
        for pet in pets {
            self.pets.write(&Document::from_serialize(pet)?, &new)?;
        }
        Ok(())
    }
}
