//! Deleting points, dropping series and databases.
//!
//! May use: `write`, partitions. Must not know: protocols.

use ::series::{Range, Select};
use journal::Position;

use super::write::{Guard, Writing};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Inner;

/// What becomes of the series that are meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Removal {
    Points(Range),
    Series,
}

impl Inner {
    /// Removes from all series that are meant, as one batch; how many they are.
    pub(super) fn remove_series(&self, select: &Select, removal: Removal) -> Result<(Position, u64)> {
        self.remove_and(select, removal, |_| ())
    }

    fn remove_and(
        &self,
        select: &Select,
        removal: Removal,
        also: impl FnOnce(&mut Writing<'_>),
    ) -> Result<(Position, u64)> {
        self.check_open()?;
        self.make_room_for_series()?;
        let mut writing = self.everywhere()?;
        let mut count = 0;
        for guard in &mut writing.guards {
            for number in guard.engine.select(select) {
                match removal {
                    Removal::Points(range) => guard.stage.delete(number, range),
                    Removal::Series => guard.stage.drop_series(number),
                }
                count += 1;
            }
        }
        also(&mut writing);
        Ok((self.commit_series(&mut writing)?, count))
    }

    fn everywhere(&self) -> Result<Writing<'_>> {
        let guards = self.partitions.iter().map(Guard::lock).collect::<Result<_>>()?;
        Ok(Writing::of(guards))
    }

    pub(super) fn create_database(&self, name: &str) -> Result<Position> {
        self.check_open()?;
        if name.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "the name of a database is not empty"));
        }
        self.make_room_for_series()?;
        let Some(first) = self.partitions.first() else { return Ok(Position::ZERO) };
        let mut guard = Guard::lock(first)?;
        if !guard.engine.created_databases().contains(name) {
            guard.stage.database(name);
        }
        let mut writing = Writing::of(vec![guard]);
        self.commit_series(&mut writing)
    }

    pub(super) fn drop_database(&self, name: &str) -> Result<(Position, u64)> {
        let select = Select { database: name.to_owned(), ..Select::default() };
        let drop_series = |forgotten: Option<Position>| {
            let (position, count) = self.remove_and(&select, Removal::Series, |writing| {
                if let Some(first) = writing.guards.first_mut()
                    && first.engine.created_databases().contains(name)
                {
                    first.stage.forget(name);
                }
            })?;
            Ok((position.max(forgotten.unwrap_or(Position::ZERO)), count))
        };
        // First the queries: what is left of a drop that was cut short must not write to the database again.
        self.drop_continuous_queries(|query| query.database == name, drop_series)
    }
}
