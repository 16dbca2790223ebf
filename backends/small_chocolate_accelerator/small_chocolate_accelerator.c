/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver of the small_chocolate_accelerator.
 *
 * Read it from the bottom: the functions there are what the compiled network
 * calls, the helpers above are their steps. To fit it to your hardware, change
 * program_transfer, small_chocolate_accelerator_configure, small_chocolate_accelerator_configure_add,
 * small_chocolate_accelerator_compute and the limits below. All access to the device goes through
 * umakit/device.h, so the same file runs on the simulator and on a board.
 */
#include "small_chocolate_accelerator.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/static_assert.h"
#include "umakit/systolic_array_registers.h"

/* ---- What this driver relies on ---- */

#define OFFSET(register_name) UMAKIT_SYSTOLIC_ARRAY_##register_name##_OFFSET
#define MASK(field) UMAKIT_SYSTOLIC_ARRAY_##field##_MASK
#define SUPPORTED_MAJOR_VERSION 1u
#define LEAST_MINOR_VERSION 1u /* the first with a queue */
#define TENSORS ((int32_t)SMALL_CHOCOLATE_ACCELERATOR_TENSORS)

UMAKIT_STATIC_ASSERT(CHAR_BIT == 8 && sizeof(int) == 4u && sizeof(size_t) >= 4u,
                     sizes_have_32_bits);
UMAKIT_STATIC_ASSERT(UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET >>
                             UMAKIT_SYSTOLIC_ARRAY_VERSION_MAJOR_SHIFT ==
                         SUPPORTED_MAJOR_VERSION,
                     register_map_is_the_one_this_driver_was_written_for);
UMAKIT_STATIC_ASSERT(MASK(INTERRUPT_ENABLE_ERROR) == MASK(INTERRUPT_PENDING_ERROR) &&
                         MASK(INTERRUPT_ENABLE_QUEUE_DONE) == MASK(INTERRUPT_PENDING_QUEUE_DONE) &&
                         MASK(INTERRUPT_ENABLE_DMA_DONE) == MASK(INTERRUPT_PENDING_DMA_DONE) &&
                         MASK(INTERRUPT_ENABLE_ARRAY_DONE) == MASK(INTERRUPT_PENDING_ARRAY_DONE),
                     interrupts_are_enabled_by_their_own_bit);
UMAKIT_STATIC_ASSERT(OFFSET(OFMAP_START) - OFFSET(IFMAP_START) == 5u * 4u &&
                         OFFSET(OUTPUT_CHANNELS) - OFFSET(INPUT_HEIGHT) == 5u * 4u &&
                         OFFSET(DILATION_WIDTH) - OFFSET(KERNEL_HEIGHT) == 5u * 4u &&
                         OFFSET(ROUNDING) - OFFSET(INPUT_ZERO_POINT) == 4u * 4u &&
                         OFFSET(SUM_CLIP_HIGHEST) - OFFSET(ADDEND_ZERO_POINT) == 10u * 4u,
                     registers_that_are_written_in_one_go_are_neighbours);

/* How long the device may take for what is in its queue before the driver gives
 * up, in cycles. This is 40 seconds at 100 MHz: a limit that stops a healthy
 * device is worse than one that finds a dead one late. */
#ifndef SMALL_CHOCOLATE_ACCELERATOR_TIMEOUT_CYCLES
#define SMALL_CHOCOLATE_ACCELERATOR_TIMEOUT_CYCLES 4000000000u
#endif

/* How often the driver asks when it polls, before it gives up: a read takes a
 * cycle at least. */
#ifndef SMALL_CHOCOLATE_ACCELERATOR_POLLS
#define SMALL_CHOCOLATE_ACCELERATOR_POLLS 400000000u
#endif

/* How often the driver asks whether a device that was told to stop has stopped. It
 * has to end no more than the bus accesses that it began. */
#ifndef SMALL_CHOCOLATE_ACCELERATOR_STOP_POLLS
#define SMALL_CHOCOLATE_ACCELERATOR_STOP_POLLS 10000u
#endif

/* The layer that is open. There is one device, and so one layer at a time: a run of a library has
 * the device to itself, see umakit_lock_small_chocolate_accelerator.h. */
