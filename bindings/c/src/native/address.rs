//! Where a MariaDB server is: a URL, or `key=value` pairs.
//!
//!   mysql://user:password@host:3306/database?socket=/run/mysqld/mysqld.sock
//!   host=..;port=..;socket=..;user=..;password=..;database=..;ssl-ca=..;ssl-cert=..;ssl-key=..
//!
//! A URL has the last three, and `socket`, behind its `?`. With `ssl-ca`, a PEM file of those who may have signed the server's
//! certificate, there is no connection but by TLS to a server that is verified, its name included; `ssl-cert` and `ssl-key`
//! are the program's own.
//!
//! In a URL `%` and two hexadecimal digits stand for a byte. In pairs no value has a `;` in it: what follows is taken for the
//! next pair, and is not shown, because it may be the rest of a password.
//!
//! May use: `native` types. Must not know: connections.

use std::ffi::CString;

use super::Failure;

const PAIRS: &str = "key=value; pairs with the keys host, port, socket, user, password, database, ssl-ca, ssl-cert and ssl-key; \
                     a password with a ; in it fits into the form mysql://user:password@host:port/database, with %3B in its place";

/// Parts that are not said are left to the client library.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: Option<CString>,
    pub(crate) socket: Option<CString>,
    pub(crate) user: Option<CString>,
    pub(crate) password: Option<CString>,
    pub(crate) database: Option<CString>,
    pub(crate) port: u16,
    pub(crate) tls: Option<Tls>,
}

/// Files of certificates.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) authorities: CString,
    pub(crate) certificate: Option<CString>,
    pub(crate) key: Option<CString>,
}

impl Address {
    /// Reads an open string. What is wrong is said without showing any of it that may be a password.
    pub(crate) fn parse(info: &str) -> Result<Self, Failure> {
        let parsed = match info.strip_prefix("mysql://") {
            Some(url) => Self::of_url(url),
            None => Self::of_pairs(info),
        };
        parsed.and_then(Self::checked).map_err(|text| Failure::Refused { state: "HY000".to_owned(), number: 0, text })
    }

    fn checked(self) -> Result<Self, String> {
        match &self.tls {
            Some(tls) if tls.authorities.is_empty() => Err("beside ssl-cert and ssl-key there is an ssl-ca".to_owned()),
            Some(tls) if tls.certificate.is_some() != tls.key.is_some() => {
                Err("ssl-cert and ssl-key stand together".to_owned())
            }
            Some(_) if self.socket.is_some() => {
                Err("TLS needs a host that is reached over TCP, not a socket".to_owned())
            }
            _ => Ok(self),
        }
    }

    fn of_pairs(info: &str) -> Result<Self, String> {
        let mut address = Self::default();
        let mut keys: Vec<&str> = Vec::new();
        for part in info.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("the open string has a part without a key. It is made of {PAIRS}"))?;
            let key = key.trim();
            if keys.contains(&key) {
                return Err(format!("the open string has a key twice. It is made of {PAIRS}"));
            }
            keys.push(key);
            address.set(key, value)?;
        }
        Ok(address)
    }

    fn of_url(url: &str) -> Result<Self, String> {
        let mut address = Self::default();
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let (place, database) = url.split_once('/').unwrap_or((url, ""));
        let (login, place) = place.rsplit_once('@').unwrap_or(("", place));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or_default()),
            None => place.split_once(':').unwrap_or((place, "")),
        };
        for (key, value) in
            [("user", user), ("password", password), ("host", host), ("port", port), ("database", database)]
        {
            if !value.is_empty() {
                address.set(key, &decoded(value)?)?;
            }
        }
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((key @ ("socket" | "ssl-ca" | "ssl-cert" | "ssl-key"), value)) => {
                    address.set(key, &decoded(value)?)?;
                }
                _ => {
                    let what = "a URL of MariaDB has no other options here than socket, ssl-ca, ssl-cert and ssl-key";
                    return Err(what.to_owned());
                }
            }
        }
        Ok(address)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let text = || CString::new(value).map(Some).map_err(|_| format!("the value of `{key}` has a zero in it"));
        match key {
            "host" => self.host = text()?,
            "socket" => self.socket = text()?,
            "user" => self.user = text()?,
            "password" => self.password = text()?,
            "database" => self.database = text()?,
            "ssl-ca" => self.tls.get_or_insert_default().authorities = text()?.unwrap_or_default(),
            "ssl-cert" => self.tls.get_or_insert_default().certificate = text()?,
            "ssl-key" => self.tls.get_or_insert_default().key = text()?,
            "port" => self.port = value.parse().map_err(|_| "the port is no number below 65536".to_owned())?,
            // Perhaps no key at all, but the rest of a password.
            _ => return Err(format!("the open string has an unknown key. It is made of {PAIRS}")),
        }
        Ok(())
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "a % in the URL is not followed by two hexadecimal digits".to_owned();
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| "a part of the URL is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::Address;

    fn address(info: &str) -> Address {
        Address::parse(info).unwrap_or_else(|failure| panic!("{info}: {failure}"))
    }

    #[test]
    fn pairs_and_urls_say_the_same() {
        let pairs = address("host=db; port=3307;user=u;password=p=/;database=d");
        assert!(pairs == address("mysql://u:p%3d%2F@db:3307/d"));
        assert_eq!(pairs.port, 3307);
        assert!(address("socket=/run/s;user=root") == address("mysql://root@?socket=/run/s"));
        assert_eq!(address("mysql://[::1]:1/").host.unwrap().as_bytes(), b"::1");
        let secured = address("host=db;ssl-ca=/a b;ssl-cert=/c;ssl-key=/k");
        assert!(secured == address("mysql://db?ssl-ca=%2Fa%20b&ssl-cert=/c&ssl-key=/k"));
        let tls = secured.tls.unwrap();
        assert_eq!((tls.authorities.as_c_str(), tls.key.as_deref()), (c"/a b", Some(c"/k")));
    }

    #[test]
    fn what_is_wrong_is_said_without_showing_it() {
        let wrong = [
            "host=db;ssl-cert=/c;ssl-key=/k",
            "host=db;ssl-ca=/a;ssl-key=/k",
            "socket=/s;ssl-ca=/a",
            "host",
            "hots=db",
            "port=far",
            "port=70000",
            "mysql://a:b%4@c",
            "mysql://a@b/c?ssl=1",
            "mysql://a:%zz@b",
        ];
        for info in wrong {
            assert!(Address::parse(info).is_err(), "{info}");
        }
    }

    /// The story: `password=a;b=c` was refused with `b`, which is a part of the password.
    #[test]
    fn no_part_of_a_password_is_shown() {
        for info in [
            "host=db;secret",
            "user=u;password=x;secret",
            "user=u;password=x;secret=y",
            "user=u;password=x;y=secret",
            "user=u;password=x;user=secret",
            "user=u;password=x;port=secret",
            "user=u;password=x;password=secret",
            "mysql://u:x;secret=y@db:secret",
            "mysql://u:x/secret?secret=y@db",
            "mysql://u:%secret@db",
        ] {
            let said = Address::parse(info).err().map(|failure| failure.to_string()).expect(info);
            assert!(!said.contains("secret"), "{said}");
        }
        assert!(address("user=u;password=x=secret").password == address("mysql://u:x%3Dsecret@").password);
    }
}
