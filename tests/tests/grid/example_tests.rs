//! The example that needs a database: with one, and without.

use std::process::Command;

use holdfast_tests::{example, run};

use super::databases::Postgres;
use super::scene::{Database, LONG};

/// Examples are run without arguments, and this one shows nothing then.
#[test]
fn the_example_mirrors_and_loads_and_leaves_nothing_behind() {
    let program = example("mirror_and_load");
    let alone = run(&mut Command::new(&program), b"", LONG);
    assert!(alone.code == Some(0) && alone.text.contains("no database was given"), "{}", alone.text);

    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    // The second finds the table of bookmarks.
    for _ in 0..2 {
        let with = run(Command::new(&program).args(["--postgres", &postgres.connection()]), b"", LONG);
        assert!(with.code == Some(0) && with.text.contains("a new store has 4 orders"), "{}", with.text);
        let tables = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'";
        assert_eq!(database.texts(tables), ["holdfast_mirror"]);
        assert!(database.texts("SELECT name FROM holdfast_mirror").is_empty());
    }
}
