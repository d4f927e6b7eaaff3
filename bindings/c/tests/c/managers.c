/* Several managers, each with a transaction, at the same time in one thread; one of another profile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holdfast.h"

typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
extern PGconn *PQconnectdb(const char *);
extern void PQfinish(PGconn *);
extern PGresult *PQexec(PGconn *, const char *);
extern int PQresultStatus(const PGresult *);
extern void PQclear(PGresult *);

enum { MANAGERS = 4 };

static int check(const char *what, int code, int expected) {
    if (code == expected) return 0;
    printf("%s: %d instead of %d: %s\n", what, code, expected, holdfast_last_error());
    return 1;
}

int main(void) {
    holdfast_tm *tm[MANAGERS];
    holdfast_tx *tx[MANAGERS];
    PGconn *connection[MANAGERS];
    char ids[MANAGERS][HOLDFAST_ID_SIZE];
    int wrong = 0;
    for (int i = 0; i < MANAGERS; i++) {
        connection[i] = PQconnectdb(getenv("DATABASE_PG"));
        wrong += check("new", holdfast_tm_new(i % 2 ? "other" : NULL, &tm[i]), TX_OK);
        wrong += check("add", holdfast_tm_add_postgres(tm[i], "pg", connection[i]), TX_OK);
    }
    if (wrong) return 1;
    for (int i = 0; i < MANAGERS; i++) wrong += check("begin", holdfast_tx_begin(tm[i], 0, 0, &tx[i]), TX_OK);
    for (int i = 0; i < MANAGERS; i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "INSERT INTO t VALUES (%d)", i);
        PGresult *result = PQexec(connection[i], sql);
        wrong += check("insert", PQresultStatus(result), 1);
        PQclear(result);
        wrong += check("id", holdfast_tx_id(tx[i], ids[i], sizeof ids[i]), TX_OK);
        wrong += check("a small id", holdfast_tx_id(tx[i], ids[i], 10), TX_EINVAL);
        for (int j = 0; j < i; j++) wrong += check("ids differ", strcmp(ids[i], ids[j]) != 0, 1);
    }
    /* Nothing that is null is followed. */
    wrong += check("null", holdfast_tx_commit(NULL), TX_EINVAL);
    wrong += check("null", holdfast_tx_begin(NULL, 0, 0, &tx[0]), TX_EINVAL);
    wrong += check("null", holdfast_tx_begin(tm[0], 0, 0, NULL), TX_EINVAL);
    wrong += check("negative", holdfast_tx_begin(tm[0], -1, 0, &tx[0]), TX_EINVAL);
    wrong += check("flags", holdfast_tx_begin(tm[0], 0, 6, &tx[0]), TX_EINVAL);
    wrong += check("no profile", holdfast_tm_new("missing", &(holdfast_tm *){NULL}), TX_FAIL);
    for (int i = MANAGERS - 1; i >= 0; i--) {
        wrong += check("end", i == 1 ? holdfast_tx_rollback(tx[i]) : holdfast_tx_commit(tx[i]), TX_OK);
        holdfast_tx_free(tx[i]);
        holdfast_tm_free(tm[i]);
        PQfinish(connection[i]);
    }
    holdfast_tx_free(NULL);
    holdfast_tm_free(NULL);
    puts(wrong ? "wrong" : "right");
    return wrong != 0;
}
