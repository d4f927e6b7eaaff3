//! Users, TLS, and addresses that others can reach.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::program::{Server, connect, run, run_with_input};

const PASSWORD: &str = "correct horse battery staple";

/// A folder with a configuration file that ends in this.
fn configured(text: &str) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("holdfast.toml");
    fs::write(&path, format!("dir = \"data\"\n{text}")).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

fn user(rest: &str) -> String {
    let (_, hash, _) = run_with_input(&["hash-password"], PASSWORD.as_bytes());
    format!("[[users]]\nname = \"ada\"\npassword_hash = \"{}\"\n{rest}\n", hash.trim_end())
}

#[test]
fn users_of_the_file_are_asked_for_their_password_and_it_is_never_said() {
    let rights = "buckets = [{ pattern = \"db0\", right = \"write\" }]";
    let (folder, path) = configured(&format!("log = \"trace\"\n{}", user(rights)));
    let server = Server::start(&["--config", &path]);
    assert_eq!(server.value("data"), folder.path().join("data").to_str().unwrap());
    assert!(server.value("try:").contains("--user NAME --askpass"));
    assert!(server.say("GET a\r\n").starts_with("-NOAUTH"));
    assert!(server.say("AUTH ada wrong\r\n").starts_with("-WRONGPASS"));
    let mut client = connect(server.resp());
    let mut ask = |words: &str, wanted: &str| {
        client.write_all(words.as_bytes()).unwrap();
        let mut answer = vec![0; wanted.len()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), wanted);
    };
    ask(&format!("AUTH ada \"{PASSWORD}\"\r\n"), "+OK\r\n");
    ask("SET a 1\r\n", "+OK\r\n");
    ask("SELECT 1\r\nGET a\r\n", "+OK\r\n-NOPERM");
    assert!(server.get("/stats", "").starts_with("HTTP/1.1 401 "));
    assert!(server.get("/stats", &format!("Authorization: Bearer ada:{PASSWORD}\r\n")).starts_with("HTTP/1.1 200 "));
    assert!(server.get("/ping", "").starts_with("HTTP/1.1 200 "));
    assert!(server.get("/stats", "Authorization: Bearer eve:apple\r\n").starts_with("HTTP/1.1 401 "));
    let said = server.said.concat();
    let ended = server.stop();
    let all = format!("{said}{}{}", ended.said.concat(), ended.complained);
    assert!(!all.contains("horse") && !all.contains("argon2"), "{all}");
    // Nobody was told that somebody tries passwords.
    let failed: Vec<&str> = ended.complained.lines().filter(|line| line.contains("a login failed")).collect();
    let is_of = |line: &str, door: &str, user: &str| {
        let door = line.contains(&format!("door=\"{door}\""));
        line.contains("WARN") && door && line.contains(&format!("user={user} address=127.0.0.1:"))
    };
    assert!(failed.len() == 2 && is_of(failed[0], "resp", "ada") && is_of(failed[1], "http", "eve"), "{failed:?}");
    assert!(!all.contains("wrong") && !all.contains("apple"), "{all}");
}

#[test]
fn both_doors_speak_tls_when_told() {
    let tls =
        "[resp.tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\n[http.tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\n";
    let (folder, path) = configured(tls);
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    write(folder.path(), "c.pem", &made.cert.pem());
    write(folder.path(), "k.pem", &made.signing_key.serialize_pem());
    let server = Server::start(&["--config", &path]);
    assert_eq!(server.value("tls"), "resp, http");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    for (address, words, wanted) in
        [(server.resp(), "PING\r\n", "+PONG\r\n"), (server.http(), "GET /ping HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK\r\n")]
    {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let mut stream = StreamOwned::new(connection, connect(address));
        stream.write_all(words.as_bytes()).unwrap();
        let mut answer = vec![0; wanted.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), wanted);
    }
    assert_eq!(server.stop().code, Some(0));
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

#[test]
fn an_address_that_others_can_reach_needs_protection_or_an_explicit_word() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("data").to_str().unwrap().to_owned();
    let (code, _, complained) =
        run(&["--dir", &dir, "--resp", "0.0.0.0:0", "--http", "127.0.0.1:0", "--line", "127.0.0.1:0"]);
    assert_eq!(code, Some(1));
    assert!(complained.starts_with("holdfast: --resp: 0.0.0.0:0 can be reached from other machines"), "{complained}");
    assert!(!Path::new(&dir).exists(), "nothing was opened");
    let server = Server::start(&["--dir", &dir, "--allow-insecure-bind"]);
    assert_eq!(server.stop().complained, "", "loopback is no reason to warn");
    let words = [
        "--dir",
        &dir,
        "--resp",
        "0.0.0.0:0",
        "--http",
        "127.0.0.1:0",
        "--line",
        "127.0.0.1:0",
        "--allow-insecure-bind",
    ];
    let server = Server::try_start(words.into_iter()).unwrap_or_else(|(_, text)| panic!("{text}"));
    let complained = server.stop().complained;
    assert!(complained.contains("WARN") && complained.contains("there are neither users nor TLS"), "{complained}");
}
