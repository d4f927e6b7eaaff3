"""The HTTP door as docs/reference/http.md describes it, met by Python's own client."""

import argparse
import http.client
import json
import socket
import sys
import threading
import traceback
from urllib.parse import quote_from_bytes

import check
from check import equal, true

PORT = 0


def connect():
    return http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)


def ask(connection, method, path, body=None, headers=None, **options):
    """Status, headers in lower case, body."""
    connection.request(method, path, body=body, headers=headers or {}, **options)
    answer = connection.getresponse()
    data = answer.read()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, data


def objects(c):
    key = "/buckets/py/keys/k"
    headers = {"Content-Type": "application/json", "X-Riak-Meta-Who": "me", "X-Riak-Index-n_int": "1, 2"}
    status, sent, body = ask(c, "PUT", key, b'{"a":1}', headers)
    equal("put", (status, body), (204, b""))
    status, got, body = ask(c, "GET", key)
    equal("get", (status, body), (200, b'{"a":1}'))
    for name, value in [("content-type", "application/json"), ("x-riak-meta-who", "me"), ("x-riak-index-n_int", "1, 2")]:
        equal(name, got.get(name), value)
    for name in ["etag", "x-riak-vclock", "last-modified"]:
        equal(name, got.get(name), sent.get(name))
    status, head, body = ask(c, "HEAD", key)
    equal("head", (status, body, head.get("content-length")), (200, b"", "7"))
    equal("not modified", ask(c, "GET", key, headers={"If-None-Match": got["etag"]})[0], 304)
    equal("put at its version", ask(c, "PUT", key, b"2", {"X-Riak-Vclock": got["x-riak-vclock"]})[0], 204)
    equal("put at an old one", ask(c, "PUT", key, b"3", {"X-Riak-Vclock": got["x-riak-vclock"]})[0], 409)
    equal("match", ask(c, "PUT", key, b"3", {"If-Match": got["etag"]})[0], 412)
    status, _, body = ask(c, "PUT", key + "?returnbody=true", b"4")
    equal("returnbody", (status, body), (200, b"4"))
    status, made, _ = ask(c, "POST", "/buckets/py/keys", b"5")
    equal("post", status, 201)
    equal("location", ask(c, "GET", made["location"])[2], b"5")
    equal("delete", ask(c, "DELETE", key)[0], 204)
    equal("deleted", ask(c, "GET", key)[0], 404)
    equal("deleted twice", ask(c, "DELETE", key)[0], 404)
    connection = c.sock
    equal("all of that on one connection", ask(c, "GET", "/ping")[2], b"OK\n")
    true("it is the same", c.sock is connection)


def bytes_of_any_kind(c):
    for name in [b"\x00", b"\xff\xfe", b"a/b", b"a b", b"%41", "ä€".encode(), b"?#&=+", b"..", b".", b"x" * 2000]:
        path = f"/buckets/{quote_from_bytes(b'bytes' + name[:9], safe='')}/keys/{quote_from_bytes(name, safe='')}"
        if name in (b".", b".."):
            path = path.replace("/keys/..", "/keys/%2e%2e").replace("/keys/.", "/keys/%2e")
        equal(f"put {name[:9]}", ask(c, "PUT", path, name)[0], 204)
        equal(f"get {name[:9]}", ask(c, "GET", path)[2], name)
        equal(f"delete {name[:9]}", ask(c, "DELETE", path)[0], 204)
    value = bytes(range(256)) * 4096
    equal("put a large one", ask(c, "PUT", "/buckets/bytes/keys/large", value)[0], 204)
    true("get a large one", ask(c, "GET", "/buckets/bytes/keys/large")[2] == value)


def chunks(c):
    def pieces():
        for number in range(100):
            yield b"%03d," % number

    path = "/buckets/chunks/keys/k"
    equal("put in chunks", ask(c, "PUT", path, pieces(), encode_chunked=True)[0], 204)
    equal("get", ask(c, "GET", path)[2], b"".join(pieces()))
    for number in range(2500):
        c.request("PUT", f"/buckets/list/keys/{number:05d}", b"")
        c.getresponse().read()
    status, headers, body = ask(c, "GET", "/buckets/list/keys?keys=true")
    equal("a long list comes in chunks", headers.get("transfer-encoding"), "chunked")
    wanted = [f"{number:05d}" for number in range(2500)]
    equal("the whole list", json.loads(body)["keys"], wanted)
    decoder, text, found, parts = json.JSONDecoder(), ask(c, "GET", "/buckets/list/keys?keys=stream")[2].decode(), [], 0
    while text:
        part, end = decoder.raw_decode(text)
        text, parts = text[end:], parts + 1
        found += part["keys"]
    equal("the stream", found, wanted)
    true("it is several parts", parts > 2)


