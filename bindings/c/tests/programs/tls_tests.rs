//! Certificates that a profile names reach libpq and libmariadb, which verify the server; and the coordinator is verified.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use crate::coordinator::Coordinator;
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

/// A server with a certificate that this one signed, for these names until a year's beginning.
fn server(issuer: &Issuer<'static, KeyPair>, name: &str, last_year: i32) -> ServerConfig {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(last_year, 1, 1));
    let certificate = params.signed_by(&key, issuer).unwrap().der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap()
}

#[test]
fn a_coordinator_that_cannot_be_trusted_is_refused_with_the_reason() {
    let (ca, issuer) = authority("trusted");
    let (stranger, _) = authority("somebody else");
    let refused = "the coordinator of profile `default`: ";
    let good = || Coordinator::start_with_tls(server(&issuer, "127.0.0.1", 2100));
    for (coordinator, trusted, reason) in [
        (good(), &ca, None),
        (good(), &stranger, Some("the server's certificate is signed by nobody who is trusted")),
        (
            Coordinator::start_with_tls(server(&issuer, "127.0.0.1", 2021)),
            &ca,
            Some("the server's certificate has expired: give the server a new one, or set the clocks right"),
        ),
        (
            Coordinator::start_with_tls(server(&issuer, "db.example.org", 2100)),
            &ca,
            Some("the server's certificate is for another name"),
        ),
        (Coordinator::start(), &ca, Some("it may have no TLS at this port")),
    ] {
        let mut stage = Stage::with(coordinator);
        let authorities = stage.folder.path().join("ca.pem");
        std::fs::write(&authorities, trusted).unwrap();
        stage.add_coordinator("default");
        stage.add_line(&format!("authorities = {authorities:?}"));
        let began = Instant::now();
        let answers = stage.play(&["open", "error", "begin", "tm-new", "error"]);
        let Some(reason) = reason else {
            assert_eq!([&answers[0], &answers[2], &answers[3]], ["open: TX_OK", "begin: TX_OK", "tm-new: TX_OK"]);
            continue;
        };
        assert_eq!([&answers[0], &answers[3]], ["open: TX_ERROR", "tm-new: TX_ERROR"], "{answers:?}");
        for place in [1, 4] {
            assert!(answers[place].contains(refused) && answers[place].contains(reason), "{answers:?}");
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{reason} after {:?}", began.elapsed());
    }
}
