/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Chocolate driver's object on the device of a board, sim/board, linked as a
 * board links it: its registers are plain memory at the address that the board
 * has them at, of a device that is always done.
 */
#include "high_memory.h"

#include "check.h"
#include "chocolate_accelerator.h"
#include "chocolate_pool.h"
#include "umakit/memory_mapped.h"

#define PAGE 4096u
#define RESULT_AT 1024u /* in the page behind the registers */

static uint32_t *registers;

umakit_device *chocolate_accelerator_device(void)
{
    return umakit_memory_mapped_device();
}

/* What the driver reads is as in the table. */
static void set_registers(void)
{
    size_t i;

    for (i = 0u; i < POOL_CALLS; ++i) {
        if (pool_calls[i].access == UMAKIT_ACCESS_READ) {
            registers[pool_calls[i].offset / 4u] = pool_calls[i].value;
        }
    }
    registers[OFFSET(INTERRUPT_PENDING) / 4u] = MASK(INTERRUPT_PENDING_QUEUE_DONE);
}

/* The last value that the table writes to a register is there; addresses of
 * buffers are those on the board. */
static void expect_registers(void)
{
    const uint32_t result = (uint32_t)UMAKIT_DEVICE_BASE + PAGE + RESULT_AT;
    size_t i;
    size_t j;

    for (i = 0u; i < POOL_CALLS; ++i) {
        const struct umakit_trace_entry *call = &pool_calls[i];

        if (call->access == UMAKIT_ACCESS_WRITE) {
            uint32_t value = call->value;

            for (j = i + 1u; j < POOL_CALLS; ++j) {
                if (pool_calls[j].access == UMAKIT_ACCESS_WRITE &&
                    pool_calls[j].offset == call->offset) {
                    value = pool_calls[j].value;
                }
            }
            CHECK_EQUAL(registers[call->offset / 4u],
                        call->offset == OFFSET(DMA_BUS_ADDRESS) ? result : value);
        }
    }
}

static int run(int32_t completion)
{
    unsigned char *memory = (unsigned char *)registers + PAGE;

    return run_pool(memory, memory + RESULT_AT, completion);
}

int main(void)
{
    registers = (uint32_t *)memory_at(UMAKIT_DEVICE_BASE, 2u * PAGE);
    if (registers == NULL) {
        printf("no memory at %#x\n", UMAKIT_DEVICE_BASE);
        return SKIPPED;
    }
    set_registers();
    CHECK_EQUAL(run(CHOCOLATE_ACCELERATOR_INTERRUPT), UMAKIT_OK);
    expect_registers();
    CHECK_EQUAL(run(CHOCOLATE_ACCELERATOR_POLLING), UMAKIT_OK);
    CHECK_EQUAL(registers[OFFSET(INTERRUPT_ENABLE) / 4u], 0u);

    registers[OFFSET(STATUS) / 4u] = MASK(STATUS_IDLE) | MASK(STATUS_ERROR);
    registers[OFFSET(INTERRUPT_PENDING) / 4u] = MASK(INTERRUPT_PENDING_ERROR);
    registers[OFFSET(ERROR) / 4u] = UMAKIT_PARITY_ERROR;
    CHECK_EQUAL(run(CHOCOLATE_ACCELERATOR_INTERRUPT), UMAKIT_PARITY_ERROR);
    CHECK_EQUAL(run(CHOCOLATE_ACCELERATOR_POLLING), UMAKIT_PARITY_ERROR);
    registers[0] = 0u;
    CHECK_EQUAL(run(CHOCOLATE_ACCELERATOR_INTERRUPT), UMAKIT_NO_DEVICE);
    return check_result();
}
