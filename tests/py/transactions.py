"""MULTI, EXEC, WATCH and pipelines, as redis-py knows them."""

import threading

import redis
from check import connect, equal, main, raises, true

ERROR = redis.exceptions.ResponseError


def pipelines(r):
    with r.pipeline(transaction=False) as p:
        equal("pipeline", p.set("a", 1).get("a").incr("a").delete("none").mget("a", "x").execute(), [True, b"1", 2, 0, [b"2", None]])
    with r.pipeline(transaction=False) as p:
        for i in range(3000):
            p.set(f"k{i}", i)
        for i in range(3000):
            p.get(f"k{i}")
        equal("long pipeline", p.execute(), [True] * 3000 + [str(i).encode() for i in range(3000)])
    with r.pipeline(transaction=False) as p:
        p.set("t", "text").incr("t").get("t")
        got = p.execute(raise_on_error=False)
        equal("before the error", got[0], True)
        true("the error", isinstance(got[1], ERROR))
        equal("after the error", got[2], b"text")


def transactions(r):
    with r.pipeline() as p:
        equal("transaction", p.set("a", 1).incr("a").get("a").execute(), [True, 2, b"2"])
    with r.pipeline() as p:
        equal("empty", p.execute(), [])
    with r.pipeline() as p:
        p.set("t", "text").incr("t").set("u", "1")
        got = p.execute(raise_on_error=False)
        equal("before a failed command", got[0], True)
        true("the failed command", isinstance(got[1], ERROR))
        equal("after a failed command", got[2], True)
        equal("the others are carried out", r.mget("t", "u"), [b"text", b"1"])
    with r.pipeline() as p:
        p.set("a", "never").execute_command("NOSUCH")
        try:
            p.execute()
            equal("a wrong command", "no error", "an error")
        except redis.exceptions.RedisError as error:
            true(f"a wrong command: {error}", "unknown command" in str(error) or "EXECABORT" in str(error) or "discarded" in str(error))
    equal("an aborted transaction did nothing", r.get("a"), b"2")
    with r.pipeline() as p:
        p.set("big", "x" * 1000000).strlen("big").append("big", "y").getrange("big", 999999, -1)
        equal("large", p.execute(), [True, 1000000, 1000001, b"xy"])
    with r.pipeline() as p:
        for i in range(2000):
            p.incr("n")
        equal("long", p.execute(), list(range(1, 2001)))
    with r.pipeline() as p:
        equal("reads see writes before them", p.set("z", 1).exists("z").delete("z").exists("z").get("z").execute(), [True, 1, 1, 0, None])
    with r.pipeline() as p:
        equal("expiry inside", p.set("e", 1).expire("e", 100).persist("e").ttl("e").execute(), [True, True, True, -1])


def by_hand(r):
    c = connect(single_connection_client=True)
    for words, answer in [("MULTI", b"OK"), ("SET h 1", b"QUEUED"), ("GET h", b"QUEUED"), ("DISCARD", b"OK")]:
        c.connection.send_command(*words.split())
        equal(words, c.connection.read_response(), answer)
    equal("discarded", r.get("h"), None)
    raises("exec without multi", ERROR, "EXEC without MULTI", lambda: c.execute_command("EXEC"))
    raises("discard without multi", ERROR, "DISCARD without MULTI", lambda: c.execute_command("DISCARD"))
    c.execute_command("MULTI")
    raises("nested multi", ERROR, "MULTI calls can not be nested", lambda: c.execute_command("MULTI"))
    raises("watch inside multi", ERROR, "WATCH inside MULTI is not allowed", lambda: c.execute_command("WATCH", "a"))
    c.execute_command("DISCARD")
    equal("back to normal", c.set("h", "2"), True)
    c.close()


def watches(r):
    r.set("w", 1)
    with r.pipeline() as p:
        p.watch("w")
        equal("read while watching", p.get("w"), b"1")
        p.multi()
        p.set("w", 2)
        equal("nothing changed", p.execute(), [True])
    with r.pipeline() as p:
        p.watch("w")
        r.set("w", "someone else")
        p.multi()
        p.set("w", "mine")
        raises("changed", redis.exceptions.WatchError, "", p.execute)
    equal("the other won", r.get("w"), b"someone else")
    for what, before, change in [
        ("made", lambda: r.delete("x"), lambda: r.set("x", 1)),
        ("deleted", lambda: r.set("x", 1), lambda: r.delete("x")),
        ("set to the same", lambda: r.set("x", 1), lambda: r.set("x", 1)),
        ("given an expiry", lambda: r.set("x", 1), lambda: r.expire("x", 100)),
        ("renamed away", lambda: r.set("x", 1), lambda: r.rename("x", "y")),
        ("flushed", lambda: r.set("x", 1), lambda: r.flushdb()),
        ("appended to", lambda: r.set("x", 1), lambda: r.append("x", "2")),
    ]:
        before()
        with r.pipeline() as p:
            p.watch("x", "unrelated")
            change()
            p.multi()
            p.set("mine", 1)
            raises(f"{what} while watched", redis.exceptions.WatchError, "", p.execute)
    r.set("x", 1)
    with r.pipeline() as p:
        p.watch("x")
        r.set("other", 1)
        r.get("x")
        p.multi()
        p.set("mine", 2)
        equal("another key changed", p.execute(), [True])
    with r.pipeline() as p:
        p.watch("x")
        p.unwatch()
        r.set("x", 2)
        p.multi()
        p.set("mine", 3)
        equal("unwatched", p.execute(), [True])
    with r.pipeline() as p:
        p.watch("x")
        p.set("x", "own")
        p.multi()
        p.set("mine", 4)
        raises("own change before multi", redis.exceptions.WatchError, "", p.execute)


def helper(r):
    r.set("n", 0)

    def increment(p):
        number = int(p.get("n"))
        p.multi()
        p.set("n", number + 1)

    equal("transaction helper", r.transaction(increment, "n"), [True])

    def many():
        own = connect()
        for _ in range(50):
            own.transaction(increment, "n")

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal("no increment is lost", r.get("n"), b"201")

    def incr():
        own = connect()
        for _ in range(500):
            own.incr("m")

    threads = [threading.Thread(target=incr) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal("no incr is lost", r.get("m"), b"2000")
    equal("lock by set", r.set("l", "token", nx=True, px=10000), True)
    equal("lock is held", r.set("l", "token", nx=True, px=10000), None)


main(pipelines, transactions, by_hand, watches, helper)
