//! Every route of the door, in one table: it drives dispatch, rights, `Allow`, and the OpenAPI document.
//!
//! May use: the tables of the time series' protocols. Must not know: what operations do.

use super::{influx, ingest, opentsdb, prometheus, scripts_table, spaces_table};

/// What a request wants done with a path. HEAD is GET without the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Put,
    Post,
    Delete,
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Ping,
    Health,
    Metrics,
    Stats,
    OpenApi,
    Welcome,
    Buckets,
    Props,
    Keys,
    Create,
    Fetch,
    Store,
    Delete,
    IndexExact,
    IndexRange,
    Batch,
    Execute,
    LoadScript,
    KnownScript,
    ForgetScripts,
    Libraries,
    Library,
    LoadLibrary,
    DeleteLibrary,
    DeleteLibraries,
    BeginTransaction,
    WithinTransaction,
    CommitTransaction,
    RollBackTransaction,
    Spaces,
    DescribeSpace,
    LimitSpace,
    Describe,
    Declare,
    DropType,
    CreateEntry,
    FetchEntry,
    StoreEntry,
    MergeEntry,
    ChangeEntry,
    RenewEntry,
    DeleteEntry,
    WriteEntries,
    ChangeEntries,
    QueryEntries,
    TakeEntries,
    CountEntries,
    ExplainEntries,
    ClearEntries,
    IterateEntries,
    Events,
    Listen,
    Listeners,
    ForgetListener,
    Ingest(ingest::Operation),
    OpenTsdb(opentsdb::Operation),
    Influx(influx::Operation),
    Prometheus(prometheus::Operation),
}

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody, without a password.
    Open,
    /// Every user of this door.
    User,
    /// Users who may read the bucket or space in the path.
    Read,
    /// Users who may change the bucket or space in the path.
    Write,
    /// Users who may empty the space in the path.
    Drop,
    /// Users who may do what concerns the whole server.
    Admin,
}

/// One method of one path.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// Segments in braces stand for any segment.
    pub(crate) path: &'static str,
    pub(crate) operation: Operation,
    pub(crate) access: Access,
    /// One sentence, for the OpenAPI document.
    pub(crate) summary: &'static str,
    /// Parameters of the query.
    pub(crate) query: &'static [&'static str],
    /// Statuses of answers that are particular to the route.
    pub(crate) statuses: &'static [u16],
}

/// The prefix under which Riak's clients that know bucket types ask for the same.
pub(crate) const TYPES_PREFIX: &str = "/types/default";

/// The prefix by which clients that send no parameters of their own name a database: see [`super::uri::take_database`].
pub(crate) const DATABASE_PREFIX: &str = "/db/{database}";

const KEY: &str = "/buckets/{bucket}/keys/{key}";
const PUT_QUERY: &[&str] = &["returnbody", "durability", "ttl", "compression"];
const PUT_STATUSES: &[u16] = &[200, 204, 400, 408, 409, 411, 412, 413, 414, 415, 431, 507];
const INDEX_QUERY: &[&str] = &["return_terms", "term_regex", "max_results", "continuation", "stream", "durability"];

/// Every route: those of this table, and those of scripts, of spaces and of the protocols of time series.
pub(crate) fn routes() -> impl Iterator<Item = &'static Route> {
    [
        ROUTES,
        scripts_table::ROUTES,
        spaces_table::ROUTES,
        ingest::ROUTES,
        opentsdb::ROUTES,
        influx::ROUTES,
        prometheus::ROUTES,
    ]
    .into_iter()
    .flatten()
}

/// `/health` under the names that Prometheus' and InfluxDB's clients know.
const fn health(path: &'static str) -> Route {
    let summary = "Says whether clients should be sent here, as /health does.";
    Route {
        verb: Verb::Get,
        path,
        operation: Operation::Health,
        access: Access::Open,
        summary,
        query: &[],
        statuses: &[200],
    }
}

