//! Functions by name, in the process and on a server; scripts, on a server.

use std::collections::BTreeMap;

use client::{Client, Entries, TransactionOptions};
use holdfast::space::{Change, Definition, Path, ReadOptions, Value, Wanted};
use holdfast::{Durability, Error, ErrorKind, Options, Store};
use holdfast_tests::say;
use tempfile::TempDir;

use crate::scene::{configured, connect, declare, impatient, number, order, upsert};

/// Scripts may take as long as a busy machine makes them.
const PATIENT: &str = "[script]\nsteps_max = 1000000000000\ntime_milliseconds_max = 10000\n";

/// Spends of an account, and answers what is left; what is more than there is stays.
const BANK: &str = "#!luau name=bank
local function spend(keys, args)
    -- Behind the space and the routing value: what, and how much.
    local space, id, by = args[1], args[3], tonumber(args[4])
    local changed = redis.call('SPACE.CHANGE', space, 'accounts', id, 'INCR', 'total', tostring(-by))
    if not changed then return redis.error_reply('ERR there is no such account') end
    local left = tonumber(string.match(changed[1], '\"total\":(-?%d+)'))
    if left < 0 then return redis.error_reply('CONFLICT so much is not there') end
    return left
end
redis.register_function('spend', spend)
redis.register_function('echo', function(keys, args) return args end)";

/// The same for programs that have the store.
fn register(store: &Store) {
    let bank = store.space("bank");
    bank.register("spend", |task, arguments| {
        let Value::List(all) = arguments else { return Err(Error::new(ErrorKind::Invalid, "what, and how much?")) };
        let [id, Value::I64(by)] = all.as_slice() else { return Err(Error::new(ErrorKind::Invalid, "how much?")) };
        let less = Change::Increment { path: Path::parse("total")?, by: (-by).into() };
        let changed = task.change("accounts", id.clone(), &[less])?;
        let left = number(&changed.ok_or_else(|| Error::new(ErrorKind::Invalid, "there is no such account"))?, "total");
        if left < 0 { Err(Error::new(ErrorKind::Conflict, "so much is not there")) } else { Ok(left.into()) }
    });
}

fn accounts(client: &Client) -> Entries {
    let accounts = declare(client, Definition::new("bank", "accounts"));
    accounts.write(&order(1, 100), &upsert()).wait().unwrap();
    accounts
}

fn left(accounts: &Entries) -> i64 {
    let entry = accounts.read(&Wanted::id(1), &ReadOptions::default()).wait().unwrap().unwrap();
    number(&entry.document, "total")
}

/// One program: what its functions are made of is another matter.
fn spends(client: &Client) {
    let (space, accounts) = (client.space("bank"), accounts(client));
    let spend = |id: i64, by: i64, durability| {
        space.call("spend", &id.into(), &Value::List(vec![id.into(), by.into()]), durability)
    };
    for (durability, expected) in
        [(None, 97), (Some(Durability::Written), 94), (Some(Durability::Synced), 91), (None, 88)]
    {
        assert_eq!(spend(1, 3, durability).wait().unwrap(), Value::I64(expected));
    }
    let refused = spend(1, 89, None).wait().unwrap_err();
    assert_eq!((refused.kind(), refused.to_string().contains("so much")), (ErrorKind::Conflict, true), "{refused}");
    assert_eq!(left(&accounts), 88, "nothing has happened");
    assert_eq!(spend(2, 1, None).wait().unwrap_err().kind(), ErrorKind::Invalid);
    let unknown = space.call("spent", &1.into(), &Value::Null, None).wait().unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Invalid, "{unknown}");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let all = futures_util::future::try_join_all((0..40).map(|_| spend(1, 2, Some(Durability::Written))));
    let mut lefts: Vec<Value> = runtime.block_on(all).unwrap();
    lefts.sort_by_key(|left| if let Value::I64(left) = left { -left } else { panic!("{left:?}") });
    assert_eq!(lefts, (0..40).map(|spent| Value::I64(86 - 2 * spent)).collect::<Vec<_>>());
    assert_eq!(left(&accounts), 8);
}

#[test]
fn a_function_of_the_program_and_one_of_the_server_do_the_same_by_one_call() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    register(&store);
    say!("in the process");
    spends(&Client::embedded(&store).unwrap());
    let folder = TempDir::new().unwrap();
    let server = configured(&folder, PATIENT).start();
    let client = connect(&server);
    assert_eq!(client.scripts().load(BANK).wait().unwrap(), "bank");
    assert_eq!(client.scripts().load(BANK).wait().unwrap(), "bank", "in its own place");
    say!("on a server");
    spends(&client);
}

