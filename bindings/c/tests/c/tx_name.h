/* The names of what the calls of TX answer, for programs of tests. */
#ifndef TX_NAME_H
#define TX_NAME_H

#include <stdio.h>

#include <holdfast.h>
#include <tx.h>

static const char *tx_name(int code) {
    static char other[16];
    switch (code) {
    case TX_NOT_SUPPORTED: return "TX_NOT_SUPPORTED";
    case TX_OK: return "TX_OK";
    case TX_OUTSIDE: return "TX_OUTSIDE";
    case TX_ROLLBACK: return "TX_ROLLBACK";
    case TX_MIXED: return "TX_MIXED";
    case TX_HAZARD: return "TX_HAZARD";
    case TX_PROTOCOL_ERROR: return "TX_PROTOCOL_ERROR";
    case TX_ERROR: return "TX_ERROR";
    case TX_FAIL: return "TX_FAIL";
    case TX_EINVAL: return "TX_EINVAL";
    case HOLDFAST_UNDECIDED: return "HOLDFAST_UNDECIDED";
    case TX_COMMITTED: return "TX_COMMITTED";
    case TX_NO_BEGIN: return "TX_NO_BEGIN";
    case TX_ROLLBACK_NO_BEGIN: return "TX_ROLLBACK_NO_BEGIN";
    case TX_MIXED_NO_BEGIN: return "TX_MIXED_NO_BEGIN";
    case TX_HAZARD_NO_BEGIN: return "TX_HAZARD_NO_BEGIN";
    case TX_COMMITTED_NO_BEGIN: return "TX_COMMITTED_NO_BEGIN";
    default: snprintf(other, sizeof other, "%d", code); return other;
    }
}

#endif
