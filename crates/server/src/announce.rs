//! What `serve` says when it has started: where everything is, what is in force, what is damaged.
//!
//! The lines are for people, and stable enough for scripts: a word, blanks, a value; `ready` comes last.
//!
//! May use: `config`, the facade. Must not know: how doors are opened.

use std::net::{IpAddr, SocketAddr};

use holdfast::{Damage, Store};

use crate::config::Config;
use crate::output::say;

/// Damaged ranges that are listed at start; `holdfast inspect` lists all.
const DAMAGE_LINES_MAX: usize = 100;

/// Where the doors are.
pub(crate) struct Doors {
    pub(crate) resp: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) line: Option<SocketAddr>,
    pub(crate) udp: Option<SocketAddr>,
}

/// Says everything but `ready`.
pub(crate) fn announce(config: &Config, store: &Store, doors: &Doors) {
    let Doors { resp, http, line, udp } = *doors;
    say(format_args!("holdfast {}", env!("CARGO_PKG_VERSION")));
    entry("data", &store.dir().display().to_string());
    entry("durability", &config.durability.to_string());
    entry("resp", &resp.to_string());
    entry("http", &http.to_string());
    entry("line", &line.map_or_else(|| config.line.place(&config.users), |line| line.to_string()));
    if let Some(udp) = udp {
        entry("udp", &udp.to_string());
    }
    let tls: Vec<&str> = [("resp", &config.resp.tls), ("http", &config.http.tls)]
        .into_iter()
        .filter_map(|(door, tls)| tls.as_ref().map(|_| door))
        .collect();
    if !tls.is_empty() {
        entry("tls", &tls.join(", "));
    }
    if !config.xa.profiles.is_empty() {
        entry("recovery", &config.xa.describe());
    }
    damage(&store.stats().damage).iter().for_each(say);
    say(format_args!("try: {}", example(resp, config.users.is_required(), config.resp.tls.is_some())));
}

fn entry(name: &str, value: &str) {
    say(format_args!("{name:<10} {value}"));
}

/// A line for each damaged range, and one more when there are too many.
fn damage(damage: &[Damage]) -> Vec<String> {
    let mut lines: Vec<String> =
        damage.iter().take(DAMAGE_LINES_MAX).map(|one| format!("damage     {}", describe(one))).collect();
    if let Some(more) = damage.len().checked_sub(DAMAGE_LINES_MAX).filter(|more| *more > 0) {
        lines.push(format!("damage     and {more} more: see `holdfast inspect`"));
    }
    lines
}

/// One damaged range: file, offset, bytes, kind and reason.
pub(crate) fn describe(damage: &Damage) -> String {
    let Damage { kind, path, offset, bytes, reason, .. } = damage;
    let kind = format!("{kind:?}").to_lowercase();
    format!("{} offset {offset} bytes {bytes} ({kind}): {reason}", path.display())
}

/// A command that works against this server.
fn example(resp: SocketAddr, users: bool, tls: bool) -> String {
    let host = match resp.ip() {
        ip if ip.is_unspecified() || ip == IpAddr::from([127, 0, 0, 1]) => String::new(),
        ip => format!(" -h {ip}"),
    };
    let tls = if tls { " --tls --cacert CERTIFICATE" } else { "" };
    let users = if users { " --user NAME --askpass" } else { "" };
    format!("redis-cli{host} -p {}{tls}{users} SET greeting hello", resp.port())
}

#[cfg(test)]
mod tests {
    use holdfast::{DamageKind, Position};

    use super::*;

    #[test]
    fn the_example_fits_the_server() {
        for (resp, users, tls, wanted) in [
            ("127.0.0.1:7411", false, false, "redis-cli -p 7411 SET greeting hello"),
            ("0.0.0.0:1", true, false, "redis-cli -p 1 --user NAME --askpass SET greeting hello"),
            ("[::1]:2", false, true, "redis-cli -h ::1 -p 2 --tls --cacert CERTIFICATE SET greeting hello"),
        ] {
            assert_eq!(example(resp.parse().unwrap(), users, tls), wanted);
        }
    }

    #[test]
    fn much_damage_is_cut_short() {
        let one = Damage {
            kind: DamageKind::Record,
            path: "journal/0.seg".into(),
            offset: 96,
            bytes: 10,
            position: Position::new(96),
            reason: "checksum mismatch",
        };
        assert_eq!(
            damage(std::slice::from_ref(&one)),
            ["damage     journal/0.seg offset 96 bytes 10 (record): checksum mismatch"]
        );
        let lines = damage(&vec![one; 103]);
        assert_eq!(
            (lines.len(), lines.last().map(String::as_str)),
            (101, Some("damage     and 3 more: see `holdfast inspect`"))
        );
    }
}
