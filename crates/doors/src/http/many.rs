//! What is asked about many entries of a type: how many there are, that all of them go, how they would be found, and all of them, some at a
//! time.
//!
//! May use: everything of the door but sockets.

use std::time::Instant;

use axum::http::StatusCode;
use axum::response::Response;
use holdfast::Store;
use holdfast::space::{Stop, Wanted};
use serde_json::json;

use super::failure::Failure;
use super::fields::Fields;
use super::handle::{Asked, JSON, say_durability, with_type};
use super::json_body::Becomes;
use super::object::shown_at;
use super::showing::{Otherwise, Text};
use super::space;
use super::space_json;
use super::spaces::{holding, searching};
use super::upload::Upload;
use super::uri;
use crate::budget::Share;
use crate::explained::{self, By, Found};
use crate::iterations::{self, Going, batch, locked};

/// Entries that an iteration returns at a time unless its limit says otherwise.
const LIMIT_DEFAULT: usize = 100;

/// Where an iteration begins, or goes on.
enum Begins {
    Now(Box<Wanted>),
    At(u64),
}

fn explanation(found: &[Found]) -> serde_json::Value {
    let one = |found: &Found| {
        let (by, index) = match &found.by {
            By::Id => ("id", None),
            By::Index(index) => ("index", Some(index)),
            By::All => ("all", None),
        };
        json!({ "by": by, "index": index, "partitions": found.partitions, "candidates": found.candidates })
    };
    let (partitions, candidates): (u64, u64) =
        (found.iter().map(|it| it.partitions).sum(), found.iter().map(|it| it.candidates).sum());
    json!({ "partitions": partitions, "candidates": candidates, "by": found.iter().map(one).collect::<Vec<_>>() })
}

impl Asked<'_> {
    async fn which(&self, upload: &mut Upload) -> Result<(Wanted, Share), Failure> {
        upload.check_present()?;
        let store = self.shared.store.clone();
        let read = move |text: &[u8]| {
            let mut fields = Fields::parse(text)?;
            let wanted = space_json::wanted(&mut fields, &store)?.kept(&store)?;
            fields.end()?;
            Ok(wanted)
        };
        self.json(upload, Becomes::Values, read).await
    }

    pub(crate) async fn count_entries(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (place, durability) = (self.place()?, self.durability()?);
        let (wanted, share) = self.which(upload).await?;
        let count = move |store: &Store, stop: Stop| {
            let entries = place.entries(store)?.until(stop);
            let shown = entries.count_shown(&wanted)?;
            space::settle(store, &entries, shown.position, shown_at(durability))?;
            Ok::<_, Failure>(shown.value)
        };
        let count = self.search(searching(share, count)).await?;
        Ok(say_durability(with_type(JSON, json!({ "count": count }).to_string()), durability))
    }

    pub(crate) async fn explain_entries(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let place = self.place()?;
        upload.check_present()?;
        let store = self.shared.store.clone();
        let read = move |text: &[u8]| {
            let mut fields = Fields::parse(text)?;
            let is_id = fields.has("id");
            let wanted = space_json::wanted(&mut fields, &store)?.kept(&store)?;
            fields.end()?;
            Ok((wanted, is_id))
        };
        let ((wanted, is_id), share) = self.json(upload, Becomes::Values, read).await?;
        let explain =
            move |store: &Store| Ok::<_, Failure>(explained::explain(&place.entries(store)?, &wanted, is_id)?);
        let found = self.shared.ask(holding(share, explain)).await??;
        Ok(with_type(JSON, explanation(&found).to_string()))
    }

    pub(crate) async fn clear_entries(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (place, durability) = (self.place()?, self.durability()?);
        let (wanted, share) = self.which(upload).await?;
        // It goes on when nobody waits for it any more: who sends it and goes means it.
        let stop = Stop { time_max: Some(self.shared.options.limits.space_time_max), ..Stop::default() };
        let clear = move |store: &Store| {
            let entries = place.entries(store)?.until(stop);
            let shown = entries.clear_shown(&wanted)?;
            space::settle(store, &entries, shown.position, durability)?;
            Ok::<_, Failure>(shown.value)
        };
        let count = self.shared.ask(holding(share, clear)).await??;
        Ok(say_durability(with_type(JSON, json!({ "cleared": count }).to_string()), durability))
    }

    pub(crate) async fn iterate_entries(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (place, durability) = (self.place()?, self.durability()?);
        upload.check_present()?;
        let (mut fields, share) = self.json(upload, Becomes::Values, Fields::parse).await?;
        let limits = &self.shared.options.limits;
        let limit = fields.number("limit")?.map_or(LIMIT_DEFAULT, |it| usize::try_from(it).unwrap_or(usize::MAX));
        let (limit, bytes_max) = (limit.clamp(1, limits.page_entries_max), limits.documents_bytes_max);
        let life = fields.number("lease_ms")?.map(|ms| {
            let text = || format!("lease_ms of an iteration is from 1 to {}", iterations::LIFE_MAX.as_millis());
            iterations::life(ms).ok_or_else(|| Failure::bad(text()))
        });
        let life = life.transpose()?;
        let begins = match fields.text("cursor")? {
            None => {
                let store = &self.shared.store;
                Begins::Now(Box::new(space_json::wanted(&mut fields, store)?.kept(store)?))
            }
            Some(cursor) => {
                let number = uri::number(cursor.as_bytes());
                Begins::At(number.ok_or_else(|| Failure::bad("the cursor is none that this server made"))?)
            }
        };
        fields.end()?;
        let known = std::sync::Arc::clone(&self.shared.iterations);
        let go_on = move |store: &Store, stop: Stop| {
            let entries = place.entries(store)?.until(stop.clone());
            let name = (place.space.into_bytes(), place.name.into_bytes());
            let mut going = match begins {
                Begins::Now(wanted) => Going::new(name, entries.iterate(&wanted)?),
                Begins::At(id) => {
                    let going = locked(&known).take(id, (&name.0, &name.1), None, Instant::now());
                    let text = "there is no such cursor any more, or it was used: begin anew";
                    // Another client may have begun it.
                    going.ok_or_else(|| Failure::new(StatusCode::GONE, text))?.until(stop)
                }
            };
            let (found, goes_on) = batch(limit, bytes_max, || going.next())?;
            let newest = found.iter().map(|entry| entry.version).max().unwrap_or_default();
            space::settle(store, &entries, newest, shown_at(durability))?;
            let cursor = goes_on.then(|| locked(&known).add(going.living(life), Instant::now()));
            Ok::<_, Failure>((cursor, found))
        };
        let (cursor, found) = self.search(searching(share, go_on)).await?;
        let bytes = space_json::stored_bytes(&found);
        let cursor = cursor.map_or_else(|| "null".to_owned(), |cursor| format!("\"{cursor}\""));
        let show = move |text: &mut Text| {
            text.add(&format!("{{\"cursor\":{cursor},"))?;
            space_json::add_entries(text, &found)
        };
        let body = self.shared.show((bytes, Otherwise::Show), show).await?;
        Ok(say_durability(with_type(JSON, body), durability))
    }
}
