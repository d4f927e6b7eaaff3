//! What there is of spaces, types and listeners by name, in the process and on a server.

use holdfast::ErrorKind;
use holdfast::space::{Definition, Listen, ListenName, Storage, Wanted};

use crate::scene::{both, declare, order, orders, upsert};

#[test]
fn spaces_are_listed_each_once_as_long_as_they_have_types() {
    both(|client| {
        assert_eq!(client.spaces().wait().unwrap(), Vec::<String>::new());
        for (space, name) in [("shop", "orders"), ("bank", "accounts"), ("shop", "jobs")] {
            declare(client, Definition::new(space, name));
        }
        declare(client, Definition { storage: Storage::Volatile, ..Definition::new("air", "flights") });
        assert_eq!(client.spaces().wait().unwrap(), ["air", "bank", "shop"]);
        assert_eq!(client.space("shop").types().wait().unwrap(), ["jobs", "orders"]);
        assert!(client.space("bank").drop_type("accounts").wait().unwrap());
        assert_eq!(client.spaces().wait().unwrap(), ["air", "shop"]);
    });
}

#[test]
fn listeners_by_name_are_listed_and_forgotten() {
    both(|client| {
        let orders = orders(client);
        assert_eq!(orders.known_listeners().wait().unwrap(), []);
        for (name, retain_bytes) in [("mailer", Some(1 << 20)), ("auditor", None)] {
            let name = Some(ListenName { name: name.to_owned(), retain_bytes });
            drop(orders.listen(&Wanted::all(), Listen { name, ..Listen::default() }).wait().unwrap());
        }
        // One without a name is not known.
        let listener = orders.listen(&Wanted::all(), Listen::default()).wait().unwrap();
        orders.write(&order(1, 10), &upsert()).wait().unwrap();
        orders.acknowledge("auditor", listener.bookmark()).wait().unwrap();
        let known = orders.known_listeners().wait().unwrap();
        let names: Vec<&str> = known.iter().map(|known| known.name.as_str()).collect();
        assert_eq!(names, ["auditor", "mailer"]);
        assert!(known.iter().all(|known| known.is_held && !known.is_damaged && known.behind_bytes > 0), "{known:?}");
        assert_eq!(known[1].retain_bytes, 1 << 20);
        assert!(orders.forget_listener("mailer").wait().unwrap());
        assert!(!orders.forget_listener("mailer").wait().unwrap(), "it is gone");
        assert!(!orders.forget_listener("nobody").wait().unwrap());
        assert_eq!(orders.known_listeners().wait().unwrap().len(), 1);
        let gone = orders.acknowledge("mailer", known[0].bookmark).wait();
        assert_eq!(gone.map_err(|error| error.kind()), Err(ErrorKind::Invalid));
        assert!(client.space("shop").drop_type("orders").wait().unwrap());
        assert!(orders.known_listeners().wait().is_err());
        assert!(orders.forget_listener("auditor").wait().is_err());
    });
}
