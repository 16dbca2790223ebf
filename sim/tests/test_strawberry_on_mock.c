/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's object on the strict mock: the order of its calls, also where the
 * device fails. */
#include <string.h>

#include "check.h"
#include "strawberry_accelerator.h"
#include "strawberry_copy.h"
#include "umakit/device_mock.h"

#define STATUS_CALL (COPY_CALLS - 4u)
#define BEGIN_CALL 2u /* reads STATUS */
#define MAP_CALL 4u
#define STOP_POLLS 10000u /* the driver's limit */

static struct umakit_device mock;
static uint32_t memory[COPY_BYTES / 4u];
static struct umakit_trace_entry calls[COPY_CALLS + 8u];

umakit_device *strawberry_accelerator_device(void)
{
    return &mock;
}

/* The calls that follow a wait that ended with `waited` and the registers that
 * the driver reads then; the last ones stop the device, wait for that, and unmap. */
static void expect(int status, int waited, const struct umakit_trace_entry *reads, size_t count)
{
    char message[UMAKIT_MOCK_MESSAGE_BYTES];
    static const struct umakit_trace_entry stopped[] = {
        UMAKIT_TRACE_WRITE(OFFSET(CONTROL), MASK(CONTROL_CLEAR)),
        UMAKIT_TRACE_BARRIER,
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_DMA_BUSY)),
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE)),
    };
    size_t end = STATUS_CALL;

    memcpy(calls, copy_calls, sizeof(copy_calls));
    calls[STATUS_CALL - 2u].status = waited;
    memcpy(&calls[end], reads, count * sizeof(reads[0]));
    end += count;
    if (status != UMAKIT_OK) {
        memcpy(&calls[end], stopped, sizeof(stopped));
        end += sizeof(stopped) / sizeof(stopped[0]);
    }
    calls[end++] = copy_calls[COPY_CALLS - 2u];
    calls[end++] = copy_calls[COPY_CALLS - 1u];
    umakit_mock_expect(&mock, calls, end);
    CHECK_EQUAL(strawberry_accelerator_dma_in(memory, COPY_START, (int32_t)COPY_BYTES), status);
    if (!umakit_mock_verify(&mock, message, sizeof(message))) {
        printf("%s\n", message);
        CHECK(false);
    }
}

static void test_copy(void)
{
    CHECK_EQUAL(OFFSET(STATUS), copy_calls[STATUS_CALL].offset);
    expect(UMAKIT_OK, UMAKIT_OK, &copy_calls[STATUS_CALL], 2u);
}

/* A device that fails and does not stop: the status says so, and the driver what failed. */
static void test_failure_of_a_device_that_does_not_stop(void)
{
    static struct umakit_trace_entry all[COPY_CALLS + STOP_POLLS + 8u];
    size_t end = STATUS_CALL;
    uint32_t i;

    memcpy(all, copy_calls, sizeof(copy_calls));
    all[end++] = (struct umakit_trace_entry)UMAKIT_TRACE_READ(
        OFFSET(STATUS), MASK(STATUS_ARRAY_BUSY) | MASK(STATUS_ERROR));
    all[end++] = (struct umakit_trace_entry)UMAKIT_TRACE_READ(OFFSET(ERROR), UMAKIT_BUS_ERROR);
    all[end++] =
        (struct umakit_trace_entry)UMAKIT_TRACE_WRITE(OFFSET(CONTROL), MASK(CONTROL_CLEAR));
    all[end++] = (struct umakit_trace_entry)UMAKIT_TRACE_BARRIER;
    for (i = 0u; i < STOP_POLLS; ++i) {
        all[end++] = (struct umakit_trace_entry)UMAKIT_TRACE_READ(OFFSET(STATUS),
                                                                  MASK(STATUS_ARRAY_BUSY));
    }
    all[end++] = (struct umakit_trace_entry)UMAKIT_TRACE_WRITE(OFFSET(INTERRUPT_ENABLE), 0u);
    all[end++] = copy_calls[COPY_CALLS - 1u];
    umakit_mock_expect(&mock, all, end);
    CHECK_EQUAL(strawberry_accelerator_dma_in(memory, COPY_START, (int32_t)COPY_BYTES),
                UMAKIT_STUCK_BUSY);
    CHECK(umakit_mock_verify(&mock, NULL, 0u));
    CHECK_EQUAL(strawberry_accelerator_failure(), UMAKIT_BUS_ERROR);
}

/* A device that is busy, because only the processor was reset: it is stopped, and nothing is
 * programmed before no bus access is outstanding. */
