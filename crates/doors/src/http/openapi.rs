//! `/openapi.json`: the OpenAPI 3 document, made from the table of routes.
//!
//! May use: `table`. Must not know: what operations do.

use serde_json::{Map, Value, json};

use super::table::{Access, DATABASE_PREFIX, Route, TYPES_PREFIX, Verb, routes};

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
    let item = paths.entry(path).or_insert_with(|| json!({}));
    let Some(item) = item.as_object_mut() else { return };
    for method in route.verb.methods().to_lowercase().split(',') {
        let mut operation = json!({
            "summary": route.summary,
            "parameters": parameters,
            "responses": responses(route),
            "security": if route.access == Access::Open { json!([]) } else { json!([{ "basic": [] }, { "bearer": [] }]) },
        });
        if matches!(route.verb, Verb::Put | Verb::Post) {
            let any = json!({ "*/*": { "schema": { "type": "string", "format": "binary" } } });
            operation["requestBody"] = json!({ "required": true, "content": any });
        }
        item.insert(method.to_owned(), operation);
    }
}

fn parameters(path: &str, route: &Route) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let in_path = path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text }));
    let in_query = route.query.iter().map(|name| json!({ "name": name, "in": "query", "schema": text }));
    in_path.chain(in_query).collect()
}

fn responses(route: &Route) -> Value {
    let common: &[u16] = match route.access {
        Access::Open => &[503],
        Access::User => &[401, 403, 503],
        Access::Read | Access::Write | Access::Drop => &[401, 403, 500, 503],
    };
    let statuses = route.statuses.iter().chain(common);
    let described = statuses.map(|status| {
        let reason = axum::http::StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
        (status.to_string(), json!({ "description": reason.unwrap_or("an answer") }))
    });
    Value::Object(described.collect())
}
