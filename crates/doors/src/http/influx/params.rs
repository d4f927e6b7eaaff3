//! The parameters of a query.
//!
//! May use: `uri`. Must not know: InfluxQL.

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, Method};
use holdfast::series::Value;
use holdfast::series::influxql::{Epoch, Layout, Parameter, Parameters};
use serde_json::Value as Json;

use crate::http::failure::Failure;
use crate::http::handle::Asked;
use crate::http::ingest::question;
use crate::http::upload::Upload;
use crate::http::uri::Query;

/// Rows of a chunk, unless the request says.
const CHUNK_ROWS_DEFAULT: usize = 10_000;
/// The database of requests that name none, as it is for writes.
const DATABASE_DEFAULT: &str = "default";
const FORM: &str = "application/x-www-form-urlencoded";

/// What was asked, and how the answer is to look.
#[derive(Debug)]
pub(crate) struct Params {
    pub(crate) text: String,
    pub(crate) database: String,
    pub(crate) epoch: Epoch,
    pub(crate) layout: Layout,
    pub(crate) parameters: Parameters,
}

fn header(headers: &HeaderMap, name: axum::http::HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_ascii_lowercase()
}

impl Params {
    /// Reads them, and the body if it is a form.
    pub(crate) async fn read(asked: &Asked<'_>, upload: &mut Upload) -> Result<Result<Self, String>, Failure> {
        let headers = &asked.parts.headers;
        let kind = header(headers, CONTENT_TYPE);
        // Some clients send a form and do not say so.
        let is_form = asked.parts.method == Method::POST && (kind.is_empty() || kind.starts_with(FORM));
        let body = if is_form { question(asked, upload).await? } else { Vec::new() };
        let body = String::from_utf8(body).map_err(|_| Failure::bad("the form is not UTF-8"))?;
        let form = Query::parse(Some(body.trim()))?;
        let is_csv = ["application/csv", "text/csv"].iter().any(|kind| header(headers, ACCEPT).contains(kind));
        Ok(Self::of(&form, &asked.query, is_csv))
    }

    fn of(form: &Query, query: &Query, is_csv: bool) -> Result<Self, String> {
        let get = |name: &str| form.get(name).or_else(|| query.get(name)).filter(|value| !value.is_empty());
        let text = |name: &str| {
            get(name)
                .map(|value| {
                    String::from_utf8(value.to_vec()).map_err(|_| format!("the parameter {name} is not UTF-8"))
                })
                .transpose()
        };
        let epoch = match get("epoch") {
            None => Epoch::Text,
            Some(b"h") => Epoch::Units(3_600_000_000_000),
            Some(b"m") => Epoch::Units(60_000_000_000),
            Some(b"s") => Epoch::Units(1_000_000_000),
            Some(b"ms") => Epoch::Units(1_000_000),
            Some(b"u" | b"us" | b"\xc2\xb5") => Epoch::Units(1_000),
            Some(_) => Epoch::Units(1),
        };
        let is = |name: &str| get(name).is_some_and(|value| value.eq_ignore_ascii_case(b"true") || value == b"1");
        let rows = text("chunk_size")?.and_then(|rows| rows.parse().ok()).filter(|rows| *rows > 0);
        let layout = match (is_csv, is("chunked"), is("pretty")) {
            (true, ..) => Layout::Csv,
            (_, true, _) => Layout::Chunked(rows.unwrap_or(CHUNK_ROWS_DEFAULT)),
            (_, _, true) => Layout::Pretty,
            _ => Layout::Plain,
        };
        let parameters = text("params")?.map(|params| parameters(&params)).transpose()?.unwrap_or_default();
        Ok(Self {
            text: text("q")?.ok_or("missing required parameter \"q\"")?,
            database: text("db")?.unwrap_or_else(|| DATABASE_DEFAULT.to_owned()),
            epoch,
            layout,
            parameters,
        })
    }
}

/// What `$name` stands for: a JSON object of numbers, texts and booleans, or of objects with one of them that say what it is.
fn parameters(text: &str) -> Result<Parameters, String> {
    let bad = |what: &dyn std::fmt::Display| format!("error parsing query parameters: {what}");
    let object: serde_json::Map<String, Json> = serde_json::from_str(text).map_err(|error| bad(&error))?;
    object
        .into_iter()
        .map(|(name, given)| match parameter(&given) {
            Some(parameter) => Ok((name, parameter)),
            None => Err(bad(&format!(
                "unable to bind parameter {name}: it is a number, a text, a boolean, or an object such as {{\"identifier\":\"cpu\"}} \
                 with one of identifier, regex, string, float, integer, boolean, duration"
            ))),
        })
        .collect()
}

