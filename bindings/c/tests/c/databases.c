/*
 * Makes the calls that its arguments name, with PostgreSQL and MariaDB as
 * resource managers, and prints what each answers.
 *
 *   open close begin commit rollback recover error    as in play.c
 *   suspend resume=ID
 *   pg=SQL ma=SQL          runs a statement on the thread's connection: its first value, or what went wrong
 *   keep kept-ma=SQL       keeps the pointer to MariaDB's, and runs a statement without asking for it again
 *   id                     holdfast_id
 *   timeout=SECONDS        tx_set_transaction_timeout
 *   tm                     a manager with connections of our own: DATABASE_PG and DATABASE_SOCKET say where to
 *   tm-within              the same, and a transaction of the program's own is open in PostgreSQL
 *   tm-asking              the same as tm, and branches in PostgreSQL may be asked whether they changed anything
 *   tm-order=NAME:NUMBER   holdfast_tm_set_order
 *   tx-begin-in=SECONDS    holdfast_tx_begin with a timeout
 *   own-pg=SQL own-ma=SQL  runs a statement on those
 *   tx-begin tx-shared tx-join=ID tx-resume=ID tx-suspend tx-commit tx-rollback tx-finish tx-free tx-id tm-recover
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holdfast.h"

#include "tx_name.h"

/* What this program needs of libpq and libmariadb, so that it compiles without their headers. */
typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
typedef struct st_mysql MYSQL;
typedef struct st_mysql_res MYSQL_RES;
extern PGconn *PQconnectdb(const char *);
extern void PQfinish(PGconn *);
extern PGresult *PQexec(PGconn *, const char *);
extern int PQresultStatus(const PGresult *);
extern char *PQresultErrorField(const PGresult *, int);
extern int PQntuples(const PGresult *);
extern char *PQgetvalue(const PGresult *, int, int);
extern void PQclear(PGresult *);
extern MYSQL *mysql_init(MYSQL *);
extern MYSQL *mysql_real_connect(MYSQL *, const char *, const char *, const char *, const char *, unsigned, const char *,
                                 unsigned long);
extern void mysql_close(MYSQL *);
extern int mysql_query(MYSQL *, const char *);
extern MYSQL_RES *mysql_store_result(MYSQL *);
extern char **mysql_fetch_row(MYSQL_RES *);
extern void mysql_free_result(MYSQL_RES *);
extern unsigned mysql_errno(MYSQL *);

static holdfast_tm *tm;
static holdfast_tx *tx;
static PGconn *own_pg;
static MYSQL *own_ma;
static MYSQL *kept_ma;
static char text[256];

