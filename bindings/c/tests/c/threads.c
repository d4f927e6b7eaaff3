/* Many threads, each a thread of control of its own: the number of transactions that did not end as they should. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tx.h"

enum { THREADS = 16, ROUNDS = 50 };

static void *work(void *failures) {
    long failed = 0;
    if (tx_open() != TX_OK) failed++;
    for (int round = 0; round < ROUNDS; round++) {
        if (tx_begin() != TX_OK) failed++;
        TXINFO info;
        if (tx_info(&info) != 1) failed++;
        if ((round % 3 == 0 ? tx_rollback() : tx_commit()) != TX_OK) failed++;
    }
    if (tx_close() != TX_OK) failed++;
    *(long *)failures = failed;
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    long failures[THREADS], sum = 0;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &failures[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += failures[i];
    }
    printf("%ld failures\n", sum);
    return sum != 0;
}
