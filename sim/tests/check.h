/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests share. A failed check is printed and counted, and the test
 * goes on; main ends with `return check_result();`. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

static unsigned int check_count;
static unsigned int check_failures;

static inline void check_one(int holds, const char *file, int line, const char *text)
{
    ++check_count;
    if (!holds) {
        ++check_failures;
        printf("%s:%d: %s\n", file, line, text);
    }
}

static inline void check_equal(uint64_t actual, uint64_t expected, const char *file, int line,
                               const char *text)
{
    ++check_count;
    if (actual != expected) {
        ++check_failures;
        printf("%s:%d: %s is %" PRIu64 ", expected %" PRIu64 "\n", file, line, text, actual,
               expected);
    }
}

#define CHECK(condition) check_one((condition) ? 1 : 0, __FILE__, __LINE__, #condition)
#define CHECK_EQUAL(actual, expected)                                                          \
    check_equal((uint64_t)(actual), (uint64_t)(expected), __FILE__, __LINE__, #actual)

static inline int check_result(void)
{
    printf("%u checks, %u failed\n", check_count, check_failures);
    /* No checks at all is a test that tests nothing. */
    return check_count > 0u && check_failures == 0u ? 0 : 1;
}

/* The same numbers on every machine (xorshift32); the state is never 0. */
static inline uint32_t random_number(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* 1 to most. */
static inline uint32_t random_size(uint32_t *state, uint32_t most)
{
    return 1u + random_number(state) % most;
}

/* Multiples of 1/8 from -4 to 4: sums of their products are exact in float, so
 * that the order of additions cannot hide or cause a difference. */
static inline float random_value(uint32_t *state)
{
    return (float)((int)(random_number(state) % 65u) - 32) / 8.0f;
}

static inline void fill_random(float *values, size_t count, uint32_t *state)
{
    size_t i;

    for (i = 0u; i < count; ++i) {
        values[i] = random_value(state);
    }
}

#endif /* CHECK_H */
