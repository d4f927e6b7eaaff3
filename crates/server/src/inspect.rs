//! `holdfast inspect DIR`: what a store's files hold, and which are damaged. The server must not be running.
//!
//! Opening does what every start does: an unfinished end is cut, the last segment is sealed, the ledger catches up. Nothing
//! else is changed: expired objects stay.
//!
//! May use: the facade, `verify`. Must not know: file formats.

use std::path::Path;
use std::process::ExitCode;

use holdfast::{Damage, DamageKind, Limits, Options, Stats, Store, World};

use crate::announce::describe;
use crate::cli::InspectArguments;
use crate::failure::Failure;
use crate::output::{Bytes, say};
use crate::progress;
use crate::verify::{Verified, verify};

/// Prints what there is; exit code 1 when something is damaged.
pub(crate) fn inspect(arguments: &InspectArguments) -> Result<ExitCode, Failure> {
    let dir = &arguments.dir;
    if !dir.join("store").exists() && !dir.join("journal").exists() {
        return Err(Failure::NoStore(dir.clone()));
    }
    let limits = Limits::default();
    let store = open(dir, World::real(dir, &limits), limits, "replaying the journal")?;
    let mut stats = store.stats();
    overview(dir, &stats);
    let digest = arguments.verify.then(|| store.digest());
    store.close().map_err(Failure::Close)?;
    // Only now the directory may be opened again.
    drop(store);
    let mut is_sound = true;
    if let Some(digest) = digest {
        let Verified { damage, ledger } = verify(dir, digest)?;
        stats.damage = damage;
        is_sound = ledger.is_sound();
        say(format_args!("verified   every record of the journal was read; {ledger}"));
    }
    for one in &stats.damage {
        say(format_args!("{:<10} {}", if is_loss(one) { "damage" } else { "unfinished" }, describe(one)));
    }
    let lost = stats.damage.iter().filter(|one| is_loss(one)).count();
    if lost == 0 && is_sound {
        say("damage     none");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

/// Opens the store in `world` without threads, so that nothing happens behind our back.
pub(crate) fn open(dir: &Path, world: World, limits: Limits, job: &'static str) -> Result<Store, Failure> {
    let options = Options { limits, progress: Some(progress::show(job)), ..Options::default() };
    let opened = Store::open_in(&World { threads: false, ..world }, dir, options);
    opened.map_err(|error| Failure::Open { dir: dir.to_owned(), error })
}

/// Bytes behind a power cut's hole were never synced, and so never promised: they are worth a line and are no damage.
fn is_loss(damage: &Damage) -> bool {
    damage.kind != DamageKind::Discarded
}

fn overview(dir: &Path, stats: &Stats) {
    let percent = |part: u64, of: u64| part as f64 * 100.0 / of.max(1) as f64;
    say(format_args!("store      {}", dir.display()));
    say(format_args!("partitions {}", stats.partitions));
    say(format_args!("position   {}", stats.watermarks.appended));
    say(format_args!("journal    {} in {} segments", Bytes(stats.journal_bytes), stats.segments));
    let live = percent(stats.live_bytes, stats.journal_bytes);
    say(format_args!("live       {} ({live:.1} %)", Bytes(stats.live_bytes)));
    say(format_args!("{:<21} {:>12} {:>12} {:>7}  state", "segment", "bytes", "live bytes", "live"));
    for segment in &stats.segment_live {
        let name = format!("{:016x}.seg", segment.base.get());
        let live = percent(segment.live_bytes, segment.bytes);
        let state = if segment.sealed { "sealed" } else { "open" };
        say(format_args!("{name:<21} {:>12} {:>12} {live:>5.1} %  {state}", segment.bytes, segment.live_bytes));
    }
}
