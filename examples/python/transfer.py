"""One transaction over PostgreSQL and Holdfast, from Python and without a library of Holdfast's.

The server is the coordinator, asked with redis-py. PostgreSQL takes part by the two-phase calls of DB-API 2.0. The money
in PostgreSQL, the note in Holdfast and the decision are one: either all of it happens or nothing, whoever is killed when.

    transfer.py HOLDFAST_PORT POSTGRES_CONNINFO FROM TO AMOUNT

PostgreSQL needs `max_prepared_transactions` above 0. What is in doubt after a crash is settled by `holdfast xa recover`
with a profile that calls this database `bank`.
"""

import sys

import psycopg
import redis

BRANCH = "bank"


def transfer(holdfast, bank, source, target, amount):
    """Moves money, and notes it in Holdfast."""
    transaction = holdfast.execute_command("XA.BEGIN", "TIMEOUT", 30_000)
    # The branch's name in PostgreSQL: so recovery knows whose it is, and what was decided.
    bank.tpc_begin(f"{transaction}.{BRANCH}")
    try:
        with bank.cursor() as cursor:
            for change, name in ((-amount, source), (amount, target)):
                cursor.execute("UPDATE accounts SET money = money + %s WHERE name = %s", (change, name))
                # An account that is not there is no error of the database, and money would come from nowhere.
                if cursor.rowcount != 1:
                    raise LookupError(f"there is no account {name}")
        bank.tpc_prepare()
    except Exception:
        # Nobody was told of the transaction, so nobody needs to be told that it is over.
        bank.tpc_rollback()
        raise
    batch = holdfast.pipeline(transaction=True)
    batch.execute_command("KV.PUT", "transfers", transaction, f"{source} gave {target} {amount}")
    batch.execute_command("XA.COMMIT", transaction, "BRANCHES", 1, BRANCH)
    try:
        noted, decided = batch.execute(raise_on_error=False)
    except redis.ResponseError as refused:
        decided = refused
    # redis-py sends what it had no answer to once more, unless it is told not to: that is refused (CONFLICT), and nothing is done twice.
    if isinstance(decided, redis.ResponseError) and committed(holdfast, transaction):
        noted = decided = None
    # Any other error says nothing about the decision: the branch is left prepared, and recovery finds out.
    if isinstance(decided, redis.ResponseError):
        if str(decided).startswith(("ABORTED", "EXECABORT")) or isinstance(decided, redis.exceptions.ExecAbortError):
            bank.tpc_rollback()
        raise decided
    bank.tpc_commit()
    holdfast.execute_command("XA.FORGET", transaction, "BRANCH", BRANCH)
    if isinstance(noted, redis.ResponseError):
        # As in Redis, a command that fails by itself does not stop the others of its batch.
        raise noted
    return transaction


def committed(holdfast, transaction):
    """Whether the coordinator has decided so."""
    status = holdfast.execute_command("XA.STATUS", transaction)
    # A map is one in RESP3, and names and values in turn in RESP2.
    status = status if isinstance(status, dict) else dict(zip(status[::2], status[1::2]))
    return status["state"] == "committed"


def main():
    port, conninfo, source, target, amount = sys.argv[1:]
    holdfast = redis.Redis(port=int(port), decode_responses=True)
    with psycopg.connect(conninfo) as bank:
        print(transfer(holdfast, bank, source, target, int(amount)))


if __name__ == "__main__":
    main()