static struct {
    umakit_device *device; /* NULL: none is open */
    uint32_t bus_address[SMALL_CHOCOLATE_ACCELERATOR_TENSORS];
    uint32_t bytes[SMALL_CHOCOLATE_ACCELERATOR_TENSORS];
    bool is_bound[SMALL_CHOCOLATE_ACCELERATOR_TENSORS];
    bool polls;
    bool is_configured;
    bool has_commands; /* that the device was given */
    bool channels_first;
    uint32_t depth; /* of the queue; 0: there is none */
    uint32_t room;  /* free entries, at least */
} layer;

/* What went wrong first in the last layer that failed. */
static int first_failure;

/* ---- The device ---- */

/* Stop both engines, and wait until they did: then no bus access is outstanding, see
 * CLEAR in umakit/systolic_array_registers.h. */
static int stop_device(umakit_device *device)
{
    const uint32_t busy = MASK(STATUS_DMA_BUSY) | MASK(STATUS_ARRAY_BUSY);
    uint32_t asked;

    umakit_device_write32(device, OFFSET(CONTROL), MASK(CONTROL_CLEAR));
    umakit_device_barrier(device); /* it has CLEAR before it is asked */
    for (asked = 0u; asked < SMALL_CHOCOLATE_ACCELERATOR_STOP_POLLS; ++asked) {
        if ((umakit_device_read32(device, OFFSET(STATUS)) & busy) == 0u) {
            return UMAKIT_OK;
        }
    }
    return UMAKIT_STUCK_BUSY;
}

/* Registers of the layer's device. */
static uint32_t read_register(uint32_t offset)
{
    return umakit_device_read32(layer.device, offset);
}

static void write_register(uint32_t offset, uint32_t value)
{
    umakit_device_write32(layer.device, offset, value);
}

/* Close the layer of a device that does nothing any more, or that cannot be stopped. */
static void close_layer(void)
{
    int32_t tensor;

    write_register(OFFSET(INTERRUPT_ENABLE), 0u);
    for (tensor = 0; tensor < TENSORS; ++tensor) {
        if (layer.is_bound[tensor]) {
            umakit_device_unmap(layer.device, layer.bus_address[tensor]);
            layer.is_bound[tensor] = false;
        }
    }
    layer.device = NULL;
}

/* Stop the device and close the layer, whatever state both are in. Returns `status`, what
 * went wrong first, or UMAKIT_STUCK_BUSY if the device did not stop: it is to be reset then. */
static int give_up(int status)
{
    int stopped = UMAKIT_OK;

    if (layer.device != NULL) {
        first_failure = status;
        stopped = stop_device(layer.device);
        close_layer();
    }
    return stopped == UMAKIT_OK ? status : stopped;
}

/* Make sure that what answers is the device this driver was written for, before
 * anything is written to it. */
static int find_device(umakit_device **found)
{
    umakit_device *const device = small_chocolate_accelerator_device();
    uint32_t version;

    if (device == NULL ||
        umakit_device_read32(device, OFFSET(ID)) != UMAKIT_SYSTOLIC_ARRAY_ID_RESET) {
        return UMAKIT_NO_DEVICE;
    }
    version = umakit_device_read32(device, OFFSET(VERSION));
    if ((version & MASK(VERSION_MAJOR)) >> UMAKIT_SYSTOLIC_ARRAY_VERSION_MAJOR_SHIFT !=
            SUPPORTED_MAJOR_VERSION ||
        (version & MASK(VERSION_MINOR)) < LEAST_MINOR_VERSION) {
        return UMAKIT_NO_DEVICE;
    }
    *found = device;
    return UMAKIT_OK;
}

/* What the device says went wrong. A failure must not be reported as 0, whatever
 * the register says. */
static int device_error(void)
{
    const uint32_t error = read_register(OFFSET(ERROR));

    return error == 0u || error > INT_MAX ? UMAKIT_DEVICE_ERROR : (int)error;
}

