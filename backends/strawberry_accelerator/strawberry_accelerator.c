/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver of the strawberry_accelerator.
 *
 * Read it from the bottom: the functions there are what the compiled
 * network calls, the helpers above are their steps. To fit it to your hardware,
 * change program_copy, program_calculation and the time limit. All access to the
 * device goes through umakit/device.h, so the same file runs on the simulator
 * and on a board.
 */
#include "strawberry_accelerator.h"

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
#define LEAST_MINOR_VERSION 2u /* the first whose CLEAR resets ADD and ACCUMULATE */

UMAKIT_STATIC_ASSERT(CHAR_BIT == 8 && sizeof(int) == 4u && sizeof(size_t) >= 4u,
                     sizes_have_32_bits);
UMAKIT_STATIC_ASSERT(UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET >>
                             UMAKIT_SYSTOLIC_ARRAY_VERSION_MAJOR_SHIFT ==
                         SUPPORTED_MAJOR_VERSION,
                     register_map_is_the_one_this_driver_was_written_for);
UMAKIT_STATIC_ASSERT(OFFSET(DATAFLOW) - OFFSET(OPERATION) == 4u &&
                         OFFSET(OFMAP_START) - OFFSET(IFMAP_START) == 5u * 4u &&
                         OFFSET(PAD_LEFT) - OFFSET(INPUT_HEIGHT) == 13u * 4u &&
                         OFFSET(SCALE_COUNT) - OFFSET(INPUT_ZERO_POINT) == 5u * 4u,
                     registers_that_are_written_in_one_go_are_neighbours);
UMAKIT_STATIC_ASSERT(MASK(INTERRUPT_ENABLE_ERROR) == MASK(INTERRUPT_PENDING_ERROR),
                     interrupts_are_enabled_by_their_own_bit);

/* How long a job may take before the driver gives up, in cycles of the device.
 * This is 40 seconds at 100 MHz, more than any layer needs: a limit that stops
 * a healthy job is worse than one that finds a dead device late. */
#ifndef STRAWBERRY_ACCELERATOR_TIMEOUT_CYCLES
#define STRAWBERRY_ACCELERATOR_TIMEOUT_CYCLES 4000000000u
#endif

/* How often the driver sleeps again after wakes without an event, if the device's clock
 * stands still. */
#ifndef STRAWBERRY_ACCELERATOR_WAKES
#define STRAWBERRY_ACCELERATOR_WAKES 400000000u
#endif

/* How often the driver asks whether a device that was told to stop has stopped. It
 * has to end no more than the bus accesses that it began. */
#ifndef STRAWBERRY_ACCELERATOR_STOP_POLLS
#define STRAWBERRY_ACCELERATOR_STOP_POLLS 10000u
#endif

/* What went wrong first in the last job that failed. */
static int first_failure;

/* An engine of the device, as its bits in CONTROL, STATUS and interrupts. */
struct engine {
    uint32_t start;
    uint32_t busy;
    uint32_t done;
    uint32_t interrupt;
    uint32_t left; /* register that says how much is left to do */
};

static const struct engine dma_engine = {
    MASK(CONTROL_DMA_START), MASK(STATUS_DMA_BUSY), MASK(STATUS_DMA_DONE),
    MASK(INTERRUPT_ENABLE_DMA_DONE), OFFSET(DMA_BYTES_LEFT)};

static const struct engine array_engine = {
    MASK(CONTROL_ARRAY_START), MASK(STATUS_ARRAY_BUSY), MASK(STATUS_ARRAY_DONE),
    MASK(INTERRUPT_ENABLE_ARRAY_DONE), OFFSET(ARRAY_CYCLES_LEFT)};

/* ---- The device ---- */

static bool is_busy(umakit_device *device)
{
    return (umakit_device_read32(device, OFFSET(STATUS)) &
            (MASK(STATUS_DMA_BUSY) | MASK(STATUS_ARRAY_BUSY))) != 0u;
}

/* Stop both engines, and wait until they did: then no bus access is outstanding, see
 * CLEAR in umakit/systolic_array_registers.h. */