static void test_device_that_is_busy(void)
{
    static const struct umakit_trace_entry found_busy[] = {
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_ARRAY_BUSY)),
        UMAKIT_TRACE_WRITE(OFFSET(CONTROL), MASK(CONTROL_CLEAR)),
        UMAKIT_TRACE_BARRIER,
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_DMA_BUSY)),
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE)),
    };

    memcpy(calls, copy_calls, sizeof(copy_calls));
    memcpy(&calls[BEGIN_CALL], found_busy, sizeof(found_busy));
    memcpy(&calls[BEGIN_CALL + 5u], &copy_calls[BEGIN_CALL + 1u],
           (COPY_CALLS - BEGIN_CALL - 1u) * sizeof(calls[0]));
    umakit_mock_expect(&mock, calls, COPY_CALLS + 4u);
    CHECK_EQUAL(strawberry_accelerator_dma_in(memory, COPY_START, (int32_t)COPY_BYTES),
                UMAKIT_OK);
    CHECK(umakit_mock_verify(&mock, NULL, 0u));
}

static void test_failures(void)
{
    static const struct umakit_trace_entry error[] = {
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE) | MASK(STATUS_ERROR)),
        UMAKIT_TRACE_READ(OFFSET(ERROR), UMAKIT_BUS_ERROR),
    };
    static const struct umakit_trace_entry error_without_code[] = {
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE) | MASK(STATUS_ERROR)),
        UMAKIT_TRACE_READ(OFFSET(ERROR), 0u),
    };
    static const struct umakit_trace_entry half_way[] = {
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE) | MASK(STATUS_DMA_DONE)),
        UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 4u),
    };
    static const struct umakit_trace_entry hanging[] = {
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_DMA_BUSY)),
        UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 4u),
        UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 4u),
    };
    static const struct umakit_trace_entry slow[] = {
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_DMA_BUSY)),
        UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 4u),
        UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 3u),
    };
    static const struct umakit_trace_entry stuck[] = {
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_DMA_BUSY)),
        UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 0u),
    };

    static const struct umakit_trace_entry woken_early[] = {
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_DMA_BUSY)),
        UMAKIT_TRACE_READ(OFFSET(CLOCK_LOW), 7u),
        UMAKIT_TRACE_WAIT(COPY_LIMIT, UMAKIT_OK),
        UMAKIT_TRACE_BARRIER,
        UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE) | MASK(STATUS_DMA_DONE)),
        UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 0u),
    };

    expect(UMAKIT_OK, UMAKIT_OK, woken_early, 6u);
    expect(UMAKIT_BUS_ERROR, UMAKIT_OK, error, 2u);
    expect(UMAKIT_BUS_ERROR, UMAKIT_TIMEOUT, error, 2u);
    expect(UMAKIT_DEVICE_ERROR, UMAKIT_OK, error_without_code, 2u);
    expect(UMAKIT_DMA_STOPPED, UMAKIT_OK, half_way, 2u);
    expect(UMAKIT_DMA_STOPPED, UMAKIT_TIMEOUT, hanging, 3u);
    expect(UMAKIT_TIMEOUT, UMAKIT_TIMEOUT, slow, 3u);
    expect(UMAKIT_STUCK_BUSY, UMAKIT_TIMEOUT, stuck, 2u);
    expect(UMAKIT_LOST_INTERRUPT, UMAKIT_TIMEOUT, &copy_calls[STATUS_CALL], 2u);
}

/* Guards end before the first write, and a refused buffer is not unmapped. */
static void test_refusals(void)
{
    static const struct umakit_trace_entry refused =
        UMAKIT_TRACE_FAILING_MAP(COPY_BYTES, UMAKIT_TO_DEVICE, UMAKIT_TABLE_FULL);

    umakit_mock_expect(&mock, copy_calls, MAP_CALL);
    CHECK_EQUAL(strawberry_accelerator_dma_in(memory, COPY_SCRATCHPAD_BYTES - 60u,
                                              (int32_t)COPY_BYTES),
                UMAKIT_OUT_OF_RANGE);
    CHECK(umakit_mock_verify(&mock, NULL, 0u));

    memcpy(calls, copy_calls, sizeof(copy_calls));
    calls[MAP_CALL] = refused;
    umakit_mock_expect(&mock, calls, MAP_CALL + 1u);
    CHECK_EQUAL(strawberry_accelerator_dma_in(memory, COPY_START, (int32_t)COPY_BYTES),
                UMAKIT_TABLE_FULL);
    CHECK(umakit_mock_verify(&mock, NULL, 0u));
}

int main(void)
{
    test_copy();
    test_failures();
    test_refusals();
    test_failure_of_a_device_that_does_not_stop();
    test_device_that_is_busy();
    return check_result();
}
