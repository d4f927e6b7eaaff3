//! Whole queries within a transaction: over what is committed, without what it has taken or changed, and what it has made of that.
//!
//! May use: `within`. Must not know: protocols.

use ::space::{Document, GroupLimits, Groups, Value};

use super::super::prepared::ToQuery;
use super::super::select::{add, first_of};
use super::super::wanted::Wanted;
use super::{ReadLock, Within};
use crate::error::Result;

impl Within<'_> {
    /// Answers a whole query as this transaction would have it: [`Entries::select`](super::super::Entries::select). Nothing is locked; without
    /// ORDER BY entries that it has written itself come last. EXPLAIN is about what is committed.
    ///
    /// # Errors
    /// As there.
    pub fn select(&mut self, query: &(impl ToQuery + ?Sized), parameters: &[Value]) -> Result<Vec<Document>> {
        self.select_up_to(query, parameters, usize::MAX)
    }

    /// As [`Within::select`], and no more than `max` rows: then the others are not gathered.
    ///
    /// # Errors
    /// As [`Within::select`].
    pub fn select_up_to(
        &mut self,
        query: &(impl ToQuery + ?Sized),
        parameters: &[Value],
        max: usize,
    ) -> Result<Vec<Document>> {
        self.begin()?;
        let query = self.entries.asked(query, parameters)?;
        let wanted = Wanted::of_query(query.clone());
        if query.explain {
            return self.entries.explained(&wanted);
        }
        if !query.is_grouped() {
            let entries = self.read_many(&wanted, ReadLock::None, max)?;
            return self.entries.rows(&query, &entries);
        }
        let (mut groups, mut held) = (Groups::new(GroupLimits::default()), self.entries.inner().query_memory.run());
        let others = self.others(&wanted);
        let newest = self.entries.each_shown(&others, &mut |document| add(&mut groups, &query, document, &mut held))?;
        let is_durable = self.entries.is_durable();
        self.show(is_durable.then_some(newest))?;
        for (document, ..) in self.own_all(&wanted) {
            add(&mut groups, &query, &document, &mut held)?;
        }
        first_of(groups, &query, max)
    }
}
