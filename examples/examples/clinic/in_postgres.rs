//! The clinic in PostgreSQL: tables with the same indexes, statements that are prepared once for each connection.
//!
//! May use: tokio-postgres. Must not know: pages, HTTP.

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, Row, Statement};

use crate::clinic::{Clinic, Desk, Failure, Owner, OwnerFile, PAGE, Pet, PetFile, Visit, behind};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS owner (id BIGINT PRIMARY KEY, first TEXT NOT NULL, last TEXT COLLATE \"C\" NOT NULL,
        city TEXT NOT NULL, telephone TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS owner_last ON owner (last);
    CREATE TABLE IF NOT EXISTS pet (id BIGINT PRIMARY KEY, owner BIGINT NOT NULL REFERENCES owner, name TEXT NOT NULL,
        kind TEXT NOT NULL, born TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS pet_owner ON pet (owner);
    CREATE TABLE IF NOT EXISTS visit (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, owner BIGINT NOT NULL,
        pet BIGINT NOT NULL REFERENCES pet, date TEXT NOT NULL, description TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS visit_owner ON visit (owner);";

/// Where the database is.
pub(crate) struct InPostgres {
    connection: String,
}

impl InPostgres {
    /// Makes the tables if they are not there.
    pub(crate) fn open(connection: &str) -> Result<Self, Failure> {
        let this = Self { connection: connection.to_owned() };
        let (runtime, client) = this.connect()?;
        runtime.block_on(client.batch_execute(TABLES))?;
        Ok(this)
    }

    fn connect(&self) -> Result<(Runtime, Client), Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&self.connection, NoTls))?;
        runtime.spawn(connection);
        Ok((runtime, client))
    }
}

impl Clinic for InPostgres {
    fn desk(&self) -> Result<Box<dyn Desk>, Failure> {
        let (runtime, client) = self.connect()?;
        let prepare = |sql: &str| runtime.block_on(client.prepare(sql));
        let owners = "SELECT id, first, last, city, telephone FROM owner WHERE";
        let by_name = format!("{owners} last >= $1 AND ($2::TEXT IS NULL OR last < $2) ORDER BY last LIMIT {PAGE}");
        let statements = Statements {
            count: prepare("SELECT COUNT(*) FROM owner")?,
            by_name: prepare(&by_name)?,
            by_id: prepare(&format!("{owners} id = $1"))?,
            pets: prepare("SELECT id, owner, name, kind, born FROM pet WHERE owner = $1 ORDER BY id")?,
            visits: prepare("SELECT owner, pet, date, description FROM visit WHERE owner = $1 ORDER BY date")?,
            visit: prepare(
                "INSERT INTO visit (owner, pet, date, description)
                 SELECT owner, id, $3, $4 FROM pet WHERE owner = $1 AND id = $2",
            )?,
            enrol: prepare("INSERT INTO owner VALUES ($1, $2, $3, $4, $5)")?,
            adopt: prepare("INSERT INTO pet VALUES ($1, $2, $3, $4, $5)")?,
        };
        Ok(Box::new(OfDatabase { runtime, client, statements }))
    }
}

struct Statements {
    count: Statement,
    by_name: Statement,
    by_id: Statement,
    pets: Statement,
    visits: Statement,
    visit: Statement,
    enrol: Statement,
    adopt: Statement,
}

/// A connection to the database.
struct OfDatabase {
    runtime: Runtime,
    client: Client,
    statements: Statements,
}

fn number(row: &Row, at: usize) -> Result<u64, Failure> {
    Ok(u64::try_from(row.try_get::<_, i64>(at)?)?)
}

fn owner_of(row: &Row) -> Result<Owner, Failure> {
    Ok(Owner {
        id: number(row, 0)?,
        first: row.try_get(1)?,
        last: row.try_get(2)?,
        city: row.try_get(3)?,
        telephone: row.try_get(4)?,
    })
}

impl Desk for OfDatabase {
    fn owners(&mut self) -> Result<u64, Failure> {
        number(&self.runtime.block_on(self.client.query_one(&self.statements.count, &[]))?, 0)
    }

    fn find(&mut self, last: &str) -> Result<Vec<Owner>, Failure> {
        let end = behind(last);
        let rows = self.runtime.block_on(self.client.query(&self.statements.by_name, &[&last, &end]))?;
        rows.iter().map(owner_of).collect()
    }

    fn owner(&mut self, id: u64) -> Result<Option<OwnerFile>, Failure> {
        let Ok(key) = i64::try_from(id) else { return Ok(None) };
        let Self { runtime, client, statements } = self;
        let Some(owner) = runtime.block_on(client.query_opt(&statements.by_id, &[&key]))? else { return Ok(None) };
        let mut pets = Vec::new();
        for row in runtime.block_on(client.query(&statements.pets, &[&key]))? {
            let pet = Pet {
                id: number(&row, 0)?,
                owner: number(&row, 1)?,
                name: row.try_get(2)?,
                kind: row.try_get(3)?,
                born: row.try_get(4)?,
            };
            pets.push(PetFile { pet, visits: Vec::new() });
        }
        for row in runtime.block_on(client.query(&statements.visits, &[&key]))? {
            let (owner, pet) = (number(&row, 0)?, number(&row, 1)?);
            let visit = Visit { owner, pet, date: row.try_get(2)?, description: row.try_get(3)? };
            if let Some(file) = pets.iter_mut().find(|file: &&mut PetFile| file.pet.id == pet) {
                file.visits.push(visit);
            }
        }
        Ok(Some(OwnerFile { owner: owner_of(&owner)?, pets }))
    }

    fn visit(&mut self, visit: &Visit) -> Result<bool, Failure> {
        let (Ok(owner), Ok(pet)) = (i64::try_from(visit.owner), i64::try_from(visit.pet)) else { return Ok(false) };
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] = [&owner, &pet, &visit.date, &visit.description];
        Ok(self.runtime.block_on(self.client.execute(&self.statements.visit, &values))? == 1)
    }

    fn enrol(&mut self, owner: &Owner, pets: &[Pet]) -> Result<(), Failure> {
        let Self { runtime, client, statements } = self;
        let id = i64::try_from(owner.id)?;
        runtime.block_on(async {
            let transaction = client.transaction().await?;
            let Owner { first, last, city, telephone, .. } = owner;
            transaction.execute(&statements.enrol, &[&id, first, last, city, telephone]).await?;
            for pet in pets {
                let Pet { name, kind, born, .. } = pet;
                transaction.execute(&statements.adopt, &[&i64::try_from(pet.id)?, &id, name, kind, born]).await?;
            }
            Ok(transaction.commit().await?)
        })
    }
}
