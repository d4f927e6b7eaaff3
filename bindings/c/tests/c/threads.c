/*
 * Many threads, each a thread of control of its own: the number of transactions that did not end as they should. With an
 * argument the threads do not close, and never end: the process does.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tx.h"

enum { THREADS = 16, ROUNDS = 50 };

static int stays;
static pthread_barrier_t worked, never;

static void *work(void *failures) {
    long failed = 0;
    if (tx_open() != TX_OK) failed++;
    for (int round = 0; round < ROUNDS; round++) {
        if (tx_begin() != TX_OK) failed++;
        TXINFO info;
        if (tx_info(&info) != 1) failed++;
        if ((round % 3 == 0 ? tx_rollback() : tx_commit()) != TX_OK) failed++;
    }
    if (!stays && tx_close() != TX_OK) failed++;
    *(long *)failures = failed;
    pthread_barrier_wait(&worked);
    if (stays) pthread_barrier_wait(&never);
    return NULL;
}

int main(int count, char **words) {
    (void)words;
    stays = count > 1;
    pthread_barrier_init(&worked, NULL, THREADS + 1);
    pthread_barrier_init(&never, NULL, THREADS + 1);
    pthread_t threads[THREADS];
    long failures[THREADS], sum = 0;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &failures[i]);
    pthread_barrier_wait(&worked);
    for (int i = 0; i < THREADS; i++) {
        if (!stays) pthread_join(threads[i], NULL);
        sum += failures[i];
    }
    printf("%ld failures\n", sum);
    return sum != 0;
}
