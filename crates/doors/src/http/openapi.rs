//! `/openapi.json`: the OpenAPI 3 document, made from the table of routes.
//!
//! May use: `table`. Must not know: what operations do.

use serde_json::{Map, Value, json};

use super::table::{Access, DATABASE_PREFIX, Operation, Route, TYPES_PREFIX, Verb, routes};

/// The whole document.
pub(crate) fn render(version: &str) -> Value {
    let mut paths = Map::new();
    for route in routes() {
        add(&mut paths, route.path.to_owned(), route);
        if route.has_alias() {
            add(&mut paths, format!("{TYPES_PREFIX}{}", route.path), route);
        }
        if route.has_database() {
            add(&mut paths, format!("{DATABASE_PREFIX}{}", route.path), route);
        }
    }
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Holdfast",
            "version": version,
            "description": "Objects in buckets over HTTP. Segments of paths are percent-encoded and may hold any bytes.",
            "license": { "name": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": { "type": "http", "scheme": "basic" },
                "bearer": { "type": "http", "scheme": "bearer" },
            },
        },
    })
}

fn add(paths: &mut Map<String, Value>, path: String, route: &Route) {
    let parameters = parameters(&path, route);
    let item = paths.entry(path.clone()).or_insert_with(|| json!({}));
    let Some(item) = item.as_object_mut() else { return };
    for method in route.verb.methods().to_lowercase().split(',') {
        let mut operation = json!({
            "summary": route.summary,
            "parameters": parameters,
            "responses": responses(&path, route),
            "security": if route.access == Access::Open { json!([]) } else { json!([{ "basic": [] }, { "bearer": [] }]) },
        });
        if let Some(description) = description(route) {
            operation["description"] = json!(description);
        }
        if takes_body(route) {
            let any = json!({ "*/*": { "schema": { "type": "string", "format": "binary" } } });
            operation["requestBody"] = json!({ "required": true, "content": any });
        }
        item.insert(method.to_owned(), operation);
    }
}

fn takes_body(route: &Route) -> bool {
    matches!(route.verb, Verb::Put | Verb::Post)
}

/// What one route does with headers whose names are the client's.
fn description(route: &Route) -> Option<&'static str> {
    match route.operation {
        Operation::Create | Operation::Store => Some(
            "Content-Type and Content-Encoding, X-Riak-Meta-NAME (metadata), X-Riak-Index-NAME_bin and X-Riak-Index-NAME_int (values of \
             an index, with commas between), and X-Holdfast-Meta64-NAME and X-Holdfast-Index64-NAME_bin (the same in base64) are kept \
             with the object.",
        ),
        Operation::Fetch => Some(
            "The answer has the headers that the object was put with: its Content-Type, X-Riak-Meta-NAME, X-Riak-Index-NAME_bin and \
             X-Riak-Index-NAME_int.",
        ),
        _ => None,
    }
}

/// Headers of requests that a route looks at, and what they are for.
fn request_headers(route: &Route) -> &'static [(&'static str, &'static str)] {
    const IF_MATCH: (&str, &str) = ("If-Match", "entity tags, or *: else 412");
    const IF_UNMODIFIED: (&str, &str) = ("If-Unmodified-Since", "an HTTP date: else 412");
    const VCLOCK: (&str, &str) = ("X-Riak-Vclock", "the version that was read: else 409");
    match route.operation {
        Operation::Fetch => &[
            IF_MATCH,
            ("If-None-Match", "entity tags, or *: else 304"),
            ("If-Modified-Since", "an HTTP date: else 304"),
            IF_UNMODIFIED,
        ],
        Operation::Store => &[
            IF_MATCH,
            ("If-None-Match", "entity tags, or * for what is not there yet: else 412"),
            IF_UNMODIFIED,
            VCLOCK,
            ("X-Holdfast-Expires", "when it expires, in milliseconds since 1970"),
        ],
        Operation::Create => &[("X-Holdfast-Expires", "when it expires, in milliseconds since 1970")],
        Operation::Delete => &[IF_MATCH, ("If-None-Match", "entity tags: else 412"), IF_UNMODIFIED, VCLOCK],
        _ => &[],
    }
}

/// Headers of answers.
fn answer_headers(route: &Route, status: u16) -> Value {
    let of_object: &[(&str, &str)] = match (route.operation, status) {
        (Operation::Fetch, 200 | 304) | (Operation::Store, 200 | 204) | (Operation::Create, 201) => &[
            ("ETag", "stands for the object's version"),
            ("Last-Modified", "an HTTP date"),
            ("X-Riak-Vclock", "the object's version, for the next change"),
            ("X-Holdfast-Durability", "how durable it is: synced, window or written"),
            ("X-Holdfast-Expires", "when it expires, in milliseconds since 1970, if it does"),
        ],
        _ => &[],
    };
    let location = (route.operation == Operation::Create && status == 201).then_some(("Location", "the object's path"));
    let retry = (status == 503).then_some(("Retry-After", "seconds"));
    let all = of_object.iter().copied().chain(location).chain(retry);
    let described =
        |(name, what): (&str, &str)| (name.to_owned(), json!({ "description": what, "schema": { "type": "string" } }));
    Value::Object(all.map(described).collect())
}

/// What a parameter of a query may be.
fn schema(name: &str) -> Value {
    match name {
        "durability" => json!({ "type": "string", "enum": ["synced", "window", "written"] }),
        "compression" => json!({ "type": "string", "enum": ["none", "lz4", "zstd"] }),
        "max_results" | "through_ms" => json!({ "type": "integer", "minimum": 1 }),
        "return_terms" | "returnbody" | "previous" => json!({ "type": "boolean" }),
        _ => json!({ "type": "string" }),
    }
}

fn parameters(path: &str, route: &Route) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let in_path = path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text }));
    let in_query = route.query.iter().map(|name| json!({ "name": name, "in": "query", "schema": schema(name) }));
    let in_header = request_headers(route)
        .iter()
        .map(|(name, what)| json!({ "name": name, "in": "header", "description": what, "schema": text }));
    in_path.chain(in_query).chain(in_header).collect()
}

fn responses(path: &str, route: &Route) -> Value {
    let common: &[u16] = match route.access {
        Access::Open => &[503],
        Access::User | Access::Admin => &[401, 403, 503],
        Access::Read | Access::Write | Access::Drop => &[401, 403, 500, 503],
    };
    // A target may be too long wherever it is the client's, and a body announced by something else than 100-continue.
    let too_long = path.contains('{').then_some(414);
    let expects = takes_body(route).then_some(417);
    let statuses = route.statuses.iter().chain(common).copied().chain(too_long).chain(expects);
    let described = statuses.map(|status| {
        let reason = axum::http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let mut answer = json!({ "description": reason.unwrap_or("an answer") });
        let headers = answer_headers(route, status);
        if headers.as_object().is_some_and(|headers| !headers.is_empty()) {
            answer["headers"] = headers;
        }
        (status.to_string(), answer)
    });
    Value::Object(described.collect())
}
