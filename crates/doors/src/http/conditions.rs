//! When a request is to be carried out: `If-Match`, `If-None-Match`, `If-Modified-Since`, `If-Unmodified-Since` (RFC 9110,
//! section 13) and Riak's `X-Riak-Vclock`.
//!
//! An object's version is its entity tag, as 16 hexadecimal digits in quotes, and its vector clock, as base64 of `h` and
//! the version in 8 bytes, big-endian; clients hand both back as they got them.
//!
//! May use: `failure`, `base64`. Must not know: how objects are read.

use axum::http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use axum::http::{HeaderMap, StatusCode};
use holdfast::Position;

use super::base64;
use super::failure::Failure;

/// The header with the version.
pub(crate) const VCLOCK: &str = "x-riak-vclock";
const VCLOCK_KIND: u8 = b'h';
const STALE: &str = "the object has changed since the X-Riak-Vclock that was sent: read it again";

/// The entity tag of a version.
pub(crate) fn tag(version: Position) -> String {
    format!("\"{:016x}\"", version.get())
}

/// The vector clock of a version.
pub(crate) fn vclock(version: Position) -> String {
    let mut bytes = vec![VCLOCK_KIND];
    bytes.extend_from_slice(&version.get().to_be_bytes());
    base64::encode(&bytes)
}

fn parse_vclock(text: &[u8]) -> Option<Position> {
    let bytes = base64::decode(text.trim_ascii())?;
    let (kind, version) = bytes.split_first()?;
    let version = version.try_into().ok().filter(|_| *kind == VCLOCK_KIND)?;
    Some(Position::new(u64::from_be_bytes(version)))
}

/// The entity tags of one header.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    /// `*`: any version of an object that is there.
    Any,
    /// These, each with whether it is weak; a tag that is none of ours matches nothing.
    These(Vec<(bool, Option<u64>)>),
}

/// All conditions of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    matches: Option<Tags>,
    none_match: Option<Tags>,
    modified_since_s: Option<u64>,
    unmodified_since_s: Option<u64>,
    vclock: Option<Position>,
}

/// What conditions look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) version: Position,
    pub(crate) modified_ms: u64,
}

/// What a reading request is to be answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Answer,
    NotModified,
    Failed,
}

impl Conditions {
    /// # Errors
    /// 400 when one is badly formed. A date that is none is ignored, as RFC 9110 wants it.
    pub(crate) fn parse(headers: &HeaderMap) -> Result<Self, Failure> {
        let date = |name| {
            let text = headers.get(name)?.to_str().ok()?;
            let time = httpdate::parse_http_date(text).ok()?;
            time.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
        };
        let vclock = headers.get(VCLOCK).map(|value| {
            parse_vclock(value.as_bytes()).ok_or_else(|| Failure::bad("X-Riak-Vclock is none that this server made"))
        });
        Ok(Conditions {
            matches: tags(headers, IF_MATCH.as_str())?,
            none_match: tags(headers, IF_NONE_MATCH.as_str())?,
            modified_since_s: date(IF_MODIFIED_SINCE),
            unmodified_since_s: date(IF_UNMODIFIED_SINCE),
            vclock: vclock.transpose()?,
        })
    }

    /// Only if there is no such object.
    pub(crate) fn absent() -> Self {
        Conditions { none_match: Some(Tags::Any), ..Conditions::default() }
    }

    /// The conditions that every request has to meet.
    fn is_met(&self, now: Option<State>) -> bool {
        match &self.matches {
            Some(tags) => now.is_some_and(|now| tags.contain(now.version, false)),
            None => self.unmodified_since_s.is_none_or(|since| now.is_none_or(|now| now.modified_ms / 1000 <= since)),
        }
    }

    /// Judges a request that reads an object which is there.
    pub(crate) fn read(&self, now: State) -> Verdict {
        if !self.is_met(Some(now)) {
            return Verdict::Failed;
        }
        let is_known = match &self.none_match {
            Some(tags) => tags.contain(now.version, true),
            None => self.modified_since_s.is_some_and(|since| now.modified_ms / 1000 <= since),
        };
        if is_known { Verdict::NotModified } else { Verdict::Answer }
    }

    /// Judges a request that changes an object, by what there is now.
    ///
    /// # Errors
    /// 409 when the vector clock is not that of the object, 412 when another condition does not hold.
    pub(crate) fn write(&self, now: Option<State>) -> Result<(), Failure> {
        if self.vclock.is_some_and(|wanted| now.is_none_or(|now| now.version != wanted)) {
            return Err(Failure::new(StatusCode::CONFLICT, STALE));
        }
        let is_excluded =
            self.none_match.as_ref().is_some_and(|tags| now.is_some_and(|now| tags.contain(now.version, true)));
        if is_excluded || !self.is_met(now) { Err(Failure::precondition()) } else { Ok(()) }
    }

    /// Whether an object that is not there fails a condition, rather than just not being there.
    pub(crate) fn needs_object(&self) -> bool {
        self.matches.is_some()
    }
}

impl Tags {
    fn contain(&self, version: Position, weak_counts: bool) -> bool {
        match self {
            Tags::Any => true,
            Tags::These(tags) => {
                tags.iter().any(|(is_weak, tag)| (weak_counts || !is_weak) && *tag == Some(version.get()))
            }
        }
    }
}

