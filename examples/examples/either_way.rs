//! One program over a store in its own process and over a server: which of them is said in one line.
//!
//! Seats are booked by several threads at once: each takes a free seat, and writes the booking and the number of bookings in the
//! same batch. A view of the free seats is kept up to date meanwhile.
//!
//! Run it: `cargo run -p holdfast-examples --example either_way [HOST:PORT]`. With an address it runs over that server. Without, it runs
//! over a store in the process, and then over a server that it starts, if `cargo build` or `cargo build --release` has made one.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::time::Duration;

use client::{Client, ConnectOptions, LocalView};
use holdfast::space::{Definition, Document, IndexKind, ReadOptions, Wanted, WriteOptions};
use holdfast::{Condition, ErrorKind, Options, PutOptions, Store};
use holdfast_examples::{Outcome, Server};

const SEATS: i64 = 60;
const THREADS: usize = 4;

fn main() -> Outcome<()> {
    if let Some(address) = std::env::args().nth(1) {
        return book(&Client::connect(ConnectOptions::new(&address)).wait()?);
    }
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options::default())?;
    println!("over a store in this process");
    book(&Client::embedded(&store)?)?;
    let Some(mut server) = Server::start()? else {
        println!("no server was built: that is all");
        return Ok(());
    };
    println!("over a server at {}", server.address());
    let client = Client::connect(ConnectOptions::new(server.address()));
    let booked = client.wait().map_err(Into::into).and_then(|client| book(&client));
    server.stop();
    booked
}

/// The program. It does not know where its store is.
fn book(client: &Client) -> Outcome<()> {
    let space = client.space("cinema");
    let seats = Definition { history: true, ..Definition::new("cinema", "seats") };
    let seats = space.declare(seats.index("row", IndexKind::Hash)?).wait()?;
    let bookings = space.declare(Definition::new("cinema", "bookings")).wait()?;
    let all: Vec<Document> = (0..SEATS).map(|id| Document::from_pairs([("id", id), ("row", id / 10)])).collect();
    for written in seats.write_many(&all, &WriteOptions::default()).wait()? {
        written?;
    }
    let free = LocalView::open(&seats, &Wanted::all(), Duration::from_millis(100)).wait()?;
    std::thread::scope(|scope| {
        let book = || -> Outcome<u32> {
            let mut mine = 0;
            while let Some(seat) = seats.read(&Wanted::all(), &ReadOptions::default()).wait()? {
                let Some(id) = seat.document.get("id").map(|id| id.to_value()) else { continue };
                let count = client.kv().get(b"cinema", b"booked").wait()?;
                let (booked, condition) = match &count {
                    Some(object) => {
                        (std::str::from_utf8(&object.value)?.parse()?, Condition::Version(object.head.version))
                    }
                    None => (0_i64, Condition::Absent),
                };
                let mut batch = client.batch();
                let _ = batch.take_version(&seats, &Wanted::id(id.clone()), seat.version);
                let booking = Document::from_pairs([("id", id), ("number", (booked + 1).into())]);
                let _ = batch.write(&bookings, &booking, &WriteOptions::default());
                let options = PutOptions { condition, ..PutOptions::default() };
                let _ = batch.put(b"cinema", b"booked", (booked + 1).to_string().as_bytes(), &options);
                match batch.commit().wait() {
                    Ok(_) => mine += 1,
                    // Somebody else was faster: nothing of it has happened.
                    Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Timeout) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(mine)
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(book)).collect();
        for thread in threads {
            println!("  one thread booked {}", thread.join().map_err(|_| "a thread panicked")??);
        }
        Outcome::Ok(())
    })?;
    let numbers = bookings.select("SELECT COUNT(*) AS n, MAX(number) AS last FROM bookings", &[]).wait()?;
    println!("  {}", numbers.first().map(|row| row.to_json()).unwrap_or_default());
    let booked = client.kv().get_value(b"cinema", b"booked").wait()?;
    assert_eq!(booked.as_deref(), Some(SEATS.to_string().as_bytes()), "each booking counted once");
    assert_eq!(bookings.count(&Wanted::query("number <= ?", &[SEATS.into()])?).wait()?, SEATS.unsigned_abs());
    while free.count().wait()? > 0 {}
    println!("  no seat is free any more");
    Ok(())
}
