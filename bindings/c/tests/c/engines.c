/*
 * Makes the calls that its arguments name about keys, entries and points of the
 * coordinator's own store, and prints what each answers.
 *
 *   tx a b                 what comes next is of the thread's transaction, or of one of two objects
 *   open close begin begin-in=SECONDS shared commit rollback chained logged
 *   put=KEY:VALUE get=KEY delete=KEY         of the bucket "b"
 *   type=NAME              of what entries are spoken next, in the space "s"; "t" at first
 *   declare write=JSON take=ID read=ID
 *   point=METRIC:SECONDS:VALUE               with the tag host=h
 *   pg=SQL                 on the thread's connection; of an object on one that it was given: DATABASE_PG says where to
 *   suspend resume resume-elsewhere          the last in a new thread, which then commits
 *   until-timeout info recover error die
 *   deadlock               two threads each take an entry, 1 or 2, and then that of the other
 *   transfers              moves 1 from PostgreSQL to a key, again and again, and prints a line for each
 *   bad                    all that is wrong with arguments
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holdfast.h"

#include "tx_name.h"

/* What this program needs of libpq, so that it compiles without its header. */
typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
extern PGconn *PQconnectdb(const char *);
extern PGresult *PQexec(PGconn *, const char *);
extern int PQresultStatus(const PGresult *);
extern char *PQgetvalue(const PGresult *, int, int);
extern void PQclear(PGresult *);

static struct {
    holdfast_tm *tm;
    holdfast_tx *tx;
    PGconn *connection;
} objects[2], *object;
static const char *type = "t";
static char id[HOLDFAST_ID_SIZE] = "none";
static char text[4096];

static const char *name(int code) { return code == HOLDFAST_NOT_FOUND ? "HOLDFAST_NOT_FOUND" : tx_name(code); }

static int put(const char *key, size_t key_size, const char *value, size_t size) {
    return object ? holdfast_tx_put(object->tx, "b", key, key_size, value, size) : holdfast_put("b", key, key_size, value, size);
}

static int get(const char *key, size_t key_size, void **value, size_t *size) {
    return object ? holdfast_tx_get(object->tx, "b", key, key_size, value, size) : holdfast_get("b", key, key_size, value, size);
}

/* A code, and what was returned with it, which is let go of. */
static const char *with(int code, char *returned) {
    snprintf(text, sizeof text, "%s %s", name(code), !returned ? "NULL" : *returned ? returned : "empty");
    holdfast_free(returned);
    return text;
}

static int begin(long seconds, long flags) {
    if (!object) {
        tx_set_transaction_timeout(seconds);
        return tx_begin();
    }
    return holdfast_tx_begin(object->tm, seconds, flags, &object->tx);
}

static int end(int commits) {
    if (!object) return commits ? tx_commit() : tx_rollback();
    int code = commits ? holdfast_tx_commit(object->tx) : holdfast_tx_rollback(object->tx);
    holdfast_tx_free(object->tx);
    object->tx = NULL;
    return code;
}

static int open_it(void) {
    if (!object) return tx_open();
    const char *place = getenv("DATABASE_PG");
    int code = holdfast_tm_new(NULL, &object->tm);
    if (code != TX_OK || !place) return code;
    object->connection = PQconnectdb(place);
    return holdfast_tm_add_postgres(object->tm, "own", object->connection);
}

static void *elsewhere(void *unused) {
    (void)unused;
    printf("elsewhere: open=%s ", tx_name(tx_open()));
    printf("resume=%s ", tx_name(holdfast_resume(id)));
    printf("commit=%s ", tx_name(tx_commit()));
    printf("close=%s\n", tx_name(tx_close()));
    return NULL;
}

static pthread_barrier_t meeting;

/* Takes one entry, and then the other; what that and the commit answered. */
static void *contend(void *answers) {
    int *codes = answers;
    char *json;
    if (tx_open() != TX_OK || tx_begin() != TX_OK || holdfast_take("s", type, codes[0] == 1 ? "1" : "2", &json) != TX_OK) abort();
    holdfast_free(json);
    pthread_barrier_wait(&meeting);
    codes[0] = holdfast_take("s", type, codes[0] == 1 ? "2" : "1", &json);
    holdfast_free(json);
    /* Whoever is told to roll back does not do so before the other goes on. */
    pthread_barrier_wait(&meeting);
    codes[1] = tx_commit();
    tx_close();
    return NULL;
}

