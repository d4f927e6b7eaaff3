//! One question: whose database it is about, where its words are, and the thread that answers it.
//!
//! Answers are made piece by piece while they are sent, so that a long one costs the memory of a piece; but what deletes is
//! made whole, so that nothing is deleted that is not in the answer.
//!
//! May use: `ingest`'s bodies, `pages`, `shared`, the facade's `series::opentsdb`. Must not know: how anything is computed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use holdfast::Store;
use holdfast::series::opentsdb::{Afterwards, Answer, LastQuery, Lookup, Parameters, Query, Suggest};
use holdfast::series::{Missing, Reader};

use super::super::failure::Failure;
use super::super::handle::{Asked, say_durability};
use super::super::ingest::question;
use super::super::pages::{self, Piece, Pieces};
use super::super::shared::Shared;
use super::super::upload::Upload;
use super::about;
use super::refused::{JSON, Refused};
use crate::auth::{Right, User};

/// The database of clients that know none.
const DATABASE_DEFAULT: &str = "default";
/// How long the first piece of an answer may take: OpenTSDB has no limit, and a store that is stuck must not hold a thread for ever.
const FIRST_PIECE_TIME_MAX: Duration = Duration::from_secs(600);

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
    /// `None` when the words are in the parameters.
    body: Option<Vec<u8>>,
}

impl<'a> Asking<'a> {
    pub(super) async fn new(
        asked: &'a Asked<'a>,
        user: Option<Arc<User>>,
        form: Form,
        upload: &mut Upload,
    ) -> Result<Self, Refused> {
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec()).map_err(|_| Failure::bad("the parameters of the URL are UTF-8"))
        };
        let pairs = asked.query.pairs().map(|(name, value)| Ok((text(name)?, text(value)?)));
        let parameters = Parameters(pairs.collect::<Result<_, Failure>>()?);
        let database = parameters.get("db").filter(|name| !name.is_empty()).unwrap_or(DATABASE_DEFAULT).to_owned();
        let asking = Asking { asked, user, database, parameters, body: None };
        asking.check(Right::Read)?;
        let body = match form {
            Form::Parameters => None,
            Form::Body => Some(question(asked, upload).await?),
            Form::BodyOrParameters => Some(question(asked, upload).await?).filter(|body| !body.trim_ascii().is_empty()),
        };
        Ok(Asking { body, ..asking })
    }

    pub(super) async fn answer(self, asks: Asks) -> Result<Response, Refused> {
        match asks {
            Asks::Query(afterwards) => self.query(afterwards).await,
            Asks::Last => self.last().await,
            Asks::Suggest => self.suggest().await,
            Asks::Lookup => self.lookup().await,
            Asks::Assign => self.assign(),
        }
    }

    fn check(&self, right: Right) -> Result<(), Refused> {
        let may = self.user.as_ref().is_none_or(|user| user.may(right, self.database.as_bytes()));
        if may { Ok(()) } else { Err(Refused::forbidden(&self.database)) }
    }

    fn now(&self) -> i64 {
        let ms = i64::try_from(self.asked.shared.store.now_ms()).unwrap_or(i64::MAX);
        ms.saturating_mul(1_000_000)
    }

    async fn query(self, afterwards: Afterwards) -> Result<Response, Refused> {
        let now = self.now();
        let query = match &self.body {
            Some(body) => Query::from_json(body, &self.parameters, now)?,
            None => Query::from_parameters(&self.parameters, now)?,
        };
        if afterwards == Afterwards::Delete || query.afterwards() == Afterwards::Delete {
            return self.delete(query.and_delete()).await;
        }
        let database = self.database;
        let begin = move |store: &Store| {
            let reader = store.series().reader();
            let mut answer = Answer::begin(&reader, &database, query)?;
            let first = answer.next(&reader)?.unwrap_or_default();
            reader.settle()?;
            let missing = reader.missing();
            Ok::<_, Refused>((first, missing, (!answer.is_over()).then_some((answer, reader))))
        };
        let (first, missing, rest) = patiently(self.asked.shared, begin).await??;
        let turns = Some(self.asked.shared.turns.clone());
        let answer = match rest {
            None => json(first),
            Some((answer, reader)) => {
                let rest = Rest { answer, reader, told: missing.as_ref().map_or(0, Missing::blocks) };
                ([(CONTENT_TYPE, JSON)], pages::continued(first, Box::new(rest), turns)).into_response()
            }
        };
        Ok(pages::telling(answer, missing.as_ref()))
    }

    /// Answers a query whole, and deletes the points that it read.
    async fn delete(self, query: Query) -> Result<Response, Refused> {
        self.check(Right::Write)?;
        let (database, durability) = (self.database, self.asked.durability()?);
        let act = move |store: &Store| {
            let reader = store.series().reader();
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
        let (whole, missing) = patiently(self.asked.shared, act).await??;
        Ok(pages::telling(say_durability(json(whole), durability), missing.as_ref()))
    }

    async fn last(self) -> Result<Response, Refused> {
        let query = match &self.body {
            Some(body) => LastQuery::from_json(body, &self.parameters)?,
            None => LastQuery::from_parameters(&self.parameters)?,
        };
        let database = self.database;
        ask(self.asked.shared, move |reader| {
            let mut out = Vec::new();
            query.answer(reader, &database, &mut out)?;
            Ok(out)
        })
        .await
    }

    async fn suggest(self) -> Result<Response, Refused> {
        let suggest = match &self.body {
            Some(body) => Suggest::from_json(body)?,
            None => Suggest::from_parameters(&self.parameters)?,
        };
        let database = self.database;
        ask(self.asked.shared, move |reader| {
            let mut out = Vec::new();
            suggest.answer(reader, &database, &mut out)?;
            Ok(out)
        })
        .await
    }

    async fn lookup(self) -> Result<Response, Refused> {
        let lookup = match &self.body {
            Some(body) => Lookup::from_json(body)?,
            None => Lookup::from_parameters(&self.parameters)?,
        };
        let (database, begun) = (self.database, Instant::now());
        ask(self.asked.shared, move |reader| {
            let mut out = Vec::new();
            let found = lookup.find(reader, &database)?;
            found.write(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX), &mut out);
            Ok(out)
        })
        .await
    }

    fn assign(self) -> Result<Response, Refused> {
        Ok(match &self.body {
            Some(body) => about::assign_from_json(body)?,
            None => about::assign_from_parameters(&self.parameters)?,
        })
    }
}