/* Why the device did not get done in time. */
static int why_late(void)
{
    const uint32_t status = read_register(OFFSET(STATUS));
    const uint32_t bytes = read_register(OFFSET(DMA_BYTES_LEFT));

    if ((status & MASK(STATUS_ERROR)) != 0u) {
        return device_error();
    }
    if ((status & (MASK(STATUS_DMA_BUSY) | MASK(STATUS_ARRAY_BUSY))) == 0u) {
        return bytes != 0u ? UMAKIT_DMA_STOPPED : UMAKIT_LOST_INTERRUPT;
    }
    if ((status & MASK(STATUS_DMA_BUSY)) != 0u) {
        if (bytes == 0u) {
            return UMAKIT_STUCK_BUSY;
        }
        /* Still at work, or stopped half way: ask again. */
        return read_register(OFFSET(DMA_BYTES_LEFT)) == bytes ? UMAKIT_DMA_STOPPED
                                                              : UMAKIT_TIMEOUT;
    }
    return read_register(OFFSET(ARRAY_CYCLES_LEFT)) == 0u ? UMAKIT_STUCK_BUSY : UMAKIT_TIMEOUT;
}

/* Waiting until something has happened. */
struct waiting {
    uint32_t times;      /* asked or slept so far */
    uint32_t first_wake; /* CLOCK_LOW then, if there was a second sleep */
};

/* Sleep until the interrupt, or return at once if the driver polls. The caller then looks
 * whether something has happened, and waits again if nothing has. The processor may wake
 * without the interrupt: the line is shared, or something else ended WFI. From the first wake
 * on, all sleeps together take no longer than the time limit. */
static int wait_again(struct waiting *waiting)
{
    const uint32_t times = waiting->times;
    uint32_t elapsed = 0u;
    int status;

    ++waiting->times;
    if (times >= SMALL_CHOCOLATE_ACCELERATOR_POLLS) { /* also for a clock that stands still */
        return why_late();
    }
    if (layer.polls) {
        return UMAKIT_OK;
    }
    if (times != 0u) {
        const uint32_t now = read_register(OFFSET(CLOCK_LOW));

        if (times == 1u) {
            waiting->first_wake = now;
        }
        elapsed = now - waiting->first_wake;
        if (elapsed >= SMALL_CHOCOLATE_ACCELERATOR_TIMEOUT_CYCLES) {
            return why_late();
        }
    }
    status = umakit_device_wait(layer.device, SMALL_CHOCOLATE_ACCELERATOR_TIMEOUT_CYCLES - elapsed);
    return status == UMAKIT_TIMEOUT ? why_late() : status;
}

/* Wait for an event of INTERRUPT_PENDING, or an error, and find out how it all
 * ended. A copy that says that it is done may have stopped half way. */
static int wait_for_end(uint32_t event)
{
    const uint32_t events = event | MASK(INTERRUPT_PENDING_ERROR);
    struct waiting waiting = {0u, 0u};
    uint32_t happened = 0u;
    bool has_failed;

    if (!layer.polls) {
        write_register(OFFSET(INTERRUPT_ENABLE), events);
    }
    while (happened == 0u) {
        const int status = wait_again(&waiting);

        if (status != UMAKIT_OK) {
            return status;
        }
        happened = read_register(OFFSET(INTERRUPT_PENDING)) & events;
    }
    has_failed = (happened & MASK(INTERRUPT_PENDING_ERROR)) != 0u;
    if (layer.polls) {
        has_failed = (read_register(OFFSET(STATUS)) & MASK(STATUS_ERROR)) != 0u;
    }
    if (has_failed) {
        return device_error();
    }
    return read_register(OFFSET(DMA_BYTES_LEFT)) == 0u ? UMAKIT_OK : UMAKIT_DMA_STOPPED;
}

/* In this order, so that a command that ends in between is not missed. */
static void look_for_room(void)
{
    if (!layer.polls) {
        write_register(OFFSET(INTERRUPT_PENDING), MASK(INTERRUPT_PENDING_COMMAND_DONE));
    }
    layer.room = read_register(OFFSET(QUEUE_FREE));
}

/* Wait until the queue has a free entry. After an error it has: `finish` will tell about it.
 * A device that failed without making room is not waited for. */