fn parameter(given: &Json) -> Option<Parameter> {
    let value = |given: &Json| {
        Some(Parameter::Value(match given {
            Json::Bool(is_so) => Value::Boolean(*is_so),
            Json::String(text) => Value::Text(text.as_str().into()),
            Json::Number(number) => {
                number.as_i64().map(Value::Integer).or_else(|| number.as_f64().map(Value::Float))?
            }
            _ => return None,
        }))
    };
    let Json::Object(object) = given else { return value(given) };
    let mut entries = object.iter();
    let (Some((kind, given)), None) = (entries.next(), entries.next()) else { return None };
    match (kind.as_str(), given) {
        ("ident" | "identifier", Json::String(name)) => Some(Parameter::Name(name.clone())),
        ("regex", Json::String(text)) => Some(Parameter::Regex(text.clone())),
        ("float" | "number", Json::Number(number)) => {
            number.as_f64().map(|number| Parameter::Value(Value::Float(number)))
        }
        ("int" | "integer", Json::Number(number)) => {
            number.as_i64().map(|number| Parameter::Value(Value::Integer(number)))
        }
        ("duration", Json::Number(nanos)) => nanos.as_i64().map(Parameter::Duration),
        ("duration", Json::String(text)) => Parameter::duration(text),
        ("string", Json::String(_)) | ("bool" | "boolean", Json::Bool(_)) => value(given),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(form: &str, query: &str) -> Result<Params, String> {
        Params::of(&Query::parse(Some(form)).unwrap(), &Query::parse(Some(query)).unwrap(), false)
    }

    #[test]
    fn parameters_come_from_the_body_before_the_query() {
        let params_of = |form, query| params(form, query).unwrap();
        let both = params_of("q=a+b&epoch=ms", "q=c&db=d&pretty=true");
        assert_eq!((both.text.as_str(), both.database.as_str()), ("a b", "d"));
        assert_eq!((both.epoch, both.layout), (Epoch::Units(1_000_000), Layout::Pretty));
        let chunked = params_of("", "q=c&chunked=true&chunk_size=7");
        assert_eq!((chunked.epoch, chunked.layout), (Epoch::Text, Layout::Chunked(7)));
        assert_eq!(chunked.database, "default");
        assert_eq!(params("", "db=d").unwrap_err(), "missing required parameter \"q\"");
        let bound = params_of("q=x&params={\"a\":1,\"b\":1.5,\"c\":\"t\",\"d\":true}", "").parameters;
        assert_eq!(bound.get("b"), Some(&Parameter::Value(Value::Float(1.5))));
        assert_eq!(bound.len(), 4);
        // As the Go client says what they are.
        for (given, wanted) in [
            (r#"{"identifier":"cpu"}"#, Parameter::Name("cpu".to_owned())),
            (r#"{"regex":"a.*"}"#, Parameter::Regex("a.*".to_owned())),
            (r#"{"string":"x"}"#, Parameter::Value(Value::Text("x".into()))),
            (r#"{"number":2}"#, Parameter::Value(Value::Float(2.0))),
            (r#"{"integer":-2}"#, Parameter::Value(Value::Integer(-2))),
            (r#"{"boolean":false}"#, Parameter::Value(Value::Boolean(false))),
            (r#"{"duration":5}"#, Parameter::Duration(5)),
            (r#"{"duration":"1m"}"#, Parameter::Duration(60_000_000_000)),
        ] {
            let form = format!("q=x&params={{\"p\":{given}}}");
            let bound = params(&form, "").unwrap().parameters;
            assert_eq!(bound.get("p"), Some(&wanted), "{given}");
        }
        for bad in [
            "q=x&params=[]",
            "q=x&params={\"a\":[]}",
            "q=x&params={\"a\":{}}",
            "q=x&params={\"a\":{\"integer\":1,\"float\":2}}",
            "q=x&params={\"a\":{\"integer\":1.5}}",
            "q=x&params={\"a\":{\"duration\":\"x\"}}",
            "q=x&params={\"a\":{\"other\":1}}",
            "q=%ff",
        ] {
            assert!(params(bad, "").is_err(), "{bad}");
        }
    }
}
