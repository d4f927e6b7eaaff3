"""A worker that loses no job: it takes one, works, and writes the result in one transaction, which it holds open meanwhile.

The job, the result and the count are one batch. Whoever is killed when: the job is done once, or still there. The
transaction is strict, so it does not matter what redis-py does with its connections: a command of it that would be sent
again on another one does nothing there.

    worker.py PORT [JOBS]       works for ever, or until it has done so many

A job that fails is written back with how often it did, in the transaction that took it; after three times it goes to a type of
its own, for people to look at. What ends the whole process is counted by nobody: then the job is as it was.

Put jobs there with: SPACE.DECLARE shop jobs, SPACE.DECLARE shop results, SPACE.DECLARE shop failed,
SPACE.WRITE shop jobs '{"numbers":[1,2,3]}'
"""

import json
import sys
import time

import redis

LEASE_MS = 60_000
WAIT_MS = 2_000
ATTEMPTS_MAX = 3


class Transaction:
    """A strict transaction on a connection: committed at the end of the block, rolled back when it is left otherwise."""

    def __init__(self, connection):
        self.connection = connection

    def __enter__(self):
        self.id = self.connection.execute_command("TX.BEGIN", "LEASE", LEASE_MS, "STRICT")
        return self

    def run(self, *command):
        return self.connection.execute_command("TX.RUN", self.id, *command)

    def __exit__(self, kind, error, _):
        if kind is None:
            self.connection.execute_command("TX.COMMIT", "ID", self.id)
            return
        try:
            self.connection.execute_command("TX.ABORT", "ID", self.id)
        except redis.RedisError:
            pass  # It is gone with its connection, or was rolled back.


def work(job):
    return {"job": job["id"], "sum": sum(job["numbers"])}


def handle_one(connection):
    """True when a job was done, or is not tried again."""
    with Transaction(connection) as transaction:
        taken = transaction.run("SPACE.TAKE", "shop", "jobs", "ANY", "BLOCK", WAIT_MS)
        if taken is None:
            return False
        job = json.loads(taken[0])
        try:
            result = work(job)
        except Exception as error:
            # Left to fail the transaction, it would come back as it was, and stop one worker after the other.
            job["attempts"] = job.get("attempts", 0) + 1
            job["error"] = repr(error)
            is_over = job["attempts"] >= ATTEMPTS_MAX
            transaction.run("SPACE.WRITE", "shop", "failed" if is_over else "jobs", json.dumps(job))
            return is_over
        transaction.run("SPACE.WRITE", "shop", "results", json.dumps(result))
        transaction.run("INCR", "done")
    return True


def main():
    port, *rest = sys.argv[1:]
    left = int(rest[0]) if rest else None
    # Longer than it waits for a job.
    store = redis.Redis(port=int(port), socket_timeout=WAIT_MS / 1000 + 10)
    while left is None or left > 0:
        try:
            with store.client() as connection:
                done = handle_one(connection)
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError) as error:
            # Nothing has happened; or, where the answer of the commit was lost, all of it: then the job is gone.
            print(f"begins again: {error}", file=sys.stderr)
            time.sleep(0.1)
            continue
        if left is not None and done:
            left -= 1


if __name__ == "__main__":
    main()
