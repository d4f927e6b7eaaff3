"""What programs do with the lists, hashes, sets, sorted sets, streams and channels of Redis, done with entries of spaces.

Each function is one habit, and says which commands of Redis it replaces. docs/concepts/from-redis.md has the same as a table,
with what differs.

    from_redis.py PORT          runs all of them in the space `moved`, which is emptied before
"""

import json
import sys
import threading
import time

import redis


def run(r, *words):
    return r.execute_command(*words)


def document(entry):
    """The document of an entry in a reply, or None."""
    return None if entry is None else json.loads(entry[0])


def declare(r, kind, *options):
    run(r, "SPACE.DROP", "moved", kind)
    run(r, "SPACE.DECLARE", "moved", kind, *options)


def queue(r):
    """LPUSH and BRPOP: first in, first out; whoever waits longest is served first."""
    declare(r, "jobs", "FIFO")
    for number in range(3):
        run(r, "SPACE.WRITE", "moved", "jobs", json.dumps({"number": number}))
    got = [document(run(r, "SPACE.TAKE", "moved", "jobs", "ANY", "BLOCK", 1000))["number"] for _ in range(3)]
    assert got == [0, 1, 2], got
    assert run(r, "SPACE.TAKE", "moved", "jobs", "ANY") is None
    # LLEN, LRANGE
    assert run(r, "SPACE.COUNT", "moved", "jobs", "ANY") == 0


def reliable_queue(r):
    """BLMOVE to a list of one's own, and LREM when done: here the job comes back by itself when its worker dies."""
    declare(r, "work", "FIFO")
    run(r, "SPACE.WRITE", "moved", "work", json.dumps({"number": 1}))
    worker = r.client()
    worker.execute_command("TX.BEGIN", "LEASE", 60_000)
    assert document(worker.execute_command("SPACE.TAKE", "moved", "work", "ANY"))["number"] == 1
    # Nobody else gets it; then the worker dies, and somebody does.
    assert run(r, "SPACE.TAKE", "moved", "work", "ANY") is None
    worker.connection.disconnect()
    worker.close()
    assert document(run(r, "SPACE.TAKE", "moved", "work", "ANY", "BLOCK", 5000))["number"] == 1


def priorities(r):
    """ZADD and ZPOPMIN: the smallest first. Several may try for the same one: one gets it."""
    declare(r, "tasks", "INDEX", "priority", "ORDERED", 1, "priority")
    for priority in [5, 1, 3]:
        run(r, "SPACE.WRITE", "moved", "tasks", json.dumps({"priority": priority}))
    order = []
    while first := run(r, "SPACE.MREAD", "moved", "tasks", "WHERE", "priority >= 0 ORDER BY priority LIMIT 1", 0):
        (entry,) = first
        taken = run(r, "SPACE.TAKE", "moved", "tasks", "ID", document(entry)["id"])
        order += [taken and document(taken)["priority"]]
    assert order == [1, 3, 5], order


def delayed(r):
    """ZADD with a time as score, and ZRANGEBYSCORE up to now: jobs for later."""
    declare(r, "later", "INDEX", "due", "ORDERED", 1, "due")
    now = int(time.time() * 1000)
    run(r, "SPACE.WRITE", "moved", "later", json.dumps({"id": "a", "due": now - 10}))
    run(r, "SPACE.WRITE", "moved", "later", json.dumps({"id": "b", "due": now + 60_000}))
    due = run(r, "SPACE.MTAKE", "moved", "later", "WHERE", "due <= ?", 1, now, "COUNT", 100)
    assert [document(entry)["id"] for entry in due] == ["a"]


def ranking(r):
    """ZINCRBY, ZREVRANGE, ZRANK: a table of scores."""
    declare(r, "scores", "INDEX", "points", "ORDERED", 1, "points")
    for player, points in [("ann", 10), ("bob", 30), ("cyd", 20)]:
        run(r, "SPACE.WRITE", "moved", "scores", json.dumps({"id": player, "points": points}))
    run(r, "SPACE.CHANGE", "moved", "scores", "ann", "INCR", "points", 15)
    best = run(r, "SPACE.MREAD", "moved", "scores", "WHERE", "points > 0 ORDER BY points DESC LIMIT 2", 0)
    assert [document(entry)["id"] for entry in best] == ["bob", "ann"]
    assert run(r, "SPACE.COUNT", "moved", "scores", "WHERE", "points > ?", 1, 25) == 1