pub(super) fn json(bytes: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, JSON)], bytes).into_response()
}

/// Answers a question that is answered at once.
async fn ask(
    shared: &Shared,
    act: impl FnOnce(&Reader) -> Result<Vec<u8>, Refused> + Send + 'static,
) -> Result<Response, Refused> {
    let answer = patiently(shared, move |store| {
        let reader = store.series().reader();
        let answer = act(&reader)?;
        reader.settle()?;
        Ok::<_, Refused>((answer, reader.missing()))
    });
    let (answer, missing) = answer.await??;
    Ok(pages::telling(json(answer), missing.as_ref()))
}

/// Lets a thread that may wait ask the store, however much there is to be read.
async fn patiently<T: Send + 'static>(
    shared: &Shared,
    act: impl FnOnce(&Store) -> T + Send + 'static,
) -> Result<T, Failure> {
    shared.query_within(FIRST_PIECE_TIME_MAX, act).await
}

/// What is left of an answer.
struct Rest {
    answer: Answer,
    reader: Reader,
    /// Damaged blocks of which the header tells.
    told: usize,
}

impl Pieces for Rest {
    fn next(&mut self) -> holdfast::Result<Piece> {
        let piece = self.answer.next(&self.reader)?.unwrap_or_default();
        self.reader.settle()?;
        let is_over = self.answer.is_over();
        Ok(if is_over { Piece::last(piece, self.reader.missing(), self.told) } else { Piece::More(piece) })
    }
}
