//! Pages, and which request asks for which.
//!
//! May use: the clinic's questions. Must not know: sockets, where things are kept.

use std::fmt::Write;

use crate::clinic::{Desk, Failure, OwnerFile, Visit};

/// What goes back to a browser.
pub(crate) struct Answer {
    pub(crate) status: &'static str,
    /// Where to go instead.
    pub(crate) location: Option<String>,
    pub(crate) page: String,
}

/// Answers one request.
pub(crate) fn answer(desk: &mut dyn Desk, method: &str, target: &str, form: &str) -> Result<Answer, Failure> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let id = |text: &str| text.parse::<u64>().ok();
    match (method, parts.as_slice()) {
        ("GET", [""]) => Ok(page("Welcome", SEARCH)),
        ("GET", ["owners"]) => {
            let last = field(query, "last").unwrap_or_default();
            let mut body = String::from("<table><tr><th>Name</th><th>City</th><th>Telephone</th></tr>");
            for owner in desk.find(&last)? {
                let name = escaped(&format!("{} {}", owner.first, owner.last));
                let (city, telephone) = (escaped(&owner.city), escaped(&owner.telephone));
                let id = owner.id;
                write!(
                    body,
                    "<tr><td><a href=\"/owners/{id}\">{name}</a></td><td>{city}</td><td>{telephone}</td></tr>"
                )?;
            }
            body.push_str("</table>");
            Ok(page("Owners", &body))
        }
        ("GET", ["owners", owner]) => match id(owner).map(|id| desk.owner(id)).transpose()?.flatten() {
            Some(found) => Ok(page("Owner", &owner_page(&found)?)),
            None => Ok(missing()),
        },
        ("POST", ["owners", owner, "pets", pet, "visits"]) => {
            let (Some(owner), Some(pet)) = (id(owner), id(pet)) else { return Ok(missing()) };
            let wanted = |name| field(form, name).filter(|text| !text.is_empty());
            let (Some(date), Some(description)) = (wanted("date"), wanted("description")) else {
                return Ok(Answer {
                    status: "400 Bad Request",
                    ..page("Sorry", "<p>A visit has a date and a description.</p>")
                });
            };
            if !desk.visit(&Visit { owner, pet, date, description })? {
                return Ok(missing());
            }
            let location = Some(format!("/owners/{owner}"));
            Ok(Answer { status: "303 See Other", location, page: String::new() })
        }
        _ => Ok(missing()),
    }
}

const SEARCH: &str = "<form action=\"/owners\">Last name <input name=\"last\"> <button>Find owners</button></form>";

fn missing() -> Answer {
    Answer { status: "404 Not Found", ..page("Sorry", "<p>There is no such page.</p>") }
}

/// A page with this inside.
pub(crate) fn page(title: &str, body: &str) -> Answer {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title} - Clinic</title></head>\n<body>\n\
         <nav><a href=\"/\">Home</a> <a href=\"/owners\">Owners</a></nav>\n<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
    );
    Answer { status: "200 OK", location: None, page }
}

fn owner_page(found: &OwnerFile) -> Result<String, Failure> {
    let owner = &found.owner;
    let mut body = format!(
        "<dl><dt>Name</dt><dd>{} {}</dd><dt>City</dt><dd>{}</dd><dt>Telephone</dt><dd>{}</dd></dl>\n",
        escaped(&owner.first),
        escaped(&owner.last),
        escaped(&owner.city),
        escaped(&owner.telephone)
    );
    for file in &found.pets {
        let pet = &file.pet;
        let (name, kind, born) = (escaped(&pet.name), escaped(&pet.kind), escaped(&pet.born));
        writeln!(body, "<h2>{name}, {kind}, born {born}</h2>\n<table><tr><th>Date</th><th>Why</th></tr>")?;
        for visit in &file.visits {
            writeln!(body, "<tr><td>{}</td><td>{}</td></tr>", escaped(&visit.date), escaped(&visit.description))?;
        }
        write!(
            body,
            "</table>\n<form method=\"post\" action=\"/owners/{}/pets/{}/visits\">Date <input name=\"date\" type=\"date\"> \
             Why <input name=\"description\"> <button>Add visit</button></form>\n",
            pet.owner, pet.id
        )?;
    }
    Ok(body)
}

/// Text that may stand between tags and in attributes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// A field of a form.
fn field(form: &str, name: &str) -> Option<String> {
    let value = form.split('&').find_map(|pair| pair.split_once('=').filter(|(is, _)| *is == name))?.1;
    let mut bytes = value.bytes();
    let mut out = Vec::with_capacity(value.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit(bytes.next()?)? * 16 + digit(bytes.next()?)?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}
