//! Scripts over real connections: all or nothing under SIGKILL, one after the other under load, and there again after a restart.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_tests::{Client, Launch, Random, Value, budget, say};
use tempfile::TempDir;

fn eval(client: &mut Client, script: &str, keys: &[&str], arguments: &[&str]) -> std::io::Result<Value> {
    let count = keys.len().to_string();
    let mut words = vec!["EVAL", script, &count];
    words.extend(keys.iter().chain(arguments));
    client.call(&words)
}

/// On a machine that has much else to do scripts that behave take long too.
fn patient(folder: &TempDir) -> Launch {
    let configuration = folder.path().join("holdfast.toml");
    fs::write(&configuration, "[script]\nsteps_max = 1000000000000\ntime_milliseconds_max = 10000\n")
        .expect("a file of a test can be written");
    let configuration = configuration.to_str().expect("a temporary folder has a plain name");
    let launch = Launch::new(&folder.path().join("data")).durability("written");
    launch.argument("--config").argument(configuration)
}

#[test]
fn increments_of_eight_clients_all_count() {
    const CLIENTS: i64 = 8;
    const TIMES: i64 = 1000;
    let folder = TempDir::new().expect("a temporary folder");
    let server = patient(&folder).start();
    // Read, decide, write: of a lost update the sum would tell. Every tenth goes to a thread, and every third uses a key that
    // it did not declare.
    let script = "local n = tonumber(redis.call('get', KEYS[1]) or 0) \
                  if ARGV[1] == 'slow' then for i = 1, 20000 do end end \
                  if ARGV[1] == 'other' then redis.call('incr', 'others') end \
                  redis.call('set', KEYS[1], n + 1) return n + 1";
    let address = server.resp();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            thread::spawn(move || {
                let mut client = Client::connect(address).expect("the server listens");
                for turn in 0..TIMES {
                    let how = if turn % 10 == 0 {
                        "slow"
                    } else if turn % 3 == 0 {
                        "other"
                    } else {
                        "quick"
                    };
                    let answer = eval(&mut client, script, &["n"], &[how]).expect("an answer");
                    assert!(matches!(answer, Value::Integer(_)), "{answer:?}");
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("a client that ends well"));
    let mut client = server.client();
    assert_eq!(client.say("GET n"), Value::from((CLIENTS * TIMES).to_string().as_str()));
    let others = (0..TIMES).filter(|turn| turn % 10 != 0 && turn % 3 == 0).count() as i64 * CLIENTS;
    assert_eq!(client.say("GET others"), Value::from(others.to_string().as_str()));
    server.terminate();
}

/// Moves a token: out of the space, onto a key, up a counter, and into another type. Half-way the thread may be killed.
const MOVE: &str = "\
    local token = redis.call('SPACE.TAKE', 'game', 'here', 'ANY') \
    if not token then return redis.call('GET', 'moved') end \
    redis.call('SET', 'last', token[1]) \
    for i = 1, 300 do redis.call('INCR', 'steps:' .. i) end \
    redis.call('SPACE.WRITE', 'game', 'there', token[1]) \
    return redis.call('INCR', 'moved')";

#[test]
fn a_script_is_there_whole_or_not_at_all_after_sigkill() {
    const TOKENS: u64 = 400;
    let mut random = Random::new(Random::seed());
    let folder = TempDir::new().expect("a temporary folder");
    let mut server = patient(&folder).start();
    let mut client = server.client();
    assert_eq!(client.say("SPACE.DECLARE game here ID id"), Value::Simple("OK".to_owned()));
    assert_eq!(client.say("SPACE.DECLARE game there ID id"), Value::Simple("OK".to_owned()));
    for id in 0..TOKENS {
        client.call(&["SPACE.WRITE", "game", "here", &format!("{{\"id\":{id}}}")]).expect("an answer");
    }
    let deadline = Instant::now() + budget("HOLDFAST_CRASH_SECONDS", 60) / 6;
    let (mut acknowledged, mut kills) = (0, 0);
    while Instant::now() < deadline && acknowledged < TOKENS as i64 {
        let address = server.resp();
        let mover = thread::spawn(move || {
            let mut newest = 0;
            let Ok(mut client) = Client::connect(address) else { return newest };
            while let Ok(answer) = eval(&mut client, MOVE, &["moved"], &[]) {
                match answer {
                    Value::Integer(moved) => newest = moved,
                    // All are moved.
                    Value::Bytes(_) => break,
                    other => panic!("{other:?}"),
                }
            }
            newest
        });
        thread::sleep(Duration::from_millis(5 + random.below(60) as u64));
        server.kill();
        kills += 1;
        acknowledged = mover.join().expect("a mover that ends well").max(acknowledged);
        server = patient(&folder).start();
        let mut client = server.client();
        let number = |answer: Value| match answer {
            Value::Integer(number) => number,
            Value::Bytes(text) => String::from_utf8(text).expect("digits").parse().expect("a number"),
            Value::Nil => 0,
            other => panic!("{other:?}"),
        };
        let moved = number(client.say("GET moved"));
        assert!(moved >= acknowledged, "{moved} of {acknowledged} acknowledged moves are there");
        assert_eq!(number(client.say("SPACE.COUNT game there ANY")), moved, "entries that arrived");
        assert_eq!(number(client.say("SPACE.COUNT game here ANY")), TOKENS as i64 - moved, "entries that are left");
        for step in [1, 150, 300] {
            assert_eq!(number(client.say(&format!("GET steps:{step}"))), moved, "step {step}");
        }
    }
    say!("scripts: {acknowledged} acknowledged moves of {TOKENS}, {kills} kills");
    assert!(kills > 1 && acknowledged > 0);
    server.terminate();
}

#[test]
fn functions_are_there_after_a_kill_and_scripts_by_hash_are_not() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).start();
    let mut client = server.client();
    let library = "#!luau name=twice\nredis.register_function('twice', function(keys, args) return args[1] * 2 end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", library]).expect("an answer"), Value::from("twice"));
    let Ok(Value::Bytes(sha)) = client.call(&["SCRIPT", "LOAD", "return 1"]) else { panic!("no hash") };
    let sha = String::from_utf8(sha).expect("a hash is hexadecimal");
    assert_eq!(client.say(&format!("EVALSHA {sha} 0")), Value::Integer(1));
    server.kill();
    let server = Launch::new(folder.path()).start();
    let mut client = server.client();
    assert_eq!(client.say("FCALL twice 0 21"), Value::Integer(42));
    assert!(client.say(&format!("EVALSHA {sha} 0")).error().is_some_and(|text| text.starts_with("NOSCRIPT")));
    server.terminate();
}