def indexes(c):
    for number in range(30):
        headers = {"X-Riak-Index-n_int": str(number - 10), "x-riak-index-WORD_bin": f"w{number % 3}, all"}
        equal("put", ask(c, "PUT", f"/buckets/ix/keys/k{number:02d}", b"", headers)[0], 204)

    def find(rest):
        status, _, body = ask(c, "GET", f"/buckets/ix/index/{rest}")
        equal(rest, status, 200)
        return json.loads(body)

    equal("one term", find("n_int/-10"), {"keys": ["k00"]})
    equal("a range", find("n_int/-1/1"), {"keys": ["k09", "k10", "k11"]})
    equal("terms", find("n_int/0/1?return_terms=true"), {"results": [{"0": "k10"}, {"1": "k11"}]})
    equal("a regex", len(find("word_bin/a/z?term_regex=%5Ew%5B01%5D%24")["keys"]), 20)
    equal("keys", find("$key/k28/k99"), {"keys": ["k28", "k29"]})
    keys, more = [], ""
    while True:
        page = find(f"word_bin/all?max_results=7{more}")
        keys += page["keys"]
        if "continuation" not in page:
            break
        more = "&continuation=" + page["continuation"]
    equal("pages", keys, [f"k{number:02d}" for number in range(30)])
    status, headers, body = ask(c, "GET", "/buckets/ix/index/$bucket/_?stream=true")
    boundary = headers["content-type"].split("boundary=")[1]
    parts = [part.split(b"\r\n\r\n", 1)[1] for part in body.split(b"\r\n--" + boundary.encode())[1:-1]]
    equal("a stream", sum((json.loads(part)["keys"] for part in parts), []), keys)
    for bad in ["n_int/x", "n_int/1?term_regex=1", "word_bin/a/b?term_regex=(", "word_bin/a/b?continuation=xyz",
                "word_bin/a/b?max_results=0", "word_bin/%zz", "word/a"]:
        equal(bad, ask(c, "GET", f"/buckets/ix/index/{bad}")[0], 400)


def bad_requests(c):
    for method, path, body, headers, wanted in [
        ("PUT", "/buckets/b/keys/", b"x", {}, 400),
        ("PUT", "/buckets/b/keys/%4", b"x", {}, 400),
        ("PUT", "/buckets/b/keys/k?ttl=soon", b"x", {}, 400),
        ("PUT", "/buckets/b/keys/k?durability=perhaps", b"x", {}, 400),
        ("PUT", "/buckets/b/keys/k", b"x", {"Content-Type": "nonsense"}, 415),
        ("PUT", "/buckets/b/keys/k", b"x", {"X-Riak-Index-a_int": "one"}, 400),
        ("PUT", "/buckets/b/keys/k", b"x", {"X-Riak-Vclock": "???"}, 400),
        ("PUT", "/buckets/" + "b" * 2000 + "/keys/k", b"x", {}, 414),
        ("PUT", "/buckets/b/keys/k", b"x", {"X-Riak-Meta-A": "y" * 70000}, 431),
        ("PATCH", "/buckets/b/keys/k", b"x", {}, 405),
        ("DELETE", "/buckets/b/keys", None, {}, 405),
        ("GET", "/riak/b/k", None, {}, 404),
    ]:
        equal(f"{method} {path[:40]} {str(headers)[:40]}", ask(c, method, path, body, headers)[0], wanted)
    c.putrequest("PUT", "/buckets/b/keys/k")
    c.endheaders()
    answer = c.getresponse()
    equal("no length", (answer.status, bool(answer.read())), (411, True))


