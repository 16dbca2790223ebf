/* SPDX-License-Identifier: Apache-2.0 */
/* The Chocolate driver on the strict mock: the order of its calls, also where the
 * device fails, has no room, or is another one. */
#include <string.h>

#include "check.h"
#include "chocolate_accelerator.h"
#include "chocolate_pool.h"
#include "umakit/device_mock.h"

#define LEFT_CALL (POOL_CALLS - POOL_ENDING - 1u) /* DMA_BYTES_LEFT */
#define PENDING_CALL (LEFT_CALL - 1u)
#define WAIT_CALL (PENDING_CALL - 1u)
#define STORE_CALL (WAIT_CALL - 2u) /* its write to CONTROL */
#define DEPTH_CALL 4u
#define EXTRA 24u
#define INTERRUPT CHOCOLATE_ACCELERATOR_INTERRUPT
#define POLLING CHOCOLATE_ACCELERATOR_POLLING

static struct umakit_device mock;
static uint32_t data[POOL_INPUTS / 4u];
static uint32_t result[POOL_RESULTS / 4u];
static struct umakit_trace_entry calls[POOL_CALLS + EXTRA];

umakit_device *chocolate_accelerator_device(void)
{
    return &mock;
}

/* Run it and demand `count` calls. */
static void expect(int status, size_t count, int32_t completion)
{
    char message[UMAKIT_MOCK_MESSAGE_BYTES];

    umakit_mock_expect(&mock, calls, count);
    CHECK_EQUAL(run_pool(data, result, completion), status);
    if (!umakit_mock_verify(&mock, message, sizeof(message))) {
        printf("%s\n", message);
        CHECK(false);
    }
}

/* How a layer ends that failed: what is mapped is unmapped when the device has stopped. */
static const struct umakit_trace_entry stopped[] = {
    UMAKIT_TRACE_WRITE(OFFSET(CONTROL), MASK(CONTROL_CLEAR)),
    UMAKIT_TRACE_BARRIER,
    UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_DMA_BUSY)),
    UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_ARRAY_BUSY)),
    UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE)),
    UMAKIT_TRACE_WRITE(OFFSET(INTERRUPT_ENABLE), 0u),
    UMAKIT_TRACE_UNMAP(POOL_DATA_WINDOW),
    UMAKIT_TRACE_UNMAP(POOL_RESULT_WINDOW),
};

#define STOPPED (sizeof(stopped) / sizeof(stopped[0]))

/* The calls up to one, others in its place, then the ending of a layer. */
static size_t replace_from(size_t call, const struct umakit_trace_entry *others, size_t count,
                           const struct umakit_trace_entry *ending, size_t ending_count)
{
    memcpy(calls, pool_calls, sizeof(pool_calls));
    memcpy(&calls[call], others, count * sizeof(others[0]));
    memcpy(&calls[call + count], ending, ending_count * sizeof(ending[0]));
    return call + count + ending_count;
}

static void test_layer(void)
{
    memcpy(calls, pool_calls, sizeof(pool_calls));
    expect(UMAKIT_OK, POOL_CALLS, INTERRUPT);
}

/* Polling enables no interrupt and asks for the same bits. */
static void test_polling(void)
{
    static const struct umakit_trace_entry asked[] = {
        UMAKIT_TRACE_READ(OFFSET(INTERRUPT_PENDING), 0u),
        UMAKIT_TRACE_READ(OFFSET(INTERRUPT_PENDING), MASK(INTERRUPT_PENDING_COMMAND_DONE)),
        UMAKIT_TRACE_READ(OFFSET(INTERRUPT_PENDING),
                          MASK(INTERRUPT_PENDING_COMMAND_DONE) |
                              MASK(INTERRUPT_PENDING_QUEUE_DONE)),
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE)),
        UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 0u),
    };
    const size_t count = replace_from(WAIT_CALL - 1u, asked, 5u,
                                      &pool_calls[POOL_CALLS - POOL_ENDING], POOL_ENDING);

    calls[DEPTH_CALL + 1u].value = 0u;
    expect(UMAKIT_OK, count, POLLING);
}

