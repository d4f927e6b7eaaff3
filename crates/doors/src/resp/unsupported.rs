//! Commands that Redis has and this door has not: one clear error that names what there is instead.
//!
//! May use: `call`, `session`. Must not know: the store.

use super::call::Fail;
use super::session::Session;
use super::wire::Args;

/// Why a command of Redis does not exist here, and which commands that concerns.
const UNSUPPORTED: &[(&str, &[&str])] = &[
    (
        "lists",
        &[
            "blmove",
            "blmpop",
            "blpop",
            "brpop",
            "brpoplpush",
            "lindex",
            "linsert",
            "llen",
            "lmove",
            "lmpop",
            "lpop",
            "lpos",
            "lpush",
            "lpushx",
            "lrange",
            "lrem",
            "lset",
            "ltrim",
            "rpop",
            "rpoplpush",
            "rpush",
            "rpushx",
            "sort",
            "sort_ro",
        ],
    ),
    (
        "hashes",
        &[
            "hdel",
            "hexists",
            "hget",
            "hgetall",
            "hincrby",
            "hincrbyfloat",
            "hkeys",
            "hlen",
            "hmget",
            "hmset",
            "hrandfield",
            "hscan",
            "hset",
            "hsetnx",
            "hstrlen",
            "hvals",
            "hexpire",
            "hpexpire",
            "httl",
            "hpttl",
            "hpersist",
        ],
    ),
    (
        "sets",
        &[
            "sadd",
            "scard",
            "sdiff",
            "sdiffstore",
            "sinter",
            "sintercard",
            "sinterstore",
            "sismember",
            "smembers",
            "smismember",
            "smove",
            "spop",
            "srandmember",
            "srem",
            "sscan",
            "sunion",
            "sunionstore",
        ],
    ),
    (
        "sorted sets",
        &[
            "bzmpop",
            "bzpopmax",
            "bzpopmin",
            "zadd",
            "zcard",
            "zcount",
            "zdiff",
            "zdiffstore",
            "zincrby",
            "zinter",
            "zintercard",
            "zinterstore",
            "zlexcount",
            "zmpop",
            "zmscore",
            "zpopmax",
            "zpopmin",
            "zrandmember",
            "zrange",
            "zrangebylex",
            "zrangebyscore",
            "zrangestore",
            "zrank",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
            "zrevrange",
            "zrevrangebylex",
            "zrevrangebyscore",
            "zrevrank",
            "zscan",
            "zscore",
            "zunion",
            "zunionstore",
            "geoadd",
            "geodist",
            "geohash",
            "geopos",
            "georadius",
            "georadiusbymember",
            "geosearch",
            "geosearchstore",
        ],
    ),
    (
        "streams",
        &[
            "xack",
            "xadd",
            "xautoclaim",
            "xclaim",
            "xdel",
            "xgroup",
            "xinfo",
            "xlen",
            "xpending",
            "xrange",
            "xread",
            "xreadgroup",
            "xrevrange",
            "xsetid",
            "xtrim",
        ],
    ),
    ("bitmaps", &["bitcount", "bitfield", "bitfield_ro", "bitop", "bitpos", "getbit", "setbit"]),
    ("HyperLogLogs", &["pfadd", "pfcount", "pfdebug", "pfmerge", "pfselftest"]),
    ("LCS", &["lcs"]),
    (
        "publish and subscribe",
        &[
            "psubscribe",
            "publish",
            "pubsub",
            "punsubscribe",
            "spublish",
            "ssubscribe",
            "subscribe",
            "sunsubscribe",
            "unsubscribe",
        ],
    ),
    ("Redis' dump format", &["dump", "restore", "restore-asking", "migrate"]),
    (
        "replication and clusters of Redis",
        &[
            "asking",
            "cluster",
            "failover",
            "psync",
            "readonly",
            "readwrite",
            "replconf",
            "replicaof",
            "role",
            "slaveof",
            "sync",
        ],
    ),
    ("access control lists (users are in the configuration file)", &["acl"]),
    ("modules", &["module"]),
    ("MONITOR, which would show every client's data", &["monitor"]),
    ("DEBUG, which could harm the data", &["debug"]),
    ("moving keys between databases (use COPY ... DB and DEL in a MULTI)", &["move", "swapdb"]),
    (
        "saving on command: every acknowledged write is in the journal already",
        &["bgrewriteaof", "bgsave", "lastsave", "save"],
    ),
];

/// The error for a name that is no row of the table.
pub(crate) fn unknown_command(session: &mut Session, args: Args<'_>) -> Fail {
    let name = String::from_utf8_lossy(args.at(0));
    let lower = name.to_ascii_lowercase();
    if lower == "post" || lower == "host:" {
        // A browser that was made to send commands through HTTP: its header must not go on as commands.
        tracing::warn!(client = %session.client.address, "possible attack: HTTP on the RESP port; closing the connection");
        session.closing = true;
        return "ERR this is the RESP port; HTTP has a port of its own".into();
    }
    if let Some((what, _)) = UNSUPPORTED.iter().find(|(_, names)| names.contains(&lower.as_str())) {
        return format!(
            "ERR unsupported command '{lower}': Holdfast does not have {what}; it has strings, keys, transactions, scripts, KV.*, SPACE.* (objects, queues) and TS.* (see COMMAND LIST)"
        )
        .into();
    }
    let name: String = name.chars().take(128).collect();
    let mut shown = String::new();
    for arg in args.from(1).iter() {
        if shown.len() >= 128 {
            break;
        }
        let room = 128 - shown.len();
        shown.push_str(&format!("'{}' ", String::from_utf8_lossy(arg.get(..room.min(arg.len())).unwrap_or_default())));
    }
    format!("ERR unknown command '{name}', with args beginning with: {shown}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::table::find_command;

    #[test]
    fn nothing_supported_is_called_unsupported() {
        for (_, names) in UNSUPPORTED {
            for name in *names {
                assert!(find_command(name.as_bytes()).is_none(), "{name}");
                assert_eq!(*name, name.to_lowercase());
            }
        }
    }
}
