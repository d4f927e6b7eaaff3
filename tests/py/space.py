"""Entries of spaces through redis-py's execute_command: documents as JSON, blocking takes, MULTI and EXEC."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import redis
from check import connect, equal, main, raises, true

import check

ERROR = redis.exceptions.ResponseError


def fresh(r, name, *options):
    """A type of its own for each group, without entries."""
    r.execute_command("SPACE.DROP", "shop", name)
    equal(f"declare {name}", r.execute_command("SPACE.DECLARE", "shop", name, *options), b"OK")


def document(entry):
    return None if entry is None else json.loads(entry[0])


def info(r, name):
    got = r.execute_command("SPACE.INFO", "shop", name)
    return got if isinstance(got, dict) else dict(zip(got[::2], got[1::2]))


def documents(r):
    fresh(r, "orders", "INDEX", "city", "HASH", 1, "address.city", "INDEX", "price", "ORDERED", 1, "price")
    ulm = {"id": 1, "address": {"city": "Ulm"}, "price": 10.5, "tags": ["new", "ä"]}
    key, version = r.execute_command("SPACE.WRITE", "shop", "orders", json.dumps(ulm))
    equal("id", key, 1)
    got = r.execute_command("SPACE.READ", "shop", "orders", "ID", 1)
    equal("document", json.loads(got[0]), ulm)
    equal("version and lease", got[1:], [version, None])
    text, _ = r.execute_command("SPACE.WRITE", "shop", "orders", json.dumps({"id": "7", "price": 3}))
    equal("a string that looks like a number", text, b'"7"')
    equal("and back", document(r.execute_command("SPACE.READ", "shop", "orders", "ID", text)), {"id": "7", "price": 3})
    made, _ = r.execute_command("SPACE.WRITE", "shop", "orders", "{}")
    true("an id is made", isinstance(made, int) and made > 0)
    where = ["WHERE", "address.city = ? AND price < ?", 2, "Ulm", 100]
    equal("where", document(r.execute_command("SPACE.READ", "shop", "orders", *where)), ulm)
    equal("tags", r.execute_command("SPACE.COUNT", "shop", "orders", "WHERE", "tags[*] = ?", 1, "ä"), 1)
    template = json.dumps({"address": {"city": "Ulm"}})
    equal("template", document(r.execute_command("SPACE.READ", "shop", "orders", "TEMPLATE", template)), ulm)
    outcomes = r.execute_command("SPACE.MWRITE", "shop", "orders", 3, '{"id":1}', '{"id":2}', "[]", "INSERT")
    true("an outcome for each", isinstance(outcomes[0], ERROR) and outcomes[1][0] == 2 and isinstance(outcomes[2], ERROR))
    stale = ["SPACE.WRITE", "shop", "orders", '{"id":1}', "VERSION", version - 1]
    raises("a stale version", ERROR, "CONFLICT", lambda: r.execute_command(*stale))
    equal("entries", info(r, "orders")[b"entries"], 4)
    got = r.execute_command("SPACE.MREAD", "shop", "orders", "WHERE", "price > 0 ORDER BY price", 0)
    equal("in order", [json.loads(entry[0])["price"] for entry in got], [3, 10.5])
    equal("cleared", r.execute_command("SPACE.CLEAR", "shop", "orders", "ANY"), 4)
    raises("no type", ERROR, "declare it first", lambda: r.execute_command("SPACE.READ", "shop", "none", "ANY"))


def leases(r):
    fresh(r, "leases", "LEASE", 60000)
    r.execute_command("SPACE.WRITE", "shop", "leases", '{"id":1}', "LEASE", 30)
    r.execute_command("SPACE.WRITE", "shop", "leases", '{"id":2}', "LEASE", "FOREVER")
    r.execute_command("SPACE.WRITE", "shop", "leases", '{"id":3}')
    equal("forever", r.execute_command("SPACE.READ", "shop", "leases", "ID", 2)[2], None)
    left = r.execute_command("SPACE.READ", "shop", "leases", "ID", 3)[2] - time.time() * 1000
    true("the type's own", 50_000 < left < 61_000)
    equal("renewed", r.execute_command("SPACE.RENEW", "shop", "leases", 3, "LEASE", "FOREVER"), 1)
    equal("for ever now", r.execute_command("SPACE.READ", "shop", "leases", "ID", 3)[2], None)
    end = time.time() + 10
    while r.execute_command("SPACE.READ", "shop", "leases", "ID", 1) and time.time() < end:
        pass
    equal("over", r.execute_command("SPACE.READ", "shop", "leases", "ID", 1), None)


def waiting(r, name, count):
    end = time.time() + 20
    while info(r, name)[b"waiters"] != count and time.time() < end:
        pass
    equal("those who wait", info(r, name)[b"waiters"], count)


def arrival_order(r):
    fresh(r, "jobs", "FIFO")
    got = [None] * 16

    def take(number):
        client = connect()
        got[number] = document(client.execute_command("SPACE.TAKE", "shop", "jobs", "ANY", "BLOCK", 15000))
        client.close()

    takers = []
    for number in range(16):
        takers.append(threading.Thread(target=take, args=(number,)))
        takers[-1].start()
        waiting(r, "jobs", number + 1)
    for number in range(16):
        r.execute_command("SPACE.WRITE", "shop", "jobs", json.dumps({"id": number}))
    for taker in takers:
        taker.join()
    equal("in the order of coming", got, [{"id": number} for number in range(16)])
    equal("time is over", r.execute_command("SPACE.TAKE", "shop", "jobs", "ANY", "BLOCK", 20), None)


VICTIM = """
import redis, sys
r = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]), protocol=int(sys.argv[2]))
r.execute_command("SPACE.TAKE", "shop", "victims", "ID", int(sys.argv[3]), "BLOCK", 0)
"""


def killed_while_waiting(r):
    """Killed before anything is granted, and at the moment when it is."""
    fresh(r, "victims")
    arguments = [str(check.ARGUMENTS.port), str(check.ARGUMENTS.protocol)]
    for number in range(12):
        victim = subprocess.Popen([sys.executable, "-c", VICTIM, *arguments, str(number)])
        waiting(r, "victims", 1)
        os.kill(victim.pid, signal.SIGKILL)
        if number % 2 == 0:
            victim.wait()
            waiting(r, "victims", 0)
        else:
            # Its sockets are closed, whether the door has noticed or not.
            victim.wait()
        r.execute_command("SPACE.WRITE", "shop", "victims", json.dumps({"id": number}))
    waiting(r, "victims", 0)
    end = time.time() + 10
    while r.execute_command("SPACE.COUNT", "shop", "victims", "ANY") != 12 and time.time() < end:
        pass
    equal("nothing is lost", r.execute_command("SPACE.COUNT", "shop", "victims", "ANY"), 12)


def together(r):
    fresh(r, "stock")
    r.execute_command("SPACE.WRITE", "shop", "stock", '{"id":"pen","count":1}')
    with r.pipeline() as p:
        p.execute_command("SPACE.TAKE", "shop", "stock", "ID", "pen")
        p.execute_command("SPACE.WRITE", "shop", "stock", '{"id":"cup"}')
        p.set("sold", "pen").execute_command("KV.PUT", "sales", "1", "pen")
        got = p.execute()
    equal("taken", document(got[0]), {"id": "pen", "count": 1})
    version = got[1][1]
    equal("one version", (got[1][0], got[3][0]), (b"cup", version))
    equal("both happened", (r.get("sold"), r.execute_command("SPACE.COUNT", "shop", "stock", "ANY")), (b"pen", 1))
    with r.pipeline() as p:
        p.set("sold", "cup").execute_command("SPACE.WRITE", "shop", "stock", '{"id":"cup"}', "INSERT")
        raises("neither happens", redis.exceptions.ExecAbortError, "discarded", p.execute)
    equal("nothing happened", r.get("sold"), b"pen")


def garbage(r):
    fresh(r, "bad")
    for words in [
        ["SPACE.WRITE", "shop", "bad", b"\xff\xfe"],
        ["SPACE.WRITE", "shop", "bad", "{" * 100000],
        ["SPACE.WRITE", "shop", "bad", '{"id":' + "[" * 200 + "]" * 200 + "}"],
        ["SPACE.READ", "shop", "bad", "WHERE", "x = (((", 0],
        ["SPACE.READ", "shop", "bad", "WHERE", "1; DROP TABLE x", 0],
        ["SPACE.READ", "shop", "bad", "WHERE", "(" * 5000 + "x" + ")" * 5000, 0],
        ["SPACE.READ", "shop", "bad", "WHERE", "x RLIKE '(((' ", 0],
        ["SPACE.READ", b"\xff", "bad", "ANY"],
        ["SPACE.DECLARE", "shop", "", "FIFO"],
        ["SPACE.DECLARE", "shop", "x" * 300],
        ["SPACE.MWRITE", "shop", "bad", 2**63, "{}"],
        ["SPACE.TAKE", "shop", "bad", "ANY", "BLOCK", "-1"],
    ]:
        raises(f"{str(words)[:60]}", ERROR, "", lambda words=words: r.execute_command(*words))
    equal("still there", r.ping(), True)


def programs(r):
    """What programs need: going through all, changing all, positions, strict conditions, MessagePack."""
    fresh(r, "many", "HISTORY")
    r.execute_command("SPACE.MWRITE", "shop", "many", 250, *(json.dumps({"id": n, "n": n}) for n in range(250)))
    cursor, seen = None, []
    while cursor != b"0":
        which = ["ANY"] if cursor is None else ["CURSOR", cursor]
        cursor, entries = r.execute_command("SPACE.ITERATE", "shop", "many", *which, "COUNT", 40)
        seen += [document(entry)["id"] for entry in entries]
    equal("each once", sorted(seen), list(range(250)))
    equal("all changed", r.execute_command("SPACE.MCHANGE", "shop", "many", "ANY", "INCR", "n", 1000), 250)
    equal("counted", r.execute_command("SPACE.COUNT", "shop", "many", "WHERE", "n >= 1000", 0), 250)
    bookmark, _, more = r.execute_command("SPACE.LISTEN", "shop", "many", "ANY", "DETAILS")
    equal("no more", more, 0)
    r.execute_command("SPACE.TAKE", "shop", "many", "ID", 7, "STRICT")
    _, events, _ = r.execute_command("SPACE.LISTEN", "shop", "many", "ANY", "FROM", bookmark, "DETAILS")
    equal("why it went", [event[4] for event in events], [b"taken"])
    strict = lambda: r.execute_command("SPACE.TAKE", "shop", "many", "ID", 7, "STRICT")
    raises("strict", ERROR, "CONFLICT", strict)
    equal("either", r.execute_command("CLIENT", "DOCUMENTS"), b"json")
    r.execute_command("SPACE.WRITE", "shop", "many", b"\x82\xa2id\xa1x\xa1n\x01")
    equal("packed", document(r.execute_command("SPACE.READ", "shop", "many", "ID", "x")), {"id": "x", "n": 1})


WORKER = """
import sys, redis
r = redis.Redis(port=int(sys.argv[1]), protocol=int(sys.argv[2]))
with r.client() as t:
    t.execute_command("TX.BEGIN")
    t.execute_command("SPACE.TAKE", "shop", "open", "ANY", "BLOCK", 60000)
    t.set("half", "done")
    print("took", flush=True)
    sys.stdin.read()
