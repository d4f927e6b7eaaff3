/*
 * Makes the calls that its arguments name, one after the other, and prints what
 * each answers. Resource managers are monkeys.
 *
 *   open close begin commit rollback      the calls of TX
 *   chained unchained completed logged    their settings
 *   timeout=SECONDS control=N return=N
 *   info                                  TX_OK, and what it told
 *   work=RMID leave=RMID                  ax_reg and ax_unreg, by the dynamic monkey
 *   reg-null=RMID reg-flags=RMID          ax_reg with arguments that are wrong
 *   suspend resume resume-elsewhere       the last in a new thread, which then commits
 *   recover
 *   tm-new                                a manager of objects, which is not let go of
 *   until-timeout                         waits until tx_info says that time is over
 *   profile=NAME                          sets the variable of the environment
 *   error                                 prints why the last call failed
 *   die                                   the process is killed
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holdfast.h"

#include "tx_name.h"

static char id[HOLDFAST_ID_SIZE] = "none";

static const char *tm_name(int code) {
    switch (code) {
    case TM_JOIN: return "TM_JOIN";
    case TM_RESUME: return "TM_RESUME";
    case TM_OK: return "TM_OK";
    case TMER_TMERR: return "TMER_TMERR";
    case TMER_INVAL: return "TMER_INVAL";
    case TMER_PROTO: return "TMER_PROTO";
    default: return "unknown";
    }
}

static const char *info(void) {
    static char text[128];
    TXINFO found;
    int active = tx_info(&found);
    if (active < 0) return tx_name(active);
    const char *states[] = {"active", "timeout", "rollback-only"};
    snprintf(text, sizeof text, "%s,return=%ld,control=%ld,timeout=%ld,xid=%s", active ? states[found.transaction_state] : "idle",
             found.when_return, found.transaction_control, found.transaction_timeout,
             found.xid.formatID == -1 ? "null" : found.xid.gtrid_length == 36 ? "ours" : "strange");
    return text;
}

static const char *monkey(const char *function, int rmid) {
    void *library = dlopen(getenv("MONKEY"), RTLD_NOW | RTLD_NOLOAD);
    if (!library) return "the monkey is not loaded";
    int (*work)(int);
    *(void **)&work = dlsym(library, function);
    return tm_name(work(rmid));
}

static const char *recover(void) {
    static char text[96];
    struct holdfast_recovered found;
    int code = holdfast_recover(&found);
    if (code != TX_OK) return tx_name(code);
    snprintf(text, sizeof text, "committed=%lu,rolled-back=%lu,left=%lu,unreachable=%lu", found.committed, found.rolled_back,
             found.left, found.unreachable);
    return text;
}

static void *elsewhere(void *unused) {
    (void)unused;
    printf("elsewhere: open=%s ", tx_name(tx_open()));
    printf("resume=%s ", tx_name(holdfast_resume(id)));
    printf("commit=%s ", tx_name(tx_commit()));
    printf("close=%s\n", tx_name(tx_close()));
    return NULL;
}

static int is(const char *word, const char *call) { return strcmp(word, call) == 0; }

static const char *play(const char *word) {
    const char *value = strchr(word, '=');
    long number = value ? atol(value + 1) : 0;
    size_t length = value ? (size_t)(value - word) : strlen(word);
    if (is(word, "open")) return tx_name(tx_open());
    if (is(word, "close")) return tx_name(tx_close());
    if (is(word, "begin")) return tx_name(tx_begin());
    if (is(word, "commit")) return tx_name(tx_commit());
    if (is(word, "rollback")) return tx_name(tx_rollback());
    if (is(word, "chained")) return tx_name(tx_set_transaction_control(TX_CHAINED));
    if (is(word, "unchained")) return tx_name(tx_set_transaction_control(TX_UNCHAINED));
    if (is(word, "completed")) return tx_name(tx_set_commit_return(TX_COMMIT_COMPLETED));
    if (is(word, "logged")) return tx_name(tx_set_commit_return(TX_COMMIT_DECISION_LOGGED));
    if (is(word, "info")) return info();
    if (is(word, "info-null")) return tx_info(NULL) == 1 ? "1" : "0";
    if (is(word, "recover")) return recover();
    if (is(word, "tm-new")) return tx_name(holdfast_tm_new(NULL, &(holdfast_tm *){NULL}));
    if (is(word, "suspend")) return tx_name(holdfast_suspend(id, sizeof id));
    if (is(word, "suspend-small")) return tx_name(holdfast_suspend(id, 8));
    if (is(word, "resume")) return tx_name(holdfast_resume(id));
    if (is(word, "resume-null")) return tx_name(holdfast_resume(NULL));
    if (is(word, "error")) return holdfast_last_error();
    if (is(word, "die")) raise(SIGKILL);
    if (is(word, "until-timeout")) {
        TXINFO found;
        while (tx_info(&found) == 1 && found.transaction_state == TX_ACTIVE) sched_yield();
        return "over";
    }
    if (is(word, "resume-elsewhere")) {
        pthread_t thread;
        pthread_create(&thread, NULL, elsewhere, NULL);
        pthread_join(thread, NULL);
        return "joined";
    }
    if (!strncmp(word, "profile", length)) return setenv("HOLDFAST_XA_PROFILE_NAME", value + 1, 1) ? "failed" : "set";
    if (!strncmp(word, "timeout", length)) return tx_name(tx_set_transaction_timeout(number));
    if (!strncmp(word, "control", length)) return tx_name(tx_set_transaction_control(number));
    if (!strncmp(word, "return", length)) return tx_name(tx_set_commit_return(number));
    if (!strncmp(word, "work", length)) return monkey("holdfast_monkey_work", (int)number);
    if (!strncmp(word, "leave", length)) return monkey("holdfast_monkey_leave", (int)number);
    if (!strncmp(word, "reg-null", length)) return tm_name(ax_reg((int)number, NULL, TMNOFLAGS));
    if (!strncmp(word, "reg-flags", length)) {
        XID xid;
        return tm_name(ax_reg((int)number, &xid, TMJOIN));
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
