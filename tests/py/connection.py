"""The connection and the server: greetings, names, settings, statistics; as redis-py knows them."""

import redis
from check import connect, equal, main, plain, raises, true

ERROR = redis.exceptions.ResponseError


def greetings(r):
    equal("ping", r.ping(), True)
    equal("ping with text", plain(r, "PING", "hello"), b"hello")
    equal("echo", r.echo("text"), b"text")
    seconds, micros = r.time()
    true("time", seconds > 1_600_000_000 and 0 <= micros < 1_000_000)
    true("client id", r.client_id() > 0)
    equal("setname", r.client_setname("me"), True)
    equal("no name with spaces", refused(lambda: r.client_setname("a b")), True)
    c = connect(client_name="named", single_connection_client=True)
    equal("named", c.client_getname() in (b"named", "named"), True)
    true("client list", any(client["name"] == "named" for client in c.client_list()))
    equal("client info", c.client_info()["name"], "named")
    true("ids grow", connect().client_id() > c.client_id())
    equal("no-evict", c.client_no_evict("ON") in (b"OK", "OK", True), True)
    hello = c.execute_command("HELLO")
    hello = hello if isinstance(hello, dict) else dict(zip(hello[::2], hello[1::2]))
    true("hello has a version", any(key in (b"version", "version") for key in hello))
    raises("hello 9", ERROR, "NOPROTO", lambda: c.execute_command("HELLO", "9"))
    equal("setinfo", c.client_setinfo("LIB-NAME", "tests"), True)
    c.close()


def refused(call):
    try:
        call()
    except ERROR:
        return True
    return False


def killed(r):
    victim = connect(single_connection_client=True)
    number = victim.client_id()
    equal("kill by id", r.client_kill_filter(_id=number), 1)
    equal("kill nobody", r.client_kill_filter(_id=number), 0)
    try:
        victim.connection.send_command("PING")
        victim.connection.read_response()
        equal("a killed client", "answered", "gone")
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
        true("a killed client is gone", True)


def settings(r):
    everything = r.config_get("*")
    true("config get *", isinstance(everything, dict) and len(everything) > 0)
    equal("config get nothing", r.config_get("no-such-setting"), {})
    true("config set nothing", refused(lambda: r.config_set("no-such-setting", "1")))
    true("config get save", isinstance(r.config_get("save"), dict))
    true("config get appendonly", isinstance(r.config_get("appendonly"), dict))


def statistics(r):
    r.set("a", 1)
    info = r.info()
    for name in ["redis_version", "process_id", "uptime_in_seconds", "connected_clients", "used_memory", "total_commands_processed"]:
        true(f"info {name}", name in info)
    equal("info keyspace", info.get("db0", {}).get("keys"), 1)
    section = r.info("server")
    true("info server", "redis_version" in section)
    true("info server alone", "db0" not in section)
    equal("slowlog", isinstance(r.slowlog_get(), list), True)
    true("slowlog len", r.slowlog_len() >= 0)
    equal("slowlog reset", r.slowlog_reset(), True)
    equal("wait", r.wait(0, 10), 0)


def commands(r):
    known = r.command_count()
    true("command count", known > 60)
    table = r.command()
    equal("command has as many", len(table), known)
    for name in ["get", "set", "multi", "exec", "watch", "scan", "hello", "expire"]:
        true(f"command {name}", name in table)
    equal("keys of get", r.command_getkeys("GET", "a") in ([b"a"], ["a"]), True)
    equal("keys of mset", r.command_getkeys("MSET", "a", "1", "b", "2") in ([b"a", b"b"], ["a", "b"]), True)
    docs = plain(r, "COMMAND", "DOCS", "get")
    true("command docs", len(docs) > 0)
    info = plain(r, "COMMAND", "INFO", "get", "nosuch")
    equal("command info", len(info), 2)


def replies(r):
    c = connect(single_connection_client=True)
    connection = c.connection
    connection.send_command("CLIENT", "REPLY", "SKIP")
    connection.send_command("SET", "skipped", "1")
    connection.send_command("GET", "skipped")
    equal("reply skip", connection.read_response(), b"1")
    connection.send_command("CLIENT", "REPLY", "OFF")
    connection.send_command("SET", "off", "1")
    connection.send_command("CLIENT", "REPLY", "ON")
    equal("reply on", connection.read_response() in (b"OK", "OK"), True)
    connection.send_command("GET", "off")
    equal("done while off", connection.read_response(), b"1")
    connection.send_command("QUIT")
    equal("quit", connection.read_response() in (b"OK", "OK"), True)
    c = connect(single_connection_client=True)
    c.connection.send_command("MULTI")
    c.connection.read_response()
    c.connection.send_command("RESET")
    equal("reset", c.connection.read_response() in (b"RESET", "RESET"), True)
    raises("reset ends multi", ERROR, "EXEC without MULTI", lambda: exec_now(c.connection))


def exec_now(connection):
    connection.send_command("EXEC")
    answer = connection.read_response()
    if isinstance(answer, Exception):
        raise answer
    return answer


main(greetings, killed, settings, statistics, commands, replies)