static const char *deadlock(void) {
    int first[2] = {1, 0}, second[2] = {2, 0};
    pthread_t one, other;
    pthread_barrier_init(&meeting, NULL, 2);
    pthread_create(&one, NULL, contend, first);
    pthread_create(&other, NULL, contend, second);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    int *won = first[0] == TX_OK ? first : second, *lost = won == first ? second : first;
    if (won[0] != TX_OK || won[1] != TX_OK) return "both lost";
    return lost[0] == TX_ROLLBACK && lost[1] == TX_ROLLBACK ? "one of both" : "both won";
}

static const char *postgres(const char *sql) {
    PGresult *result = PQexec(object ? object->connection : holdfast_postgres_connection(NULL), sql);
    int status = PQresultStatus(result);
    snprintf(text, sizeof text, "%s", status == 1 ? "done" : status == 2 ? PQgetvalue(result, 0, 0) : "failed");
    PQclear(result);
    return text;
}

static int transfers(void) {
    if (tx_open() != TX_OK) return printf("%s\n", holdfast_last_error());
    for (long count = 0;; count++) {
        void *money = NULL;
        size_t size;
        int code = tx_begin();
        if (code != TX_OK) return printf("begin: %s\n", holdfast_last_error());
        postgres("UPDATE bank SET money = money - 1");
        code = holdfast_get("b", "money", 5, &money, &size);
        char more[32];
        int length = snprintf(more, sizeof more, "%ld", (code == TX_OK ? atol(money) : 0) + 1);
        holdfast_free(money);
        code = holdfast_put("b", "money", 5, more, (size_t)length);
        /* Every fourth is rolled back; every third is more than one batch of things. */
        if (code == TX_OK && count % 3 == 0) code = holdfast_add_point("moved", NULL, count, 1);
        if (code != TX_OK) return printf("work: %s\n", holdfast_last_error());
        code = count % 4 == 3 ? tx_rollback() : tx_commit();
        printf("%s\n", tx_name(code));
        fflush(stdout);
        if (code != TX_OK) return 1;
    }
}