struct ending {
    struct umakit_trace_entry reads[3];
    size_t count;
    int waited;
    int expected;
};

static void test_failures(void)
{
#define HAPPENED(event)                                                                        \
    UMAKIT_TRACE_READ(OFFSET(INTERRUPT_PENDING), MASK(INTERRUPT_PENDING_##event))
#define STATUS_IS(value) UMAKIT_TRACE_READ(OFFSET(STATUS), (value))
#define LEFT_IS(value) UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), (value))
#define ERROR_IS(value) UMAKIT_TRACE_READ(OFFSET(ERROR), (value))
#define CYCLES_ARE(value) UMAKIT_TRACE_READ(OFFSET(ARRAY_CYCLES_LEFT), (value))
    static const uint32_t failed = MASK(STATUS_IDLE) | MASK(STATUS_ERROR);
    const struct ending endings[] = {
        {{HAPPENED(ERROR), ERROR_IS(UMAKIT_BUS_ERROR)}, 2u, UMAKIT_OK, UMAKIT_BUS_ERROR},
        {{HAPPENED(ERROR), ERROR_IS(0u)}, 2u, UMAKIT_OK, UMAKIT_DEVICE_ERROR},
        {{HAPPENED(ERROR), ERROR_IS(UINT32_MAX)}, 2u, UMAKIT_OK, UMAKIT_DEVICE_ERROR},
        {{HAPPENED(QUEUE_DONE), LEFT_IS(4u)}, 2u, UMAKIT_OK, UMAKIT_DMA_STOPPED},
        {{STATUS_IS(failed), LEFT_IS(0u), ERROR_IS(UMAKIT_PARITY_ERROR)},
         3u,
         UMAKIT_TIMEOUT,
         UMAKIT_PARITY_ERROR},
        {{STATUS_IS(MASK(STATUS_DMA_BUSY)), LEFT_IS(4u), LEFT_IS(4u)},
         3u,
         UMAKIT_TIMEOUT,
         UMAKIT_DMA_STOPPED},
        {{STATUS_IS(MASK(STATUS_DMA_BUSY)), LEFT_IS(4u), LEFT_IS(3u)},
         3u,
         UMAKIT_TIMEOUT,
         UMAKIT_TIMEOUT},
        {{STATUS_IS(MASK(STATUS_DMA_BUSY)), LEFT_IS(0u)}, 2u, UMAKIT_TIMEOUT, UMAKIT_STUCK_BUSY},
        {{STATUS_IS(MASK(STATUS_ARRAY_BUSY)), LEFT_IS(0u), CYCLES_ARE(0u)},
         3u,
         UMAKIT_TIMEOUT,
         UMAKIT_STUCK_BUSY},
        {{STATUS_IS(MASK(STATUS_ARRAY_BUSY)), LEFT_IS(0u), CYCLES_ARE(1u)},
         3u,
         UMAKIT_TIMEOUT,
         UMAKIT_TIMEOUT},
        {{STATUS_IS(MASK(STATUS_IDLE)), LEFT_IS(4u)}, 2u, UMAKIT_TIMEOUT, UMAKIT_DMA_STOPPED},
        {{STATUS_IS(MASK(STATUS_IDLE)), LEFT_IS(0u)}, 2u, UMAKIT_TIMEOUT, UMAKIT_LOST_INTERRUPT},
    };
    size_t i;

    for (i = 0u; i < sizeof(endings) / sizeof(endings[0]); ++i) {
        const struct ending *end = &endings[i];
        const size_t count = replace_from(PENDING_CALL, end->reads, end->count, stopped, STOPPED);

        calls[WAIT_CALL].status = end->waited;
        expect(end->expected, count, INTERRUPT);
    }
}

/* The processor may wake at finish before the queue is done: the layer is not over then. */
static void test_woken_early(void)
{
    const struct umakit_trace_entry again[] = {
        UMAKIT_TRACE_READ(OFFSET(INTERRUPT_PENDING), MASK(INTERRUPT_PENDING_COMMAND_DONE)),
        UMAKIT_TRACE_READ(OFFSET(CLOCK_LOW), 7u),
        UMAKIT_TRACE_WAIT(POOL_LIMIT, UMAKIT_OK),
    };

    expect(UMAKIT_OK,
           replace_from(PENDING_CALL, again, 3u, &pool_calls[PENDING_CALL],
                        POOL_CALLS - PENDING_CALL),
           INTERRUPT);
}

/* A queue of two has no room for the third command. */
static void test_full_queue(void)
{
#define CLEAR_DONE                                                                             \
    UMAKIT_TRACE_WRITE(OFFSET(INTERRUPT_PENDING), MASK(INTERRUPT_PENDING_COMMAND_DONE))
#define NOTHING_HAPPENED UMAKIT_TRACE_READ(OFFSET(INTERRUPT_PENDING), 0u)
#define CLOCK_IS(value) UMAKIT_TRACE_READ(OFFSET(CLOCK_LOW), (value))
#define FREE_IS(value) UMAKIT_TRACE_READ(OFFSET(QUEUE_FREE), (value))
    const struct umakit_trace_entry waits[] = {
        CLEAR_DONE, FREE_IS(0u), UMAKIT_TRACE_WAIT(POOL_LIMIT, UMAKIT_OK),
        CLEAR_DONE, FREE_IS(1u),
    };
    const struct umakit_trace_entry has_room[] = {CLEAR_DONE, FREE_IS(2u)};
    const struct umakit_trace_entry is_woken_for_nothing[] = {
        CLEAR_DONE, FREE_IS(0u), UMAKIT_TRACE_WAIT(POOL_LIMIT, UMAKIT_OK),
        CLEAR_DONE, FREE_IS(0u), NOTHING_HAPPENED, CLOCK_IS(UINT32_MAX - 4u),
        UMAKIT_TRACE_WAIT(POOL_LIMIT, UMAKIT_OK),
        CLEAR_DONE, FREE_IS(0u), NOTHING_HAPPENED, CLOCK_IS(5u),
        UMAKIT_TRACE_WAIT(POOL_LIMIT - 10u, UMAKIT_OK),
        CLEAR_DONE, FREE_IS(1u),
    };
    const struct umakit_trace_entry is_woken_for_too_long[] = {
        CLEAR_DONE, FREE_IS(0u), UMAKIT_TRACE_WAIT(POOL_LIMIT, UMAKIT_OK),
        CLEAR_DONE, FREE_IS(0u), NOTHING_HAPPENED, CLOCK_IS(0u),
        UMAKIT_TRACE_WAIT(POOL_LIMIT, UMAKIT_OK),
        CLEAR_DONE, FREE_IS(0u), NOTHING_HAPPENED, CLOCK_IS(POOL_LIMIT),
        STATUS_IS(MASK(STATUS_DMA_BUSY)), LEFT_IS(0u),
    };
    const struct umakit_trace_entry has_failed[] = {
        CLEAR_DONE, FREE_IS(0u), UMAKIT_TRACE_WAIT(POOL_LIMIT, UMAKIT_OK),
        CLEAR_DONE, FREE_IS(0u), HAPPENED(ERROR), ERROR_IS(UMAKIT_PARITY_ERROR),
    };
    const struct umakit_trace_entry talks_nonsense[] = {CLEAR_DONE, FREE_IS(3u), ERROR_IS(0u)};
    const struct umakit_trace_entry is_late[] = {
        CLEAR_DONE, FREE_IS(0u), UMAKIT_TRACE_WAIT(POOL_LIMIT, UMAKIT_TIMEOUT),
        STATUS_IS(MASK(STATUS_DMA_BUSY)), LEFT_IS(0u),
    };
    const struct {
        const struct umakit_trace_entry *entries;
        size_t count;
        int expected;
    } cases[] = {
        {waits, 5u, UMAKIT_OK},
        {has_room, 2u, UMAKIT_OK},
        {is_woken_for_nothing, 15u, UMAKIT_OK},
        {is_woken_for_too_long, 14u, UMAKIT_STUCK_BUSY},
        {has_failed, 7u, UMAKIT_PARITY_ERROR},
        {talks_nonsense, 3u, UMAKIT_DEVICE_ERROR},
        {is_late, 5u, UMAKIT_STUCK_BUSY},
    };
    size_t i;

    for (i = 0u; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        size_t count = replace_from(STORE_CALL, cases[i].entries, cases[i].count, stopped,
                                    STOPPED);

        if (cases[i].expected == UMAKIT_OK) {
            const size_t end = STORE_CALL + cases[i].count;

            memcpy(&calls[end], &pool_calls[STORE_CALL],
                   (POOL_CALLS - STORE_CALL) * sizeof(calls[0]));
            count = end + POOL_CALLS - STORE_CALL;
        }
        calls[DEPTH_CALL].value = 2u;
        expect(cases[i].expected, count, INTERRUPT);
    }
}

/* A device that is busy, because only the processor was reset, or has an error that somebody
 * left: it is stopped, and nothing is programmed before no bus access is outstanding. */
static void test_device_that_is_not_idle(void)
{
    static const uint32_t states[] = {MASK(STATUS_ARRAY_BUSY), MASK(STATUS_DMA_BUSY),
                                      MASK(STATUS_IDLE) | MASK(STATUS_ERROR)};
    size_t i;

    for (i = 0u; i < sizeof(states) / sizeof(states[0]); ++i) {
        const struct umakit_trace_entry found[] = {
            UMAKIT_TRACE_READ(OFFSET(STATUS), states[i]),
            UMAKIT_TRACE_WRITE(OFFSET(CONTROL), MASK(CONTROL_CLEAR)),
            UMAKIT_TRACE_BARRIER,
            UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_DMA_BUSY)),
            UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE)),
        };

        expect(UMAKIT_OK,
               replace_from(DEPTH_CALL - 1u, found, 5u, &pool_calls[DEPTH_CALL],
                            POOL_CALLS - DEPTH_CALL),
               INTERRUPT);
    }
}

