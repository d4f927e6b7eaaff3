/*
 * xa.h: what a transaction manager and a resource manager say to each other.
 *
 * The interface is that of X/Open, "Distributed Transaction Processing: The XA
 * Specification" (C193, 1991): names and numbers are the standard's, so that a
 * resource manager compiled with its vendor's own xa.h works with this library
 * and the other way round. The words are ours.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef XA_H
#define XA_H

/*
 * Names of transaction branches.
 *
 * data holds gtrid_length bytes that name the transaction and, right behind
 * them, bqual_length bytes that name the branch. Both lengths are 1 to 64. A
 * formatID of -1 says that there is no name in it.
 */
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
#define MAXGTRIDSIZE 64
#define MAXBQUALSIZE 64

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What a resource manager may call: a resource manager whose switch says
 * TMREGISTER tells here, by itself, when work in it begins and ends.
 */
extern int ax_reg(int rmid, XID *xid, long flags);
extern int ax_unreg(int rmid, long flags);

#ifdef __cplusplus
}
#endif

/* Sizes, in bytes, with the zero at the end. */
#define RMNAMESZ 32
#define MAXINFOSIZE 256

/*
 * What a resource manager offers: one of these, by a name that its manual says.
 */
struct xa_switch_t {
    char name[RMNAMESZ];
    long flags;   /* TMREGISTER, TMNOMIGRATE, TMUSEASYNC */
    long version; /* 0 */
    int (*xa_open_entry)(char *info, int rmid, long flags);
    int (*xa_close_entry)(char *info, int rmid, long flags);
    int (*xa_start_entry)(XID *xid, int rmid, long flags);
    int (*xa_end_entry)(XID *xid, int rmid, long flags);
    int (*xa_rollback_entry)(XID *xid, int rmid, long flags);
    int (*xa_prepare_entry)(XID *xid, int rmid, long flags);
    int (*xa_commit_entry)(XID *xid, int rmid, long flags);
    int (*xa_recover_entry)(XID *xids, long count, int rmid, long flags);
    int (*xa_forget_entry)(XID *xid, int rmid, long flags);
    int (*xa_complete_entry)(int *handle, int *retval, int rmid, long flags);
};
typedef struct xa_switch_t xa_switch_t;

/* Flags of a switch. */
#define TMNOFLAGS   0x00000000L /* no flags, here and in every call */
#define TMREGISTER  0x00000001L /* it registers by itself, with ax_reg */
#define TMNOMIGRATE 0x00000002L /* a branch stays with its thread of control */
#define TMUSEASYNC  0x00000004L /* it understands TMASYNC */

/* Flags of calls. */
#define TMASYNC      0x80000000L /* begin the work and return a handle */
#define TMONEPHASE   0x40000000L /* commit without having prepared */
#define TMFAIL       0x20000000L /* end, and let the branch only be rolled back */
#define TMNOWAIT     0x10000000L /* do not wait: XA_RETRY instead */
#define TMRESUME     0x08000000L /* go on with what was suspended */
#define TMSUCCESS    0x04000000L /* end well */
#define TMSUSPEND    0x02000000L /* pause, do not end */
#define TMSTARTRSCAN 0x01000000L /* list prepared branches from the first */
#define TMENDRSCAN   0x00800000L /* nothing more of the list is wanted */
#define TMMULTIPLE   0x00400000L /* complete whichever call ends first */
#define TMJOIN       0x00200000L /* take part in a branch that exists */
#define TMMIGRATE    0x00100000L /* somebody else may resume it */

/* What ax_reg and ax_unreg answer. */
#define TM_JOIN    2  /* the branch exists: join it */
#define TM_RESUME  1  /* the branch was suspended: resume it */
#define TM_OK      0
#define TMER_TMERR (-1) /* the transaction manager has a fault */
#define TMER_INVAL (-2) /* an argument is wrong */
#define TMER_PROTO (-3) /* not now */

/* What the calls of a switch answer: the branch is, or can only be, rolled back. */
#define XA_RBBASE      100
#define XA_RBROLLBACK  XA_RBBASE
#define XA_RBCOMMFAIL  (XA_RBBASE + 1) /* messages were lost inside of it */
#define XA_RBDEADLOCK  (XA_RBBASE + 2)
#define XA_RBINTEGRITY (XA_RBBASE + 3) /* a constraint does not hold */
#define XA_RBOTHER     (XA_RBBASE + 4)
#define XA_RBPROTO     (XA_RBBASE + 5) /* it met a call that it did not expect */
#define XA_RBTIMEOUT   (XA_RBBASE + 6)
#define XA_RBTRANSIENT (XA_RBBASE + 7) /* a new attempt may go well */
#define XA_RBEND       XA_RBTRANSIENT

/* What they answer otherwise. */
#define XA_NOMIGRATE 9 /* suspended, but only this thread may resume */
#define XA_HEURHAZ   8 /* it may have decided alone, and does not know what */
#define XA_HEURCOM   7 /* it committed alone */
#define XA_HEURRB    6 /* it rolled back alone */
#define XA_HEURMIX   5 /* it committed a part and rolled back a part, alone */
#define XA_RETRY     4 /* nothing happened: call again */
#define XA_RDONLY    3 /* nothing was changed, and the branch is over */
#define XA_OK        0
#define XAER_ASYNC   (-2) /* another call is still under way */
#define XAER_RMERR   (-3) /* a fault in the resource manager */
#define XAER_NOTA    (-4) /* it knows no such branch */
#define XAER_INVAL   (-5) /* an argument is wrong */
#define XAER_PROTO   (-6) /* not now */
#define XAER_RMFAIL  (-7) /* it is not available */
#define XAER_DUPID   (-8) /* the branch exists already */
#define XAER_OUTSIDE (-9) /* it works outside of global transactions now */

#endif