static ROUTES: &[Route] = &[
    Route {
        verb: Verb::Get,
        path: "/ping",
        operation: Operation::Ping,
        access: Access::Open,
        summary: "Says OK when the door is open; to clients of InfluxDB by 204.",
        query: &["verbose", "wait_for_leader"],
        statuses: &[200, 204],
    },
    Route {
        verb: Verb::Get,
        path: "/health",
        operation: Operation::Health,
        access: Access::Open,
        summary: "Says whether clients should be sent here.",
        query: &[],
        statuses: &[200],
    },
    health("/-/healthy"),
    health("/-/ready"),
    health("/ready"),
    Route {
        verb: Verb::Get,
        path: "/",
        operation: Operation::Welcome,
        access: Access::Open,
        summary: "Says what this is, for people.",
        query: &[],
        statuses: &[200],
    },
    Route {
        verb: Verb::Get,
        path: "/metrics",
        operation: Operation::Metrics,
        access: Access::User,
        summary: "The server's numbers for Prometheus.",
        query: &[],
        statuses: &[200],
    },
    Route {
        verb: Verb::Get,
        path: "/stats",
        operation: Operation::Stats,
        access: Access::User,
        summary: "The server's numbers as JSON.",
        query: &[],
        statuses: &[200],
    },
    Route {
        verb: Verb::Get,
        path: "/openapi.json",
        operation: Operation::OpenApi,
        access: Access::Open,
        summary: "This document.",
        query: &[],
        statuses: &[200],
    },
    Route {
        verb: Verb::Get,
        path: "/buckets",
        operation: Operation::Buckets,
        access: Access::User,
        summary: "Lists the buckets that hold something and that the user may read.",
        query: &["buckets", "encoding", "durability"],
        statuses: &[200, 400],
    },
    Route {
        verb: Verb::Get,
        path: "/buckets/{bucket}/props",
        operation: Operation::Props,
        access: Access::Read,
        summary: "The properties of a bucket: the same for each, and fixed.",
        query: &[],
        statuses: &[200, 400],
    },
    Route {
        verb: Verb::Get,
        path: "/buckets/{bucket}/keys",
        operation: Operation::Keys,
        access: Access::Read,
        summary: "Lists the keys of a bucket in order, as of one instant.",
        query: &["keys", "encoding", "durability"],
        statuses: &[200, 400],
    },
    Route {
        verb: Verb::Post,
        path: "/buckets/{bucket}/keys",
        operation: Operation::Create,
        access: Access::Write,
        summary: "Stores an object under a key that the server makes.",
        query: PUT_QUERY,
        statuses: &[201, 400, 408, 411, 413, 415, 431, 507],
    },
    Route {
        verb: Verb::Get,
        path: KEY,
        operation: Operation::Fetch,
        access: Access::Read,
        summary: "Reads an object.",
        query: &["durability"],
        statuses: &[200, 304, 400, 404, 412],
    },
    Route {
        verb: Verb::Put,
        path: KEY,
        operation: Operation::Store,
        access: Access::Write,
        summary: "Stores an object.",
        query: PUT_QUERY,
        statuses: PUT_STATUSES,
    },
    Route {
        verb: Verb::Post,
        path: KEY,
        operation: Operation::Store,
        access: Access::Write,
        summary: "Stores an object, as PUT does.",
        query: PUT_QUERY,
        statuses: PUT_STATUSES,
    },
    Route {
        verb: Verb::Delete,
        path: KEY,
        operation: Operation::Delete,
        access: Access::Write,
        summary: "Removes an object.",
        query: &["durability"],
        statuses: &[204, 400, 404, 409, 412, 507],
    },
    Route {
        verb: Verb::Get,
        path: "/buckets/{bucket}/index/{index}/{value}",
        operation: Operation::IndexExact,
        access: Access::Read,
        summary: "Finds the keys with just this term in an index.",
        query: INDEX_QUERY,
        statuses: &[200, 400],
    },
    Route {
        verb: Verb::Get,
        path: "/buckets/{bucket}/index/{index}/{min}/{max}",
        operation: Operation::IndexRange,
        access: Access::Read,
        summary: "Finds the keys with terms between two, both included.",
        query: INDEX_QUERY,
        statuses: &[200, 400],
    },
    Route {
        verb: Verb::Post,
        path: "/batch",
        operation: Operation::Batch,
        access: Access::User,
        summary: "Does several things with entries, objects and points, together or not at all.",
        query: &["durability"],
        statuses: &[200, 400, 404, 408, 409, 411, 412, 413, 415, 507],
    },
    Route {
        verb: Verb::Post,
        path: "/execute",
        operation: Operation::Execute,
        access: Access::User,
        summary: "Runs a script beside the data, by its text, its SHA-1 or a function's name, and answers what it returns.",
        query: &["durability"],
        statuses: &[200, 400, 404, 408, 409, 411, 412, 413, 415, 422, 507],
    },
    Route {
        verb: Verb::Post,
        path: "/transactions",
        operation: Operation::BeginTransaction,
        access: Access::User,
        summary: "Begins a transaction that stays open.",
        query: &[],
        statuses: &[201, 400, 408, 413, 415],
    },
    Route {
        verb: Verb::Post,
        path: "/transactions/{transaction}",
        operation: Operation::WithinTransaction,
        access: Access::User,
        summary: "Does several things within an open transaction. Whatever fails rolls it back.",
        query: &[],
        statuses: &[200, 400, 404, 408, 409, 411, 412, 413, 415, 507],
    },
    Route {
        verb: Verb::Post,
        path: "/transactions/{transaction}/commit",
        operation: Operation::CommitTransaction,
        access: Access::User,
        summary: "Commits an open transaction: all of it or nothing. With through_ms, through the table that follows what it changes: 202 when that gets it later.",
        query: &["durability", "through_ms"],
        statuses: &[200, 202, 400, 404, 409, 413, 507],
    },
    Route {
        verb: Verb::Delete,
        path: "/transactions/{transaction}",
        operation: Operation::RollBackTransaction,
        access: Access::User,
        summary: "Rolls an open transaction back.",
        query: &[],
        statuses: &[204, 404],
    },
];

