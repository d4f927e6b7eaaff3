/*
 * Moves an amount from an account in PostgreSQL to an account in MariaDB: in
 * both, or in none.
 *
 * cc transfer.c $(pkg-config --cflags --libs holdfast libpq libmariadb) -o transfer
 *
 * The profile, in the file that HOLDFAST_XA_PROFILE names:
 *
 *   [profiles.transfer.coordinator]
 *   directory = "/var/lib/transfer"
 *
 *   [[profiles.transfer.resource_managers]]
 *   name = "orders"
 *   kind = "postgres"
 *   open = "host=db1 dbname=orders"
 *
 *   [[profiles.transfer.resource_managers]]
 *   name = "stock"
 *   kind = "mariadb"
 *   open = "mysql://app@db2/stock"
 *   password_env = "STOCK_PASSWORD"
 */
#include <stdio.h>
#include <stdlib.h>

#include <libpq-fe.h>
#include <mysql.h>

#include "holdfast.h"
#include "tx.h"

/* Runs a statement in PostgreSQL; whether it changed or found something. */
static int in_postgres(const char *statement) {
    PGresult *result = PQexec(holdfast_postgres_connection(NULL), statement);
    ExecStatusType status = PQresultStatus(result);
    int good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (!good) fprintf(stderr, "PostgreSQL: %s", PQresultErrorMessage(result));
    PQclear(result);
    return good;
}

static int in_mariadb(const char *statement) {
    MYSQL *connection = holdfast_mariadb_connection(NULL);
    if (mysql_query(connection, statement) == 0) return 1;
    fprintf(stderr, "MariaDB: %s\n", mysql_error(connection));
    return 0;
}

static int fail(const char *what, int code) {
    fprintf(stderr, "%s: %d (%s)\n", what, code, holdfast_last_error());
    return 1;
}

/* The whole transfer is one transaction. Returns what tx_commit or tx_rollback says, or why it could not begin. */
static int transfer(int amount) {
    char less[128], more[128];
    snprintf(less, sizeof less, "UPDATE account SET balance = balance - %d WHERE name = 'ada'", amount);
    snprintf(more, sizeof more, "UPDATE account SET balance = balance + %d WHERE name = 'mary'", amount);
    int code = tx_begin();
    if (code != TX_OK) return code;
    /* A balance below zero is refused by PostgreSQL, and then MariaDB keeps its balance, too. */
    if (in_postgres(less) && in_mariadb(more)) return tx_commit();
    code = tx_rollback();
    return code == TX_OK ? TX_ROLLBACK : code;
}

int main(void) {
    int code = tx_open();
    if (code != TX_OK) return fail("tx_open", code);

    /* Tables are made outside of transactions over both. */
    if (!in_postgres("CREATE TABLE account (name text PRIMARY KEY, balance int NOT NULL CHECK (balance >= 0))") ||
        !in_mariadb("CREATE TABLE account (name varchar(20) PRIMARY KEY, balance int NOT NULL)") ||
        !in_postgres("INSERT INTO account VALUES ('ada', 100)") || !in_mariadb("INSERT INTO account VALUES ('mary', 0)"))
        return 1;

    code = transfer(70);
    if (code != TX_OK) return fail("the first transfer", code);
    puts("70 were moved");

    code = transfer(70);
    if (code != TX_ROLLBACK) return fail("the second transfer", code);
    puts("70 more were not, and nothing was changed");

    code = tx_close();
    return code == TX_OK ? 0 : fail("tx_close", code);
}
