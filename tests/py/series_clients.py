"""Python's libraries for InfluxDB and OpenTSDB, unchanged: `influxdb` of InfluxDB 1, `influxdb-client` of InfluxDB 2, which writes,
`opentsdb-py` by HTTP and by lines, and `potsdb` by lines."""

import argparse
import datetime
import json
import sys
import time
import traceback
import urllib.error
import urllib.request

import check
import potsdb
from check import equal, raises, true
from influxdb import InfluxDBClient, SeriesHelper
from influxdb.exceptions import InfluxDBClientError
from influxdb_client import InfluxDBClient as SecondClient
from influxdb_client import Point, WriteOptions
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
from opentsdb import TSDBClient, TSDBConnectProtocols

PORT = 0
LINE_PORT = 0
START = 1_700_000_000


def connect(**options):
    return InfluxDBClient("127.0.0.1", PORT, "name", "password", "py", timeout=20, **options)


def points(answer, **options):
    return list(answer.get_points(**options))


def writing(client):
    equal("ping", client.ping(), "1.8.10")
    true("created", {"name": "py"} in client.get_list_database())
    many = [
        {
            "measurement": "cpu",
            "tags": {"host": f"h{nth % 4}", "odd, name=": "a b,c=d"},
            "time": START + nth,
            "fields": {"f": nth / 3, "i": nth, "b": nth % 2 == 0, "s": f'"{nth}" \\ ü', "none": None},
        }
        for nth in range(1000)
    ]
    true("batches of JSON", client.write_points(many, time_precision="s", batch_size=300, tags={"dc": "x y"}))
    first = points(client.query("SELECT * FROM cpu LIMIT 1", epoch="s"))[0]
    wanted = {"time": START, "b": True, "dc": "x y", "f": 0, "host": "h0", "i": 0, "odd, name=": "a b,c=d", "s": '"0" \\ ü'}
    equal("a row", first, wanted)
    true("lines", client.write_points(["l,a=1 v=1i 1", "l,a=2 v=2i 2"], protocol="line", time_precision="s"))
    true("raw", client.write(["l,a=3 v=3i 3"], params={"db": "py", "precision": "s"}, protocol="line"))
    packed = connect(gzip=True)
    true("packed", packed.write_points([{"measurement": "l", "time": 4, "fields": {"v": 4}}], time_precision="s"))
    packed.close()
    equal("lines are there", [row["v"] for row in points(client.query("SELECT v FROM l"))], [1, 2, 3, 4])
    at = datetime.datetime(2024, 1, 2, 3, 4, 5, 6000)
    client.write_points([{"measurement": "at", "time": at, "fields": {"v": 1.5}}])
    equal("a date", points(client.query("SELECT v FROM at"))[0]["time"], "2024-01-02T03:04:05.006Z")

    class Event(SeriesHelper):
        class Meta:
            series_name = "event.{kind}"
            fields = ["size"]
            tags = ["kind"]
            bulk_size = 3
            autocommit = True

    Event.Meta.client = client
    for size in range(7):
        Event(kind="x", size=size)
    Event.commit(client)
    equal("a helper", points(client.query('SELECT sum(size) FROM "event.x"'))[0]["sum"], 21)


def refusals(client):
    conflict = [{"measurement": "t", "time": 1, "fields": {"v": 1}}, {"measurement": "t", "time": 2, "fields": {"v": "x"}}]
    raises("a conflict", InfluxDBClientError, "field type conflict", lambda: client.write_points(conflict))
    equal("the other is there", len(points(client.query("SELECT v FROM t"))), 1)
    raises("a bad line", InfluxDBClientError, "unable to parse", lambda: client.write(["x"], {"db": "py"}, protocol="line"))
    raises("a bad question", InfluxDBClientError, "error parsing query", lambda: client.query("SELECT FROM"))
    raises("no database", InfluxDBClientError, "not found", lambda: client.query("SELECT v FROM x", database="none"))


def reading(client):
    equal("count", points(client.query("SELECT count(i) FROM cpu")), [{"time": "1970-01-01T00:00:00Z", "count": 1000}])
    equal("a time", points(client.query("SELECT i FROM cpu", epoch="ms"))[0]["time"], START * 1000)
    for chunk in [1, 77, 5000]:
        chunks = client.query("SELECT i FROM cpu", chunked=True, chunk_size=chunk)
        equal(f"chunks of {chunk}", [row["i"] for answer in chunks for row in points(answer)], list(range(1000)))
    bound = client.query(
        "SELECT i FROM cpu WHERE host = $host AND i > $least", bind_params={"host": "h1", "least": 990}
    )
    equal("parameters", [row["i"] for row in points(bound)], [993, 997])
    two = client.query(
        f"SELECT mean(i) FROM cpu WHERE time >= {START}s AND time < {START + 60}s GROUP BY time(20s, {START % 20}s), host;"
        "SELECT last(i) FROM cpu",
        method="POST",
    )
    equal("windows", [row["mean"] for row in points(two[0], tags={"host": "h2"})], [10, 30, 50])
    equal("two statements", points(two[1])[0]["last"], 999)
    equal("measurements", [one["name"] for one in client.get_list_measurements()], ["at", "cpu", "event.x", "l", "t"])
    equal("series", client.get_list_series(measurement="l"), ["l", "l,a=1", "l,a=2", "l,a=3"])
    values = client.query('SHOW TAG VALUES FROM cpu WITH KEY = "host"')
    equal("values of a tag", [row["value"] for row in points(values)], ["h0", "h1", "h2", "h3"])
    policies = client.get_list_retention_policies()
    equal("policies", [(one["name"], one["default"]) for one in policies], [("autogen", True)])