/// The entity tags of a header, over all its lines.
fn tags(headers: &HeaderMap, name: &'static str) -> Result<Option<Tags>, Failure> {
    let bad = || Failure::bad(format!("{name} is * or entity tags with commas between"));
    let mut found = None;
    for line in headers.get_all(name) {
        let text = line.to_str().map_err(|_| bad())?;
        for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
            if tag == "*" {
                return Ok(Some(Tags::Any));
            }
            let (is_weak, quoted) = tag.strip_prefix("W/").map_or((false, tag), |tag| (true, tag));
            // Clients of old leave the quotes away.
            let opaque = match quoted.strip_prefix('"') {
                Some(rest) => rest.strip_suffix('"').ok_or_else(bad)?,
                None => quoted,
            };
            if opaque.contains('"') {
                return Err(bad());
            }
            let version = Some(opaque).filter(|opaque| opaque.len() == 16);
            let version = version.and_then(|opaque| u64::from_str_radix(opaque, 16).ok());
            let Tags::These(tags) = found.get_or_insert_with(|| Tags::These(Vec::new())) else { continue };
            tags.push((is_weak, version));
        }
        if found.is_none() {
            return Err(bad());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;
    use proptest::prelude::*;

    use super::*;

    const NOW: State = State { version: Position::new(0xabc), modified_ms: 784_111_777_999 };
    const TAG: &str = "\"0000000000000abc\"";

    fn of(headers: &[(&'static str, &str)]) -> Result<Conditions, Failure> {
        let pairs =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a header")));
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        Conditions::parse(&map)
    }

    #[test]
    fn reading_answers_as_the_rfc_says() {
        let other = "\"0000000000000abd\"";
        let (before, same) = ("Sun, 06 Nov 1994 08:49:36 GMT", "Sun, 06 Nov 1994 08:49:37 GMT");
        for (headers, wanted) in [
            (&[][..], Verdict::Answer),
            (&[("if-none-match", TAG)], Verdict::NotModified),
            (&[("if-none-match", "W/\"0000000000000abc\"")], Verdict::NotModified),
            (&[("if-none-match", "*")], Verdict::NotModified),
            (&[("if-none-match", other)], Verdict::Answer),
            (&[("if-none-match", "\"x\", \"0000000000000abc\"")], Verdict::NotModified),
            (&[("if-none-match", other), ("if-none-match", TAG)], Verdict::NotModified),
            (&[("if-match", TAG)], Verdict::Answer),
            (&[("if-match", "0000000000000abc")], Verdict::Answer),
            (&[("if-match", "*")], Verdict::Answer),
            (&[("if-match", other)], Verdict::Failed),
            (&[("if-match", "W/\"0000000000000abc\"")], Verdict::Failed),
            (&[("if-match", TAG), ("if-none-match", TAG)], Verdict::NotModified),
            (&[("if-modified-since", same)], Verdict::NotModified),
            (&[("if-modified-since", before)], Verdict::Answer),
            (&[("if-modified-since", "yesterday")], Verdict::Answer),
            (&[("if-modified-since", same), ("if-none-match", other)], Verdict::Answer),
            (&[("if-unmodified-since", same)], Verdict::Answer),
            (&[("if-unmodified-since", before)], Verdict::Failed),
        ] {
            assert_eq!(of(headers).unwrap().read(NOW), wanted, "{headers:?}");
        }
    }

    #[test]
    fn writing_is_refused_unless_everything_holds() {
        let (clock, other) = (vclock(NOW.version), vclock(Position::new(1)));
        for (headers, there, absent) in [
            (&[][..], 0, 0),
            (&[("if-none-match", "*")], 412, 0),
            (&[("if-none-match", TAG)], 412, 0),
            (&[("if-none-match", "\"x\"")], 0, 0),
            (&[("if-match", "*")], 0, 412),
            (&[("if-match", TAG)], 0, 412),
            (&[("if-match", "\"x\"")], 412, 412),
            (&[("x-riak-vclock", &clock)], 0, 409),
            (&[("x-riak-vclock", &other)], 409, 409),
            (&[("if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT")], 0, 0),
            (&[("if-unmodified-since", "Sun, 06 Nov 1994 08:49:36 GMT")], 412, 0),
        ] {
            let conditions = of(headers).unwrap();
            let status = |now| conditions.write(now).map_or_else(|failure| failure.status(), |()| 0);
            assert_eq!((status(Some(NOW)), status(None)), (there, absent), "{headers:?}");
        }
        assert_eq!(Conditions::absent().write(Some(NOW)).unwrap_err().status(), 412);
        assert!(Conditions::absent().write(None).is_ok());
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for (name, value) in [
            ("if-match", ""),
            ("if-match", " , "),
            ("if-match", "\"open"),
            ("if-none-match", "\"a\"b\""),
            ("x-riak-vclock", ""),
            ("x-riak-vclock", "a85hYGBgzGDKBVIcypz/fgYHrT6TwZTInMfKcMOA5xxfFgA="),
            ("x-riak-vclock", "not base64"),
        ] {
            assert_eq!(of(&[(name, value)]).unwrap_err().status(), 400, "{name}: {value}");
        }
    }

    proptest! {
        #[test]
        fn every_version_comes_back_from_its_vector_clock(version in any::<u64>()) {
            let version = Position::new(version);
            prop_assert_eq!(parse_vclock(vclock(version).as_bytes()), Some(version));
            let tags = of(&[("if-match", &tag(version))]).unwrap();
            prop_assert_eq!(tags.read(State { version, modified_ms: 0 }), Verdict::Answer);
        }
    }
}
