//! One question: whose database it is about, where its words are, and the thread that answers it.
//!
//! Answers are made piece by piece while they are sent, so that a long one costs the memory of a piece; but what deletes is
//! made whole, so that nothing is deleted that is not in the answer.
//!
//! May use: `gone`, `json_body`, `pages`, `shared`, the facade's `series::opentsdb`. Must not know: how anything is computed.

use std::sync::Arc;
use std::time::Instant;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use holdfast::Store;
use holdfast::series::opentsdb::{Afterwards, Answer, LastQuery, Lookup, Parameters, Query, Suggest};
use holdfast::series::{Missing, Reader, Stop};

use super::super::failure::Failure;
use super::super::handle::{Asked, say_durability};
use super::super::json_body::Becomes;
use super::super::pages::{self, Piece, Pieces};
use super::super::spaces::searching;
use super::super::upload::Upload;
use super::about;
use super::refused::{JSON, Refused};
use crate::argument::regexes_in;
use crate::auth::{Right, User};
use crate::budget::Share;

/// The database of clients that know none.
const DATABASE_DEFAULT: &str = "default";

/// Where the words of a question are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Parameters,
    Body,
    /// In the body if there is anything in it.
    BodyOrParameters,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    Query(Afterwards),
    Last,
    Suggest,
    Lookup,
    Assign,
}

/// A question of somebody who may ask it.
pub(super) struct Asking<'a> {
    asked: &'a Asked<'a>,
    user: Option<Arc<User>>,
    database: String,
    parameters: Parameters,
    form: Form,
}