static int stop_device(umakit_device *device)
{
    uint32_t asked;

    umakit_device_write32(device, OFFSET(CONTROL), MASK(CONTROL_CLEAR));
    umakit_device_barrier(device); /* it has CLEAR before it is asked */
    for (asked = 0u; asked < STRAWBERRY_ACCELERATOR_STOP_POLLS; ++asked) {
        if (!is_busy(device)) {
            return UMAKIT_OK;
        }
    }
    return UMAKIT_STUCK_BUSY;
}

/* Make sure that what answers is the device this driver was written for, before
 * anything is written to it, and that it does nothing any more, whoever had it before. */
static int find_device(umakit_device **found)
{
    umakit_device *const device = strawberry_accelerator_device();
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
    return is_busy(device) ? stop_device(device) : UMAKIT_OK;
}

/* Whether a range lies in the scratchpad, which the device knows the size of. */
static bool is_in_scratchpad(umakit_device *device, uint32_t offset, uint32_t bytes)
{
    const uint32_t size = umakit_device_read32(device, OFFSET(SCRATCHPAD_BYTES));

    return offset <= size && bytes <= size - offset;
}

/* What the device says went wrong. A failure must not be reported as 0, whatever
 * the register says. */
static int device_error(umakit_device *device)
{
    const uint32_t error = umakit_device_read32(device, OFFSET(ERROR));

    return error == 0u || error > INT_MAX ? UMAKIT_DEVICE_ERROR : (int)error;
}

/* Sleep until a job has ended, and read STATUS. The processor may wake while the engine is
 * at work: interrupt lines are shared, and WFI ends for other reasons too. The driver then
 * sleeps again; from the first wake on, no longer than the time limit altogether. */
static int sleep_until_end(umakit_device *device, const struct engine *engine, uint32_t *state)
{
    uint32_t first_wake = 0u;
    uint32_t elapsed = 0u;
    uint32_t wakes;

    for (wakes = 0u; wakes < STRAWBERRY_ACCELERATOR_WAKES; ++wakes) {
        const int status =
            umakit_device_wait(device, STRAWBERRY_ACCELERATOR_TIMEOUT_CYCLES - elapsed);
        uint32_t now;

        umakit_device_barrier(device); /* the host sees the result */
        *state = umakit_device_read32(device, OFFSET(STATUS));
        if (status != UMAKIT_OK || (*state & engine->busy) == 0u ||
            (*state & (engine->done | MASK(STATUS_ERROR))) != 0u) {
            return status;
        }
        now = umakit_device_read32(device, OFFSET(CLOCK_LOW));
        if (wakes == 0u) {
            first_wake = now;
        }
        elapsed = now - first_wake;
        if (elapsed >= STRAWBERRY_ACCELERATOR_TIMEOUT_CYCLES) {
            return UMAKIT_TIMEOUT;
        }
    }
    return UMAKIT_TIMEOUT;
}

/* How a job ended, from STATUS, other registers and what the wait for its interrupt
 * returned. */
static int job_status(umakit_device *device, const struct engine *engine, int waited,
                      uint32_t status)
{
    uint32_t left;

    if ((status & MASK(STATUS_ERROR)) != 0u) {
        return device_error(device);
    }
    if (waited != UMAKIT_OK && waited != UMAKIT_TIMEOUT) {
        return waited;
    }
    left = umakit_device_read32(device, engine->left);
    if ((status & engine->done) != 0u) {
        if (left != 0u) {
            return engine == &dma_engine ? UMAKIT_DMA_STOPPED : UMAKIT_DEVICE_ERROR;
        }
        return waited == UMAKIT_OK ? UMAKIT_OK : UMAKIT_LOST_INTERRUPT;
    }
    if ((status & engine->busy) == 0u) {
        return UMAKIT_DEVICE_ERROR; /* neither done nor at it */
    }
    if (left == 0u) {
        return UMAKIT_STUCK_BUSY;
    }
    /* Still at work, or stopped half way: ask again. */
    if (engine == &dma_engine && umakit_device_read32(device, engine->left) == left) {
        return UMAKIT_DMA_STOPPED;
    }
    return UMAKIT_TIMEOUT;
}

