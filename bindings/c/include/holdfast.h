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
#include <stdint.h>

#include "tx.h"
#include "xa.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that a transaction's id takes as text, with the zero at its end. */
#define HOLDFAST_ID_SIZE 80

/* An answer of holdfast_tx_finish: it is not decided so far. */
#define HOLDFAST_UNDECIDED 2

/* An answer of calls that look for a key or an entry: there is none. */
#define HOLDFAST_NOT_FOUND 3

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
 * Keys, entries and points of the coordinator's own store, as part of the
 * thread's transaction; holdfast_tx_... (below) are the same calls for objects.
 *
 * They happen in the batch in which the decision is written, and have no
 * branch: when the transaction commits all of it is there, as durable as the
 * decision; when it is rolled back, the program is killed before, or the
 * machine stops, nothing is. A transaction that has databases besides is decided
 * by a record then, also with one database; one without any is a single batch.
 * Where it only read something here, its databases commit as they would without;
 * entries that it read are locked until then, unless it read keys as well, which
 * are looked at once more right before.
 *
 * The profile's coordinator has to have a directory: the store is in the process
 * then, and one process at a time has it. With servers the calls are TX_EINVAL,
 * and in shared transactions. The transaction sees what it has changed itself,
 * nobody else does before it commits.
 *
 * Keys: what the transaction read must not have been changed by others when it
 * commits; tx_commit is TX_ROLLBACK then. Entries are locked from the call on
 * until the transaction ends, and a call waits up to five seconds for an entry
 * that another transaction has locked, no longer than the transaction may take.
 * Points are of the database "default"; one that does not fit its series is told
 * by tx_commit (TX_ROLLBACK).
 *
 * Strings end with a zero, and are copied. A key or value of size 0 may be NULL.
 * Keys and values have the store's limits: what is too long is TX_EINVAL. What a
 * call returns in *value, *json or *id belongs to the program, which lets go of
 * it by holdfast_free; it has one zero more behind it, so that JSON is a string.
 * When there is nothing to return, for whatever reason, the place holds NULL.
 *
 * TX_OK, or
 *   HOLDFAST_NOT_FOUND  there is no such key or entry
 *   TX_EINVAL           an argument is wrong or too long, there is no such type,
 *                       the JSON is none; the transaction goes on without
 *   TX_ERROR            another transaction kept the entry locked, or the store
 *                       cannot do it now; the transaction goes on without
 *   TX_ROLLBACK         somebody else changed what it read, two transactions wait
 *                       for each other, or its time is over: it can only be
 *                       rolled back
 *   TX_PROTOCOL_ERROR   the thread is in no transaction
 *   TX_FAIL             what is stored there is damaged, or the library is
 */
extern int holdfast_put(const char *bucket, const void *key, size_t key_size,
                        const void *value, size_t value_size);
extern int holdfast_get(const char *bucket, const void *key, size_t key_size,
                        void **value, size_t *value_size);
/* HOLDFAST_NOT_FOUND when there was none. */
extern int holdfast_delete(const char *bucket, const void *key,
                           size_t key_size);

/* An entry is a JSON object; its id is the field "id", and one that has none
 * gets one. It replaces the one with its id. *id is the id as JSON; id may be
 * NULL. */
extern int holdfast_write(const char *space, const char *type,
                          const char *json, char **id);
/* Both are TX_EINVAL for types with a routing or groups, whose entries are known
 * by more than the id.
 * The entry with this id, which is JSON: 17, or "a" with its quotes. To take it
 * is to remove it; one that was read stays as it is until the transaction
 * ends. */
extern int holdfast_take(const char *space, const char *type, const char *id,
                         char **json);
extern int holdfast_read(const char *space, const char *type, const char *id,
                         char **json);

/* A point of a series: its tags are a JSON object of strings, or NULL; time is
 * in nanoseconds since 1970. A later point of the same time replaces it. */
extern int holdfast_add_point(const char *metric, const char *tags,
                              int64_t time, double value);

/* Sees to it that there is such a type of entries, for good, whatever becomes of
 * a transaction; one that is there stays as it is. It waits until that is on
 * stable storage. TX_PROTOCOL_ERROR when the thread has nothing open. */
extern int holdfast_declare(const char *space, const char *type);

/* Lets go of what one of these calls returned. NULL is nothing. */
extern void holdfast_free(void *memory);

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
 * manager. Its branches get the name: 1 to 64 of a-z A-Z 0-9 _ - . What earlier
 * programs left prepared there to be rolled back is rolled back, for a second at
 * most; so no statement may be under way on it. Whatever comes of that, the
 * connection is added. */
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

/* Recovers at the connections, and says what was done and what is left in doubt.
 * No transaction may be active. Calls that begin a transaction recover by
 * themselves: the first on these connections, then once in ten seconds, sooner
 * when something is known to be in doubt. */
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

/* Keys, entries and points of the coordinator's own store, as above.
 * TX_PROTOCOL_ERROR when the transaction is over. A manager needs no connection
 * for them. */
extern int holdfast_tx_put(holdfast_tx *tx, const char *bucket,
                           const void *key, size_t key_size,
                           const void *value, size_t value_size);
extern int holdfast_tx_get(holdfast_tx *tx, const char *bucket,
                           const void *key, size_t key_size, void **value,
                           size_t *value_size);
extern int holdfast_tx_delete(holdfast_tx *tx, const char *bucket,
                              const void *key, size_t key_size);
extern int holdfast_tx_write(holdfast_tx *tx, const char *space,
                             const char *type, const char *json, char **id);
extern int holdfast_tx_take(holdfast_tx *tx, const char *space,
                            const char *type, const char *id, char **json);
extern int holdfast_tx_read(holdfast_tx *tx, const char *space,
                            const char *type, const char *id, char **json);
extern int holdfast_tx_add_point(holdfast_tx *tx, const char *metric,
                                 const char *tags, int64_t time, double value);
extern int holdfast_tm_declare(holdfast_tm *tm, const char *space,
                               const char *type);

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