#[test]
fn what_a_function_is_given_is_text_that_scripts_and_commands_understand() {
    let folder = TempDir::new().unwrap();
    let server = configured(&folder, PATIENT).start();
    let client = connect(&server);
    client.scripts().load(BANK).wait().unwrap();
    let space = client.space("bank");
    let texts = |all: &[&str]| Value::List(all.iter().map(|text| Value::String((*text).to_owned())).collect());
    let document = Value::Map(BTreeMap::from([("id".to_owned(), Value::I64(1))]));
    let all = [7.into(), "x y".into(), Value::Bytes(b"raw".to_vec()), document, Value::Bool(true), Value::F64(1.5)];
    for (routing, arguments, expected) in [
        (7.into(), Value::Null, vec!["bank", "7"]),
        ("7".into(), "x".into(), vec!["bank", "\"7\"", "x"]),
        (Value::Null, Value::List(all.to_vec()), vec!["bank", "null", "7", "x y", "raw", "{\"id\":1}", "true", "1.5"]),
        (1.into(), Value::List(vec![]), vec!["bank", "1"]),
    ] {
        assert_eq!(space.call("echo", &routing, &arguments, None).wait().unwrap(), texts(&expected));
    }
    let raw = Value::List(vec![Value::Bytes(b"\xff\0".to_vec())]);
    let Value::List(echo) = space.call("echo", &1.into(), &raw, None).wait().unwrap() else { panic!("a list") };
    assert_eq!(echo.last(), Some(&Value::Bytes(b"\xff\0".to_vec())));
}

#[test]
fn scripts_run_on_a_server_all_or_nothing() {
    let folder = TempDir::new().unwrap();
    let server = configured(&folder, "[script]\ntime_milliseconds_max = 2000\n").start();
    let client = connect(&server);
    let scripts = client.scripts();
    let count = "return {redis.call('INCRBY', KEYS[1], ARGV[1]), ARGV[2]}";
    let counted = scripts.eval(count, &[b"n\r\n"], &[b"5", b"\xfe"]).wait().unwrap();
    assert_eq!(counted, Value::List(vec![5.into(), Value::Bytes(vec![0xfe])]));
    assert_eq!(client.kv().get_value(b"db0", b"n\r\n").wait().unwrap(), Some(b"5".to_vec()));
    let text = |text: &str| Value::String(text.to_owned());
    let deep = "local all = 1; for _ = 1, 31 do all = {all} end; return all";
    let nested = (0..31).fold(Value::I64(1), |all, _| Value::List(vec![all]));
    for (script, expected) in [
        ("return nil", Value::Null),
        ("return {ok = 'fine'}", text("fine")),
        ("return {double = 0.5}", Value::F64(0.5)),
        ("redis.setresp(3) return {map = {a = 1}}", Value::Map(BTreeMap::from([("a".to_owned(), Value::I64(1))]))),
        ("return {1, {'two'}, false}", Value::List(vec![1.into(), Value::List(vec![text("two")]), Value::Null])),
        (deep, nested),
    ] {
        assert_eq!(scripts.eval(script, &[], &[]).wait().unwrap(), expected, "{script}");
    }
    for (script, kind, said) in [
        ("redis.call('SET', 'n', 1) return redis.error_reply('GONE it is')", ErrorKind::Invalid, "GONE it is"),
        ("redis.call('SET', 'n', 1) return redis.error_reply('CONFLICT it is')", ErrorKind::Conflict, "it is"),
        ("redis.call('SET', 'n', 1) error('no')", ErrorKind::Invalid, "no"),
        ("redis.call('SET', 'n', 1) while true do end", ErrorKind::Invalid, ""),
        ("this is no script", ErrorKind::Invalid, "compiling"),
        ("return redis.call('BLPOP', 'n', 0)", ErrorKind::Invalid, ""),
    ] {
        let refused = scripts.eval(script, &[], &[]).wait().unwrap_err();
        assert_eq!((refused.kind(), refused.to_string().contains(said)), (kind, true), "{script}: {refused}");
    }
    assert_eq!(client.kv().get_value(b"db0", b"n").wait().unwrap(), None);
    assert_eq!(scripts.call("nosuch", &[], &[]).wait().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(scripts.load("return 1").wait().unwrap_err().kind(), ErrorKind::Invalid);
    scripts.load(BANK).wait().unwrap();
    assert_eq!(scripts.call("echo", &[b"k"], &[b"a"]).wait().unwrap(), Value::List(vec![text("a")]));
    let impatient = impatient(&server.resp().to_string());
    server.kill();
    let scripts = impatient.scripts();
    let bank = impatient.space("bank");
    let refused = [
        scripts.eval("return 1", &[], &[]).begin(),
        scripts.call("echo", &[], &[]).begin(),
        bank.call("echo", &1.into(), &Value::Null, Some(Durability::Synced)).begin(),
        bank.call("echo", &1.into(), &Value::Null, None).begin(),
    ];
    for refused in refused {
        assert_eq!(refused.wait().unwrap_err().kind(), ErrorKind::Unavailable);
    }
}

#[test]
fn a_script_that_was_prepared_runs_also_where_it_was_forgotten() {
    let folder = TempDir::new().unwrap();
    let server = configured(&folder, PATIENT).start();
    let address = server.resp().to_string();
    let client = connect(&server);
    let refused = client.scripts().prepare("this is no script").wait().map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let count = client.scripts().prepare("return redis.call('INCRBY', KEYS[1], ARGV[1])").wait().unwrap();
    let add = || count.run(&[b"n"], &[b"2"]);
    assert_eq!(add().wait().unwrap(), Value::I64(2));
    server.client().call(&["SCRIPT", "FLUSH"]).unwrap();
    assert_eq!(add().begin().wait().unwrap(), Value::I64(4));
    server.kill();
    let _server = configured(&folder, PATIENT).resp(&address).start_again();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(add()).unwrap(), Value::I64(6));
    assert_eq!(add().wait().unwrap(), Value::I64(8));
    let no = client.scripts().prepare("return redis.error_reply('NOSCRIPT of my own')").wait().unwrap();
    assert!(no.run(&[], &[]).wait().unwrap_err().to_string().starts_with("NOSCRIPT of my own"));
}

