//! The routes of OpenTSDB's clients.
//!
//! May use: `table`. Must not know: what operations do.

use super::super::table::{self, Access, Route, Verb};

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Query,
    PostQuery,
    DeleteQuery,
    Last,
    PostLast,
    Suggest,
    PostSuggest,
    Lookup,
    PostLookup,
    Aggregators,
    Config,
    Filters,
    Version,
    Stats,
    Assign,
    PostAssign,
}

const fn route(
    verb: Verb,
    path: &'static str,
    operation: Operation,
    query: &'static [&'static str],
    summary: &'static str,
) -> Route {
    let operation = table::Operation::OpenTsdb(operation);
    Route { verb, path, operation, access: Access::User, summary, query, statuses: &[200, 400, 403, 413] }
}

const QUERY: &[&str] = &[
    "start",
    "end",
    "m",
    "tsuid",
    "tz",
    "use_calendar",
    "ms",
    "arrays",
    "show_tsuids",
    "show_query",
    "show_stats",
    "show_summary",
    "delete",
    "db",
];
const BODY: &[&str] = &["arrays", "ms", "db"];
const LAST: &[&str] = &["timeseries", "tsuids", "resolve", "back_scan", "db"];
const SUGGEST: &[&str] = &["type", "q", "max", "db"];
const LOOKUP: &[&str] = &["m", "limit", "start_index", "db"];
const ASSIGN: &[&str] = &["metric", "tagk", "tagv"];
const NONE: &[&str] = &[];

/// Every route.
pub(crate) static ROUTES: &[Route] = &[
    route(Verb::Get, "/api/query", Operation::Query, QUERY, "OpenTSDB: points of series, aggregated."),
    route(Verb::Post, "/api/query", Operation::PostQuery, BODY, "OpenTSDB: the same, asked in JSON."),
    route(
        Verb::Delete,
        "/api/query",
        Operation::DeleteQuery,
        QUERY,
        "OpenTSDB: the same; the points read are deleted.",
    ),
    route(Verb::Get, "/api/query/last", Operation::Last, LAST, "OpenTSDB: the last point of each series."),
    route(Verb::Post, "/api/query/last", Operation::PostLast, &["db"], "OpenTSDB: the same, asked in JSON."),
    route(Verb::Get, "/api/suggest", Operation::Suggest, SUGGEST, "OpenTSDB: names that begin with a text."),
    route(Verb::Post, "/api/suggest", Operation::PostSuggest, &["db"], "OpenTSDB: the same, asked in JSON."),
    route(Verb::Get, "/api/search/lookup", Operation::Lookup, LOOKUP, "OpenTSDB: the series with a metric and tags."),
    route(Verb::Post, "/api/search/lookup", Operation::PostLookup, &["db"], "OpenTSDB: the same, asked in JSON."),
    route(Verb::Get, "/api/aggregators", Operation::Aggregators, NONE, "OpenTSDB: the names of the aggregators."),
    route(Verb::Post, "/api/aggregators", Operation::Aggregators, NONE, "OpenTSDB: the same."),
    route(Verb::Get, "/api/config", Operation::Config, NONE, "OpenTSDB: the settings that clients look at."),
    route(Verb::Get, "/api/config/filters", Operation::Filters, NONE, "OpenTSDB: the types of filters."),
    route(Verb::Get, "/api/version", Operation::Version, NONE, "OpenTSDB: the version whose protocol this is."),
    route(Verb::Get, "/api/stats", Operation::Stats, NONE, "OpenTSDB: the server's numbers as points."),
    route(Verb::Get, "/api/uid/assign", Operation::Assign, ASSIGN, "OpenTSDB: UIDs, which nobody needs here."),
    route(Verb::Post, "/api/uid/assign", Operation::PostAssign, NONE, "OpenTSDB: the same, asked in JSON."),
];
