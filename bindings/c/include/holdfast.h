/*
 * holdfast.h: what libholdfast offers beside X/Open's tx.h and xa.h.
 *
 * All calls answer with a code of tx.h unless it says otherwise here; why a
 * call failed is told by holdfast_last_error.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>

#include "tx.h"
#include "xa.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that a transaction's id takes as text, with the zero at its end. */
#define HOLDFAST_ID_SIZE 80

/* An answer of holdfast_tx_finish: it is not decided so far. */
#define HOLDFAST_UNDECIDED 2

/* Why the last call of this thread that failed did so: every one has a reason of
 * its own. A call that goes well clears nothing, but may note what it met on its
 * way, such as a branch that recovery cannot settle. The text is good until it
 * is asked for again after another one was noted. */
extern const char *holdfast_last_error(void);

/*
 * For threads that use tx.h.
 */

/* Switches of our own: the kinds "postgres" and "mariadb" of a profile. */
extern struct xa_switch_t holdfast_postgres_switch;
extern struct xa_switch_t holdfast_mariadb_switch;

/*
 * The connection that one of these switches opened for this thread: a PGconn *
 * and a MYSQL *. The name is the resource manager's in the profile; NULL is the
 * first. NULL when there is none. It is closed by tx_close. tx_begin may open it
 * anew, when the connection is lost or, of MariaDB, holds a branch in doubt: ask
 * for it in every transaction.
 */
struct pg_conn;
struct st_mysql;
extern struct pg_conn *holdfast_postgres_connection(const char *name);
extern struct st_mysql *holdfast_mariadb_connection(const char *name);

/* What recovery found. */
struct holdfast_recovered {
    unsigned long committed;
    unsigned long rolled_back;
    unsigned long left;        /* in doubt still, or decided otherwise there */
    unsigned long unreachable; /* who could not be asked */
};

/*
 * Recovers now, in all resource managers of the thread. tx_open does so by
 * itself, and so does tx_begin when something is known to be in doubt, at most
 * every ten seconds.
 */
extern int holdfast_recover(struct holdfast_recovered *recovered);

/*
 * Takes the transaction from the thread, and writes its id; size is at least
 * HOLDFAST_ID_SIZE. A thread of the same process may resume it: any thread, or
 * the same when a resource manager's branches do not migrate. Connections to
 * PostgreSQL and MariaDB are in one transaction at a time: with one of these the
 * thread begins no other meanwhile (TX_ERROR).
 */
extern int holdfast_suspend(char *id, size_t size);

/* Writes the id of the thread's transaction, by which holdfast xa show knows
 * it, and the databases' lists of what is prepared. size is at least
 * HOLDFAST_ID_SIZE. */
extern int holdfast_id(char *id, size_t size);

/* Gives a suspended transaction to this thread. tx_close answers
 * TX_PROTOCOL_ERROR while the thread has suspended one that goes on only here. */
extern int holdfast_resume(const char *id);

/*
 * Transactions as objects, on connections of the program's own.
 *
 * A manager and its transactions are used by one thread at a time. A manager
 * has one active transaction at a time; a program may have many managers.
 */
typedef struct holdfast_tm holdfast_tm;
typedef struct holdfast_tx holdfast_tx;

/* Makes a manager that decides as the profile says; NULL is the profile that
 * the environment names. Its resource managers are not opened. */
extern int holdfast_tm_new(const char *profile, holdfast_tm **tm);
extern void holdfast_tm_free(holdfast_tm *tm);

/* Adds an open connection, which stays the program's and must outlive the
 * manager. Its branches get the name: 1 to 64 of a-z A-Z 0-9 _ - . */
extern int holdfast_tm_add_postgres(holdfast_tm *tm, const char *name,
                                    struct pg_conn *connection);
/* The same for a connection whose branches may be asked: one that changed
 * nothing ends when it is to be prepared, without a sync and a second phase;
 * the question is one more round trip for the others. The program says by this
 * that nothing takes effect at the end of its branches but changes of
 * PostgreSQL's own tables: no NOTIFY, LISTEN or UNLISTEN, no changes through
 * foreign tables, no cursor WITH HOLD. They would happen although the
 * transaction is rolled back elsewhere. */
extern int holdfast_tm_add_postgres_asking(holdfast_tm *tm, const char *name,
                                           struct pg_conn *connection);
extern int holdfast_tm_add_mariadb(holdfast_tm *tm, const char *name,
                                   struct st_mysql *connection);

/* Says when a connection's branches commit: those with a lower number first,
 * equals at the same time. Unless said it is the order of the profile's resource
 * manager of this name, or 0. Not while a transaction is active. */
extern int holdfast_tm_set_order(holdfast_tm *tm, const char *name,
                                 unsigned int order);

/* Recovers at the connections. No transaction may be active. Calls that begin a
 * transaction do so by themselves: the first on these connections, then once in
 * ten seconds, sooner when something is known to be in doubt. */
extern int holdfast_tm_recover(holdfast_tm *tm,
                               struct holdfast_recovered *recovered);

/* Flags of holdfast_tx_begin. */
#define HOLDFAST_SHARED 1L /* other programs may take part */

/* Begins a transaction. It may take so many seconds; 0 for as long as the
 * profile says. */
extern int holdfast_tx_begin(holdfast_tm *tm, TRANSACTION_TIMEOUT seconds,
                             long flags, holdfast_tx **tx);

/* Takes part in a transaction that another program began: its commit here is a
 * vote, and the other decides. The names of all branches must differ. */
extern int holdfast_tx_join(holdfast_tm *tm, const char *id, holdfast_tx **tx);

/* Goes on with a transaction that another program suspended, as the only one,
 * and decides. TX_EINVAL when it is not suspended, which it may be later, or
 * another program has resumed it. */
extern int holdfast_tx_resume(holdfast_tm *tm, const char *id,
                              holdfast_tx **tx);

/* Prepares what was done here, and leaves the rest to whoever resumes it. */
extern int holdfast_tx_suspend(holdfast_tx *tx);

extern int holdfast_tx_commit(holdfast_tx *tx);
extern int holdfast_tx_rollback(holdfast_tx *tx);

/* After a vote: waits so long for the decision, and carries it out here. TX_OK
 * when it is committed or nothing was changed here, TX_ROLLBACK, or
 * HOLDFAST_UNDECIDED. */
extern int holdfast_tx_finish(holdfast_tx *tx, long milliseconds);

/* Writes the id; size is at least HOLDFAST_ID_SIZE. */
extern int holdfast_tx_id(const holdfast_tx *tx, char *id, size_t size);

/* Lets go of a transaction. One that is active is rolled back. */
extern void holdfast_tx_free(holdfast_tx *tx);

#ifdef __cplusplus
}
#endif

#endif
