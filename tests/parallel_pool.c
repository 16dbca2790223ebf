/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of threads that computes parts in a given order; the caller's thread computes some, too. */
#include "parallel_pool.h"

#include <stddef.h>

static int32_t number_of_part(enum order order, int32_t step, int32_t parts)
{
    const int32_t even = (parts + 1) / 2;

    switch (order) {
    case REVERSED:
        return parts - 1 - step;
    case INTERLEAVED:
        return step < even ? step * 2 : (step - even) * 2 + 1;
    default:
        return step;
    }
}

/* Computes parts until none is left; the mutex is held before and after. */
static void work(struct pool *pool)
{
    while (pool->next < pool->parts) {
        const int32_t part = number_of_part(pool->order, pool->next++, pool->parts);

        pthread_mutex_unlock(&pool->mutex);
        pool->body(pool->argument, part);
        pthread_mutex_lock(&pool->mutex);
        if (--pool->left == 0) {
            pthread_cond_broadcast(&pool->changed);
        }
    }
}

static void *work_until_end(void *context)
{
    struct pool *pool = (struct pool *)context;

    pthread_mutex_lock(&pool->mutex);
    while (!pool->ends) {
        work(pool);
        pthread_cond_wait(&pool->changed, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

int start_pool(struct pool *pool, int threads, enum order order)
{
    *pool = (struct pool){.order = order, .threads = threads};
    if (pthread_mutex_init(&pool->mutex, NULL) != 0 || pthread_cond_init(&pool->changed, NULL) != 0) {
        return 1;
    }
    for (int number = 1; number < threads; ++number) {
        if (pthread_create(&pool->thread[number], NULL, work_until_end, pool) != 0) {
            return 1;
        }
    }
    return 0;
}

void end_pool(struct pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pool->ends = 1;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
    for (int number = 1; number < pool->threads; ++number) {
        pthread_join(pool->thread[number], NULL);
    }
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->mutex);
}

int32_t parallel_for(
    void *context, void (*body)(void *argument, int32_t part), void *argument, int32_t parts)
{
    struct pool *pool = (struct pool *)context;

    pthread_mutex_lock(&pool->mutex);
    pool->body = body;
    pool->argument = argument;
    pool->parts = pool->left = parts;
    pool->next = 0;
    ++pool->calls;
    pthread_cond_broadcast(&pool->changed);
    work(pool);
    while (pool->left > 0) {
        pthread_cond_wait(&pool->changed, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return 0;
}