static int wait_for_room(void)
{
    struct waiting waiting = {0u, 0u};

    if (layer.room != 0u) {
        return UMAKIT_OK;
    }
    look_for_room();
    while (layer.room == 0u) {
        int status;

        if (!layer.polls && waiting.times != 0u &&
            (read_register(OFFSET(INTERRUPT_PENDING)) & MASK(INTERRUPT_PENDING_ERROR)) != 0u) {
            return device_error();
        }
        status = wait_again(&waiting);
        if (status != UMAKIT_OK) {
            return status;
        }
        look_for_room();
    }
    /* A device with more room than its queue has is not to be trusted. */
    return layer.room > layer.depth ? device_error() : UMAKIT_OK;
}

/* Hand what the registers say to the device: into its queue, or, if it has
 * none, at once and to its end. */
static int submit(uint32_t enqueue, uint32_t start, uint32_t done)
{
    int status;

    layer.has_commands = true;
    if (layer.depth == 0u) {
        write_register(OFFSET(CONTROL), start);
        return wait_for_end(done);
    }
    status = wait_for_room();
    if (status == UMAKIT_OK) {
        write_register(OFFSET(CONTROL), enqueue);
        --layer.room;
    }
    return status;
}

/* ---- Commands ---- */

/* Write registers that follow each other; two's complement, as C converts it. */
static void write_all(uint32_t first, const int32_t *values, uint32_t count)
{
    uint32_t i;

    for (i = 0u; i < count; ++i) {
        write_register(first + 4u * i, (uint32_t)values[i]);
    }
}

static void program_transfer(uint32_t bus_address, uint32_t scratchpad, uint32_t direction,
                             int32_t planes, int32_t rows, int32_t row_bytes,
                             int32_t plane_stride, int32_t row_stride)
{
    const uint32_t bytes = (uint32_t)row_bytes;

    write_register(OFFSET(DMA_BUS_ADDRESS), bus_address);
    write_register(OFFSET(DMA_SCRATCHPAD_START), scratchpad);
    write_register(OFFSET(DMA_DIRECTION), direction);
    write_register(OFFSET(DMA_ROW_BYTES), bytes);
    write_register(OFFSET(DMA_ROWS), (uint32_t)rows);
    write_register(OFFSET(DMA_PLANES), (uint32_t)planes);
    write_register(OFFSET(DMA_BUS_ROW_STRIDE), (uint32_t)row_stride);
    write_register(OFFSET(DMA_BUS_PLANE_STRIDE), (uint32_t)plane_stride);
    write_register(OFFSET(DMA_SCRATCHPAD_ROW_STRIDE), bytes);
    write_register(OFFSET(DMA_SCRATCHPAD_PLANE_STRIDE), bytes * (uint32_t)rows);
}

/* Whether a number, whatever its caller made of it, is one of the tensors. */
static bool is_tensor(enum small_chocolate_accelerator_tensor tensor)
{
    return (uint32_t)tensor < (uint32_t)TENSORS;
}

/* Whether a copy stays inside of its tensor, and its addresses inside of 32 bits;
 * the device knows how large its scratchpad is. */
static bool is_in_range(enum small_chocolate_accelerator_tensor tensor, uint32_t buffer, int32_t offset,
                        int32_t place, int32_t planes, int32_t rows, int32_t row_bytes,
                        int32_t plane_stride, int32_t row_stride)
{
    const uint64_t all_rows = (uint64_t)planes * (uint64_t)rows;
    const uint64_t end = (uint64_t)offset + ((uint64_t)planes - 1u) * (uint64_t)plane_stride +
                         ((uint64_t)rows - 1u) * (uint64_t)row_stride + (uint64_t)row_bytes;

    return end <= layer.bytes[tensor] && all_rows <= UINT32_MAX &&
           buffer + (uint64_t)place + all_rows * (uint64_t)row_bytes <= UINT32_MAX;
}