#[test]
fn limits_are_configured_and_others_are_served_meanwhile() {
    let folder = TempDir::new().expect("a temporary folder");
    let configuration = folder.path().join("holdfast.toml");
    fs::write(&configuration, "[script]\ntime_milliseconds_max = 1500\nmemory_bytes_max = 1048576\n").expect("a file");
    let configuration = configuration.to_str().expect("a plain name");
    let server = Launch::new(&folder.path().join("data")).argument("--config").argument(configuration).start();
    let mut client = server.client();
    client.say("SET k v");
    let address = server.resp();
    let script = |script: &'static str| {
        thread::spawn(move || {
            let mut client = Client::connect(address).expect("the server listens");
            let before = Instant::now();
            (eval(&mut client, script, &["held"], &[]).expect("an answer"), before.elapsed())
        })
    };
    let endless = script("redis.call('set', KEYS[1], 1) while true do end");
    // It is in a thread by now or soon; who reads does not wait for it at any time.
    let mut reads = 0;
    while !endless.is_finished() {
        assert_eq!(client.say("GET k"), Value::from("v"));
        reads += 1;
    }
    let (answer, took) = endless.join().expect("a client that ends well");
    assert!(answer.error().is_some_and(|text| text.contains("longer than it may")), "{answer:?}");
    assert!(took >= Duration::from_millis(1400) && took < Duration::from_secs(15), "{took:?}");
    assert!(reads > 100, "{reads} reads while the script ran");
    let (answer, _) = script("return ('x'):rep(2e6)").join().expect("a client that ends well");
    assert!(answer.error().is_some_and(|text| text.contains("1048576")), "{answer:?}");
    // Killed, it ends before its time.
    let endless = script("while true do redis.call('get', KEYS[1]) end");
    while !endless.is_finished() {
        client.say("SCRIPT KILL");
        thread::yield_now();
    }
    let (answer, _) = endless.join().expect("a client that ends well");
    assert!(answer.error().is_some_and(|text| text.contains("somebody asked")), "{answer:?}");
    assert_eq!(client.say("EXISTS held"), Value::Integer(0));
    server.terminate();
}