/* What answers is not the device: nothing is written to it. */
static void test_another_device(void)
{
    memcpy(calls, pool_calls, sizeof(pool_calls));
    calls[0].value = UINT32_MAX; /* a bus that nothing answers on */
    expect(UMAKIT_NO_DEVICE, 1u, INTERRUPT);
    calls[0] = pool_calls[0];
    calls[1].value = UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET & MASK(VERSION_MAJOR); /* minor 0 */
    expect(UMAKIT_NO_DEVICE, 2u, INTERRUPT);
    calls[1].value = UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET + MASK(VERSION_MINOR) + 1u;
    expect(UMAKIT_NO_DEVICE, 2u, INTERRUPT);
    calls[1] = pool_calls[1];
    calls[2].value = POOL_COLUMNS * 2u;
    expect(UMAKIT_UNSUPPORTED, 3u, INTERRUPT);
}

/* What was mapped is unmapped, what was refused is not. */
static void test_refused_buffer(void)
{
    const struct umakit_trace_entry refused[] = {
        UMAKIT_TRACE_FAILING_MAP(POOL_RESULTS, UMAKIT_FROM_DEVICE, UMAKIT_TABLE_FULL),
        UMAKIT_TRACE_WRITE(OFFSET(CONTROL), MASK(CONTROL_CLEAR)),
        UMAKIT_TRACE_BARRIER,
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE)),
        UMAKIT_TRACE_WRITE(OFFSET(INTERRUPT_ENABLE), 0u),
        UMAKIT_TRACE_UNMAP(POOL_DATA_WINDOW),
    };

    memcpy(calls, pool_calls, sizeof(pool_calls));
    CHECK_EQUAL(calls[8].access, UMAKIT_ACCESS_MAP);
    memcpy(&calls[8], refused, sizeof(refused));
    expect(UMAKIT_TABLE_FULL, 14u, INTERRUPT);
}

int main(void)
{
    test_layer();
    test_polling();
    test_failures();
    test_woken_early();
    test_full_queue();
    test_device_that_is_not_idle();
    test_another_device();
    test_refused_buffer();
    return check_result();
}
