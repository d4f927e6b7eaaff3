//! OpenTSDB's queries over a source that is obviously right, compared with a slow and plain description of their answers.

mod examples;
mod oracle;
mod parsing;
mod properties;

use serde_json::Value as Json;

use super::column::Sizes;
use super::{Answer, Parameters, Query};
use crate::error::Result;
use crate::model::Model;

/// A moment after everything that tests write: 2020-09-13, in nanoseconds.
const NOW: i64 = 1_600_000_000_000_000_000;

fn parameters(text: &str) -> Parameters {
    let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    Parameters(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn made(model: &Model, query: Query) -> Result<String> {
    made_in(model, query, Sizes::default())
}

fn made_in(model: &Model, query: Query, sizes: Sizes) -> Result<String> {
    let mut answer = Answer::begin(model, "default", query)?.in_pieces(sizes);
    let whole = answer.whole(model)?;
    assert!(answer.is_over() && answer.next(model)?.is_none(), "there is nothing after the end");
    Ok(String::from_utf8(whole).unwrap())
}

/// The answer to parameters of a URL, as it is sent.
fn get(model: &Model, text: &str) -> String {
    Query::from_parameters(&parameters(text), NOW).and_then(|query| made(model, query)).unwrap()
}

/// The answer to a body.
fn post(model: &Model, body: &Json) -> Result<Json> {
    let query = Query::from_json(body.to_string().as_bytes(), &Parameters::default(), NOW)?;
    Ok(serde_json::from_str(&made(model, query)?).expect("answers are JSON"))
}

/// What is said to a query that cannot be answered.
fn refusal(model: &Model, text: &str) -> String {
    let answered = Query::from_parameters(&parameters(text), NOW).and_then(|query| made(model, query));
    super::message(&answered.unwrap_err())
}
