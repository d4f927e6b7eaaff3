/* The headers are the standard's: numbers of C193 and C504, and layouts. */
#include <stddef.h>
#include <stdio.h>

#include "holdfast.h"

#define IS(name, value) _Static_assert((name) == (value), #name)

IS(XIDDATASIZE, 128); IS(MAXGTRIDSIZE, 64); IS(MAXBQUALSIZE, 64); IS(RMNAMESZ, 32); IS(MAXINFOSIZE, 256);
IS(TMNOFLAGS, 0x00000000L); IS(TMREGISTER, 0x00000001L); IS(TMNOMIGRATE, 0x00000002L); IS(TMUSEASYNC, 0x00000004L);
IS(TMASYNC, 0x80000000L); IS(TMONEPHASE, 0x40000000L); IS(TMFAIL, 0x20000000L); IS(TMNOWAIT, 0x10000000L);
IS(TMRESUME, 0x08000000L); IS(TMSUCCESS, 0x04000000L); IS(TMSUSPEND, 0x02000000L); IS(TMSTARTRSCAN, 0x01000000L);
IS(TMENDRSCAN, 0x00800000L); IS(TMMULTIPLE, 0x00400000L); IS(TMJOIN, 0x00200000L); IS(TMMIGRATE, 0x00100000L);
IS(TM_JOIN, 2); IS(TM_RESUME, 1); IS(TM_OK, 0); IS(TMER_TMERR, -1); IS(TMER_INVAL, -2); IS(TMER_PROTO, -3);
IS(XA_RBBASE, 100); IS(XA_RBROLLBACK, 100); IS(XA_RBCOMMFAIL, 101); IS(XA_RBDEADLOCK, 102); IS(XA_RBINTEGRITY, 103);
IS(XA_RBOTHER, 104); IS(XA_RBPROTO, 105); IS(XA_RBTIMEOUT, 106); IS(XA_RBTRANSIENT, 107); IS(XA_RBEND, 107);
IS(XA_NOMIGRATE, 9); IS(XA_HEURHAZ, 8); IS(XA_HEURCOM, 7); IS(XA_HEURRB, 6); IS(XA_HEURMIX, 5); IS(XA_RETRY, 4);
IS(XA_RDONLY, 3); IS(XA_OK, 0); IS(XAER_ASYNC, -2); IS(XAER_RMERR, -3); IS(XAER_NOTA, -4); IS(XAER_INVAL, -5);
IS(XAER_PROTO, -6); IS(XAER_RMFAIL, -7); IS(XAER_DUPID, -8); IS(XAER_OUTSIDE, -9);

IS(TX_H_VERSION, 0); IS(TX_COMMIT_COMPLETED, 0); IS(TX_COMMIT_DECISION_LOGGED, 1); IS(TX_UNCHAINED, 0); IS(TX_CHAINED, 1);
IS(TX_ACTIVE, 0); IS(TX_TIMEOUT_ROLLBACK_ONLY, 1); IS(TX_ROLLBACK_ONLY, 2);
IS(TX_NOT_SUPPORTED, 1); IS(TX_OK, 0); IS(TX_OUTSIDE, -1); IS(TX_ROLLBACK, -2); IS(TX_MIXED, -3); IS(TX_HAZARD, -4);
IS(TX_PROTOCOL_ERROR, -5); IS(TX_ERROR, -6); IS(TX_FAIL, -7); IS(TX_EINVAL, -8); IS(TX_COMMITTED, -9);
IS(TX_NO_BEGIN, -100); IS(TX_ROLLBACK_NO_BEGIN, -102); IS(TX_MIXED_NO_BEGIN, -103); IS(TX_HAZARD_NO_BEGIN, -104);
IS(TX_COMMITTED_NO_BEGIN, -109);

IS(sizeof(XID), 3 * sizeof(long) + 128);
IS(offsetof(struct xa_switch_t, flags), 32);
IS(offsetof(struct xa_switch_t, xa_open_entry), 32 + 2 * sizeof(long));
IS(sizeof(struct xa_switch_t), 32 + 2 * sizeof(long) + 10 * sizeof(void *));
IS(sizeof(TXINFO), sizeof(XID) + 4 * sizeof(long));

int main(void) {
    if (holdfast_postgres_switch.version != 0 || holdfast_mariadb_switch.version != 0) return 1;
    if (!(holdfast_postgres_switch.flags & TMUSEASYNC) || !holdfast_mariadb_switch.xa_complete_entry) return 1;
    puts("as the standard has it");
    return 0;
}
