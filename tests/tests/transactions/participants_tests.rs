//! The exchanges of the page about the participants' protocol, played against a server.

use std::collections::BTreeMap;

use holdfast_tests::{Client, Launch, Value};

const PAGE: &str = include_str!("../../../docs/reference/participants.md");

/// A reply as the page writes it.
fn written(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(" ")),
        Value::Integer(number) => number.to_string(),
        Value::Simple(text) | Value::Error(text) => text.clone(),
        other => String::from_utf8(other.bytes().unwrap_or_else(|| panic!("{other:?}")).to_vec()).unwrap(),
    }
}

/// Whether a reply is what the page says, where `...` stands for anything.
fn is_said(reply: &str, page: &str) -> bool {
    let (reply, page): (Vec<&str>, Vec<&str>) = (reply.split(' ').collect(), page.split(' ').collect());
    let ends_open = page.last() == Some(&"...");
    let same = |(a, b): (&&str, &&str)| a == b || b.trim_matches(['[', ']']) == "...";
    (reply.len() == page.len() || ends_open && reply.len() >= page.len()) && reply.iter().zip(&page).all(same)
}

#[test]
fn the_exchanges_of_the_page_about_participants_are_what_a_server_says() {
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::new(&folder.path().join("data")).start();
    let mut clients: BTreeMap<&str, Client> = ["a", "b"].map(|name| (name, server.client())).into();
    let exchanges: Vec<&str> =
        PAGE.split("```exchange\n").skip(1).map(|text| text.split("```").next().unwrap()).collect();
    assert!(exchanges.len() >= 4);
    for exchange in exchanges {
        let (mut id, mut reply) = (String::new(), String::new());
        for line in exchange.lines() {
            let (who, text) = line.split_at(3);
            let client = clients.get_mut(&who[..1]).unwrap();
            if who.ends_with("> ") {
                reply = written(&client.say(&text.replace("ID", &id)));
            } else if text == "ID" {
                id = reply.clone();
                assert!(id.starts_with("hfxa1."), "{id}");
            } else {
                assert!(is_said(&reply, text), "{line}: the server says {reply}, in\n{exchange}");
            }
        }
    }
}
