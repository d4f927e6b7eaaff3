//! Name and password from an `Authorization` header: Basic (RFC 7617) and Bearer (RFC 6750).
//!
//! A bearer token is `NAME:PASSWORD`; one without a colon is the password of the user `default`. Nothing here prints.
//!
//! May use: `base64`. Must not know: users, HTTP.

use super::base64;

/// The user whose password a bearer token without a name is.
const NAMELESS: &str = "default";

/// What a client says of itself; not verified.
#[derive(PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) name: Vec<u8>,
    pub(crate) password: Vec<u8>,
}

/// Reads a header's value; `None` when it is none of the two schemes or badly formed.
pub(crate) fn parse(header: &[u8]) -> Option<Credentials> {
    let blank = header.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = header.split_at_checked(blank)?;
    let token = rest.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"basic") {
        return split(&base64::decode(token)?);
    }
    // `Token` is what clients of InfluxDB send, with a name and a password as with `Bearer`.
    let is_token = scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"token");
    if is_token && !token.is_empty() {
        let nameless = || Credentials { name: NAMELESS.into(), password: token.to_vec() };
        return Some(split(token).unwrap_or_else(nameless));
    }
    None
}

fn split(text: &[u8]) -> Option<Credentials> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    Some(Credentials { name: text.get(..colon)?.to_vec(), password: text.get(colon + 1..)?.to_vec() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(header: &str) -> Option<(String, String)> {
        let text = |bytes| String::from_utf8(bytes).expect("the tests use text");
        parse(header.as_bytes()).map(|given| (text(given.name), text(given.password)))
    }

    #[test]
    fn both_schemes_are_understood_in_any_case() {
        let wanted = Some(("ada".to_owned(), "love:lace".to_owned()));
        assert_eq!(parsed("Basic YWRhOmxvdmU6bGFjZQ=="), wanted);
        assert_eq!(parsed("basic  YWRhOmxvdmU6bGFjZQ"), wanted);
        assert_eq!(parsed("Bearer ada:love:lace"), wanted);
        assert_eq!(parsed("Token ada:love:lace"), wanted);
        assert_eq!(parsed("BEARER secret"), Some(("default".to_owned(), "secret".to_owned())));
        assert_eq!(parsed("Basic Og=="), Some((String::new(), String::new())));
    }

    #[test]
    fn everything_else_is_refused() {
        for header in [
            "",
            "Basic",
            "Basic ",
            "Bearer",
            "Bearer ",
            "Digest x",
            "Basic YWRh",
            "Basic Y",
            "Basic YQ=",
            "Basic Y\u{e9}==",
            "Basic =YQ=",
        ] {
            assert!(parsed(header).is_none(), "{header}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(header in proptest::collection::vec(any::<u8>(), 0..64)) {
            parse(&header);
            let mut basic = b"Basic ".to_vec();
            basic.extend_from_slice(&header);
            parse(&basic);
        }
    }
}