def one_wins(c):
    """Of many that change what they read, none overwrites another."""
    path = "/buckets/race/keys/counter"
    ask(c, "PUT", path, b"0")

    def increment():
        own = connect()
        for _ in range(25):
            while True:
                _, headers, body = ask(own, "GET", path)
                if ask(own, "PUT", path, b"%d" % (int(body) + 1), {"If-Match": headers["etag"]})[0] == 204:
                    break

    threads = [threading.Thread(target=increment) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal("no increment is lost", ask(c, "GET", path)[2], b"100")


def post(c, path, document):
    """Status and answer."""
    status, _, body = ask(c, "POST", path, json.dumps(document).encode())
    return status, json.loads(body)


def batches(c):
    """Several threads move what is in entries and note it in keys: nothing is made, lost, or noted otherwise than it happened."""
    equal("declare", ask(c, "PUT", "/spaces/bank/types/accounts", b"")[0], 204)
    accounts = "/spaces/bank/types/accounts"
    for number in range(3):
        equal("open", ask(c, "PUT", f"{accounts}/entries/{number}", b'{"amount":100}')[0], 204)
    moved = []

    def transfer(number):
        own = connect()
        for turn in range(20):
            place = {"space": "bank", "type": "accounts"}
            change = lambda account, by: {"change": {**place, "id": account, "changes": [{"increment": "amount", "by": by}]}}
            note = {"put": {"bucket": "bank", "key": f"{number}-{turn}", "value": "1", "absent": True}}
            status, _ = post(own, "/batch", {"operations": [note, change(number, -1), change((number + 1) % 3, 1)]})
            true("it happens, or meets another", status in (200, 409))
            moved.append((number, status == 200))

    threads = [threading.Thread(target=transfer, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = post(c, f"{accounts}/query", {"select": "SELECT SUM(amount) AS all FROM accounts"})[1]["rows"]
    equal("nothing is made or lost", rows, [{"all": 300}])
    keys = json.loads(ask(c, "GET", "/buckets/bank/keys?keys=true")[2])["keys"]
    equal("each that happened is noted", len(keys), sum(happened for _, happened in moved))
    status, fault = post(c, "/batch", {"operations": [{"get": {"bucket": "bank", "key": "x"}}, {"burn": {}}]})
    equal("the operation is named", (status, fault["operation"]), (400, 1))


def events(c):
    """Who comes back with the newest bookmark is told every entry once, and a stream tells the same."""
    path = "/spaces/py/types/events"
    equal("declare", ask(c, "PUT", path, b"")[0], 204)
    bookmark = json.loads(ask(c, "GET", f"{path}/events")[2])["bookmark"]
    stream = connect()
    stream.request("GET", f"{path}/events?from={bookmark}", headers={"Accept": "text/event-stream"})
    answer = stream.getresponse()
    equal("its type", answer.getheader("content-type"), "text/event-stream")

    def write():
        own = connect()
        for number in range(50):
            ask(own, "PUT", f"{path}/entries/{number}", b"{}")

    writer = threading.Thread(target=write)
    writer.start()
    told = []
    while len(told) < 50:
        status, _, body = ask(c, "GET", f"{path}/events?from={bookmark}&wait_ms=20000&limit=7")
        equal("told", status, 200)
        got = json.loads(body)
        bookmark = got["bookmark"]
        told += [event["now"]["id"] for event in got["events"]]
    writer.join()
    equal("each once, in order", told, list(range(50)))
    streamed = []
    while len(streamed) < 50:
        line = answer.readline()
        if line.startswith(b"data: "):
            streamed.append(json.loads(line[6:])["now"]["id"])
    equal("the stream tells the same", streamed, told)
    stream.close()
    equal("count", post(c, f"{path}/count", {}), (200, {"count": 50}))
    found, page = [], post(c, f"{path}/iterate", {"limit": 20})[1]
    while True:
        found += [entry["document"]["id"] for entry in page["entries"]]
        if page["cursor"] is None:
            break
        page = post(c, f"{path}/iterate", {"limit": 20, "cursor": page["cursor"]})[1]
    equal("all of them", sorted(found), told)
    equal("clear", post(c, f"{path}/clear", {"where": "id < 20"}), (200, {"cleared": 20}))


def pipelined(c):
    with socket.create_connection(("127.0.0.1", PORT), timeout=30) as raw:
        request = b"".join(
            b"PUT /buckets/pipe/keys/%d HTTP/1.1\r\nHOST: x\r\ncOnTent-LENGTH: 1\r\n\r\n%d"
            b"GET /buckets/pipe/keys/%d HTTP/1.1\r\nHost: x\r\n\r\n" % (n, n, n) for n in range(10)
        )
        raw.sendall(request + b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        got = b""
        while piece := raw.recv(65536):
            got += piece
    equal("stored", got.count(b"HTTP/1.1 204"), 10)
    equal("read", got.count(b"HTTP/1.1 200"), 11)
    true("in order", [b"\r\n\r\n%dHTTP" % n in got for n in range(10)] == [True] * 10)


def numbers(c):
    document = json.loads(ask(c, "GET", "/openapi.json")[2])
    true("the document has paths", "/buckets/{bucket}/keys/{key}" in document["paths"])
    equal("props", json.loads(ask(c, "GET", "/buckets/any/props")[2])["props"]["n_val"], 1)
    true("buckets", "ix" in json.loads(ask(c, "GET", "/buckets?buckets=true")[2])["buckets"])
    equal("health", ask(c, "GET", "/health")[0], 200)
    true("metrics", b"holdfast_http_answers_total" in ask(c, "GET", "/metrics")[2])
    true("stats", "positions" in json.loads(ask(c, "GET", "/stats")[2]))


def main():
    global PORT
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    PORT = parser.parse_args().port
    for group in [objects, bytes_of_any_kind, chunks, indexes, bad_requests, one_wins, batches, events, pipelined, numbers]:
        connection = connect()
        try:
            group(connection)
        except Exception:  # noqa: BLE001: the other groups still have something to say
            check.CHECKS += 1
            check.DIFFER += 1
            print(f"{group.__name__} ended early:\n{traceback.format_exc()}")
        connection.close()
    print(f"{check.CHECKS} checks, {check.DIFFER} differ")
    sys.exit(1 if check.DIFFER else 0)


main()