static const char *postgres(PGconn *connection, const char *sql) {
    if (!connection) return "no connection";
    PGresult *result = PQexec(connection, sql);
    int status = PQresultStatus(result);
    if (status == 1) snprintf(text, sizeof text, "done");
    else if (status == 2) snprintf(text, sizeof text, "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "nothing");
    else {
        const char *state = PQresultErrorField(result, 'C');
        snprintf(text, sizeof text, "error %s", state ? state : "lost");
    }
    PQclear(result);
    return text;
}

static const char *mariadb(MYSQL *connection, const char *sql) {
    if (!connection) return "no connection";
    if (mysql_query(connection, sql)) {
        snprintf(text, sizeof text, "error %u", mysql_errno(connection));
        return text;
    }
    MYSQL_RES *result = mysql_store_result(connection);
    if (!result) return "done";
    char **row = mysql_fetch_row(result);
    snprintf(text, sizeof text, "%s", row && row[0] ? row[0] : "nothing");
    mysql_free_result(result);
    return text;
}

static const char *recovered(int code, const struct holdfast_recovered *found) {
    if (code != TX_OK) return tx_name(code);
    snprintf(text, sizeof text, "committed=%lu,rolled-back=%lu,left=%lu", found->committed, found->rolled_back, found->left);
    return text;
}

static const char *make_manager(int (*add_postgres)(holdfast_tm *, const char *, PGconn *), const char *before) {
    own_pg = PQconnectdb(getenv("DATABASE_PG"));
    if (before) PQclear(PQexec(own_pg, before));
    own_ma = mysql_init(NULL);
    if (!mysql_real_connect(own_ma, NULL, "root", NULL, "test", 0, getenv("DATABASE_SOCKET"), 0)) return "no MariaDB";
    int code = holdfast_tm_new(NULL, &tm);
    const char *suffix = getenv("DATABASE_SUFFIX");
    char name[32];
    snprintf(name, sizeof name, "pg%s", suffix ? suffix : "");
    if (code == TX_OK) code = add_postgres(tm, name, own_pg);
    if (code == TX_OK && holdfast_tm_add_postgres(tm, name, own_pg) != TX_EINVAL) return "a name was taken twice";
    if (code == TX_OK && holdfast_tm_add_postgres(tm, "no good", own_pg) != TX_EINVAL) return "a bad name was taken";
    if (code == TX_OK && holdfast_tm_add_postgres(tm, "x", NULL) != TX_EINVAL) return "a null connection was taken";
    if (code == TX_OK && holdfast_tm_add_postgres(tm, "twice", own_pg) != TX_EINVAL) return "a connection was taken twice";
    snprintf(name, sizeof name, "ma%s", suffix ? suffix : "");
    if (code == TX_OK) code = holdfast_tm_add_mariadb(tm, name, own_ma);
    return tx_name(code);
}

static const char *set_order(const char *place) {
    char name[32];
    const char *number = strchr(place, ':');
    snprintf(name, sizeof name, "%.*s", (int)(number - place), place);
    return tx_name(holdfast_tm_set_order(tm, name, (unsigned)atoi(number + 1)));
}

static int is(const char *word, const char *call) { return strcmp(word, call) == 0; }

static const char *play(const char *word) {
    struct holdfast_recovered found;
    const char *value = strchr(word, '=');
    size_t length = value ? (size_t)(value - word) : strlen(word);
    if (is(word, "suspend")) {
        static char id[HOLDFAST_ID_SIZE];
        int code = holdfast_suspend(id, sizeof id);
        return code == TX_OK ? id : tx_name(code);
    }
    if (is(word, "id")) {
        static char id[HOLDFAST_ID_SIZE];
        int code = holdfast_id(id, sizeof id);
        return code == TX_OK ? id : tx_name(code);
    }
    if (is(word, "keep")) {
        kept_ma = holdfast_mariadb_connection(NULL);
        return "kept";
    }
    if (!strncmp(word, "kept-ma", length)) return mariadb(kept_ma, value + 1);
    if (!strncmp(word, "resume", length)) return tx_name(holdfast_resume(value + 1));
    if (is(word, "open")) return tx_name(tx_open());
    if (is(word, "close")) return tx_name(tx_close());
    if (is(word, "begin")) return tx_name(tx_begin());
    if (is(word, "commit")) return tx_name(tx_commit());
    if (is(word, "rollback")) return tx_name(tx_rollback());
    if (is(word, "logged")) return tx_name(tx_set_commit_return(TX_COMMIT_DECISION_LOGGED));
    if (is(word, "error")) return holdfast_last_error();
    if (is(word, "recover")) return recovered(holdfast_recover(&found), &found);
    if (is(word, "tm")) return make_manager(holdfast_tm_add_postgres, NULL);
    if (is(word, "tm-asking")) return make_manager(holdfast_tm_add_postgres_asking, NULL);
    if (is(word, "tm-within")) return make_manager(holdfast_tm_add_postgres, "BEGIN");
    if (is(word, "tm-recover")) return recovered(holdfast_tm_recover(tm, &found), &found);
    if (is(word, "tx-begin")) return tx_name(holdfast_tx_begin(tm, 0, 0, &tx));
    if (is(word, "tx-shared")) return tx_name(holdfast_tx_begin(tm, 60, HOLDFAST_SHARED, &tx));
    if (is(word, "tx-suspend")) return tx_name(holdfast_tx_suspend(tx));
    if (is(word, "tx-commit")) return tx_name(holdfast_tx_commit(tx));
    if (is(word, "tx-rollback")) return tx_name(holdfast_tx_rollback(tx));
    if (is(word, "tx-finish")) return tx_name(holdfast_tx_finish(tx, 10000));
    if (is(word, "tx-finish-now")) return tx_name(holdfast_tx_finish(tx, 0));
    if (is(word, "tx-free")) {
        holdfast_tx_free(tx);
        tx = NULL;
        return "freed";
    }
    if (is(word, "tx-id")) {
        static char id[HOLDFAST_ID_SIZE];
        return holdfast_tx_id(tx, id, sizeof id) == TX_OK ? id : "no id";
    }
    if (is(word, "wait")) return fgets(text, sizeof text, stdin) ? "heard" : "the end";
    if (!strncmp(word, "timeout", length)) return tx_name(tx_set_transaction_timeout(atol(value + 1)));
    if (!strncmp(word, "tm-order", length)) return set_order(value + 1);
    if (!strncmp(word, "tx-begin-in", length)) return tx_name(holdfast_tx_begin(tm, atol(value + 1), 0, &tx));
    if (!strncmp(word, "tx-join", length)) return tx_name(holdfast_tx_join(tm, value + 1, &tx));
    if (!strncmp(word, "tx-resume", length)) return tx_name(holdfast_tx_resume(tm, value + 1, &tx));
    if (!strncmp(word, "pg", length)) return postgres(holdfast_postgres_connection("pg"), value + 1);
    if (!strncmp(word, "ma", length)) return mariadb(holdfast_mariadb_connection(NULL), value + 1);
    if (!strncmp(word, "own-pg", length)) return postgres(own_pg, value + 1);
    if (!strncmp(word, "own-ma", length)) return mariadb(own_ma, value + 1);
    return "no such call";
}

int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        const char *answer = play(words[at]);
        printf("%.24s: %s\n", words[at], answer);
        fflush(stdout);
    }
    holdfast_tx_free(tx);
    holdfast_tm_free(tm);
    if (own_pg) PQfinish(own_pg);
    if (own_ma) mysql_close(own_ma);
    return 0;
}