"""


def open_transactions(r):
    """A transaction stays open while its program thinks; one that is killed meanwhile did nothing."""
    fresh(r, "open", "GROUPS", "account")
    r.delete("half", "done")
    arguments = [str(check.ARGUMENTS.port), str(check.ARGUMENTS.protocol)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, *arguments], **pipes)
    try:
        for number in range(3):
            r.execute_command("SPACE.WRITE", "shop", "open", json.dumps({"id": number, "account": number // 2}))
        equal("it took the first", worker.stdout.readline(), "took\n")
        with r.client() as t:
            true("begin", t.execute_command("TX.BEGIN", "LEASE", 30000) > 0)
            taken = document(t.execute_command("SPACE.TAKE", "shop", "open", "ANY"))
            equal("of the group that is free", taken, {"id": 2, "account": 1})
            equal("no more", t.execute_command("SPACE.TAKE", "shop", "open", "ANY"), None)
            equal("seen by itself", (t.incr("done"), t.get("done")), (1, b"1"))
            equal("and by nobody else", r.get("done"), None)
            position = t.execute_command("TX.COMMIT")
            true("a position", isinstance(position, int) and position > 0)
        equal("now it is there", r.get("done"), b"1")
        with r.client() as t:
            t.execute_command("TX.BEGIN")
            t.set("half", "too")
            equal("listed as the transaction has it", sorted(t.keys("*")), [b"done", b"half"])
            raises("but not all emptied", ERROR, "TX.COMMIT or TX.ABORT", lambda: t.flushdb())
            raises("and nothing behind it", ERROR, "rolled back", lambda: t.set("half", "more"))
            raises("nor the commit", ERROR, "rolled back", lambda: t.execute_command("TX.COMMIT"))
            equal("nothing of it", t.get("half"), None)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        with r.client() as t:
            t.execute_command("TX.BEGIN")
            for number in range(2):
                taken = document(t.execute_command("SPACE.TAKE", "shop", "open", "ANY", "BLOCK", 60000))
                equal("what it had, in order", taken["id"], number)
            t.execute_command("TX.COMMIT")
        equal("nothing of the killed one", r.get("half"), None)
        equal("all are gone", r.execute_command("SPACE.COUNT", "shop", "open", "ANY"), 0)
    finally:
        worker.kill()
        worker.wait()
        worker.stdin.close()
        worker.stdout.close()


def workers(r):
    """The worker of the examples, killed and cut off again and again: each job is done once."""
    jobs = 60
    fresh(r, "jobs")
    fresh(r, "results", "INDEX", "job", "HASH", 1, "job")
    r.delete("done")
    here = os.path.dirname(os.path.abspath(check.__file__))
    worker = os.path.join(here, "..", "..", "examples", "python", "worker.py")
    start = lambda: subprocess.Popen([sys.executable, "-B", worker, str(check.ARGUMENTS.port)], stderr=subprocess.DEVNULL)
    running = [start(), start()]
    own = r.client_id() if check.ARGUMENTS.protocol == 2 else r.execute_command("CLIENT", "ID")
    try:
        for number in range(jobs):
            job = json.dumps({"id": number, "numbers": [number, 1]})
            r.execute_command("SPACE.WRITE", "shop", "jobs", job)
            if number % 12 == 5:
                running[0].kill()
                running[0].wait()
                running[0] = start()
            if number % 12 == 11:
                # Connections break: what is left of a transaction must not happen on the next ones.
                for client in r.client_list():
                    if int(client["id"]) != own and client.get("multi") != "-1":
                        try:
                            r.client_kill_filter(_id=client["id"])
                        except ERROR:
                            pass
        end = time.time() + 60
        while int(r.get("done") or 0) < jobs and time.time() < end:
            time.sleep(0.01)
        equal("each is counted once", int(r.get("done") or 0), jobs)
        equal("none is left", r.execute_command("SPACE.COUNT", "shop", "jobs", "ANY"), 0)
        got = r.execute_command("SPACE.MREAD", "shop", "results", "ANY", "COUNT", 1000)
        results = sorted((entry["job"], entry["sum"]) for entry in map(document, got))
        equal("each has one result", results, [(number, number + 1) for number in range(jobs)])
    finally:
        for process in running:
            process.kill()
            process.wait()


def bad_jobs(r):
    """A job that always fails stops no worker, and is put aside with what was wrong; it stopped every one, for ever."""
    for name in "jobs", "results", "failed":
        fresh(r, name)
    r.delete("done")
    here = os.path.dirname(os.path.abspath(check.__file__))
    worker = os.path.join(here, "..", "..", "examples", "python", "worker.py")
    for job in ({"id": 1, "numbers": ["no number"]}, {"id": 2, "numbers": [1, 2]}, {"id": 3}):
        r.execute_command("SPACE.WRITE", "shop", "jobs", json.dumps(job))
    ended = subprocess.run([sys.executable, "-B", worker, str(check.ARGUMENTS.port), "3"], timeout=60)
    equal("it ends by itself", ended.returncode, 0)
    equal("the good one is done", int(r.get("done")), 1)
    equal("none is left", r.execute_command("SPACE.COUNT", "shop", "jobs", "ANY"), 0)
    got = r.execute_command("SPACE.MREAD", "shop", "failed", "ANY", "COUNT", 10)
    failed = sorted((entry["id"], entry["attempts"], "Error" in entry["error"]) for entry in map(document, got))
    equal("the others are put aside", failed, [(1, 3, True), (3, 3, True)])


main(documents, programs, workers, bad_jobs, leases, arrival_order, killed_while_waiting, open_transactions, together, garbage)