/* Copy a part of an operand into the scratchpad, or of the result out of it. */
static int transfer(enum small_chocolate_accelerator_tensor tensor, uint32_t buffer, int32_t offset,
                    int32_t place, int32_t planes, int32_t rows, int32_t row_bytes,
                    int32_t plane_stride, int32_t row_stride)
{
    const uint32_t direction = tensor == SMALL_CHOCOLATE_ACCELERATOR_RESULT
                                   ? UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT
                                   : UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN;
    int status;

    if (layer.device == NULL || !is_tensor(tensor) || !layer.is_bound[tensor] || offset < 0 ||
        place < 0 || planes <= 0 || rows <= 0 || row_bytes <= 0 || plane_stride < 0 ||
        row_stride < 0) {
        return give_up(UMAKIT_INVALID_ARGUMENT);
    }
    if (!is_in_range(tensor, buffer, offset, place, planes, rows, row_bytes, plane_stride,
                     row_stride)) {
        return give_up(UMAKIT_OUT_OF_RANGE);
    }
    program_transfer(layer.bus_address[tensor] + (uint32_t)offset, buffer + (uint32_t)place,
                     direction, planes, rows, row_bytes, plane_stride, row_stride);
    status = submit(MASK(CONTROL_ENQUEUE_DMA), MASK(CONTROL_DMA_START),
                    MASK(INTERRUPT_PENDING_DMA_DONE));
    return status == UMAKIT_OK ? UMAKIT_OK : give_up(status);
}

static bool are_positive(const int32_t *values, uint32_t count)
{
    uint32_t i;

    for (i = 0u; i < count; ++i) {
        if (values[i] <= 0) {
            return false;
        }
    }
    return true;
}

/* Whether a tile of height x width x channels, which are positive, has offsets of 31 bits. */
static bool is_tile(const int32_t *sizes)
{
    return sizes[0] <= INT32_MAX / sizes[1] / sizes[2];
}

/* Add places in buffers to the buffers' offsets in the scratchpad. */
static int add_places(uint32_t *offsets, const int32_t *places, uint32_t count)
{
    uint32_t i;

    for (i = 0u; i < count; ++i) {
        if (places[i] < 0) {
            return UMAKIT_INVALID_ARGUMENT;
        }
        if ((uint32_t)places[i] > UINT32_MAX - offsets[i]) {
            return UMAKIT_OUT_OF_RANGE;
        }
        offsets[i] += (uint32_t)places[i];
    }
    return UMAKIT_OK;
}

/* Bytes from one row, column and channel of a tile of height x width x channels to the next. */
static void write_strides(uint32_t first, const int32_t *sizes)
{
    const int32_t height = sizes[0];
    const int32_t width = sizes[1];
    const int32_t channels = sizes[2];
    const int32_t by_rows[3] = {width * channels, channels, 1};
    const int32_t by_planes[3] = {width, 1, height * width};

    write_all(first, layer.channels_first ? by_planes : by_rows, 3u);
}

/* ---- The calls ---- */