def changing(client):
    select = 'SELECT mean("f") INTO "means" FROM "cpu" GROUP BY time(1m)'
    client.create_continuous_query("cq", select, "py", "EVERY 10s FOR 2m")
    known = {name: query for one in client.get_list_continuous_queries() for name, query in one.items()}
    equal("a continuous query", [one["name"] for one in known["py"]], ["cq"])
    client.drop_continuous_query("cq")
    client.delete_series(measurement="l", tags={"a": "1"})
    equal("a series less", client.get_list_series(measurement="l"), ["l", "l,a=2", "l,a=3"])
    client.query("DELETE FROM l WHERE time <= 2s", method="POST")
    equal("points less", [row["v"] for row in points(client.query("SELECT v FROM l"))], [3, 4])
    client.drop_measurement("l")
    true("dropped", "l" not in [one["name"] for one in client.get_list_measurements()])


def second(client):
    with SecondClient(url=f"http://127.0.0.1:{PORT}", token="name:password", org="o", enable_gzip=True) as writer:
        true("second: ping", writer.ping())
        equal("second: health", writer.health().status, "pass")
        write = writer.write_api(write_options=SYNCHRONOUS)
        moment = datetime.datetime(2024, 1, 1)
        write.write("py/autogen", record=Point("m").tag("t", "a b").field("f", 1.5).field("i", 3).time(moment))
        write.write("py", record=["m f=2.5 1"], write_precision="s")
        raises("second: a bad line", ApiException, "unable to parse", lambda: write.write("py", record="m f="))
        raises("second: a conflict", ApiException, "type conflict", lambda: write.write("py", record='m f="x" 5'))
        failures = []
        options = WriteOptions(batch_size=50, flush_interval=100)
        with writer.write_api(options, error_callback=lambda *told: failures.append(told)) as batches:
            for nth in range(500):
                batches.write("py", record=Point("batch").field("v", nth).time(START + nth, "s"))
        equal("second: batches", failures, [])
    equal("second: count", points(client.query("SELECT sum(v) FROM batch"))[0]["sum"], sum(range(500)))
    equal("second: rows", [row["f"] for row in points(client.query("SELECT f FROM m"))], [2.5, 1.5])


def counted(metric):
    """How many points of a metric there are, and their sum, by series."""
    answers = []
    for function in ["count", "sum"]:
        query = f"start={START - 1}&end={START + 9999}&arrays&m=none:0all-{function}:{metric}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/query?{query}", timeout=20) as answer:
                answers.append({tuple(one["tags"].items()): one["dps"][0][1] for one in json.load(answer)})
        except urllib.error.HTTPError as error:
            return error.read()
    return answers


def opentsdb(client):
    lines = potsdb.Client("127.0.0.1", port=LINE_PORT, host_tag="me", mps=0)
    for nth in range(300):
        lines.log("potsdb.metric", nth, timestamp=START + nth, kind=f"k{nth % 2}")
    lines.wait()
    lines.stop()
    for protocol, port in [(TSDBConnectProtocols.HTTP, PORT), (TSDBConnectProtocols.TELNET, LINE_PORT)]:
        name = f"opentsdb.{protocol}".lower()
        sender = TSDBClient("127.0.0.1", port, protocol=protocol, host_tag=False)
        true(f"{name} is alive", sender.is_alive())
        for nth in range(120):
            sender.send(name, nth, timestamp=START + nth, host="h")
        sender.close()
        sender.wait()
        equal(f"{name}: statuses", sender.statuses, {"success": 120, "failed": 0, "queued": 120})
    # Lines are not acknowledged, so they may be a moment late.
    wanted = {
        "potsdb.metric": [
            {(("host", "me"), ("kind", f"k{odd}")): value[odd] for odd in range(2)}
            for value in [[150.0, 150.0], [22350.0, 22500.0]]
        ],
        "opentsdb.http": [{(("host", "h"),): 120.0}, {(("host", "h"),): 7140.0}],
        "opentsdb.telnet": [{(("host", "h"),): 120.0}, {(("host", "h"),): 7140.0}],
    }
    for metric, answers in wanted.items():
        end = time.monotonic() + 20
        while (found := counted(metric)) != answers and time.monotonic() < end:
            time.sleep(0.01)
        equal(metric, found, answers)


def main():
    global PORT, LINE_PORT
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--line-port", type=int, required=True)
    PORT, LINE_PORT = vars(parser.parse_args()).values()
    client = connect()
    client.create_database("py")
    for group in [writing, refusals, reading, changing, second, opentsdb]:
        try:
            group(client)
        except Exception:  # noqa: BLE001: the other groups still have something to say
            check.CHECKS += 1
            check.DIFFER += 1
            print(f"{group.__name__} ended early:\n{traceback.format_exc()}")
    client.drop_database("py")
    true("dropped", {"name": "py"} not in client.get_list_database())
    client.close()
    print(f"{check.CHECKS} checks, {check.DIFFER} differ")
    sys.exit(1 if check.DIFFER else 0)


main()