impl<'a> Asking<'a> {
    pub(super) fn new(asked: &'a Asked<'a>, user: Option<Arc<User>>, form: Form) -> Result<Self, Refused> {
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec()).map_err(|_| Failure::bad("the parameters of the URL are UTF-8"))
        };
        let pairs = asked.query.pairs().map(|(name, value)| Ok((text(name)?, text(value)?)));
        let parameters = Parameters(pairs.collect::<Result<_, Failure>>()?);
        let database = parameters.get("db").filter(|name| !name.is_empty()).unwrap_or(DATABASE_DEFAULT).to_owned();
        let asking = Asking { asked, user, database, parameters, form };
        asking.check(Right::Read)?;
        Ok(asking)
    }

    pub(super) async fn answer(self, asks: Asks, upload: &mut Upload) -> Result<Response, Refused> {
        match asks {
            Asks::Query(afterwards) => self.query(afterwards, upload).await,
            Asks::Last => self.last(upload).await,
            Asks::Suggest => self.suggest(upload).await,
            Asks::Lookup => self.lookup(upload).await,
            Asks::Assign => self.assign(upload).await,
        }
    }

    /// What the words of the question mean, from the body or else from the parameters. Long ones, and those that take long, are
    /// read in a thread; what they become counts as a body for as long as the share lives.
    async fn parsed<T: Send + 'static, E: Send + 'static>(
        &self,
        upload: &mut Upload,
        parse: impl FnOnce(Option<&[u8]>, &Parameters) -> Result<T, E> + Send + 'static,
    ) -> Result<(T, Share), Refused>
    where
        Refused: From<E>,
    {
        let (form, parameters) = (self.form, self.parameters.clone());
        if form == Form::Parameters {
            let takes_long = parameters.0.iter().any(|(_, text)| regexes_in(text.as_bytes()) > 0);
            let act = move |_: &Store| parse(None, &parameters);
            let shared = self.asked.shared;
            let parsed = if takes_long { shared.ask(act).await.map_err(Failure::from)? } else { act(&shared.store) };
            return Ok((parsed?, upload.take_share()));
        }
        let read = move |text: &[u8]| {
            let is_here = form == Form::Body || !text.trim_ascii().is_empty();
            Ok(parse(is_here.then_some(text), &parameters))
        };
        let (parsed, share) = self.asked.json(upload, Becomes::Values, read).await?;
        Ok((parsed?, share))
    }

    fn check(&self, right: Right) -> Result<(), Refused> {
        let may = self.user.as_ref().is_none_or(|user| user.may(right, self.database.as_bytes()));
        if may { Ok(()) } else { Err(Refused::forbidden(&self.database)) }
    }

    fn now(&self) -> i64 {
        let ms = i64::try_from(self.asked.shared.store.now_ms()).unwrap_or(i64::MAX);
        ms.saturating_mul(1_000_000)
    }

    async fn query(self, afterwards: Afterwards, upload: &mut Upload) -> Result<Response, Refused> {
        let now = self.now();
        let parse = move |body: Option<&[u8]>, parameters: &Parameters| match body {
            Some(body) => Query::from_json(body, parameters, now),
            None => Query::from_parameters(parameters, now),
        };
        let (query, share) = self.parsed(upload, parse).await?;
        if afterwards == Afterwards::Delete || query.afterwards() == Afterwards::Delete {
            return self.delete(query.and_delete(), share).await;
        }
        let database = self.database;
        let begin = move |store: &Store, stop: Stop| {
            let reader = store.series().reader().until(stop);
            let mut answer = Answer::begin(&reader, &database, query)?;
            let first = answer.next(&reader)?.unwrap_or_default();
            reader.pause();
            reader.settle()?;
            let missing = reader.missing();
            Ok::<_, Refused>((first, missing, (!answer.is_over()).then_some((answer, reader, share))))
        };
        let (begun, watching) = self.asked.long_question(begin).await?;
        let (first, missing, rest) = begun?;
        let answer = match rest {
            None => json(first),
            Some((answer, reader, share)) => {
                let told = missing.as_ref().map_or(0, Missing::blocks);
                let rest = Rest { answer, reader, told, _share: share };
                ([(CONTENT_TYPE, JSON)], pages::continued(first, Box::new(rest), Some(watching))).into_response()
            }
        };
        Ok(pages::telling(answer, missing.as_ref()))
    }

    /// Answers a query whole, and deletes the points that it read.
    async fn delete(self, query: Query, share: Share) -> Result<Response, Refused> {
        self.check(Right::Write)?;
        let (database, durability) = (self.database, self.asked.durability()?);
        let act = move |store: &Store, stop: Stop| {
            let reader = store.series().reader().until(stop);
            let mut answer = Answer::begin(&reader, &database, query)?;
            let whole = answer.whole(&reader)?;
            reader.settle()?;
            let mut last = None;
            for (select, range) in answer.deletions() {
                last = Some(store.series().delete(select, *range)?.0);
            }
            if let Some(position) = last {
                store.wait(position, durability)?;
            }
            Ok::<_, Refused>((whole, reader.missing()))
        };
        let (whole, missing) = self.asked.change_points(searching(share, act)).await??;
        Ok(pages::telling(say_durability(json(whole), durability), missing.as_ref()))
    }

    async fn last(self, upload: &mut Upload) -> Result<Response, Refused> {
        let parse = |body: Option<&[u8]>, parameters: &Parameters| match body {
            Some(body) => LastQuery::from_json(body, parameters),
            None => LastQuery::from_parameters(parameters),
        };
        let (query, share) = self.parsed(upload, parse).await?;
        let database = self.database;
        ask(self.asked, share, move |reader| {
            let mut out = Vec::new();
            query.answer(reader, &database, &mut out)?;
            Ok(out)
        })
        .await
    }

    async fn suggest(self, upload: &mut Upload) -> Result<Response, Refused> {
        let parse = |body: Option<&[u8]>, parameters: &Parameters| match body {
            Some(body) => Suggest::from_json(body),
            None => Suggest::from_parameters(parameters),
        };
        let (suggest, share) = self.parsed(upload, parse).await?;
        let database = self.database;
        ask(self.asked, share, move |reader| {
            let mut out = Vec::new();
            suggest.answer(reader, &database, &mut out)?;
            Ok(out)
        })
        .await
    }

    async fn lookup(self, upload: &mut Upload) -> Result<Response, Refused> {
        let parse = |body: Option<&[u8]>, parameters: &Parameters| match body {
            Some(body) => Lookup::from_json(body),
            None => Lookup::from_parameters(parameters),
        };
        let (lookup, share) = self.parsed(upload, parse).await?;
        let (database, begun) = (self.database, Instant::now());
        ask(self.asked, share, move |reader| {
            let mut out = Vec::new();
            let found = lookup.find(reader, &database)?;
            found.write(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX), &mut out);
            Ok(out)
        })
        .await
    }

    async fn assign(self, upload: &mut Upload) -> Result<Response, Refused> {
        let parse = |body: Option<&[u8]>, parameters: &Parameters| match body {
            Some(body) => about::assign_from_json(body),
            None => about::assign_from_parameters(parameters),
        };
        Ok(self.parsed(upload, parse).await?.0)
    }
}

pub(super) fn json(bytes: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, JSON)], bytes).into_response()
}

/// Answers a question that is answered at once.
async fn ask(
    asked: &Asked<'_>,
    share: Share,
    act: impl FnOnce(&Reader) -> Result<Vec<u8>, Refused> + Send + 'static,
) -> Result<Response, Refused> {
    let act = move |store: &Store, stop: Stop| {
        let reader = store.series().reader().until(stop);
        let answer = act(&reader)?;
        reader.settle()?;
        Ok::<_, Refused>((answer, reader.missing()))
    };
    let (answer, missing) = asked.question(searching(share, act)).await??;
    Ok(pages::telling(json(answer), missing.as_ref()))
}

/// What is left of an answer.
struct Rest {
    answer: Answer,
    reader: Reader,
    /// Damaged blocks of which the header tells.
    told: usize,
    /// Of the question, which the answer repeats.
    _share: Share,
}

impl Pieces for Rest {
    fn next(&mut self) -> holdfast::Result<Piece> {
        self.reader.resume();
        let piece = self.answer.next(&self.reader)?.unwrap_or_default();
        // Until the client has taken it.
        self.reader.pause();
        self.reader.settle()?;
        let is_over = self.answer.is_over();
        Ok(if is_over { Piece::last(piece, self.reader.missing(), self.told) } else { Piece::More(piece) })
    }
}
