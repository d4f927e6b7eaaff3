/*
 * Sells from a stock: the money is in PostgreSQL, the stock under a key, the
 * order an entry and the sale a point of the coordinator's own store. All four
 * change together, or none does.
 *
 * cc order.c $(pkg-config --cflags --libs holdfast libpq) -o order
 *
 * The profile, in the file that HOLDFAST_XA_PROFILE names:
 *
 *   [profiles.shop.coordinator]
 *   directory = "/var/lib/shop"
 *
 *   [[profiles.shop.resource_managers]]
 *   name = "accounts"
 *   kind = "postgres"
 *   open = "host=db1 dbname=shop"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>

#include "holdfast.h"
#include "tx.h"

static int in_postgres(const char *statement) {
    PGresult *result = PQexec(holdfast_postgres_connection(NULL), statement);
    int good = PQresultStatus(result) == PGRES_COMMAND_OK;
    if (!good) fprintf(stderr, "PostgreSQL: %s", PQresultErrorMessage(result));
    PQclear(result);
    return good;
}

static int fail(const char *what, int code) {
    fprintf(stderr, "%s: %d (%s)\n", what, code, holdfast_last_error());
    return 1;
}

/* What is left under the key, as the transaction has it; -1 when it cannot be told. */
static long stock(void) {
    void *value;
    size_t size;
    int code = holdfast_get("stock", "nails", 5, &value, &size);
    if (code == HOLDFAST_NOT_FOUND) return 0;
    if (code != TX_OK) return -1;
    /* It has a zero behind it, so text is a string. */
    long left = atol(value);
    holdfast_free(value);
    return left;
}

static int set_stock(long left) {
    char text[24];
    int length = snprintf(text, sizeof text, "%ld", left);
    return holdfast_put("stock", "nails", 5, text, (size_t)length);
}

/* Does the work of a sale; whether it may be committed. */
static int work(long count, char **order) {
    char pay[128], entry[64];
    snprintf(pay, sizeof pay, "UPDATE account SET balance = balance - %ld WHERE name = 'ada'", count);
    snprintf(entry, sizeof entry, "{\"of\": \"ada\", \"nails\": %ld}", count);
    long left = stock();
    if (left < count) return 0;
    return set_stock(left - count) == TX_OK && holdfast_write("shop", "orders", entry, order) == TX_OK &&
           holdfast_add_point("sold", "{\"what\": \"nails\"}", (int64_t)time(NULL) * 1000000000, (double)count) == TX_OK &&
           in_postgres(pay);
}

/* A sale is one transaction. TX_OK, or what became of it; the order's id is let go of by holdfast_free. */
static int sell(long count, char **order) {
    *order = NULL;
    int code = tx_begin();
    if (code != TX_OK) return code;
    if (work(count, order)) return tx_commit();
    code = tx_rollback();
    return code == TX_OK ? TX_ROLLBACK : code;
}

int main(void) {
    char *order;
    int code = tx_open();
    if (code != TX_OK) return fail("tx_open", code);
    if (!in_postgres("CREATE TABLE account (name text PRIMARY KEY, balance int NOT NULL CHECK (balance >= 0))") ||
        !in_postgres("INSERT INTO account VALUES ('ada', 50)"))
        return 1;
    code = holdfast_declare("shop", "orders");
    if (code != TX_OK) return fail("holdfast_declare", code);

    if ((code = tx_begin()) != TX_OK || (code = set_stock(100)) != TX_OK || (code = tx_commit()) != TX_OK)
        return fail("the first stock", code);

    code = sell(40, &order);
    if (code != TX_OK) return fail("the first sale", code);

    /* The order is there, by the id that it was given. */
    char *entry;
    tx_begin();
    code = holdfast_read("shop", "orders", order, &entry);
    if (code != TX_OK) return fail("holdfast_read", code);
    printf("40 were sold, %ld are left, and there is %s\n", stock(), strstr(entry, "\"nails\":40") ? "an order" : entry);
    tx_commit();
    holdfast_free(entry);
    holdfast_free(order);

    /* She cannot pay: PostgreSQL refuses, and stock, orders and sales stay as they were. */
    code = sell(40, &order);
    if (code != TX_ROLLBACK) return fail("the second sale", code);
    holdfast_free(order);
    tx_begin();
    printf("40 more were not, and %ld are left\n", stock());
    tx_commit();

    code = tx_close();
    return code == TX_OK ? 0 : fail("tx_close", code);
}
