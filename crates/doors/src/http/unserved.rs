//! What is said at paths and methods that are not served, in the words of the protocol that the path belongs to: its clients show
//! nothing of an answer that they cannot read.
//!
//! May use: `failure`, the forms of errors that protocols have. Must not know: routes, who asks.

use axum::http::header::ALLOW;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::failure::Failure;
use super::{influx, ingest, opentsdb, prometheus};

const NOTHING: &str = "there is nothing here; /openapi.json says what there is elsewhere";

/// Whose clients ask there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Plain,
    /// InfluxDB 1's, and 3's, which has the same form.
    Influx,
    InfluxTwo,
    OpenTsdb,
    Prometheus,
}

/// What other servers have, as the beginning of a path, and the nearest thing that is served. The first that fits counts.
const NEAREST: &[(&str, &str)] = &[
    ("/api/v2/query", "Flux is not served; ask InfluxQL at /query"),
    ("/api/v2/delete", "points are deleted by InfluxQL at /query: DELETE FROM or DROP SERIES"),
    (
        "/api/v2/buckets",
        "buckets are databases, which come to be when they are written to; SHOW DATABASES at /query lists them",
    ),
    ("/api/v2/orgs", "there are no organizations, and what requests say of them is ignored"),
    ("/api/v2/tasks", "tasks are continuous queries: CREATE CONTINUOUS QUERY at /query"),
    ("/api/v2/setup", "databases come to be when they are written to, and users are configured at the server"),
    ("/api/v2/signin", "users are configured at the server; say name and password with each request"),
    ("/api/v2/authorizations", "users are configured at the server"),
    ("/api/v2/users", "users are configured at the server"),
    ("/api/v2", "points are written at /api/v2/write; questions are InfluxQL, at /query"),
    ("/api/v3", "lines are written at /write and /api/v2/write; questions are InfluxQL, at /query"),
    (
        "/api/v1/import",
        "points are written as lines of JSON at /api/v1/import, as Prometheus' text at /api/v1/import/prometheus",
    ),
    ("/api/v1/otlp", "OTLP is not served; write by Prometheus' remote write at /api/v1/write"),
    ("/api/v1/admin/tsdb/snapshot", "backups are made by `holdfast backup`"),
    ("/api/v1/admin/tsdb/clean_tombstones", "what was deleted leaves the disk by itself"),
    ("/api/v1", "docs/reference/promql.md and points.md list what is served; /openapi.json does too"),
    ("/api/query/exp", "expressions are not served; ask /api/query, or PromQL at /api/v1/query"),
    ("/api/query/gexp", "expressions are not served; ask /api/query, or PromQL at /api/v1/query"),
    ("/api/rollup", "rollups are made by the server; write points at /api/put"),
    ("/api/histogram", "histograms are not served; write numbers at /api/put"),
    ("/api/annotation", "annotations are not served"),
    ("/api/tree", "trees are not served; /api/suggest and /api/search/lookup find series"),
    ("/api/uid", "UIDs have no meta data here; /api/suggest and /api/search/lookup find series"),
    ("/api/search", "only /api/search/lookup is served"),
    ("/api", "docs/reference/opentsdb.md lists what is served; /openapi.json does too"),
];