/* Start what was programmed and wait for its end. */
static int run_job(umakit_device *device, const struct engine *engine)
{
    uint32_t state = 0u;
    int status;

    umakit_device_write32(device, OFFSET(INTERRUPT_ENABLE),
                          engine->interrupt | MASK(INTERRUPT_ENABLE_ERROR));
    umakit_device_barrier(device); /* the device sees buffers and registers */
    /* CLEAR first: of old errors, and of modes that another driver has set. */
    umakit_device_write32(device, OFFSET(CONTROL), MASK(CONTROL_CLEAR) | engine->start);
    status = sleep_until_end(device, engine, &state);
    status = job_status(device, engine, status, state);
    if (status != UMAKIT_OK) {
        const int stopped = stop_device(device); /* it may still run */

        first_failure = status;
        status = stopped == UMAKIT_OK ? status : stopped;
    }
    umakit_device_write32(device, OFFSET(INTERRUPT_ENABLE), 0u);
    return status;
}

/* ---- Copies ---- */

static void program_copy(umakit_device *device, uint32_t bus_address,
                         uint32_t scratchpad_offset, uint32_t bytes,
                         enum umakit_direction direction)
{
    umakit_device_write32(device, OFFSET(DMA_BUS_ADDRESS), bus_address);
    umakit_device_write32(device, OFFSET(DMA_SCRATCHPAD_START), scratchpad_offset);
    umakit_device_write32(device, OFFSET(DMA_DIRECTION),
                          direction == UMAKIT_TO_DEVICE
                              ? UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN
                              : UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT);
    umakit_device_write32(device, OFFSET(DMA_ROW_BYTES), bytes);
    umakit_device_write32(device, OFFSET(DMA_ROWS), 1u);
    umakit_device_write32(device, OFFSET(DMA_PLANES), 1u);
}

/* Copy between a buffer in shared memory and the scratchpad. */
static int copy(const void *memory, uint32_t scratchpad_offset, int32_t bytes,
                enum umakit_direction direction)
{
    umakit_device *device;
    uint32_t bus_address;
    int status;

    if (memory == NULL || bytes <= 0) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    status = find_device(&device);
    if (status != UMAKIT_OK) {
        return status;
    }
    if (!is_in_scratchpad(device, scratchpad_offset, (uint32_t)bytes)) {
        return UMAKIT_OUT_OF_RANGE;
    }
    status = umakit_device_map(device, memory, (size_t)bytes, direction, &bus_address);
    if (status != UMAKIT_OK) {
        return status;
    }
    program_copy(device, bus_address, scratchpad_offset, (uint32_t)bytes, direction);
    status = run_job(device, &dma_engine);
    umakit_device_unmap(device, bus_address);
    return status;
}

/* ---- Calculations ---- */

/* Numbers of a calculation. Each array is for registers that follow each other, in their
 * order. */
struct calculation {
    int32_t modes[2];    /* operation, dataflow */
    uint32_t places[6];  /* ifmap, weights, bias, multipliers, shifts, ofmap */
    int32_t sizes[14];   /* height, width, channels of input and output; height and width of
                            kernel, stride, dilation; padding at the top and at the left */
    int32_t rescaling[6]; /* zero points of input and output, clip range, rounding, scales */
    bool channels_first;
};

/* Whether the values make sense; what does not fit the scratchpad or the array,
 * the device refuses by itself. */
static bool is_valid(const struct calculation *job)
{
    const int32_t lowest = job->rescaling[2];
    const int32_t highest = job->rescaling[3];
    const int32_t rounding = job->rescaling[4];
    const int32_t scales = job->rescaling[5];
    const int32_t output_channels = job->sizes[5];
    int i;

    for (i = 0; i < 14; ++i) {
        if (job->sizes[i] < (i < 12 ? 1 : 0)) { /* only padding may be 0 */
            return false;
        }
    }
    for (i = 0; i < 4; ++i) { /* zero points and limits are int8 */
        if (job->rescaling[i] < INT8_MIN || job->rescaling[i] > INT8_MAX) {
            return false;
        }
    }
    return lowest <= highest &&
           (rounding == 0 || rounding == 1) && (scales == 1 || scales == output_channels) &&
           (uint32_t)job->modes[1] <= UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_INPUT_STATIONARY;
}

