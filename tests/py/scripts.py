"""EVAL, EVALSHA, SCRIPT, FUNCTION and FCALL, as redis-py knows them."""

import threading

import redis
from check import connect, equal, main, raises, true

ERROR = redis.exceptions.ResponseError


def values(r):
    equal("number", r.eval("return 7", 0), 7)
    equal("text", r.eval("return ARGV[1]", 0, b"a\x00\xff"), b"a\x00\xff")
    equal("nothing", r.eval("return nil", 0), None)
    equal("false", r.eval("return false", 0), None)
    equal("true", r.eval("return true", 0), 1)
    equal("fraction", r.eval("return 3.99", 0), 3)
    equal("list", r.eval("return {1, {'a'}, nil, 4}", 0), [1, [b"a"]])
    equal("status", r.eval("return {ok = 'fine'}", 0), b"fine")
    equal("keys and arguments", r.eval("return {KEYS[1], KEYS[2], ARGV[1]}", 2, "a", "b", "c"), [b"a", b"b", b"c"])
    raises("an error of its own", ERROR, "no luck", lambda: r.eval("return redis.error_reply('MY no luck')", 0))
    raises("an error with its line", ERROR, "script:2: oh", lambda: r.eval("\nerror('oh')", 0))
    raises("a wrong script", ERROR, "script:1:", lambda: r.eval("return )", 0))
    raises("an endless script", ERROR, "longer than it may", lambda: r.eval("while true do end", 0))
    raises("too much memory", ERROR, "more memory", lambda: r.eval("return ('x'):rep(2^30)", 0))
    equal("sum", r.eval("return redis.sha1hex('')", 0), b"da39a3ee5e6b4b0d3255bfef95601890afd80709")


def scripts(r):
    add = r.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    equal("registered", add(keys=["n"], args=[5]), 5)
    equal("again", add(keys=["n"], args=[5]), 10)
    r.script_flush()
    equal("after a flush", add(keys=["n"], args=[5]), 15)
    equal("known", r.script_exists(add.sha, "0" * 40), [True, False])
    equal("by hash", r.evalsha(add.sha, 1, "n", 1), 16)
    raises("an unknown hash", redis.exceptions.NoScriptError, "matching", lambda: r.evalsha("0" * 40, 0))
    raises("none runs", ERROR, "No scripts", r.script_kill)
    with r.pipeline() as p:
        add(keys=["n"], args=[1], client=p)
        p.get("n")
        equal("in a transaction", p.execute(), [17, b"17"])
    equal("reading", r.eval_ro("return redis.call('get', 'n')", 0), b"17")
    raises("writing", ERROR, "read-only", lambda: r.eval_ro("return redis.call('del', 'n')", 0))


def all_or_nothing(r):
    r.set("text", "text")
    raises("a failing script", ERROR, "not an integer", lambda: r.eval("redis.call('set', 'a', 1) redis.call('incr', 'text')", 0))
    equal("left nothing", r.exists("a"), 0)
    equal("that caught", r.eval("redis.call('set', 'a', 1) return redis.pcall('incr', 'text').err ~= nil", 0), 1)
    equal("left what it did", r.get("a"), b"1")
    lock = r.lock("lock", timeout=5)
    true("redis-py's lock", lock.acquire(blocking=False))
    true("is held", not connect().lock("lock").acquire(blocking=False))
    true("and extended", lock.extend(5))
    lock.release()
    equal("and released", r.exists("lock"), 0)

    def increments():
        mine = connect()
        script = mine.register_script("redis.call('set', KEYS[1], (redis.call('get', KEYS[1]) or 0) + 1)")
        for _ in range(200):
            script(keys=["counter"])

    threads = [threading.Thread(target=increments) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal("all increments", r.get("counter"), b"800")


def functions(r):
    r.function_flush()
    text = "#!lua name=lib\nredis.register_function('double', function(keys, args) return args[1] * 2 end)\n"
    text += "redis.register_function{function_name='look', callback=function(keys) return redis.call('get', keys[1]) end, flags={'no-writes'}}"
    equal("load", r.function_load(text), b"lib")
    raises("load again", ERROR, "already exists", lambda: r.function_load(text))
    equal("replace", r.function_load(text, replace=True), b"lib")
    equal("call", r.fcall("double", 0, 21), 42)
    r.set("k", "v")
    equal("read", r.fcall_ro("look", 1, "k"), b"v")
    raises("unknown", ERROR, "not found", lambda: r.fcall("nosuch", 0))
    equal("one library", len(r.function_list()), 1)
    true("delete", r.function_delete("lib"))
    equal("no library", r.function_list(), [])


main(values, scripts, all_or_nothing, functions)
