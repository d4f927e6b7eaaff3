//! `holdfast xa`: a person looks at what is in doubt, and settles it.

use std::process::Command;
use std::time::Duration;

use holdfast_tests::{Finished, Launch, files_of, flip, holdfast, run};
use monkey_rust::{Monkey, Opening};
use tm::{Begin, Branch, Coordinator, Decisions, PostgresBranch, Remote, RemoteOptions, ResourceManager};
use tokio_postgres::NoTls;

use crate::bank::name;
use crate::databases::Postgres;

const TIME_MAX: Duration = Duration::from_secs(30);

fn xa(words: &[&str]) -> Finished {
    let mut command = Command::new(holdfast());
    command.arg("xa").args(words).env_remove("HOLDFAST_XA_PROFILE").env_remove("HOLDFAST_XA_PROFILE_NAME");
    run(&mut command, b"", TIME_MAX)
}

/// A branch that is prepared, whose program then does nothing more.
async fn prepare(postgres: &Postgres, coordinator: &Coordinator, table: &str) -> tm::TransactionId {
    let (client, connection) = tokio_postgres::connect(&postgres.connection(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let transaction = coordinator.begin(Begin::default()).unwrap();
    let client = std::sync::Arc::new(client);
    let mut branch = PostgresBranch::start(&client, transaction.xid("ledger").unwrap()).await.unwrap();
    client.batch_execute(&format!("CREATE TABLE {table} (id INT)")).await.unwrap();
    assert_eq!(branch.prepare().await.code, tm::XaCode::Ok);
    transaction.id()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_settles_what_is_in_doubt() {
    let postgres = Postgres::start(10);
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::new(&folder.path().join("data")).start();
    let address = server.resp().to_string();
    let profile = folder.path().join("xa.toml");
    let text = format!(
        "[profiles.bank.coordinator]\nservers = [\"{address}\"]\n\n[[profiles.bank.resource_managers]]\n\
         name = \"ledger\"\nkind = \"postgres\"\nopen = \"{}\"\n",
        postgres.connection()
    );
    std::fs::write(&profile, &text).unwrap();
    let profile = profile.display().to_string();
    let checked = xa(&["check", "--profile", &profile]);
    assert_eq!(checked.code, Some(0), "{}", checked.text);

    let options = RemoteOptions { name: Some("the bank\n".to_owned()), ..RemoteOptions::new(&address) };
    let decisions = std::sync::Arc::new(Remote::open(options).unwrap());
    let coordinator = Coordinator::over(decisions.clone());
    let decided = prepare(&postgres, &coordinator, "decided").await;
    let hanging = prepare(&postgres, &coordinator, "hanging").await;
    decisions.commit(decided, &[name("ledger")], None).unwrap();
    let (decided, hanging) = (decided.to_string(), hanging.to_string());

    let listed = xa(&["list", "--address", &address]);
    assert_eq!(listed.code, Some(0), "{}", listed.text);
    assert!(listed.text.contains(&format!("{decided} committed")), "{}", listed.text);
    assert!(listed.text.contains(" the bank\\n#") && listed.text.contains("ledger=open"), "{}", listed.text);
    let shown = xa(&["show", &decided, "--address", &address]);
    assert!(shown.text.contains("it is decided") && shown.text.contains(" the bank\\n\n"), "{}", shown.text);
    let shown = xa(&["show", &hanging, "--address", &address]);
    assert!(shown.text.contains("state       unknown") && shown.text.contains(" the bank\\n\n"), "{}", shown.text);

    let recovered = xa(&["recover", "--profile", &profile]);
    assert_eq!(recovered.code, Some(1), "{}", recovered.text);
    assert!(recovered.text.starts_with("asking     ledger\nasked      ledger: 2 prepared\n"), "{}", recovered.text);
    assert!(recovered.text.contains(&format!("{decided}.ledger: committed")), "{}", recovered.text);
    assert!(recovered.text.contains(&format!("{hanging}.ledger: left alone")), "{}", recovered.text);

    assert_eq!(xa(&["rollback", &hanging, "--address", &address]).code, Some(0));
    let refused = xa(&["commit", &hanging, "ledger", "--address", &address]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.text.contains("rolled back"), "{}", refused.text);
    let recovered = xa(&["recover", "--profile", &profile]);
    assert_eq!(recovered.code, Some(0), "{}", recovered.text);
    assert!(recovered.text.contains(&format!("{hanging}.ledger: rolled back")), "{}", recovered.text);
    assert!(recovered.text.contains("nothing is in doubt"), "{}", recovered.text);

    // As if the program had been killed before it told anybody.
    let forgotten = prepare(&postgres, &coordinator, "forgotten").await;
    decisions.commit(forgotten, &[name("ledger")], None).unwrap();
    let (client, connection) = tokio_postgres::connect(&postgres.connection(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("COMMIT PREPARED '{forgotten}.ledger'")).await.unwrap();
    for (age, swept) in [("1000", "swept      0"), ("0", "swept      1")] {
        let recovered = xa(&["recover", "--sweep", age, "--profile", &profile]);
        assert!(recovered.code == Some(0) && recovered.text.contains(swept), "{}", recovered.text);
    }
    let listed = xa(&["list", "--address", &address]);
    assert!(!listed.text.contains("=open"), "{}", listed.text);

    for (words, wanted) in [
        (&["list", "--address", "127.0.0.1:1"][..], "cannot reach the coordinator at 127.0.0.1:1"),
        (&["list", "--dir", "/no/such/folder"], "there is no store in /no/such/folder"),
        (&["check", "--profile", "/no/such/file"], "cannot read the profile /no/such/file"),
    ] {
        let refused = xa(words);
        assert!(refused.code == Some(1) && refused.text.contains(wanted), "{}", refused.text);
    }
    let wrong = text.replace("user=postgres", "user=nobody");
    std::fs::write(&profile, wrong).unwrap();
    let checked = xa(&["check", "--profile", &profile]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.text.contains("role \"nobody\" does not exist"), "{}", checked.text);
}

/// A byte of a decision is flipped on the disk: its branch is left alone, and a person is told why and settles it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_that_was_lost_by_damage_is_made_again_by_a_person() {
    let postgres = Postgres::start(10);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Launch::new(&data).start();
    let remote = |address: &str| std::sync::Arc::new(Remote::open(RemoteOptions::new(address)).unwrap());
    let decisions = remote(&server.resp().to_string());
    let coordinator = Coordinator::over(decisions.clone());
    let lost = prepare(&postgres, &coordinator, "lost").await;
    let kept = prepare(&postgres, &coordinator, "kept").await;
    decisions.commit(lost, &[name("ledger")], None).unwrap();
    decisions.commit(kept, &[name("ledger")], None).unwrap();
    server.kill();
    let bytes = lost.to_bytes();
    let mut flipped = 0;
    for file in files_of(&data).into_iter().filter(|file| file.extension().is_some_and(|end| end == "seg")) {
        let all = std::fs::read(&file).unwrap();
        if let Some(at) = all.windows(bytes.len()).position(|window| window == bytes) {
            flip(&file, at, 1);
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1);

    let server = Launch::new(&data).start();
    let address = server.resp().to_string();
    let profile = folder.path().join("xa.toml").display().to_string();
    let text = format!(
        "[profiles.bank.coordinator]\nservers = [\"{address}\"]\n\n[[profiles.bank.resource_managers]]\n\
         name = \"ledger\"\nkind = \"postgres\"\nopen = \"{}\"\n",
        postgres.connection()
    );
    std::fs::write(&profile, text).unwrap();
    let recovered = xa(&["recover", "--profile", &profile]);
    assert_eq!(recovered.code, Some(1), "{}", recovered.text);
    assert!(recovered.text.contains(&format!("{kept}.ledger: committed")), "{}", recovered.text);
    assert!(recovered.text.contains(&format!("{lost}.ledger: left alone")), "{}", recovered.text);
    assert!(recovered.text.contains("Doubtful: the journal was damaged"), "{}", recovered.text);
    // A program does not decide it, and what it begins from now on is as ever.
    let program = remote(&address);
    let refused = program.commit(lost, &[name("ledger")], None).unwrap_err();
    assert!(refused.kind == tm::ErrorKind::Unknown && refused.text.contains("`holdfast xa commit`"), "{refused:?}");
    assert!(program.abort(lost).is_err());
    let (lost, listed) = (lost.to_string(), xa(&["list", "--address", &address]));
    assert!(listed.text.contains(&format!("{lost} doubtful")), "{}", listed.text);
    let shown = xa(&["show", &lost, "--address", &address]);
    assert!(shown.text.contains("the journal was damaged"), "{}", shown.text);

    assert_eq!(xa(&["commit", &lost, "ledger", "--address", &address]).code, Some(0));
    let recovered = xa(&["recover", "--profile", &profile]);
    assert_eq!(recovered.code, Some(0), "{}", recovered.text);
    assert!(recovered.text.contains(&format!("{lost}.ledger: committed")), "{}", recovered.text);
}

/// Of a commit in one phase no coordinator hears, and so nobody but the program heard of what was done instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_instead_of_a_commit_in_one_phase_is_listed_by_the_server_until_a_person_forgets_it() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::new(&folder.path().join("data"));
    let mut server = launch.start();
    let mut done = Vec::new();
    for (answer, state) in [
        ("XA_HEURCOM", "heuristic-commit"),
        ("XA_HEURRB", "heuristic-rollback"),
        ("XA_HEURMIX", "heuristic-mixed"),
        ("XA_HEURHAZ", "heuristic-hazard"),
    ] {
        let (script, log) = (folder.path().join("script"), folder.path().join(state));
        std::fs::write(&script, format!("commit {answer}")).unwrap();
        let text = format!("script={};log={}", script.display(), log.display());
        let monkey = Monkey::open(name("queue"), &Opening { text: &text, ..Opening::default() }).unwrap();
        let options = RemoteOptions::new(&server.resp().to_string());
        let coordinator = Coordinator::connect(options).await.unwrap();
        let mut transaction = coordinator.begin(Begin::default()).unwrap();
        let branch = monkey.start(&transaction.xid("queue").unwrap()).unwrap();
        transaction.enlist(monkey.name(), branch).await.unwrap();
        done.push((transaction.id().to_string(), state));
        assert_eq!(transaction.commit().await.is_ok(), answer == "XA_HEURCOM");
        assert!(std::fs::read_to_string(log).unwrap().contains(" forget "));
        // Whoever comes next, killed or not, has it.
        server.kill();
        server = launch.start();
    }
    let address = server.resp().to_string();
    for (id, state) in done {
        let listed = xa(&["list", "--address", &address]);
        let line = listed.text.lines().find(|line| line.starts_with(&id)).unwrap_or_default();
        assert!(line.contains("committed") && line.ends_with(&format!("queue={state}")), "{}", listed.text);
        assert_eq!(xa(&["forget", &id, "--address", &address]).code, Some(1), "it is not forgotten by the way");
        assert_eq!(xa(&["forget", &id, "--force", "--address", &address]).code, Some(0));
        assert!(!xa(&["list", "--address", &address]).text.contains(&id));
    }
}
