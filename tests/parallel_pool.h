/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of threads whose parallel_for computes parts in a given order. */
#ifndef PARALLEL_POOL_H
#define PARALLEL_POOL_H

#include <pthread.h>
#include <stdint.h>

enum order { FORWARD, REVERSED, INTERLEAVED };

struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread[16];
    int threads, ends;
    enum order order;
    void (*body)(void *argument, int32_t part);
    void *argument;
    int32_t parts, next, left;
    int32_t calls; /* of parallel_for */
};

/* Starts threads, the caller's one included. Returns 0 if that worked. */
int start_pool(struct pool *pool, int threads, enum order order);

void end_pool(struct pool *pool);

int32_t parallel_for(
    void *context, void (*body)(void *argument, int32_t part), void *argument, int32_t parts);

#endif
