//! A small clinic for animals: owners, their pets, and the pets' visits, as pages rendered on the server.
//!
//! The same pages stand over a space in this process, or over PostgreSQL. Over the space a page is made of what lies in memory
//! beside it, and is as durable as in the database.
//!
//! Run it: `cargo run -p holdfast-examples --example clinic` shows some pages and ends. To look at it with a browser:
//! `cargo run -p holdfast-examples --example clinic -- --listen 127.0.0.1:8080`, with `--dir FOLDER` to keep what is written, or
//! with `--postgres "host=127.0.0.1 user=postgres dbname=postgres"` over a database.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints what it shows")]

mod clinic;
mod http;
mod in_postgres;
mod in_space;
mod pages;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use holdfast::Durability;

use clinic::{Clinic, Failure, fill};
use in_postgres::InPostgres;
use in_space::InSpace;

/// How the program is told what to do.
struct Line {
    listen: Option<SocketAddr>,
    dir: Option<PathBuf>,
    postgres: Option<String>,
    durability: Durability,
    owners: u64,
}

fn main() -> Result<(), Failure> {
    let line = read_line(std::env::args().skip(1))?;
    // Without a folder nothing is kept; it goes when this goes.
    let folder = tempfile::tempdir()?;
    let clinic: Arc<dyn Clinic> = match (&line.postgres, &line.dir) {
        (Some(connection), _) => Arc::new(InPostgres::open(connection)?),
        (None, Some(dir)) => Arc::new(InSpace::open(dir, line.durability)?),
        (None, None) => Arc::new(InSpace::open(folder.path(), line.durability)?),
    };
    if clinic.desk()?.owners()? == 0 {
        fill(clinic.desk()?.as_mut(), line.owners)?;
    }
    match line.listen {
        Some(address) => {
            let listener = TcpListener::bind(address)?;
            println!("http {}", listener.local_addr()?);
            println!("ready");
            http::serve(&listener, &clinic)
        }
        None => show(&clinic),
    }
}

fn read_line(mut words: impl Iterator<Item = String>) -> Result<Line, Failure> {
    let mut line = Line { listen: None, dir: None, postgres: None, durability: Durability::Synced, owners: 1000 };
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name} needs a value behind it"))?;
        match name.as_str() {
            "--listen" => line.listen = Some(value.parse().map_err(|_| format!("{value} is no address and port"))?),
            "--dir" => line.dir = Some(value.into()),
            "--postgres" => line.postgres = Some(value),
            "--owners" => line.owners = value.parse().map_err(|_| format!("{value} is no number of owners"))?,
            "--durability" => {
                line.durability = match value.as_str() {
                    "synced" => Durability::Synced,
                    "written" => Durability::Written,
                    _ => return Err("--durability is synced or written".into()),
                };
            }
            _ => return Err(format!("{name} is not known: --listen, --dir, --postgres, --durability, --owners").into()),
        }
    }
    Ok(line)
}

/// Serves on a free port, looks at an owner, writes a visit, and finds it on the page.
fn show(clinic: &Arc<dyn Clinic>) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let served = Arc::clone(clinic);
    std::thread::spawn(move || http::serve(&listener, &served));
    let ask = |request: &str| -> Result<String, Failure> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let get = |path: &str| ask(&format!("GET {path} HTTP/1.1\r\nHost: clinic\r\nConnection: close\r\n\r\n"));
    let pet = clinic.desk()?.owner(1)?.and_then(|found| found.pets.first().map(|pet| pet.pet.id)).ok_or("no pets")?;
    let visit = "date=2026-03-14&description=limps+%3Ca+little%3E";
    let posted = ask(&format!(
        "POST /owners/1/pets/{pet}/visits HTTP/1.1\r\nHost: clinic\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{visit}",
        visit.len()
    ))?;
    assert!(posted.starts_with("HTTP/1.1 303 "), "{posted}");
    let page = get("/owners/1")?;
    assert!(page.contains("2026-03-14") && page.contains("limps &lt;a little&gt;"), "{page}");
    assert!(get("/")?.contains("Find owners"), "the front page has a form");
    let found = get("/owners?last=Sm")?;
    assert!(found.contains("Smith") && !found.contains("Jones"), "{found}");
    let refused = "POST /owners/1/pets/1/visits HTTP/1.1\r\nConnection: close\r\nContent-Length: 11\r\n\r\ndate=sooner";
    assert!(ask(refused)?.starts_with("HTTP/1.1 400 "), "a visit has a date and a description");
    for (path, status) in [("/owners/123456789", "404"), ("/owners/x", "404"), ("/nothing", "404")] {
        assert!(get(path)?.starts_with(&format!("HTTP/1.1 {status} ")), "{path}");
    }
    println!("the visit is on the page of owner 1:");
    page.lines().filter(|line| line.contains("2026-03-14")).for_each(|line| println!("{}", line.trim()));
    Ok(())
}
