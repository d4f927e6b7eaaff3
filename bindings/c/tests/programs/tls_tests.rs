//! Certificates that a profile names reach libpq and libmariadb, which verify the server.

use std::net::TcpListener;

use rcgen::{CertificateParams, IsCa, Issuer, KeyPair};

use crate::servers::{start_mariadb, start_postgres};
use crate::stage::Stage;

fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    (certificate, Issuer::new(params, key))
}

#[test]
fn the_switches_verify_servers_as_the_profile_says() {
    let (mut postgres, mut mariadb) = (start_postgres(10), start_mariadb());
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [pg_port, ma_port] = ports.map(|listener| listener.local_addr().unwrap().port());
    let (ca, issuer) = authority("trusted");
    let key = KeyPair::generate().unwrap();
    let names = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (names.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem());
    let files = |server: &crate::servers::Server| {
        [("cert.pem", &certificate), ("key.pem", &key)]
            .map(|(name, text)| server.give(name, text).display().to_string())
    };
    let [cert, secret] = files(&postgres);
    let rules =
        postgres.give("rules", "local all all trust\nhostssl all all 127.0.0.1/32 trust\n").display().to_string();
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={pg_port}"),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={cert}"),
        format!("ssl_key_file={secret}"),
        format!("hba_file={rules}"),
    ];
    let settings: Vec<String> = settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect();
    let port = format!("--port={ma_port}");
    let networking = ["--skip-networking=0", "--bind-address=127.0.0.1", port.as_str()].map(str::to_owned);
    postgres.restart_with(&settings);
    mariadb.restart_with(&networking);
    let opens = [
        ("postgres", format!("host=127.0.0.1 port={pg_port} user=postgres dbname=postgres")),
        ("mariadb", format!("mysql://root@127.0.0.1:{ma_port}/test")),
    ];
    let stage = |trusted: &str, kind: &str, open: &str| {
        let mut stage = Stage::new();
        let authorities = stage.folder.path().join("ca.pem");
        std::fs::write(&authorities, trusted).unwrap();
        stage.add_coordinator("default");
        let more = format!("kind = \"{kind}\"\nauthorities = {authorities:?}");
        stage.add_resource_manager("default", "db", &more, open);
        stage
    };
    let answers = stage(&ca, "mariadb", &opens[1].1).play(&["open", "error"]);
    assert!(answers[0] == "open: TX_ERROR" && answers[1].contains("SSL is required"), "no TLS: {answers:?}");

    let [cert, secret] = files(&mariadb);
    mariadb.restart_with(&[format!("--ssl-cert={cert}"), format!("--ssl-key={secret}")]);
    let (stranger, _) = authority("somebody else");
    for (kind, open) in &opens {
        let answers = stage(&ca, kind, open).play(&["open", "begin", "commit", "close"]);
        assert_eq!(answers, ["open: TX_OK", "begin: TX_OK", "commit: TX_OK", "close: TX_OK"], "{kind}");
        let answers = stage(&stranger, kind, open).play(&["open", "error"]);
        assert!(answers[0] == "open: TX_ERROR" && answers[1].contains("certificate"), "{kind}: {answers:?}");
        let elsewhere =
            open.replace("127.0.0.1", if *kind == "mariadb" { "localhost.localdomain" } else { "localhost" });
        let answers = stage(&ca, kind, &elsewhere).play(&["open", "error"]);
        assert_eq!(answers[0], "open: TX_ERROR", "{kind}: {answers:?}");
    }
}