/// Whether a path is `beginning`, or lies below it.
fn is_below(path: &str, beginning: &str) -> bool {
    path.strip_prefix(beginning).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Dialect {
    fn of(path: &str) -> Self {
        let is_one_of = |beginnings: &[&str]| beginnings.iter().any(|beginning| is_below(path, beginning));
        if is_one_of(&["/api/v2"]) {
            Dialect::InfluxTwo
        } else if is_one_of(&["/query", "/write", "/api/write", "/api/v3"]) {
            Dialect::Influx
        } else if is_one_of(&["/api/v1"]) && path != "/api/v1/put" {
            Dialect::Prometheus
        } else if is_one_of(&["/api"]) {
            Dialect::OpenTsdb
        } else {
            Dialect::Plain
        }
    }

    /// An error in its form. `title` is what the server of the protocol itself says, `text` what would be right.
    fn say(self, status: StatusCode, title: &str, text: &str) -> Response {
        match self {
            Dialect::Plain => Failure::new(status, text.to_owned()).into_response(),
            Dialect::Influx => influx::refused(status, &format!("{title}: {text}")),
            Dialect::InfluxTwo => ingest::refused_two(status, &format!("{title}: {text}")),
            Dialect::OpenTsdb => opentsdb::refused(status, title, text),
            Dialect::Prometheus => prometheus::refused(status, &format!("{title}: {text}")),
        }
    }
}

/// The path that decoded segments are, for people.
fn path(segments: &[Vec<u8>]) -> String {
    segments.iter().fold(String::new(), |path, segment| path + "/" + &String::from_utf8_lossy(segment))
}

/// The answer where nothing is served.
pub(crate) fn not_found(segments: &[Vec<u8>]) -> Response {
    let path = path(segments);
    let nearest = NEAREST.iter().find(|(beginning, _)| is_below(&path, beginning)).map_or(NOTHING, |(_, text)| text);
    let dialect = Dialect::of(&path);
    let title = if dialect == Dialect::OpenTsdb { "Endpoint not found" } else { "path not found" };
    dialect.say(StatusCode::NOT_FOUND, title, nearest)
}

/// The answer where a path is served, but not with this method.
pub(crate) fn not_allowed(segments: &[Vec<u8>], methods: &str) -> Response {
    let dialect = Dialect::of(&path(segments));
    let title = if dialect == Dialect::OpenTsdb { "Method not allowed" } else { "method not allowed" };
    let mut answer =
        dialect.say(StatusCode::METHOD_NOT_ALLOWED, title, &format!("this path has the methods {methods}"));
    if let Ok(methods) = HeaderValue::from_str(methods) {
        answer.headers_mut().insert(ALLOW, methods);
    }
    answer
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests_client::open;

    fn said(line: &str) -> (u16, Option<String>, Value) {
        let door = open(|_| {});
        let body = line.starts_with('P').then_some(&b"x"[..]);
        let answer = door.send(line, &[], body);
        let kind = answer.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/json"), "{line}: {answer:?}");
        (answer.status, answer.header("allow").map(str::to_owned), answer.json())
    }

    #[test]
    fn a_path_that_is_not_served_names_the_nearest_in_the_words_of_its_protocol() {
        let two = |text: &str| json!({"code": "not found", "message": format!("path not found: {text}")});
        let open_tsdb = |text: &str| json!({"error": {"code": 404, "message": "Endpoint not found", "details": text}});
        let prometheus = |text: &str| json!({"status": "error", "errorType": "not_found", "error": format!("path not found: {text}")});
        let expressions = "expressions are not served; ask /api/query, or PromQL at /api/v1/query";
        for (line, wanted) in [
            ("POST /api/v2/query?org=o", two("Flux is not served; ask InfluxQL at /query")),
            ("POST /api/v2/delete", two("points are deleted by InfluxQL at /query: DELETE FROM or DROP SERIES")),
            ("GET /api/v2/queryx", two("points are written at /api/v2/write; questions are InfluxQL, at /query")),
            ("GET /write/x", json!({"error": format!("path not found: {}", super::NOTHING)})),
            ("POST /api/query/exp", open_tsdb(expressions)),
            ("POST /db/plant/api/query/gexp/", open_tsdb(expressions)),
            ("GET /api/nothing", open_tsdb("docs/reference/opentsdb.md lists what is served; /openapi.json does too")),
            (
                "POST /api/v1/otlp/v1/metrics",
                prometheus("OTLP is not served; write by Prometheus' remote write at /api/v1/write"),
            ),
            (
                "GET /api/v1/status/config",
                prometheus("docs/reference/promql.md and points.md list what is served; /openapi.json does too"),
            ),
        ] {
            assert_eq!(said(line), (404, None, wanted), "{line}");
        }
    }

    #[test]
    fn a_method_that_is_not_served_says_which_are_in_the_words_of_the_protocol() {
        let text = |methods: &str| format!("method not allowed: this path has the methods {methods}");
        let details = "this path has the methods POST";
        for (line, allow, wanted) in [
            ("GET /write", "POST", json!({"error": text("POST")})),
            ("DELETE /query", "GET,HEAD,POST", json!({"error": text("GET,HEAD,POST")})),
            ("GET /api/v2/write", "POST", json!({"code": "method not allowed", "message": text("POST")})),
            (
                "GET /api/put",
                "POST",
                json!({"error": {"code": 405, "message": "Method not allowed", "details": details}}),
            ),
            (
                "GET /api/v1/put",
                "POST",
                json!({"error": {"code": 405, "message": "Method not allowed", "details": details}}),
            ),
            (
                "PUT /api/v1/query",
                "GET,HEAD,POST",
                json!({"status": "error", "errorType": "bad_data", "error": text("GET,HEAD,POST")}),
            ),
        ] {
            assert_eq!(said(line), (405, Some(allow.to_owned()), wanted), "{line}");
        }
    }

    #[test]
    fn other_paths_say_it_as_text() {
        let door = open(|_| {});
        for path in ["/nothing", "/apis", "/queryx", "/buckets"] {
            let answer = door.send(&format!("DELETE {path}"), &[], None);
            assert!(matches!(answer.status, 404 | 405), "{path}: {answer:?}");
            assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"), "{path}");
        }
    }
}
