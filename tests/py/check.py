"""Counts checks, prints what differs, and gives the connections that every script needs.

A script calls `main` with its groups of checks. The last line printed is `N checks, N differ`; the exit code is 1 when one
differs.
"""

import argparse
import sys
import traceback
import warnings

import redis

# Commands that redis-py calls old are still commands.
warnings.simplefilter("ignore", DeprecationWarning)

CHECKS = 0
DIFFER = 0
ARGUMENTS = None


def equal(what, got, wanted):
    """Both type and value count: b"1" is not "1", and True is not 1."""
    global CHECKS, DIFFER
    CHECKS += 1
    if got != wanted or type(got) is not type(wanted):
        DIFFER += 1
        print(f"{what}: got {got!r}, wanted {wanted!r}")


def true(what, condition):
    equal(what, bool(condition), True)


def raises(what, kind, text, call):
    """The call raises this kind of error, and its text has these words."""
    try:
        got = call()
    except kind as error:
        true(f"{what}: {error!r} lacks {text!r}", text in str(error))
        return
    except Exception as error:  # noqa: BLE001: any other error is the finding
        equal(what, repr(error), kind.__name__)
        return
    equal(what, got, f"{kind.__name__}: {text}")


def connect(**options):
    """A client of its own; answers are bytes unless `decode_responses` is asked for."""
    options.setdefault("socket_timeout", 20)
    return redis.Redis(host="127.0.0.1", port=ARGUMENTS.port, protocol=ARGUMENTS.protocol, **options)


def plain(client, *words):
    """The answer as the protocol has it, before redis-py makes something else of it."""
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        client.connection_pool.release(connection)


def main(*groups):
    global ARGUMENTS, CHECKS, DIFFER
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--protocol", type=int, required=True)
    ARGUMENTS = parser.parse_args()
    for group in groups:
        client = connect()
        client.flushall()
        try:
            group(client)
        except Exception:  # noqa: BLE001: the other groups still have something to say
            CHECKS += 1
            DIFFER += 1
            print(f"{group.__name__} ended early:\n{traceback.format_exc()}")
        client.close()
    print(f"{CHECKS} checks, {DIFFER} differ")
    sys.exit(1 if DIFFER else 0)