/* Write registers that follow each other; two's complement, as C converts it. */
static void write_all(umakit_device *device, uint32_t first, const int32_t *values, uint32_t count)
{
    uint32_t i;

    for (i = 0u; i < count; ++i) {
        umakit_device_write32(device, first + 4u * i, (uint32_t)values[i]);
    }
}

/* Bytes from one row, column and channel of an image to the next. */
static void write_strides(umakit_device *device, uint32_t first, const int32_t size[3],
                          bool channels_first)
{
    const uint32_t width = (uint32_t)size[1];
    const uint32_t channels = (uint32_t)size[2];
    const uint32_t plane = (uint32_t)size[0] * width;

    umakit_device_write32(device, first, channels_first ? width : width * channels);
    umakit_device_write32(device, first + 4u, channels_first ? 1u : channels);
    umakit_device_write32(device, first + 8u, channels_first ? plane : 1u);
}

static void program_calculation(umakit_device *device, const struct calculation *job)
{
    uint32_t i;

    write_all(device, OFFSET(OPERATION), job->modes, 2u);
    for (i = 0u; i < 6u; ++i) {
        umakit_device_write32(device, OFFSET(IFMAP_START) + 4u * i, job->places[i]);
    }
    write_all(device, OFFSET(INPUT_HEIGHT), job->sizes, 14u);
    write_strides(device, OFFSET(IFMAP_ROW_STRIDE), &job->sizes[0], job->channels_first);
    write_strides(device, OFFSET(OFMAP_ROW_STRIDE), &job->sizes[3], job->channels_first);
    write_all(device, OFFSET(INPUT_ZERO_POINT), job->rescaling, 6u);
}

/* ---- The calls ---- */

int strawberry_accelerator_failure(void)
{
    return first_failure;
}

int strawberry_accelerator_dma_in(const void *source, uint32_t scratchpad_offset, int32_t bytes)
{
    return copy(source, scratchpad_offset, bytes, UMAKIT_TO_DEVICE);
}

int strawberry_accelerator_dma_out(uint32_t scratchpad_offset, void *destination, int32_t bytes)
{
    return copy(destination, scratchpad_offset, bytes, UMAKIT_FROM_DEVICE);
}

int strawberry_accelerator_calculate(
    uint32_t ifmap, uint32_t weights, uint32_t bias, uint32_t multipliers, uint32_t shifts,
    uint32_t ofmap, int32_t columns, enum strawberry_accelerator_dataflow dataflow,
    enum strawberry_accelerator_operation operation, enum strawberry_accelerator_layout layout,
    int32_t height, int32_t width, int32_t input_channels, int32_t output_height,
    int32_t output_width, int32_t output_channels, int32_t kernel_height, int32_t kernel_width,
    int32_t stride_y, int32_t stride_x, int32_t pad_top, int32_t pad_left, int32_t dilation_y,
    int32_t dilation_x, int32_t scales, int32_t input_zero_point, int32_t output_zero_point,
    int32_t lowest, int32_t highest, enum strawberry_accelerator_rounding rounding)
{
    const struct calculation job = {
        .modes = {(int32_t)operation, (int32_t)dataflow},
        .places = {ifmap, weights, bias, multipliers, shifts, ofmap},
        .sizes = {height, width, input_channels, output_height, output_width, output_channels,
                  kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x,
                  pad_top, pad_left},
        .rescaling = {input_zero_point, output_zero_point, lowest, highest, (int32_t)rounding,
                      scales},
        .channels_first = layout != STRAWBERRY_ACCELERATOR_CHANNELS_LAST,
    };
    umakit_device *device;
    int status;

    if (!is_valid(&job)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    status = find_device(&device);
    if (status != UMAKIT_OK) {
        return status;
    }
    if (umakit_device_read32(device, OFFSET(ARRAY_COLUMNS)) != (uint32_t)columns) {
        return UMAKIT_UNSUPPORTED; /* the weights are in blocks for another array */
    }
    program_calculation(device, &job);
    return run_job(device, &array_engine);
}
