/*
 * tx.h: how a program says where its transactions begin and end.
 *
 * The interface is that of X/Open, "Distributed Transaction Processing: The TX
 * (Transaction Demarcation) Specification" (C504, 1995): names and numbers are
 * the standard's, the words are ours. A thread of control is a thread of the
 * operating system: each opens, begins and commits for itself.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TX_H
#define TX_H
#define TX_H_VERSION 0

/* A transaction's name, as in xa.h. A formatID of -1 says that there is none. */
#ifndef XIDDATASIZE
#define XIDDATASIZE 128
struct xid_t {
    long formatID;
    long gtrid_length;
    long bqual_length;
    char data[XIDDATASIZE];
};
typedef struct xid_t XID;
#endif

/* When tx_commit returns. */
typedef long COMMIT_RETURN;
#define TX_COMMIT_COMPLETED       0 /* when everybody has committed */
#define TX_COMMIT_DECISION_LOGGED 1 /* when nothing can prevent it any more */

/* What follows the end of a transaction. */
typedef long TRANSACTION_CONTROL;
#define TX_UNCHAINED 0 /* nothing, until tx_begin */
#define TX_CHAINED   1 /* the next transaction */

/* Seconds that a transaction may take; 0 for as long as it likes. */
typedef long TRANSACTION_TIMEOUT;

/* What can become of the transaction. */
typedef long TRANSACTION_STATE;
#define TX_ACTIVE                0
#define TX_TIMEOUT_ROLLBACK_ONLY 1 /* its time is over */
#define TX_ROLLBACK_ONLY         2 /* something went wrong in it */

/* What tx_info tells. */
struct tx_info_t {
    XID xid;
    COMMIT_RETURN when_return;
    TRANSACTION_CONTROL transaction_control;
    TRANSACTION_TIMEOUT transaction_timeout;
    TRANSACTION_STATE transaction_state;
};
typedef struct tx_info_t TXINFO;

#ifdef __cplusplus
extern "C" {
#endif

extern int tx_begin(void);
extern int tx_close(void);
extern int tx_commit(void);
extern int tx_info(TXINFO *info);
extern int tx_open(void);
extern int tx_rollback(void);
extern int tx_set_commit_return(COMMIT_RETURN when_return);
extern int tx_set_transaction_control(TRANSACTION_CONTROL control);
extern int tx_set_transaction_timeout(TRANSACTION_TIMEOUT seconds);

#ifdef __cplusplus
}
#endif

/* What the calls answer. */
#define TX_NOT_SUPPORTED  1
#define TX_OK             0
#define TX_OUTSIDE        (-1) /* a resource manager works outside of transactions */
#define TX_ROLLBACK       (-2) /* it was rolled back */
#define TX_MIXED          (-3) /* a part was committed, a part rolled back */
#define TX_HAZARD         (-4) /* the same may have happened */
#define TX_PROTOCOL_ERROR (-5) /* not in this state */
#define TX_ERROR          (-6) /* it did not work now; later it may */
#define TX_FAIL           (-7) /* it will not work any more */
#define TX_EINVAL         (-8) /* an argument is wrong */
#define TX_COMMITTED      (-9) /* asked to roll back, it was committed */

/* The same when transactions are chained and the next one could not begin. */
#define TX_NO_BEGIN           (-100)
#define TX_ROLLBACK_NO_BEGIN  (TX_ROLLBACK + TX_NO_BEGIN)
#define TX_MIXED_NO_BEGIN     (TX_MIXED + TX_NO_BEGIN)
#define TX_HAZARD_NO_BEGIN    (TX_HAZARD + TX_NO_BEGIN)
#define TX_COMMITTED_NO_BEGIN (TX_COMMITTED + TX_NO_BEGIN)

#endif
