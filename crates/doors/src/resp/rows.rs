//! The one table of all commands. A row:
//!
//!   "name" arity [FLAGS] KEYS "group" "since" handler;
//!   "arguments"; "complexity"; "summary";
//!
//! Groups are Redis' own, `holdfast` for the commands that Redis does not have. The reference page
//! `docs/reference/commands.md` is generated from here; a test compares the two.
//!
//! May use: the handlers, `table`. Must not know: anything else.

use super::commands::{
    backup, client, command, connection, counters, expiry, keyspace, own, scan, server, slow, strings, transaction,
};
use super::table::{Command, flag, keys};

macro_rules! commands {
    ($($name:literal $arity:literal [$($flag:ident)*] $keys:ident $group:literal $since:literal $run:path;
       $syntax:literal; $complexity:literal; $summary:literal;)*) => {
        /// Every command.
        pub(crate) static COMMANDS: &[Command] = &[$(Command {
            name: $name, arity: $arity, flags: 0 $(| flag::$flag)*, keys: keys::$keys, group: $group, since: $since,
            run: $run, syntax: $syntax, complexity: $complexity, summary: $summary,
        }),*];
    };
}

commands! {
    "append" 3 [WRITE DENYOOM FAST] ONE "string" "2.0.0" strings::append;
      "key value"; "O(n) with the length of the result"; "Appends to the value of a key; creates the key if it does not exist.";
    "decr" 2 [WRITE DENYOOM FAST] ONE "string" "1.0.0" counters::decr;
      "key"; "O(1)"; "Decrements the integer value of a key by one, from 0 if it does not exist.";
    "decrby" 3 [WRITE DENYOOM FAST] ONE "string" "1.0.0" counters::decrby;
      "key decrement"; "O(1)"; "Decrements the integer value of a key by a number, from 0 if it does not exist.";
    "get" 2 [READONLY FAST] ONE "string" "1.0.0" strings::get;
      "key"; "O(1)"; "Returns the value of a key.";
    "getdel" 2 [WRITE FAST] ONE "string" "6.2.0" strings::getdel;
      "key"; "O(1)"; "Returns the value of a key and deletes it.";
    "getex" -2 [WRITE FAST] ONE "string" "6.2.0" strings::getex;
      "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]"; "O(1)"; "Returns the value of a key after setting its expiration.";
    "getrange" 4 [READONLY] ONE "string" "2.4.0" strings::getrange;
      "key start end"; "O(n) with the length of the value"; "Returns a part of the value of a key.";
    "getset" 3 [WRITE DENYOOM FAST] ONE "string" "1.0.0" strings::getset;
      "key value"; "O(1)"; "Returns the previous value of a key after setting a new one.";
    "incr" 2 [WRITE DENYOOM FAST] ONE "string" "1.0.0" counters::incr;
      "key"; "O(1)"; "Increments the integer value of a key by one, from 0 if it does not exist.";
    "incrby" 3 [WRITE DENYOOM FAST] ONE "string" "1.0.0" counters::incrby;
      "key increment"; "O(1)"; "Increments the integer value of a key by a number, from 0 if it does not exist.";
    "incrbyfloat" 3 [WRITE DENYOOM FAST] ONE "string" "2.6.0" counters::incrbyfloat;
      "key increment"; "O(1)"; "Increments the floating point value of a key by a number, from 0 if it does not exist.";
    "mget" -2 [READONLY FAST] ALL "string" "1.0.0" strings::mget;
      "key [key ...]"; "O(n) with the number of keys"; "Returns the values of several keys as they were at one moment.";
    "mset" -3 [WRITE DENYOOM] PAIRS "string" "1.0.1" strings::mset;
      "key value [key value ...]"; "O(n) with the number of keys"; "Sets several keys, all or none.";
    "msetnx" -3 [WRITE DENYOOM] PAIRS "string" "1.0.1" strings::msetnx;
      "key value [key value ...]"; "O(n) with the number of keys"; "Sets several keys, all or none, if none of them exists.";
    "psetex" 4 [WRITE DENYOOM] ONE "string" "2.6.0" strings::psetex;
      "key milliseconds value"; "O(1)"; "Sets a key and its expiration in milliseconds.";
    "set" -3 [WRITE DENYOOM] ONE "string" "1.0.0" strings::set;
      "key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]"; "O(1)"; "Sets the value of a key, ignoring what was there.";
    "setex" 4 [WRITE DENYOOM] ONE "string" "2.0.0" strings::setex;
      "key seconds value"; "O(1)"; "Sets a key and its expiration in seconds.";
    "setnx" 3 [WRITE DENYOOM FAST] ONE "string" "1.0.0" strings::setnx;
      "key value"; "O(1)"; "Sets a key if it does not exist.";
    "setrange" 4 [WRITE DENYOOM] ONE "string" "2.2.0" strings::setrange;
      "key offset value"; "O(n) with the length of the result"; "Overwrites a part of the value of a key, after zero bytes if it was shorter.";
    "strlen" 2 [READONLY FAST] ONE "string" "2.2.0" strings::strlen;
      "key"; "O(1), without reading the value"; "Returns the length of the value of a key.";
    "substr" 4 [READONLY] ONE "string" "1.0.0" strings::getrange;
      "key start end"; "O(n) with the length of the value"; "Returns a part of the value of a key; the old name of GETRANGE.";

    "copy" -3 [WRITE DENYOOM] COPY "generic" "6.2.0" keyspace::copy;
      "source destination [DB destination-db] [REPLACE]"; "O(n) with the length of the value"; "Copies the value, expiration and metadata of a key to another key.";
    "del" -2 [WRITE] ALL "generic" "1.0.0" keyspace::del;
      "key [key ...]"; "O(n) with the number of keys"; "Deletes keys, all or none, and returns how many there were.";
    "exists" -2 [READONLY FAST] ALL "generic" "1.0.0" keyspace::exists;
      "key [key ...]"; "O(n) with the number of keys"; "Returns how many of the keys exist.";
    "expire" -3 [WRITE FAST] ONE "generic" "1.0.0" expiry::expire;
      "key seconds [NX | XX | GT | LT]"; "O(1)"; "Sets the expiration of a key in seconds from now.";
    "expireat" -3 [WRITE FAST] ONE "generic" "1.2.0" expiry::expireat;
      "key unix-time-seconds [NX | XX | GT | LT]"; "O(1)"; "Sets the expiration of a key to a Unix time in seconds.";
    "expiretime" 2 [READONLY FAST] ONE "generic" "7.0.0" expiry::expiretime;
      "key"; "O(1)"; "Returns when a key expires, as a Unix time in seconds.";
    "keys" 2 [READONLY WHOLE DANGEROUS] DATABASE "generic" "1.0.0" scan::keys;
      "pattern"; "O(n) with the number of keys that begin with the pattern's literal beginning"; "Returns all keys that match a pattern.";
    "object" -2 [CONTAINER] NONE "generic" "2.2.3" command::subcommand_missing;
      "subcommand"; "Depends on the subcommand"; "A container for commands that look into a key.";
    "object|encoding" 3 [READONLY] SECOND "generic" "2.2.3" keyspace::object_encoding;
      "key"; "O(1)"; "Returns how Redis would hold the value: int, embstr or raw.";
    "object|freq" 3 [READONLY] SECOND "generic" "4.0.0" keyspace::object_freq;
      "key"; "O(1)"; "Fails: nothing is evicted here, so access frequencies are not tracked.";
    "object|help" 2 [LOADING STALE] NONE "generic" "6.2.0" command::help;
      ""; "O(1)"; "Lists the subcommands.";
    "object|idletime" 3 [READONLY] SECOND "generic" "2.2.3" keyspace::object_idletime;
      "key"; "O(1)"; "Returns the seconds since the key was last written.";
    "object|refcount" 3 [READONLY] SECOND "generic" "2.2.3" keyspace::object_refcount;
      "key"; "O(1)"; "Returns 1: values are not shared.";
    "persist" 2 [WRITE FAST] ONE "generic" "2.2.0" expiry::persist;
      "key"; "O(1)"; "Removes the expiration of a key.";
    "pexpire" -3 [WRITE FAST] ONE "generic" "2.6.0" expiry::pexpire;
      "key milliseconds [NX | XX | GT | LT]"; "O(1)"; "Sets the expiration of a key in milliseconds from now.";
    "pexpireat" -3 [WRITE FAST] ONE "generic" "2.6.0" expiry::pexpireat;
      "key unix-time-milliseconds [NX | XX | GT | LT]"; "O(1)"; "Sets the expiration of a key to a Unix time in milliseconds.";
    "pexpiretime" 2 [READONLY FAST] ONE "generic" "7.0.0" expiry::pexpiretime;
      "key"; "O(1)"; "Returns when a key expires, as a Unix time in milliseconds.";
    "pttl" 2 [READONLY FAST] ONE "generic" "2.6.0" expiry::pttl;
      "key"; "O(1)"; "Returns the milliseconds until a key expires.";
    "randomkey" 1 [READONLY WHOLE] DATABASE "generic" "1.0.0" scan::randomkey;
      ""; "O(log n)"; "Returns some key of the database.";
    "rename" 3 [WRITE] TWO "generic" "1.0.0" keyspace::rename;
      "key newkey"; "O(n) with the length of the value"; "Renames a key, overwriting the destination.";
    "renamenx" 3 [WRITE FAST] TWO "generic" "1.0.0" keyspace::renamenx;
      "key newkey"; "O(n) with the length of the value"; "Renames a key if the new name does not exist.";
    "scan" -2 [READONLY WHOLE] DATABASE "generic" "2.8.0" scan::scan;
      "cursor [MATCH pattern] [COUNT count] [TYPE type]"; "O(n) with COUNT for every call"; "Goes through the keys of the database, a piece at a time.";
    "touch" -2 [READONLY FAST] ALL "generic" "3.2.1" keyspace::exists;
      "key [key ...]"; "O(n) with the number of keys"; "Returns how many of the keys exist; access times are not kept.";
    "ttl" 2 [READONLY FAST] ONE "generic" "1.0.0" expiry::ttl;
      "key"; "O(1)"; "Returns the seconds until a key expires.";
    "type" 2 [READONLY FAST] ONE "generic" "1.0.0" keyspace::type_of;
      "key"; "O(1)"; "Returns the type of a key: string or none.";
    "unlink" -2 [WRITE FAST] ALL "generic" "4.0.0" keyspace::del;
      "key [key ...]"; "O(n) with the number of keys"; "Deletes keys, all or none, and returns how many there were.";
    "wait" 3 [] NONE "generic" "3.0.0" server::wait;
      "numreplicas timeout"; "O(1)"; "Returns 0: there are no replicas to wait for.";
    "waitaof" 4 [] NONE "generic" "7.2.0" server::waitaof;
      "numlocal numreplicas timeout"; "One sync at most"; "Waits until what this connection wrote is synced; returns [1, 0] when it is.";

    "auth" -2 [NO_AUTH NO_MULTI NOSCRIPT LOADING STALE FAST ALLOW_BUSY SECRET SKIP_SLOWLOG] NONE "connection" "1.0.0" connection::auth;
      "[username] password"; "One argon2 hash"; "Authenticates the connection.";
    "client" -2 [CONTAINER] NONE "connection" "2.4.0" command::subcommand_missing;
      "subcommand"; "Depends on the subcommand"; "A container for commands about connections.";
    "client|durability" -2 [NOSCRIPT LOADING STALE FAST] NONE "holdfast" "0.1.0" client::durability;
      "[synced | window | written]"; "O(1)"; "Returns or sets how durable everything this connection is shown must be.";
    "client|getname" 2 [NOSCRIPT LOADING STALE] NONE "connection" "2.6.9" client::getname;
      ""; "O(1)"; "Returns the name of the connection.";
    "client|getredir" 2 [NOSCRIPT LOADING STALE] NONE "connection" "6.0.0" client::getredir;
      ""; "O(1)"; "Returns -1: tracking does not exist here.";
    "client|help" 2 [LOADING STALE] NONE "connection" "5.0.0" command::help;
      ""; "O(1)"; "Lists the subcommands.";
    "client|id" 2 [NOSCRIPT LOADING STALE] NONE "connection" "5.0.0" client::id;
      ""; "O(1)"; "Returns the number of the connection; it is never reused.";
    "client|info" 2 [NOSCRIPT LOADING STALE] NONE "connection" "6.2.0" client::info;
      ""; "O(1)"; "Returns what is known about this connection.";
    "client|kill" -3 [ADMIN NOSCRIPT LOADING STALE] NONE "connection" "2.4.0" client::kill;
      "ip:port | [ID client-id] [ADDR ip:port] [LADDR ip:port] [USER username] [TYPE normal] [SKIPME yes|no]"; "O(n) with the number of connections"; "Closes connections.";
    "client|list" -2 [ADMIN NOSCRIPT LOADING STALE] NONE "connection" "2.4.0" client::list;
      "[TYPE normal] [ID client-id ...]"; "O(n) with the number of connections"; "Lists the connections.";
    "client|no-evict" 3 [ADMIN NOSCRIPT LOADING STALE] NONE "connection" "7.0.0" client::no_evict;
      "on|off"; "O(1)"; "Accepted: connections are never evicted for memory.";
    "client|no-touch" 3 [NOSCRIPT LOADING STALE] NONE "connection" "7.2.0" client::no_evict;
      "on|off"; "O(1)"; "Accepted: access times are not kept.";
    "client|reply" 3 [NOSCRIPT LOADING STALE] NONE "connection" "3.2.0" client::reply;
      "on|off|skip"; "O(1)"; "Turns replies on or off, or skips the next one.";
    "client|setinfo" 4 [NOSCRIPT LOADING STALE] NONE "connection" "7.2.0" client::setinfo;
      "attribute value"; "O(1)"; "Sets lib-name or lib-ver of the connection, for CLIENT LIST.";
    "client|setname" 3 [NOSCRIPT LOADING STALE] NONE "connection" "2.6.9" client::setname;
      "connection-name"; "O(1)"; "Sets the name of the connection.";
    "echo" 2 [FAST] NONE "connection" "1.0.0" connection::echo;
      "message"; "O(1)"; "Returns its argument.";
    "hello" -1 [NO_AUTH NO_MULTI NOSCRIPT LOADING STALE FAST ALLOW_BUSY SECRET] NONE "connection" "6.0.0" connection::hello;
      "[protover [AUTH username password] [SETNAME clientname]]"; "O(1)"; "Chooses the protocol and introduces the client.";
    "ping" -1 [FAST] NONE "connection" "1.0.0" connection::ping;
      "[message]"; "O(1)"; "Returns PONG, or its argument.";
    "quit" -1 [NO_AUTH IMMEDIATE ALLOW_BUSY NOSCRIPT LOADING STALE FAST] NONE "connection" "1.0.0" connection::quit;
      ""; "O(1)"; "Closes the connection.";
    "reset" 1 [NO_AUTH IMMEDIATE ALLOW_BUSY NOSCRIPT LOADING STALE FAST] NONE "connection" "6.2.0" connection::reset;
      ""; "O(1)"; "Puts the connection back to how it began.";
    "select" 2 [LOADING STALE FAST] NONE "connection" "1.0.0" connection::select;
      "index"; "O(1)"; "Selects a database: n is the bucket db<n>.";

    "discard" 1 [IMMEDIATE NOSCRIPT LOADING STALE FAST ALLOW_BUSY] NONE "transactions" "2.0.0" transaction::discard;
      ""; "O(n) with the number of queued commands"; "Forgets the queued commands.";
    "exec" 1 [IMMEDIATE NOSCRIPT LOADING STALE] NONE "transactions" "1.2.0" transaction::exec;
      ""; "That of the queued commands"; "Runs the queued commands as one batch of the journal: all or nothing, across crashes too.";
    "multi" 1 [IMMEDIATE NOSCRIPT LOADING STALE FAST ALLOW_BUSY] NONE "transactions" "1.2.0" transaction::multi;
      ""; "O(1)"; "Starts to queue commands for EXEC.";
    "unwatch" 1 [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] NONE "transactions" "2.2.0" transaction::unwatch;
      ""; "O(n) with the number of watched keys"; "Forgets all watched keys.";
    "watch" -2 [READONLY IMMEDIATE NOSCRIPT LOADING STALE FAST ALLOW_BUSY] ALL "transactions" "2.2.0" transaction::watch;
      "key [key ...]"; "O(n) with the number of keys"; "Makes the next EXEC do nothing if one of the keys has changed by then.";

    "command" -1 [CONTAINER LOADING STALE] NONE "server" "2.8.13" command::all;
      ""; "O(n) with the number of commands"; "Describes all commands.";
    "command|count" 2 [LOADING STALE] NONE "server" "2.8.13" command::count;
      ""; "O(1)"; "Returns the number of commands.";
    "command|docs" -2 [LOADING STALE] NONE "server" "7.0.0" command::docs;
      "[command-name ...]"; "O(n) with the number of commands"; "Returns the documentation of commands.";
    "command|getkeys" -4 [LOADING STALE] NONE "server" "2.8.13" command::getkeys;
      "command arg [arg ...]"; "O(n) with the number of arguments"; "Returns the keys of a command.";
    "command|help" 2 [LOADING STALE] NONE "server" "5.0.0" command::help;
      ""; "O(1)"; "Lists the subcommands.";
    "command|info" -2 [LOADING STALE] NONE "server" "2.8.13" command::info;
      "[command-name ...]"; "O(n) with the number of commands"; "Describes some commands.";
    "command|list" -2 [LOADING STALE] NONE "server" "7.0.0" command::list;
      "[FILTERBY MODULE name | ACLCAT category | PATTERN pattern]"; "O(n) with the number of commands"; "Lists the names of the commands.";
    "config" -2 [CONTAINER] NONE "server" "2.0.0" command::subcommand_missing;
      "subcommand"; "Depends on the subcommand"; "A container for commands about the configuration.";
    "config|get" -3 [ADMIN NOSCRIPT LOADING STALE] NONE "server" "2.0.0" server::config_get;
      "parameter [parameter ...]"; "O(n) with the number of parameters"; "Returns parameters by pattern.";
    "config|help" 2 [LOADING STALE] NONE "server" "5.0.0" command::help;
      ""; "O(1)"; "Lists the subcommands.";
    "config|resetstat" 2 [ADMIN NOSCRIPT LOADING STALE] NONE "server" "2.0.0" server::config_resetstat;
      ""; "O(1)"; "Resets the counters of INFO stats.";
    "config|rewrite" 2 [ADMIN NOSCRIPT LOADING STALE] NONE "server" "2.8.0" server::config_rewrite;
      ""; "O(1)"; "Fails: the configuration file is never written by the server.";
    "config|set" -4 [ADMIN NOSCRIPT LOADING STALE] NONE "server" "2.0.0" server::config_set;
      "parameter value [parameter value ...]"; "O(n) with the number of parameters"; "Sets parameters until the server stops, all or none.";
    "dbsize" 1 [READONLY WHOLE FAST] DATABASE "server" "1.0.0" keyspace::dbsize;
      ""; "O(1)"; "Returns the number of keys in the database.";
    "flushall" -1 [WRITE WHOLE CLEARS DANGEROUS ADMIN] DATABASE "server" "1.0.0" keyspace::flushall;
      "[ASYNC | SYNC]"; "O(n) with the number of keys"; "Deletes all keys of all databases; named buckets stay.";
    "flushdb" -1 [WRITE WHOLE CLEARS DANGEROUS] DATABASE "server" "1.0.0" keyspace::flushdb;
      "[ASYNC | SYNC]"; "O(n) with the number of keys"; "Deletes all keys of the database.";
    "info" -1 [LOADING STALE] NONE "server" "1.0.0" server::info;
      "[section [section ...]]"; "O(1)"; "Returns information about the server, the loss window among it.";
    "latency" -2 [CONTAINER] NONE "server" "2.8.13" command::subcommand_missing;
      "subcommand"; "Depends on the subcommand"; "A container for commands about latency.";
    "latency|doctor" 2 [ADMIN NOSCRIPT LOADING STALE] NONE "server" "2.8.13" slow::latency_doctor;
      ""; "O(1)"; "Says in words what the latency monitor saw.";
    "latency|help" 2 [LOADING STALE] NONE "server" "2.8.13" command::help;
      ""; "O(1)"; "Lists the subcommands.";
    "latency|history" 3 [ADMIN NOSCRIPT LOADING STALE] NONE "server" "2.8.13" slow::latency_history;
      "event"; "O(1)"; "Returns the samples of an event, each a time and milliseconds.";
    "latency|latest" 2 [ADMIN NOSCRIPT LOADING STALE] NONE "server" "2.8.13" slow::latency_latest;
      ""; "O(1)"; "Returns the latest sample of every event.";
    "latency|reset" -2 [ADMIN NOSCRIPT LOADING STALE] NONE "server" "2.8.13" slow::latency_reset;
      "[event [event ...]]"; "O(1)"; "Forgets the samples of events.";
    "memory" -2 [CONTAINER] NONE "server" "4.0.0" command::subcommand_missing;
      "subcommand"; "Depends on the subcommand"; "A container for commands about memory.";
    "memory|help" 2 [LOADING STALE] NONE "server" "4.0.0" command::help;
      ""; "O(1)"; "Lists the subcommands.";
    "memory|usage" -3 [READONLY] SECOND "server" "4.0.0" keyspace::memory_usage;
      "key [SAMPLES count]"; "O(1), without reading the value"; "Returns the bytes a key takes up in the journal and the index.";
    "shutdown" -1 [ADMIN NO_MULTI NOSCRIPT LOADING STALE ALLOW_BUSY] NONE "server" "1.0.0" server::shutdown;
      "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]"; "One sync"; "Stops the server cleanly; nothing is ever lost by stopping.";
    "slowlog" -2 [CONTAINER] NONE "server" "2.2.12" command::subcommand_missing;
      "subcommand"; "Depends on the subcommand"; "A container for commands about slow commands.";
    "slowlog|get" -2 [ADMIN LOADING STALE] NONE "server" "2.2.12" slow::slowlog_get;
      "[count]"; "O(n) with the number of entries"; "Returns the latest slow commands; secrets are left out.";
    "slowlog|help" 2 [LOADING STALE] NONE "server" "6.2.0" command::help;
      ""; "O(1)"; "Lists the subcommands.";
    "slowlog|len" 2 [ADMIN LOADING STALE] NONE "server" "2.2.12" slow::slowlog_len;
      ""; "O(1)"; "Returns the number of entries.";
    "slowlog|reset" 2 [ADMIN LOADING STALE] NONE "server" "2.2.12" slow::slowlog_reset;
      ""; "O(n) with the number of entries"; "Forgets all entries.";
    "time" 1 [LOADING STALE FAST] NONE "server" "2.6.0" server::time;
      ""; "O(1)"; "Returns the time of the server: Unix seconds and microseconds.";

    "backup" -2 [ADMIN NO_MULTI NOSCRIPT LOADING STALE] NONE "holdfast" "0.1.0" backup::backup;
      "directory [STORE identity]"; "O(n) with the number of segments that are new"; "Makes a directory of the server's machine a backup of the whole store, or brings the backup there up to date.";
    "kv.buckets" -1 [READONLY WHOLE] NONE_READ "holdfast" "0.1.0" own::buckets;
      "[MATCH pattern] [DURABILITY synced|window|written]"; "O(n) with the number of buckets"; "Returns the names of the buckets that hold something and that this user may read.";
    "kv.del" -3 [WRITE FAST] OWN "holdfast" "0.1.0" own::del;
      "bucket key [IFVERSION version] [DURABILITY synced|window|written]"; "O(1)"; "Deletes a key; returns [1 or 0, position, durability], or null if the version is another one.";
    "kv.get" -3 [READONLY FAST] OWN "holdfast" "0.1.0" own::get;
      "bucket key [DURABILITY synced|window|written]"; "O(1)"; "Returns [value, version, durability], or null.";
    "kv.head" -3 [READONLY FAST] OWN "holdfast" "0.1.0" own::head;
      "bucket key [DURABILITY synced|window|written]"; "O(1), without reading the value"; "Returns a map of version, bytes, checksum, modified, expires, metadata and durability, or null.";
    "kv.keys" -2 [READONLY WHOLE] BUCKET "holdfast" "0.1.0" own::keys;
      "bucket [START key] [END key] [PREFIX prefix] [MATCH pattern] [LIMIT count] [DURABILITY synced|window|written]"; "O(n) with LIMIT, 1000 unless given"; "Returns [sorted keys, where to START next or null, durability]; START is included, END is not.";
    "kv.put" -4 [WRITE DENYOOM FAST] OWN "holdfast" "0.1.0" own::put;
      "bucket key value [NX | XX | IFVERSION version] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] [META name value ...] [DURABILITY synced|window|written]"; "O(1)"; "Stores a value; returns [version, durability], or null if the condition does not hold. META takes one pair and may be repeated.";
    "kv.range" -2 [READONLY WHOLE] BUCKET "holdfast" "0.1.0" own::range;
      "bucket [START key] [END key] [PREFIX prefix] [LIMIT count] [VALUES] [DURABILITY synced|window|written]"; "O(n) with LIMIT, 1000 unless given"; "Returns [entries, where to START next or null, durability]; an entry is [key, version, bytes] and with VALUES the value.";
    "kv.stats" -1 [READONLY WHOLE] NONE_READ "holdfast" "0.1.0" own::stats;
      "[bucket]"; "O(1)"; "Returns a map of the store's positions and numbers, or of one bucket.";
}
