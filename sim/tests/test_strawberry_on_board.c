/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's object on the device of a board, sim/board, linked as a board
 * links it: its registers are plain memory at the address that the board has
 * them at, of a device that is always done.
 */
#include "high_memory.h"

#include <stdbool.h>

#include "check.h"
#include "strawberry_accelerator.h"
#include "strawberry_copy.h"
#include "umakit/memory_mapped.h"

#define PAGE 4096u

static uint32_t *registers;

umakit_device *strawberry_accelerator_device(void)
{
    return umakit_memory_mapped_device();
}

/* What the driver reads is as in the table, what it writes must be; the address
 * of the buffer is the one on the board. */
static void set_registers(void)
{
    size_t i;

    for (i = 0u; i < COPY_CALLS; ++i) {
        if (copy_calls[i].access == UMAKIT_ACCESS_READ) {
            registers[copy_calls[i].offset / 4u] = copy_calls[i].value;
        }
    }
    registers[OFFSET(INTERRUPT_PENDING) / 4u] = MASK(INTERRUPT_PENDING_DMA_DONE);
}

static void expect_registers(uint32_t bus_address)
{
    size_t i;
    size_t j;

    for (i = 0u; i < COPY_CALLS; ++i) {
        const struct umakit_trace_entry *call = &copy_calls[i];
        bool is_last = true;

        /* Only the last write to a register is left. */
        for (j = i + 1u; j < COPY_CALLS; ++j) {
            is_last = is_last && !(copy_calls[j].access == UMAKIT_ACCESS_WRITE &&
                                   copy_calls[j].offset == call->offset);
        }
        if (call->access == UMAKIT_ACCESS_WRITE && is_last) {
            CHECK_EQUAL(registers[call->offset / 4u],
                        call->offset == OFFSET(DMA_BUS_ADDRESS) ? bus_address : call->value);
        }
    }
}

int main(void)
{
    unsigned char *buffer;

    registers = (uint32_t *)memory_at(UMAKIT_DEVICE_BASE, 2u * PAGE);
    if (registers == NULL) {
        printf("no memory at %#x\n", UMAKIT_DEVICE_BASE);
        return SKIPPED;
    }
    buffer = (unsigned char *)registers + PAGE;
    set_registers();
    CHECK_EQUAL(strawberry_accelerator_dma_in(buffer, COPY_START, (int32_t)COPY_BYTES),
                UMAKIT_OK);
    expect_registers((uint32_t)UMAKIT_DEVICE_BASE + PAGE);

    registers[OFFSET(STATUS) / 4u] = MASK(STATUS_IDLE) | MASK(STATUS_ERROR);
    registers[OFFSET(ERROR) / 4u] = UMAKIT_PARITY_ERROR;
    CHECK_EQUAL(strawberry_accelerator_dma_out(COPY_START, buffer, (int32_t)COPY_BYTES),
                UMAKIT_PARITY_ERROR);
    registers[0] = 0u;
    CHECK_EQUAL(strawberry_accelerator_dma_in(buffer, COPY_START, (int32_t)COPY_BYTES),
                UMAKIT_NO_DEVICE);
    return check_result();
}