def fields(r):
    """HSET, HGETALL, HINCRBY, HDEL: an object with fields. HEXPIRE is a lease of the whole object."""
    declare(r, "users")
    run(r, "SPACE.WRITE", "moved", "users", json.dumps({"id": "u1", "name": "Ann", "visits": 1}), "LEASE", 60_000)
    run(r, "SPACE.CHANGE", "moved", "users", "u1", "INCR", "visits", 1, "SET", "city", '"Ulm"', "UNSET", "name")
    got = document(run(r, "SPACE.READ", "moved", "users", "ID", "u1"))
    assert got == {"id": "u1", "visits": 2, "city": "Ulm"}, got


def members(r):
    """SADD, SREM, SISMEMBER: a set within an object; and the other way round, who has a member."""
    declare(r, "posts", "INDEX", "tags", "HASH", 1, "tags[*]")
    for post, tags in [("p1", ["new", "red"]), ("p2", ["red"])]:
        run(r, "SPACE.WRITE", "moved", "posts", json.dumps({"id": post, "tags": tags}))
    run(r, "SPACE.CHANGE", "moved", "posts", "p2", "ADD", "tags", '"new"', "REMOVE", "tags", '"red"')
    assert run(r, "SPACE.COUNT", "moved", "posts", "WHERE", "tags[*] = ?", 1, "new") == 2
    assert run(r, "SPACE.COUNT", "moved", "posts", "WHERE", "tags[*] = ?", 1, "red") == 1


def stream(r):
    """XADD, XREADGROUP, XACK with one reader for each group: a named listener is told each event once, in order, after a
    crash too."""
    declare(r, "events")
    listen = ("SPACE.LISTEN", "moved", "events", "ANY", "HEARS", "written", "NAME", "mailer")
    # The name begins now.
    run(r, *listen)
    for number in range(3):
        run(r, "SPACE.WRITE", "moved", "events", json.dumps({"number": number}))
    bookmark, events = run(r, *listen, "BLOCK", 1000)
    assert [json.loads(event[2])["number"] for event in events] == [0, 1, 2]
    # What was not acknowledged is told again; then it is not.
    assert run(r, *listen)[1] == events
    assert run(r, *listen, "ACK", bookmark)[1] == []


def channel(r):
    """PUBLISH and SUBSCRIBE: who listens is told. Entries that nobody keeps go with their lease."""
    declare(r, "news", "LEASE", 1000)
    heard = []

    def subscriber():
        # Connections of a pool are made when they are needed: this one waits, others go on.
        heard.extend(run(r, "SPACE.LISTEN", "moved", "news", "ANY", "FROM", bookmark, "BLOCK", 5000)[1])

    bookmark = run(r, "SPACE.LISTEN", "moved", "news", "ANY")[0]
    thread = threading.Thread(target=subscriber)
    thread.start()
    run(r, "SPACE.WRITE", "moved", "news", json.dumps({"text": "hello"}))
    thread.join()
    assert json.loads(heard[0][2])["text"] == "hello"


def together(r):
    """MULTI over all of it: a job taken, its result written and a key counted are one batch, or nothing is."""
    declare(r, "orders")
    declare(r, "invoices")
    key, _ = run(r, "SPACE.WRITE", "moved", "orders", json.dumps({"sum": 7}))
    with r.pipeline(transaction=True) as batch:
        batch.execute_command("SPACE.TAKE", "moved", "orders", "ID", key, "STRICT")
        batch.execute_command("SPACE.WRITE", "moved", "invoices", json.dumps({"sum": 7}))
        batch.incr("moved:invoices")
        batch.execute()
    assert run(r, "SPACE.COUNT", "moved", "orders", "ANY") == 0


HABITS = [queue, reliable_queue, priorities, delayed, ranking, fields, members, stream, channel, together]


def main():
    r = redis.Redis(port=int(sys.argv[1]))
    for habit in HABITS:
        habit(r)
    print(f"{len(HABITS)} habits moved")


if __name__ == "__main__":
    main()
