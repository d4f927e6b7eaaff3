//! The live bytes that are counted with every change are those that a reading of the whole journal counts.
//!
//! May use: the store's public surface. Must not know: the model.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast::{Damage, DamageKind, Inspection, Position, Store};

use crate::run::{Check, violation};
use crate::world::{DIR, Sim};

/// A store that was just opened: everything that it applied is on its disk.
pub(crate) fn check(store: &Store, sim: &Sim) -> Check<()> {
    let failed = |error: holdfast::Error| violation("live", error.to_string());
    let mut inspection = Inspection::in_files(&sim.disk, Path::new(DIR)).map_err(failed)?;
    inspection.verify(&mut |_| ()).map_err(failed)?;
    // What a crash took of the log's end is no damage that anybody did; the header of the segment after it says how the
    // chain would have gone on.
    let is_damage = |damage: &&Damage| {
        !matches!(damage.kind, DamageKind::Discarded | DamageKind::Torn | DamageKind::Chain | DamageKind::Footer)
    };
    let all = inspection.damage();
    let damage: Vec<&Damage> = all.iter().filter(is_damage).collect();
    if !damage.is_empty() {
        return Err(violation(
            "live",
            format!("damage where none was done: {damage:?}, the store says {:?}", store.stats().damage),
        ));
    }
    let read = inspection.segments().into_iter().map(|segment| (segment.base, segment.live_bytes.unwrap_or(0)));
    let read: BTreeMap<Position, u64> = read.filter(|(_, bytes)| *bytes > 0).collect();
    let counted = store.stats().segment_live.into_iter().map(|segment| (segment.base, segment.live_bytes));
    let counted: BTreeMap<Position, u64> = counted.filter(|(_, bytes)| *bytes > 0).collect();
    if read == counted && counted.values().sum::<u64>() == store.stats().live_bytes {
        return Ok(());
    }
    Err(violation("live", format!("the journal says {read:?}, the store counts {counted:?}")))
}
