//! `holdfast inspect DIR`: what a store's files hold, and which are damaged. Changes nothing, and works beside a server.
//!
//! Only `--ledger` opens the store, which does what every start does: see `verify`.
//!
//! May use: the facade, `verify`. Must not know: file formats.

use std::path::Path;
use std::process::ExitCode;

use holdfast::{Count, Damage, DamageKind, Inspection, Limits, Options, Position, Store, World};

use crate::announce::describe;
use crate::cli::{InspectArguments, Range};
use crate::failure::Failure;
use crate::output::{Bytes, say};
use crate::progress;
use crate::verify::verify_ledger;

/// Prints what there is; exit code 1 when something is damaged.
pub(crate) fn inspect(arguments: &InspectArguments) -> Result<ExitCode, Failure> {
    let dir = &arguments.dir;
    if !dir.join("store").exists() && !dir.join("journal").exists() {
        return Err(Failure::NoStore(dir.clone()));
    }
    let mut inspection = Inspection::of(dir).map_err(Failure::Read)?;
    if let Some(Range { from, to }) = arguments.dump {
        let dumped = inspection.dump(Position::new(from), Position::new(to), &mut |line| say(line));
        dumped.map_err(Failure::Read)?;
        return Ok(exit(&inspection.damage(), true));
    }
    let verified = match arguments.verify {
        true => {
            let shown = progress::show("reading the journal");
            Some(inspection.verify(&mut |progress| shown(progress)).map_err(Failure::Read)?)
        }
        false => None,
    };
    overview(dir, &inspection);
    if let Some(verified) = verified {
        let holdfast::Verified { batches, bytes, segments } = verified;
        let bytes = Bytes(bytes);
        say(format_args!("verified   {batches} batches, {bytes}; {segments} sealed segments whole, every chain"));
    }
    for one in &inspection.damage() {
        say(format_args!("{:<10} {}", if is_loss(one) { "damage" } else { "unfinished" }, describe(one)));
    }
    let mut is_sound = true;
    if let Some(through) = inspection.missing() {
        is_sound = false;
        say(format_args!(
            "missing    files at the end of the journal: a ledger was written out up to position {through}. The store does not open: put them \
             back, or restore a backup into another folder"
        ));
    }
    if dir.join("restoring").exists() {
        is_sound = false;
        say("unfinished a restore into it was interrupted: remove the folder and restore again");
    }
    if arguments.ledger && is_sound {
        let ledger = verify_ledger(dir)?;
        is_sound = ledger.is_sound();
        say(format_args!("ledger     {ledger}"));
    }
    if is_sound && !inspection.damage().iter().any(is_loss) {
        say(if arguments.verify { "damage     none" } else { "damage     none seen; --verify reads everything" });
    }
    Ok(exit(&inspection.damage(), is_sound))
}

fn exit(damage: &[Damage], is_sound: bool) -> ExitCode {
    if is_sound && !damage.iter().any(is_loss) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Opens the store in `world` without threads, so that nothing happens behind our back.
pub(crate) fn open(dir: &Path, world: World, limits: Limits, job: &'static str) -> Result<Store, Failure> {
    open_with(dir, world, Options { limits, ..Options::default() }, job)
}

/// As [`open`], with more than limits to say.
pub(crate) fn open_with(dir: &Path, world: World, options: Options, job: &'static str) -> Result<Store, Failure> {
    let options = Options { progress: Some(progress::show(job)), ..options };
    let opened = Store::open_in(&World { threads: false, ..world }, dir, options);
    opened.map_err(|error| Failure::Open { dir: dir.to_owned(), error })
}

/// Bytes behind a power cut's hole were never synced, and so never promised; those behind the last intact record are open:
/// both are worth a line and are no damage.
fn is_loss(damage: &Damage) -> bool {
    !matches!(damage.kind, DamageKind::Discarded | DamageKind::Torn)
}

fn overview(dir: &Path, inspection: &Inspection) {
    let segments = inspection.segments();
    let percent = |part: u64, of: u64| part as f64 * 100.0 / of.max(1) as f64;
    let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    say(format_args!("store      {}", dir.display()));
    say(format_args!("identity   {:032x}", inspection.store()));
    say(format_args!("partitions {}", inspection.partitions()));
    say(format_args!("position   {}", inspection.end()));
    say(format_args!("journal    {} in {} segments", Bytes(bytes), segments.len()));
    let about = if inspection.count() == Some(Count::Estimated) { "about " } else { "" };
    match segments.iter().map(|segment| segment.live_bytes).sum::<Option<u64>>() {
        Some(live) => say(format_args!("live       {about}{} ({:.1} %)", Bytes(live), percent(live, bytes))),
        None => say("live       unknown without --verify"),
    }
    say(format_args!("{:<21} {:>12} {:>12} {:>7}  state", "segment", "bytes", "live bytes", "live"));
    for segment in &segments {
        let name = format!("{:016x}.seg", segment.base.get());
        let (live, ratio) = match segment.live_bytes {
            Some(live) => (live.to_string(), format!("{:.1} %", percent(live, segment.bytes))),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let state = if segment.sealed { "sealed".to_owned() } else { format!("open, {} used", segment.used_bytes) };
        let quarantined = match segment.damaged_bytes {
            0 => String::new(),
            bytes => format!(", {bytes} quarantined"),
        };
        say(format_args!("{name:<21} {:>12} {live:>12} {ratio:>7}  {state}{quarantined}", segment.bytes));
    }
}