#[test]
fn a_store_in_the_process_says_that_it_has_no_scripts() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let scripts = Client::embedded(&store).unwrap().scripts();
    let refused = [
        scripts.eval("return 1", &[], &[]).wait().map(drop),
        scripts.call("spend", &[], &[]).wait().map(drop),
        scripts.load(BANK).wait().map(drop),
        scripts.prepare("return 1").wait().map(drop),
    ];
    for refused in refused {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("Space::call"), "{refused}");
    }
}

#[test]
fn scripts_and_functions_are_part_of_a_transaction() {
    let folder = TempDir::new().unwrap();
    let server = configured(&folder, PATIENT).start();
    let client = connect(&server);
    client.scripts().load(BANK).wait().unwrap();
    let accounts = accounts(&client);
    let mut transaction = client.begin(&TransactionOptions::default()).wait().unwrap();
    transaction.write(&accounts, &order(2, 50), &upsert()).wait().unwrap();
    let spent = transaction.call_function("spend", &[], &[b"bank", b"2", b"2", b"20"]).wait().unwrap();
    assert_eq!(spent, 30.into(), "it sees what the transaction has written");
    let script = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
    assert_eq!(transaction.eval(script, &[b"k"], &[b"v"]).wait().unwrap(), "v".into());
    assert_eq!(accounts.count(&Wanted::all()).wait().unwrap(), 1, "nobody else sees it");
    transaction.commit(None).wait().unwrap();
    assert_eq!(accounts.count(&Wanted::all()).wait().unwrap(), 2);
    // One that fails rolls all of it back.
    let mut transaction = client.begin(&TransactionOptions::default()).wait().unwrap();
    transaction.write(&accounts, &order(3, 5), &upsert()).wait().unwrap();
    let refused = transaction.call_function("spend", &[], &[b"bank", b"3", b"3", b"20"]).wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(transaction.commit(None).wait().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(accounts.count(&Wanted::all()).wait().unwrap(), 2);
    // In the process functions are called beside the data, and not by transactions.
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let mut here = Client::embedded(&store).unwrap().begin(&TransactionOptions::default()).wait().unwrap();
    assert_eq!(here.eval("return 1", &[], &[]).wait().unwrap_err().kind(), ErrorKind::Invalid);
}
