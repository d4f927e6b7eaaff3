/*
 * Fails in every way that needs no database, and prints for each call its code
 * and its reason. Before each, another call fails, with the word "before" in
 * its reason: whoever still says that has no reason of its own.
 *
 * The profile has one monkey, which cannot prepare.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "holdfast.h"

#include "tx_name.h"

/* An error in a profile's name is told with the name. */
static void fail_before(void) {
    holdfast_tm *none;
    holdfast_tm_new("before", &none);
}

#define FAIL(call)                                                                     \
    do {                                                                               \
        fail_before();                                                                 \
        int code = (call);                                                             \
        printf("%s | %s | %s\n", #call, tx_name(code), holdfast_last_error());         \
    } while (0)

int main(void) {
    char id[HOLDFAST_ID_SIZE], small[8];
    holdfast_tm *tm = NULL, *other = NULL;
    holdfast_tx *tx = NULL, *joined = NULL;
    TXINFO info;
    FAIL(tx_begin());
    FAIL(tx_commit());
    FAIL(tx_rollback());
    FAIL(tx_info(&info));
    FAIL(tx_set_commit_return(TX_COMMIT_COMPLETED));
    FAIL(tx_set_transaction_control(7));
    FAIL(tx_set_transaction_timeout(1));
    FAIL(holdfast_recover(NULL));
    FAIL(holdfast_suspend(id, sizeof id));
    FAIL(holdfast_id(id, sizeof id));
    FAIL(holdfast_resume(NULL));
    FAIL(holdfast_resume("none"));
    if (tx_open() != TX_OK) return 1;
    FAIL(tx_commit());
    FAIL(tx_rollback());
    FAIL(tx_set_commit_return(7));
    FAIL(tx_set_transaction_control(7));
    FAIL(tx_set_transaction_timeout(-1));
    FAIL(holdfast_suspend(id, sizeof id));
    FAIL(holdfast_suspend(NULL, sizeof id));
    FAIL(holdfast_suspend(small, sizeof small));
    if (tx_begin() != TX_OK) return 2;
    FAIL(tx_begin());
    FAIL(tx_close());
    FAIL(holdfast_recover(NULL));
    FAIL(holdfast_id(small, sizeof small));
    FAIL(holdfast_resume("none"));
    FAIL(tx_commit());
    tx_set_transaction_timeout(1);
    if (tx_begin() != TX_OK) return 3;
    while (tx_info(&info) == 1 && info.transaction_state == TX_ACTIVE) sched_yield();
    FAIL(tx_commit());
    tx_close();

    FAIL(holdfast_tm_new(NULL, NULL));
    if (holdfast_tm_new(NULL, &tm) != TX_OK || holdfast_tm_new(NULL, &other) != TX_OK) return 4;
    FAIL(holdfast_tm_add_postgres(NULL, "a", NULL));
    FAIL(holdfast_tm_add_postgres(tm, NULL, NULL));
    FAIL(holdfast_tm_add_mariadb(tm, "a", NULL));
    FAIL(holdfast_tm_recover(NULL, NULL));
    FAIL(holdfast_tx_begin(NULL, 0, 0, &tx));
    FAIL(holdfast_tx_begin(tm, 0, 0, NULL));
    FAIL(holdfast_tx_begin(tm, -1, 0, &tx));
    FAIL(holdfast_tx_begin(tm, 0, 2, &tx));
    FAIL(holdfast_tx_join(tm, NULL, &tx));
    FAIL(holdfast_tx_resume(tm, "none", &tx));
    FAIL(holdfast_tx_commit(NULL));
    FAIL(holdfast_tx_rollback(NULL));
    FAIL(holdfast_tx_suspend(NULL));
    FAIL(holdfast_tx_finish(NULL, 0));
    FAIL(holdfast_tx_id(NULL, id, sizeof id));
    if (holdfast_tx_begin(tm, 0, 0, &tx) != TX_OK) return 5;
    FAIL(holdfast_tx_id(tx, NULL, sizeof id));
    FAIL(holdfast_tx_id(tx, small, sizeof small));
    FAIL(holdfast_tx_begin(tm, 0, 0, &joined));
    FAIL(holdfast_tm_recover(tm, NULL));
    FAIL(holdfast_tx_suspend(tx));
    FAIL(holdfast_tx_finish(tx, 0));
    FAIL(holdfast_tx_finish(tx, -1));
    holdfast_tx_id(tx, id, sizeof id);
    FAIL(holdfast_tx_join(other, id, &joined));
    holdfast_tx_commit(tx);
    FAIL(holdfast_tx_commit(tx));
    FAIL(holdfast_tx_rollback(tx));
    holdfast_tx_free(tx);
    if (holdfast_tx_begin(tm, 1, 0, &tx) != TX_OK) return 6;
    for (time_t began = time(NULL); time(NULL) < began + 2;) sched_yield();
    FAIL(holdfast_tx_commit(tx));
    holdfast_tx_free(tx);
    if (holdfast_tx_begin(tm, 60, HOLDFAST_SHARED, &tx) != TX_OK) return 7;
    holdfast_tx_id(tx, id, sizeof id);
    if (holdfast_tx_join(other, id, &joined) != TX_OK) return 8;
    FAIL(holdfast_tx_suspend(joined));
    if (holdfast_tx_commit(joined) != TX_OK) return 9;
    FAIL(holdfast_tx_commit(joined));
    holdfast_tx_free(joined);
    holdfast_tx_free(tx);
    holdfast_tm_free(tm);
    holdfast_tm_free(other);

    /* What goes well clears nothing. */
    fail_before();
    tx_open();
    printf("%s\n", holdfast_last_error());
    return 0;
}
