//! Libraries of scripts by name: text, which who runs scripts compiles.
//!
//! They are objects of a bucket of the store's own, written by ordinary batches: so they are durable, in backups, and moved by
//! compaction, without a line for them anywhere else. The key is the name, the value the text.
//!
//! May use: exclusive access. Must not know: what is in the text.

use kv::{Compression, FoldRange, Indexes, Metadata, Reading, Stored};

use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::{Committed, Exclusive, Scope};
use crate::kv::PutOptions;
use crate::staged::Change;
use crate::store::Store;

/// Hidden from users, as all whose names begin so.
const BUCKET: &[u8] = b"\0script";

/// Texts of scripts that the store keeps by name.
#[derive(Clone, Copy)]
pub struct Libraries<'a> {
    store: &'a Store,
}

impl Store {
    /// The texts of scripts that the store keeps by name.
    #[must_use]
    pub fn libraries(&self) -> Libraries<'_> {
        Libraries { store: self }
    }
}

impl Libraries<'_> {
    /// All names, in order, with their texts.
    ///
    /// # Errors
    /// `Corrupt` when one is damaged, `Closed`.
    pub fn list(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let inner = self.store.inner();
        inner.check_open()?;
        let mut list = Vec::new();
        let all = FoldRange::all(Some(BUCKET)).bounds(Reading::Query);
        for partition in &inner.partitions {
            let mut items = partition.reader.items(&all, 0);
            while let Some(item) = items.step()? {
                let name = String::from_utf8(item.key_in(BUCKET).to_vec());
                let name = name.map_err(|_| Error::new(ErrorKind::Corrupt, "the name of a library is not UTF-8"))?;
                list.push((name, partition.reader.value_of(&item)?.as_ref().to_vec()));
            }
        }
        list.sort_unstable();
        Ok(list)
    }

    /// Keeps a text under a name, in the place of what was there. Does not wait for durability.
    ///
    /// # Errors
    /// `Limit` when name or text is too large; as [`Exclusive::commit`].
    pub fn put(&self, name: &str, text: &[u8]) -> Result<Committed> {
        let inner = self.store.inner();
        let limits = &inner.options.limits;
        if name.len() > limits.key_bytes_max {
            return Err(Error::limit("name of the library", name.len(), limits.key_bytes_max));
        }
        inner.check_put(BUCKET, name.as_bytes(), text, &PutOptions::default())?;
        let mut exclusive = Exclusive::open(inner, &Scope::Keys(&[(BUCKET, name.as_bytes())]))?;
        let stored = Stored::new(text, Compression::None);
        let change = Change::Put { stored, metadata: Metadata::default(), indexes: Indexes::default(), expires_ms: 0 };
        exclusive.stage(BUCKET, name.as_bytes(), change)?;
        exclusive.commit()
    }

    /// Forgets these names, all or none; those that are not there too. Does not wait for durability.
    ///
    /// # Errors
    /// As [`Exclusive::commit`].
    pub fn remove(&self, names: &[&str]) -> Result<Committed> {
        let keys: Vec<(&[u8], &[u8])> = names.iter().map(|name| (BUCKET, name.as_bytes())).collect();
        let mut exclusive = Exclusive::open(self.store.inner(), &Scope::Keys(&keys))?;
        for (bucket, key) in keys {
            exclusive.stage(bucket, key, Change::Delete)?;
        }
        exclusive.commit()
    }
}