int small_chocolate_accelerator_begin(int32_t columns, enum small_chocolate_accelerator_completion completion)
{
    const uint32_t harmless =
        MASK(STATUS_IDLE) | MASK(STATUS_DMA_DONE) | MASK(STATUS_ARRAY_DONE);
    umakit_device *device;
    int status;

    (void)give_up(UMAKIT_OK); /* a layer that failed outside of this driver is over */
    if (columns <= 0 ||
        (completion != SMALL_CHOCOLATE_ACCELERATOR_INTERRUPT &&
         completion != SMALL_CHOCOLATE_ACCELERATOR_POLLING)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    status = find_device(&device);
    if (status != UMAKIT_OK) {
        return status;
    }
    if (umakit_device_read32(device, OFFSET(ARRAY_COLUMNS)) != (uint32_t)columns) {
        return UMAKIT_UNSUPPORTED; /* the weights are in blocks for another array */
    }
    /* Whoever had it before: it does nothing any more, and no error is pending. */
    if ((umakit_device_read32(device, OFFSET(STATUS)) & ~harmless) != 0u) {
        status = stop_device(device);
        if (status != UMAKIT_OK) {
            return status;
        }
    }
    layer.device = device;
    layer.polls = completion == SMALL_CHOCOLATE_ACCELERATOR_POLLING;
    layer.is_configured = false;
    layer.has_commands = false;
    layer.depth = umakit_device_read32(device, OFFSET(QUEUE_DEPTH));
    layer.room = layer.depth;
    /* While the layer runs, the driver sleeps only until there is room. */
    umakit_device_write32(device, OFFSET(INTERRUPT_ENABLE),
                          layer.polls || layer.depth == 0u
                              ? 0u
                              : MASK(INTERRUPT_ENABLE_COMMAND_DONE) |
                                    MASK(INTERRUPT_ENABLE_ERROR));
    return UMAKIT_OK;
}

int small_chocolate_accelerator_bind(enum small_chocolate_accelerator_tensor tensor, const void *memory,
                    int32_t bytes)
{
    const enum umakit_direction direction =
        tensor == SMALL_CHOCOLATE_ACCELERATOR_RESULT ? UMAKIT_FROM_DEVICE : UMAKIT_TO_DEVICE;
    int status;

    if (layer.device == NULL || !is_tensor(tensor) || layer.is_bound[tensor] || memory == NULL ||
        bytes <= 0) {
        return give_up(UMAKIT_INVALID_ARGUMENT);
    }
    status = umakit_device_map(layer.device, memory, (size_t)bytes, direction,
                               &layer.bus_address[tensor]);
    if (status != UMAKIT_OK) {
        return give_up(status);
    }
    layer.bytes[tensor] = (uint32_t)bytes;
    layer.is_bound[tensor] = true;
    umakit_device_barrier(layer.device); /* the device sees what the host wrote */
    return UMAKIT_OK;
}

int small_chocolate_accelerator_configure(
    enum small_chocolate_accelerator_operation operation, enum small_chocolate_accelerator_dataflow dataflow,
    enum small_chocolate_accelerator_layout layout, int32_t kernel_height, int32_t kernel_width,
    int32_t stride_y, int32_t stride_x, int32_t dilation_y, int32_t dilation_x,
    int32_t input_zero_point, int32_t output_zero_point, int32_t lowest, int32_t highest,
    enum small_chocolate_accelerator_rounding rounding)
{
    const int32_t window[6] = {kernel_height, kernel_width, stride_y,
                               stride_x,      dilation_y,   dilation_x};
    const int32_t ending[5] = {input_zero_point, output_zero_point, lowest, highest,
                               (int32_t)rounding};
    const int32_t modes[2] = {(int32_t)operation, (int32_t)dataflow};

    if (layer.device == NULL || modes[0] < 0 || modes[1] < 0 || !are_positive(window, 6u) ||
        lowest > highest || ending[4] < 0) {
        return give_up(UMAKIT_INVALID_ARGUMENT);
    }
    layer.channels_first = layout != SMALL_CHOCOLATE_ACCELERATOR_CHANNELS_LAST;
    layer.is_configured = true;
    write_all(OFFSET(OPERATION), modes, 2u);
    write_all(OFFSET(KERNEL_HEIGHT), window, 6u);
    write_all(OFFSET(INPUT_ZERO_POINT), ending, 5u);
    write_register(OFFSET(ADD), 0u);
    write_register(OFFSET(ACCUMULATOR_START), 0u);
    return UMAKIT_OK;
}

int small_chocolate_accelerator_configure_add(
    int32_t addend_zero_point, int32_t left_shift, int32_t result_multiplier,
    int32_t result_shift, int32_t addend_multiplier, int32_t addend_shift, int32_t multiplier,
    int32_t shift, int32_t sum_zero_point, int32_t sum_lowest, int32_t sum_highest)
{
    const int32_t addition[11] = {addend_zero_point, left_shift,   result_multiplier,
                                  result_shift,      addend_multiplier, addend_shift,
                                  multiplier,        shift,        sum_zero_point,
                                  sum_lowest,        sum_highest};

    if (layer.device == NULL || !layer.is_configured || sum_lowest > sum_highest) {
        return give_up(UMAKIT_INVALID_ARGUMENT);
    }
    write_register(OFFSET(ADD), 1u);
    write_all(OFFSET(ADDEND_ZERO_POINT), addition, 11u);
    return UMAKIT_OK;
}

int small_chocolate_accelerator_load(
    enum small_chocolate_accelerator_tensor tensor, uint32_t buffer, int32_t offset, int32_t place,
    int32_t planes, int32_t rows, int32_t row_bytes, int32_t plane_stride, int32_t row_stride)
{
    /* The result: refused like a number that is no tensor. */
    return transfer(tensor == SMALL_CHOCOLATE_ACCELERATOR_RESULT ? SMALL_CHOCOLATE_ACCELERATOR_TENSORS : tensor,
                    buffer, offset, place, planes, rows, row_bytes, plane_stride, row_stride);
}

int small_chocolate_accelerator_store(
    enum small_chocolate_accelerator_tensor tensor, uint32_t buffer, int32_t offset, int32_t place,
    int32_t planes, int32_t rows, int32_t row_bytes, int32_t plane_stride, int32_t row_stride)
{
    /* An operand: refused like a number that is no tensor. */
    return transfer(tensor != SMALL_CHOCOLATE_ACCELERATOR_RESULT ? SMALL_CHOCOLATE_ACCELERATOR_TENSORS : tensor,
                    buffer, offset, place, planes, rows, row_bytes, plane_stride, row_stride);
}

int small_chocolate_accelerator_compute(
    uint32_t data_buffer, uint32_t weights_buffer, uint32_t parameters_buffer,
    uint32_t result_buffer, uint32_t addend_buffer, int32_t data, int32_t weights,
    int32_t bias, int32_t multipliers, int32_t shifts, int32_t result, int32_t addend,
    int32_t height, int32_t width, int32_t input_channels, int32_t output_height,
    int32_t output_width, int32_t output_channels, int32_t pad_top, int32_t pad_left,
    int32_t scales, int32_t continues, int32_t keeps)
{
    const int32_t sizes[6] = {height,        width,        input_channels,
                              output_height, output_width, output_channels};
    const int32_t places[7] = {data, weights, bias, multipliers, shifts, result, addend};
    uint32_t offsets[7] = {data_buffer,       weights_buffer,    parameters_buffer,
                           parameters_buffer, parameters_buffer, result_buffer,
                           addend_buffer};
    const uint32_t accumulate = (continues != 0 ? MASK(ACCUMULATE_CONTINUE) : 0u) |
                                (keeps != 0 ? MASK(ACCUMULATE_KEEP) : 0u);
    int status;
    uint32_t i;

    if (layer.device == NULL || !layer.is_configured || !are_positive(sizes, 6u) ||
        pad_top < 0 || pad_left < 0 || scales <= 0) {
        return give_up(UMAKIT_INVALID_ARGUMENT);
    }
    status = is_tile(&sizes[0]) && is_tile(&sizes[3])
                 ? add_places(offsets, places, 7u)
                 : UMAKIT_OUT_OF_RANGE;
    if (status != UMAKIT_OK) {
        return give_up(status);
    }
    for (i = 0u; i < 6u; ++i) {
        write_register(OFFSET(IFMAP_START) + 4u * i, offsets[i]);
    }
    write_all(OFFSET(INPUT_HEIGHT), sizes, 6u);
    write_register(OFFSET(PAD_TOP), (uint32_t)pad_top);
    write_register(OFFSET(PAD_LEFT), (uint32_t)pad_left);
    write_strides(OFFSET(IFMAP_ROW_STRIDE), &sizes[0]);
    write_strides(OFFSET(OFMAP_ROW_STRIDE), &sizes[3]);
    write_register(OFFSET(SCALE_COUNT), (uint32_t)scales);
    write_register(OFFSET(ACCUMULATE), accumulate);
    write_register(OFFSET(ADDEND_START), offsets[6]);
    status = submit(MASK(CONTROL_ENQUEUE_ARRAY), MASK(CONTROL_ARRAY_START),
                    MASK(INTERRUPT_PENDING_ARRAY_DONE));
    return status == UMAKIT_OK ? UMAKIT_OK : give_up(status);
}

int small_chocolate_accelerator_failure(void)
{
    return first_failure;
}

int small_chocolate_accelerator_finish(void)
{
    int status = UMAKIT_OK;

    if (layer.device == NULL) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    if (layer.depth != 0u && layer.has_commands) {
        status = wait_for_end(MASK(INTERRUPT_PENDING_QUEUE_DONE));
    }
    if (status != UMAKIT_OK) {
        return give_up(status);
    }
    umakit_device_barrier(layer.device); /* the host sees the result */
    close_layer(); /* its queue is empty; nothing is pending that a next layer minds */
    return UMAKIT_OK;
}
