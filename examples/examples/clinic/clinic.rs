//! What the clinic knows, and what it is asked.
//!
//! May use: serde. Must not know: where things are kept, pages, HTTP.

use serde::{Deserialize, Serialize};

/// Any error: what goes wrong here ends a request, and its text a page.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Owners of one page of a list.
pub(crate) const PAGE: usize = 20;

/// Somebody who has pets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) id: u64,
    pub(crate) first: String,
    pub(crate) last: String,
    pub(crate) city: String,
    pub(crate) telephone: String,
}

/// A pet of one owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pet {
    pub(crate) id: u64,
    pub(crate) owner: u64,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) born: String,
}

/// A visit of a pet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Visit {
    pub(crate) owner: u64,
    pub(crate) pet: u64,
    pub(crate) date: String,
    pub(crate) description: String,
}

/// A pet with its visits, the oldest first.
pub(crate) struct PetFile {
    pub(crate) pet: Pet,
    pub(crate) visits: Vec<Visit>,
}

/// All that is known of an owner.
pub(crate) struct OwnerFile {
    pub(crate) owner: Owner,
    pub(crate) pets: Vec<PetFile>,
}

/// Where the clinic keeps what it knows; shared by all connections.
pub(crate) trait Clinic: Send + Sync {
    /// What one connection works with.
    fn desk(&self) -> Result<Box<dyn Desk>, Failure>;
}

/// The questions of one connection.
pub(crate) trait Desk {
    /// How many owners there are.
    fn owners(&mut self) -> Result<u64, Failure>;

    /// The first owners whose last name begins so, in the order of their names.
    fn find(&mut self, last: &str) -> Result<Vec<Owner>, Failure>;

    fn owner(&mut self, id: u64) -> Result<Option<OwnerFile>, Failure>;

    /// Writes a visit; false if the owner has no such pet.
    fn visit(&mut self, visit: &Visit) -> Result<bool, Failure>;

    /// Writes an owner with pets, as it was before this program began.
    fn enrol(&mut self, owner: &Owner, pets: &[Pet]) -> Result<(), Failure>;
}

/// The first name behind all that begin with `start`, if there is one.
pub(crate) fn behind(start: &str) -> Option<String> {
    let last = start.chars().next_back()?;
    let next = char::from_u32(u32::from(last) + 1)?;
    Some(format!("{}{next}", &start[..start.len() - last.len_utf8()]))
}

/// Owners, pets and visits that are the same each time.
pub(crate) fn fill(desk: &mut dyn Desk, owners: u64) -> Result<(), Failure> {
    const FIRST: [&str; 7] = ["Ada", "Ben", "Clara", "Dan", "Eva", "Finn", "Gina"];
    const LAST: [&str; 8] = ["Smith", "Jones", "Brown", "Miller", "Davis", "Garcia", "Wilson", "Moore"];
    const PETS: [(&str, &str); 5] =
        [("Leo", "cat"), ("Basil", "hamster"), ("Rosy", "dog"), ("Iggy", "lizard"), ("Lucky", "bird")];
    let pick = |from: u64, count: usize| usize::try_from(from).unwrap_or(0) % count;
    for id in 1..=owners {
        let last = format!("{}{:04}", LAST[pick(id * 5, LAST.len())], id % 10_000);
        let owner = Owner {
            id,
            first: FIRST[pick(id, FIRST.len())].to_owned(),
            last,
            city: format!("Town {}", id % 97),
            telephone: format!("{:010}", id * 7919),
        };
        let pets: Vec<Pet> = (0..=id % 3)
            .map(|number| {
                let (name, kind) = PETS[pick(id + number, PETS.len())];
                let born = format!("20{:02}-0{}-11", id % 20, number + 1);
                Pet { id: id * 10 + number, owner: id, name: name.to_owned(), kind: kind.to_owned(), born }
            })
            .collect();
        desk.enrol(&owner, &pets)?;
        for pet in &pets {
            let description = "rabies shot".to_owned();
            desk.visit(&Visit { owner: id, pet: pet.id, date: "2025-06-01".to_owned(), description })?;
        }
    }
    Ok(())
}
