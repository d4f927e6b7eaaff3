//! Who may listen where: beyond this machine only with a password or TLS, or when told so in words.
//!
//! May use: nothing. Must not know: how doors listen.

use std::net::SocketAddr;

/// What protects a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Protection {
    /// There are users, so that clients must authenticate.
    pub(crate) users: bool,
    /// Connections are encrypted.
    pub(crate) tls: bool,
    /// The operator said that neither is needed.
    pub(crate) waived: bool,
}

/// What there is to say about an address that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Fine,
    /// The operator should know this.
    Warn(&'static str),
}

/// Whether a door may listen here.
///
/// # Errors
/// Why not, and what to do.
pub(crate) fn judge(listen: SocketAddr, protection: Protection, door: &str) -> Result<Verdict, String> {
    if listen.ip().to_canonical().is_loopback() {
        return Ok(Verdict::Fine);
    }
    match protection {
        Protection { users: true, tls: true, .. } => Ok(Verdict::Fine),
        Protection { users: true, .. } => Ok(Verdict::Warn("passwords and data travel unencrypted")),
        Protection { tls: true, .. } => {
            Ok(Verdict::Warn("there are no users: everybody who reaches this address may do everything"))
        }
        Protection { waived: true, .. } => Ok(Verdict::Warn(
            "there are neither users nor TLS: everybody who reaches this address may read and change everything",
        )),
        Protection { .. } => Err(format!(
            "{listen} can be reached from other machines, and there is neither a password nor TLS; add [[users]] or \
             [{door}.tls] to the configuration file, listen on 127.0.0.1, or say allow_insecure_bind = true \
             (--allow-insecure-bind)"
        )),
    }
}

/// Whether a door may listen here that knows neither passwords nor TLS.
///
/// # Errors
/// Why not, and what to do.
pub(crate) fn judge_open(listen: SocketAddr, waived: bool) -> Result<Verdict, String> {
    if listen.ip().to_canonical().is_loopback() {
        return Ok(Verdict::Fine);
    }
    if waived {
        return Ok(Verdict::Warn("everybody who reaches this address may write points: lines carry no password"));
    }
    Err(format!(
        "{listen} can be reached from other machines, and this door knows neither passwords nor TLS; listen on 127.0.0.1, or \
         say allow_insecure_bind = true (--allow-insecure-bind)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(listen: &str, users: bool, tls: bool, waived: bool) -> Result<Verdict, String> {
        judge(listen.parse().unwrap(), Protection { users, tls, waived }, "resp")
    }

    #[test]
    fn this_machine_needs_no_protection() {
        for listen in ["127.0.0.1:7411", "127.9.9.9:0", "[::1]:7411", "[::ffff:127.0.0.1]:7411"] {
            assert_eq!(judged(listen, false, false, false), Ok(Verdict::Fine), "{listen}");
        }
    }

    #[test]
    fn a_door_without_passwords_is_for_this_machine_unless_told_otherwise() {
        let judged = |listen: &str, waived| judge_open(listen.parse().unwrap(), waived);
        assert_eq!(judged("127.0.0.1:7413", false), Ok(Verdict::Fine));
        assert!(matches!(judged("0.0.0.0:7413", true), Ok(Verdict::Warn(_))));
        assert!(judged("0.0.0.0:7413", false).unwrap_err().contains("knows neither passwords nor TLS"));
    }

    #[test]
    fn other_machines_do() {
        for listen in ["0.0.0.0:7411", "[::]:7411", "192.168.1.2:7411", "[::ffff:10.0.0.1]:7411", "[fe80::1]:7411"] {
            let refused = judged(listen, false, false, false).unwrap_err();
            assert!(refused.starts_with(&format!("{listen} can be reached from other machines")), "{refused}");
            assert!(refused.contains("[resp.tls]") && refused.contains("--allow-insecure-bind"), "{refused}");
            assert_eq!(judged(listen, true, true, false), Ok(Verdict::Fine));
            for (users, tls, waived) in [(true, false, false), (false, true, false), (false, false, true)] {
                assert!(matches!(judged(listen, users, tls, waived), Ok(Verdict::Warn(_))), "{listen}");
            }
        }
    }
}