/* Each call with its code and its reason. */
#define SAY(call)                                                                      \
    do {                                                                               \
        int code = (call);                                                             \
        printf("%s | %s | %s\n", #call, name(code), code ? holdfast_last_error() : ""); \
    } while (0)

static void bad(void) {
    char *json = (char *)"untouched";
    void *value = (void *)"untouched";
    size_t size;
    holdfast_tx *tx = object ? object->tx : NULL;
#define BOTH(thread, own)           \
    do {                            \
        if (object) SAY(own);       \
        else SAY(thread);           \
    } while (0)
    BOTH(holdfast_put(NULL, "k", 1, "v", 1), holdfast_tx_put(tx, NULL, "k", 1, "v", 1));
    BOTH(holdfast_put("b", NULL, 1, "v", 1), holdfast_tx_put(tx, "b", NULL, 1, "v", 1));
    BOTH(holdfast_put("b", "k", 1, NULL, 1), holdfast_tx_put(tx, "b", "k", 1, NULL, 1));
    BOTH(holdfast_put("b", "k", (size_t)-1, "v", 1), holdfast_tx_put(tx, "b", "k", (size_t)-1, "v", 1));
    BOTH(holdfast_put("b", "", 0, "v", 1), holdfast_tx_put(tx, "b", "", 0, "v", 1));
    BOTH(holdfast_put("", "k", 1, "v", 1), holdfast_tx_put(tx, "", "k", 1, "v", 1));
    char *longer = malloc(1 << 20);
    memset(longer, 'k', 1 << 20);
    BOTH(holdfast_put("b", longer, 1 << 20, "v", 1), holdfast_tx_put(tx, "b", longer, 1 << 20, "v", 1));
    longer[5000] = 0;
    BOTH(holdfast_add_point(longer, NULL, 0, 1), holdfast_tx_add_point(tx, longer, NULL, 0, 1));
    free(longer);
    BOTH(holdfast_get("b", "k", 1, NULL, &size), holdfast_tx_get(tx, "b", "k", 1, NULL, &size));
    BOTH(holdfast_get("b", "k", 1, &value, NULL), holdfast_tx_get(tx, "b", "k", 1, &value, NULL));
    BOTH(holdfast_get(NULL, "k", 1, &value, &size), holdfast_tx_get(tx, NULL, "k", 1, &value, &size));
    BOTH(holdfast_delete(NULL, "k", 1), holdfast_tx_delete(tx, NULL, "k", 1));
    BOTH(holdfast_delete("b", NULL, 1), holdfast_tx_delete(tx, "b", NULL, 1));
    BOTH(holdfast_write(NULL, "t", "{}", NULL), holdfast_tx_write(tx, NULL, "t", "{}", NULL));
    BOTH(holdfast_write("s", NULL, "{}", NULL), holdfast_tx_write(tx, "s", NULL, "{}", NULL));
    BOTH(holdfast_write("s", "t", NULL, NULL), holdfast_tx_write(tx, "s", "t", NULL, NULL));
    BOTH(holdfast_write("s", "\xff", "{}", NULL), holdfast_tx_write(tx, "s", "\xff", "{}", NULL));
    BOTH(holdfast_write("s", "other", "{}", NULL), holdfast_tx_write(tx, "s", "other", "{}", NULL));
    BOTH(holdfast_write("s", "t", "{\"id\": 1", NULL), holdfast_tx_write(tx, "s", "t", "{\"id\": 1", NULL));
    BOTH(holdfast_write("s", "t", "[1]", NULL), holdfast_tx_write(tx, "s", "t", "[1]", NULL));
    BOTH(holdfast_write("s", "t", "{\"id\": 1.5}", &json), holdfast_tx_write(tx, "s", "t", "{\"id\": 1.5}", &json));
    BOTH(holdfast_take("s", "t", "1", NULL), holdfast_tx_take(tx, "s", "t", "1", NULL));
    BOTH(holdfast_take("s", "t", NULL, &json), holdfast_tx_take(tx, "s", "t", NULL, &json));
    BOTH(holdfast_take("s", "t", "ada", &json), holdfast_tx_take(tx, "s", "t", "ada", &json));
    BOTH(holdfast_read("s", "other", "1", &json), holdfast_tx_read(tx, "s", "other", "1", &json));
    BOTH(holdfast_read("s", "t", "[1]", &json), holdfast_tx_read(tx, "s", "t", "[1]", &json));
    BOTH(holdfast_add_point(NULL, NULL, 0, 1), holdfast_tx_add_point(tx, NULL, NULL, 0, 1));
    BOTH(holdfast_add_point("", NULL, 0, 1), holdfast_tx_add_point(tx, "", NULL, 0, 1));
    BOTH(holdfast_add_point("m", "host=a", 0, 1), holdfast_tx_add_point(tx, "m", "host=a", 0, 1));
    BOTH(holdfast_add_point("m", "{\"a\": 1}", 0, 1), holdfast_tx_add_point(tx, "m", "{\"a\": 1}", 0, 1));
    BOTH(holdfast_add_point("m", "{\"a\": \"\"}", 0, 1), holdfast_tx_add_point(tx, "m", "{\"a\": \"\"}", 0, 1));
    BOTH(holdfast_declare(NULL, "t"), holdfast_tm_declare(object->tm, NULL, "t"));
    BOTH(holdfast_declare("s", NULL), holdfast_tm_declare(object->tm, "s", NULL));
    BOTH(holdfast_declare("s", ""), holdfast_tm_declare(object->tm, "s", ""));
    SAY(holdfast_tm_declare(NULL, "s", "t"));
    SAY(holdfast_tx_put(NULL, "b", "k", 1, "v", 1));
    SAY(holdfast_tx_get(NULL, "b", "k", 1, &value, &size));
    SAY(holdfast_tx_delete(NULL, "b", "k", 1));
    SAY(holdfast_tx_write(NULL, "s", "t", "{}", NULL));
    SAY(holdfast_tx_take(NULL, "s", "t", "1", &json));
    SAY(holdfast_tx_read(NULL, "s", "t", "1", &json));
    SAY(holdfast_tx_add_point(NULL, "m", NULL, 0, 1));
    holdfast_free(NULL);
    printf("%s %s\n", json ? "left" : "NULL", value ? "left" : "NULL");
}

static int is(const char *word, const char *call) { return strcmp(word, call) == 0; }

static const char *play(const char *word) {
    char *value = strchr(word, '=');
    size_t length = value ? (size_t)(value - word) : strlen(word);
    value = value ? value + 1 : (char *)"";
    char *returned = NULL;
#define CALL(call) (strlen(call) == length && !strncmp(word, call, length))
    if (is(word, "tx") || is(word, "a") || is(word, "b")) {
        object = is(word, "tx") ? NULL : &objects[is(word, "b")];
        return "now";
    }
    if (is(word, "open")) return name(open_it());
    if (is(word, "close")) return name(object ? (holdfast_tm_free(object->tm), TX_OK) : tx_close());
    if (is(word, "begin")) return name(begin(0, 0));
    if (is(word, "shared")) return name(begin(0, HOLDFAST_SHARED));
    if (CALL("begin-in")) return name(begin(atol(value), 0));
    if (is(word, "commit")) return name(end(1));
    if (is(word, "rollback")) return name(end(0));
    if (is(word, "chained")) return name(tx_set_transaction_control(TX_CHAINED));
    if (is(word, "logged")) return name(tx_set_commit_return(TX_COMMIT_DECISION_LOGGED));
    if (is(word, "suspend")) return name(holdfast_suspend(id, sizeof id));
    if (is(word, "resume")) return name(holdfast_resume(id));
    if (is(word, "error")) return holdfast_last_error();
    if (is(word, "die")) raise(SIGKILL);
    if (is(word, "info")) {
        TXINFO found;
        const char *states[] = {"active", "timeout", "rollback-only"};
        return tx_info(&found) == 1 ? states[found.transaction_state] : "idle";
    }
    if (is(word, "until-timeout")) {
        TXINFO found;
        while (tx_info(&found) == 1 && found.transaction_state == TX_ACTIVE) sched_yield();
        return "over";
    }
    if (is(word, "recover")) {
        struct holdfast_recovered found = {0};
        int code = object ? holdfast_tm_recover(object->tm, &found) : holdfast_recover(&found);
        snprintf(text, sizeof text, "%s left=%lu unreachable=%lu", name(code), found.left, found.unreachable);
        return text;
    }
    if (is(word, "resume-elsewhere")) {
        pthread_t thread;
        pthread_create(&thread, NULL, elsewhere, NULL);
        pthread_join(thread, NULL);
        return "joined";
    }
    if (is(word, "transfers")) return transfers() ? "ended" : "over";
    if (is(word, "bad")) return bad(), "done";
    if (is(word, "deadlock")) return deadlock();
    if (CALL("pg")) return postgres(value);
    if (CALL("type")) return type = value, "now";
    if (is(word, "declare")) return name(object ? holdfast_tm_declare(object->tm, "s", type) : holdfast_declare("s", type));
    if (CALL("put")) {
        char *colon = strchr(value, ':');
        return name(put(value, (size_t)(colon - value), colon + 1, strlen(colon + 1)));
    }
    if (CALL("get")) {
        size_t size = 7;
        int code = get(value, strlen(value), (void **)&returned, &size);
        if (size != (returned ? strlen(returned) : 0)) return "the size is another";
        return with(code, returned);
    }
    if (CALL("delete")) {
        size_t size = strlen(value);
        return name(object ? holdfast_tx_delete(object->tx, "b", value, size) : holdfast_delete("b", value, size));
    }
    if (CALL("write")) {
        int code = object ? holdfast_tx_write(object->tx, "s", type, value, &returned) : holdfast_write("s", type, value, &returned);
        return with(code, returned);
    }
    if (CALL("take")) {
        int code = object ? holdfast_tx_take(object->tx, "s", type, value, &returned) : holdfast_take("s", type, value, &returned);
        return with(code, returned);
    }
    if (CALL("read")) {
        int code = object ? holdfast_tx_read(object->tx, "s", type, value, &returned) : holdfast_read("s", type, value, &returned);
        return with(code, returned);
    }
    if (CALL("point")) {
        char metric[64];
        long seconds;
        double number;
        if (sscanf(value, "%63[^:]:%ld:%lf", metric, &seconds, &number) != 3) return "no point";
        const char *tags = "{\"host\": \"h\"}";
        int64_t time = (int64_t)seconds * 1000000000;
        return name(object ? holdfast_tx_add_point(object->tx, metric, tags, time, number) : holdfast_add_point(metric, tags, time, number));
    }
    return "no such call";
}

int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        printf("%s: %s\n", words[at], play(words[at]));
        fflush(stdout);
    }
    return 0;
}
