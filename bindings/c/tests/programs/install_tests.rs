//! What is installed is complete: programs find headers and library by pkg-config, and every call has its page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::databases_tests::databases;
use crate::servers::start_postgres;
use crate::stage::{DYNAMIC, STATIC, Stage, built, here, libraries};

/// Installs into a folder.
fn install(prefix: &Path) {
    let mut install = Command::new(here("install.sh"));
    let output = install.arg(built("libholdfast_c.so").parent().unwrap()).arg(prefix).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles an example against an installed library, as its first lines say.
fn compile_example(prefix: &Path, name: &str, needs: &[&str]) -> PathBuf {
    let mut config = Command::new("pkg-config");
    config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let flags = config.args(["--cflags", "--libs", "holdfast"]).args(needs).output().unwrap();
    assert!(flags.status.success(), "{}", String::from_utf8_lossy(&flags.stderr));
    let flags = String::from_utf8(flags.stdout).unwrap();
    let program = prefix.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    cc.arg(here("../../examples/c").join(format!("{name}.c")));
    let compiled = cc.args(flags.split_whitespace()).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

#[test]
fn the_example_with_the_coordinators_own_store_runs() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path());
    let program = compile_example(folder.path(), "order", &["libpq"]);
    let postgres = start_postgres(20);
    let mut stage = Stage::new();
    stage.add_embedded_coordinator("default");
    stage.add_resource_manager("default", "accounts", "kind = \"postgres\"", &postgres.conninfo());
    let output = stage.command(&program).env("LD_LIBRARY_PATH", folder.path().join("lib")).output().unwrap();
    let expected = "40 were sold, 60 are left, and there is an order\n40 more were not, and 60 are left\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}

#[test]
fn an_installed_library_is_found_and_the_example_runs() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path());
    let program = compile_example(folder.path(), "transfer", &["libpq", "libmariadb"]);

    let databases = databases("unused");
    let stage = databases.stage("");
    let output = stage.command(&program).env("LD_LIBRARY_PATH", folder.path().join("lib")).output().unwrap();
    let expected = "70 were moved\n70 more were not, and nothing was changed\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    let balances = ["tm", "own-pg=SELECT balance FROM account", "own-ma=SELECT balance FROM account"];
    let answers = databases.play(&databases.stage(""), &balances);
    assert_eq!(answers[1..], ["own-pg=SELECT balance FR: 30", "own-ma=SELECT balance FR: 70"]);
}

#[test]
fn a_program_that_is_linked_statically_commits_and_rolls_back() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path());
    // The linker takes a shared library first.
    for shared in ["libholdfast.so", "libholdfast.so.0"] {
        fs::remove_file(folder.path().join("lib").join(shared)).unwrap();
    }
    let mut config = Command::new("pkg-config");
    config.env("PKG_CONFIG_PATH", folder.path().join("lib/pkgconfig"));
    let flags = config.args(["--static", "--cflags", "--libs", "holdfast"]).output().unwrap();
    assert!(flags.status.success(), "{}", String::from_utf8_lossy(&flags.stderr));
    let program = folder.path().join("play");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wl,--export-dynamic", "-o"]).arg(&program);
    cc.arg(here("tests/c/play.c")).args(String::from_utf8(flags.stdout).unwrap().split_whitespace());
    let compiled = cc.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    // 300 MB in a debug build: gone before anything else is done.
    fs::remove_file(folder.path().join("lib/libholdfast.a")).unwrap();
    let needed = Command::new("ldd").arg(&program).output().unwrap();
    assert!(!String::from_utf8_lossy(&needed.stdout).contains("holdfast"), "it needs the shared library");

    // A switch that registers by itself calls back into the program.
    for switch in [STATIC, DYNAMIC] {
        let stage = Stage::of_monkeys(&[(switch, ""), (switch, "")]);
        let played = stage.run(&program, &["open", "begin", "commit", "begin", "rollback", "close"]);
        let answers = String::from_utf8(played.stdout).unwrap();
        let answers: Vec<&str> = answers.lines().collect();
        let expected =
            ["open: TX_OK", "begin: TX_OK", "commit: TX_OK", "begin: TX_OK", "rollback: TX_OK", "close: TX_OK"];
        assert_eq!(answers, expected, "{switch}: {}", String::from_utf8_lossy(&played.stderr));
    }
}

#[test]
fn connections_to_the_coordinator_outlive_tx_close() {
    let stage = Stage::of_monkeys(&[(STATIC, ""), (STATIC, "")]);
    let round = ["open", "begin", "commit", "close"];
    let answers = stage.play(&[round, round, round].concat());
    assert!(answers.len() == 12 && answers.iter().all(|answer| answer.ends_with("TX_OK")), "{answers:?}");
    // One for what waits for a sync, one for what does not.
    assert_eq!(stage.coordinator.visits(), (2, 1));
}

/// The functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(here("include").join(header)).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("extern ") && line.contains('('));
    let name = |line: &str| {
        let before = line.split('(').next().unwrap();
        before.rsplit([' ', '*']).next().unwrap().to_owned()
    };
    lines.map(name).collect()
}

#[test]
fn every_call_has_a_page_and_a_symbol() {
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(libraries().join("libholdfast.so")).output();
    let symbols = String::from_utf8(symbols.unwrap().stdout).unwrap();
    let exported: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let mut calls = 0;
    for header in ["tx.h", "xa.h", "holdfast.h"] {
        for call in declared(header) {
            let page = fs::read_to_string(here("man").join(format!("{call}.3")));
            assert!(page.is_ok_and(|page| page.starts_with(".so ") || page.contains(&format!(".Nm {call}"))), "{call}");
            assert!(exported.contains(call.as_str()), "{call} is not in the library");
            calls += 1;
        }
    }
    assert_eq!(calls, 51, "nine of TX, two of XA, and ours");
}

#[test]
fn headers_can_be_included_alone_and_twice_in_any_order() {
    for order in [&["tx.h", "xa.h"][..], &["xa.h", "tx.h"], &["holdfast.h", "tx.h", "xa.h", "holdfast.h"]] {
        let program: String = order.iter().map(|header| format!("#include \"{header}\"\n")).collect();
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("all.c");
        fs::write(&source, program + "int main(void) { XID xid; return (int)(sizeof xid - sizeof xid); }\n").unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"]).arg(here("include"));
        let output = cc.arg(&source).output().unwrap();
        assert!(output.status.success(), "{order:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
