//! Where a server listens, and what it understands.
//!
//! May use: `way.rs`, `ask`. Must not know: which server it is, who started it.

use std::net::SocketAddr;
use std::str::FromStr;

use clap::ValueEnum;

use super::ask::{Ask, Language, Read};
use super::way::{Shape, Way};

/// Addresses by way; a way that a server does not have is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doors {
    pub(crate) telnet: Option<SocketAddr>,
    pub(crate) line: Option<SocketAddr>,
    pub(crate) line_http: Option<SocketAddr>,
    pub(crate) put: Option<SocketAddr>,
    pub(crate) json: Option<SocketAddr>,
    /// Where it is asked, over HTTP.
    pub(crate) query: SocketAddr,
    /// What it is asked in; the first that can ask something does.
    pub(crate) languages: Vec<Language>,
    /// Whether the line `checkpoint` over TCP is answered when everything before it is durable.
    pub(crate) checkpoint: Checkpoint,
}

/// What a server says over TCP about what it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checkpoint {
    /// A line, once everything before is durable.
    Answered,
    /// Nothing.
    Unknown,
}

/// A server that somebody else started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) doors: Doors,
    /// Its process, if it is on this machine.
    pub(crate) process: Option<u32>,
    /// Its data folder, if it is on this machine.
    pub(crate) dir: Option<std::path::PathBuf>,
}

impl Doors {
    /// Where a way leads in.
    pub(crate) fn way(&self, way: Way) -> Option<SocketAddr> {
        match way {
            Way::Telnet => self.telnet,
            Way::Line => self.line,
            Way::LineHttp => self.line_http,
            Way::Put => self.put,
            Way::Json => self.json,
        }
    }

    /// The request for a question and the language of its answer.
    pub(crate) fn request(&self, ask: &Ask) -> Option<(Language, Vec<u8>)> {
        self.languages.iter().find_map(|language| Some((*language, language.request(ask)?)))
    }

    /// Whether something can be asked of points of this shape.
    pub(crate) fn can_ask(&self, read: Read, shape: Shape) -> bool {
        let scenario = super::scenario::Scenario { seed: 0, devices: 1, sensors: 1, step_millis: 1 };
        self.request(&Ask::all(read, shape, &scenario, 1)).is_some()
    }
}

impl FromStr for At {
    type Err = String;

    /// `telnet=HOST:PORT,put=...,json=...,line=...,write=...,query=...,in=opentsdb+influxql+promql,pid=N,dir=PATH`
    fn from_str(text: &str) -> Result<Self, String> {
        let address =
            |value: &str| value.parse().map_err(|_| format!("`{value}` is not an address like 127.0.0.1:4242"));
        let (mut telnet, mut line, mut line_http, mut put, mut json, mut query) = (None, None, None, None, None, None);
        let (mut languages, mut process, mut dir) = (Vec::new(), None, None);
        for pair in text.split(',') {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not NAME=VALUE"))?;
            match name {
                "telnet" => telnet = Some(address(value)?),
                "line" => line = Some(address(value)?),
                "write" => line_http = Some(address(value)?),
                "put" => put = Some(address(value)?),
                "json" => json = Some(address(value)?),
                "query" => query = Some(address(value)?),
                "in" => {
                    languages = value.split('+').map(|one| Language::from_str(one, true)).collect::<Result<_, _>>()?
                }
                "pid" => process = Some(value.parse().map_err(|_| format!("`{value}` is no process"))?),
                "dir" => dir = Some(value.into()),
                _ => return Err(format!("`{name}` is none of telnet, line, write, put, json, query, in, pid, dir")),
            }
        }
        let query = query.ok_or("say query=HOST:PORT: points are counted back there")?;
        if languages.is_empty() {
            return Err("say in=opentsdb, in=influxql or in=promql: points are counted back in it".to_owned());
        }
        let checkpoint = Checkpoint::Unknown;
        Ok(Self { doors: Doors { telnet, line, line_http, put, json, query, languages, checkpoint }, process, dir })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_there_is_described_by_its_doors() {
        let at: At = "telnet=127.0.0.1:4242,query=127.0.0.1:4243,in=opentsdb+influxql,pid=7,dir=/d".parse().unwrap();
        assert_eq!(at.doors.way(Way::Telnet).map(|address| address.port()), Some(4242));
        assert_eq!((at.doors.way(Way::Json), at.process), (None, Some(7)));
        assert!(at.doors.can_ask(Read::Sum, Shape::Metrics) && at.doors.can_ask(Read::Descending, Shape::Metrics));
        for (text, part) in [
            ("telnet=127.0.0.1:1,in=promql", "query="),
            ("query=127.0.0.1:1", "in="),
            ("query=here,in=promql", "not an address"),
            ("port=1", "none of"),
            ("query", "NAME=VALUE"),
        ] {
            assert!(text.parse::<At>().unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn the_first_language_that_can_ask_does() {
        let at: At = "query=127.0.0.1:1,in=opentsdb+influxql".parse().unwrap();
        let scenario = super::super::scenario::Scenario { seed: 0, devices: 1, sensors: 1, step_millis: 1 };
        let of = |read, shape| at.doors.request(&Ask::all(read, shape, &scenario, 1)).map(|(language, _)| language);
        assert_eq!(of(Read::Sum, Shape::Metrics), Some(Language::Opentsdb));
        assert_eq!(of(Read::Filter, Shape::Metrics), Some(Language::Influxql));
        assert_eq!(of(Read::Sum, Shape::Fields), Some(Language::Influxql));
    }
}