impl Verb {
    /// The verb of a method; HEAD is a GET.
    pub(crate) fn of(method: &str) -> Option<Self> {
        match method {
            "GET" | "HEAD" => Some(Verb::Get),
            "PUT" => Some(Verb::Put),
            "POST" => Some(Verb::Post),
            "DELETE" => Some(Verb::Delete),
            _ => None,
        }
    }

    /// The methods that mean it, as `Allow` lists them.
    pub(crate) fn methods(self) -> &'static str {
        match self {
            Verb::Get => "GET,HEAD",
            Verb::Put => "PUT",
            Verb::Post => "POST",
            Verb::Delete => "DELETE",
        }
    }
}

impl Route {
    /// Whether it is there under [`TYPES_PREFIX`] too.
    pub(crate) fn has_alias(&self) -> bool {
        self.is_of_bucket()
    }

    /// Whether names and passwords may be parameters, as InfluxDB's clients send them.
    pub(crate) fn takes_credentials(&self) -> bool {
        matches!(self.operation, Operation::Influx(_) | Operation::Ingest(_))
    }

    /// Whether its path names a bucket, or would list them.
    pub(crate) fn is_of_bucket(&self) -> bool {
        self.path.starts_with("/buckets")
    }

    /// Whether it is there under [`DATABASE_PREFIX`] too.
    pub(crate) fn has_database(&self) -> bool {
        self.path.starts_with("/api/")
    }

    /// What stands for the braces, if these segments are this path.
    fn captures<'s>(&self, segments: &'s [Vec<u8>]) -> Option<Vec<&'s [u8]>> {
        let mut captured = Vec::new();
        let mut pattern = self.path.split('/').skip(1);
        for segment in segments {
            let wanted = pattern.next()?;
            if wanted.starts_with('{') {
                captured.push(segment.as_slice());
            } else if wanted.as_bytes() != segment {
                return None;
            }
        }
        pattern.next().is_none().then_some(captured)
    }
}

/// What there is at a path.
#[derive(Debug)]
pub(crate) enum Found<'s> {
    /// A route, and what stands for its braces.
    Route(&'static Route, Vec<&'s [u8]>),
    /// The path without this method; the methods it has.
    Allow(String),
    Nothing,
}

/// Looks for a method of a path in decoded segments.
pub(crate) fn find<'s>(method: &str, segments: &'s [Vec<u8>]) -> Found<'s> {
    let verb = Verb::of(method);
    let (alias, rest) = segments.split_at_checked(2).unwrap_or((&[], segments));
    let is_alias = alias == [b"types".to_vec(), b"default".to_vec()];
    let segments = if is_alias { rest } else { segments };
    let mut allowed = Vec::new();
    for route in routes().filter(|route| !is_alias || route.has_alias()) {
        let Some(captured) = route.captures(segments) else { continue };
        if Some(route.verb) == verb {
            return Found::Route(route, captured);
        }
        allowed.push(route.verb.methods());
    }
    if allowed.is_empty() { Found::Nothing } else { Found::Allow(allowed.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::uri::segments;

    fn found(method: &str, path: &str) -> String {
        match find(method, &segments(path).unwrap()) {
            Found::Route(route, captured) => {
                let captured: Vec<_> = captured.into_iter().map(String::from_utf8_lossy).collect();
                format!("{:?} {}", route.operation, captured.join(" "))
            }
            Found::Allow(methods) => methods,
            Found::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn paths_find_their_routes_and_methods_that_are_missing_say_which_are_there() {
        for (method, path, wanted) in [
            ("GET", "/ping", "Ping "),
            ("HEAD", "/buckets/b/keys/k", "Fetch b k"),
            ("PUT", "/types/default/buckets/b/keys/k", "Store b k"),
            ("POST", "/buckets/b/keys", "Create b"),
            ("GET", "/buckets/b%2fc/keys/a%2Fk", "Fetch b/c a/k"),
            ("GET", "/buckets/b/keys/", "Fetch b "),
            ("GET", "/buckets/b/index/i_int/1/2", "IndexRange b i_int 1 2"),
            ("GET", "/buckets/b/index/i_int/1", "IndexExact b i_int 1"),
            ("PATCH", "/buckets/b/keys/k", "GET,HEAD,PUT,POST,DELETE"),
            ("DELETE", "/buckets/b/keys", "GET,HEAD,POST"),
            ("get", "/ping", "GET,HEAD"),
            ("GET", "/types/default/ping", "nothing"),
            ("GET", "/types/other/buckets/b/keys/k", "nothing"),
            ("GET", "/buckets/b/keys/k/more", "nothing"),
            ("GET", "/buckets/", "nothing"),
            ("GET", "/", "Welcome "),
            ("GET", "", "Welcome "),
            ("GET", "/-/ready", "Health "),
        ] {
            assert_eq!(found(method, path), wanted, "{method} {path}");
        }
    }

    #[test]
    fn no_route_is_there_twice() {
        let all: std::collections::BTreeSet<_> = routes().map(|route| (route.verb.methods(), route.path)).collect();
        assert_eq!(all.len(), routes().count());
    }
}
