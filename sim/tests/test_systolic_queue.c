/* SPDX-License-Identifier: Apache-2.0 */
/* The command queue of the systolic array: its registers, interrupts, and what a
 * driver gets to see of faults. tests/test_systolic_queue.py compares results and
 * cycles of drawn programs. */
#include "systolic.h"
#include "umakit/mac_array.h"

#define DEPTH 4u
#define QUEUE_EVENTS (EVENT(QUEUE_DONE) | EVENT(COMMAND_DONE) | EVENT(ERROR))

/* A transfer of 128 bytes: four bursts of 6 + 8 cycles. */
#define TRANSFER_CYCLES 56u

static void set_up_queue(void)
{
    struct umakit_systolic_array_config config = good_config();

    config.command_queue_depth = DEPTH;
    set_up_with(config);
    WRITE(INTERRUPT_ENABLE, EVENT(QUEUE_DONE) | EVENT(ERROR));
}

static void inject(struct umakit_fault fault)
{
    CHECK_EQUAL(umakit_simulator_inject(&array.device, &fault), UMAKIT_OK);
}

/* What a driver finds out in bounded time, as systolic_array.h says. */
static int diagnose(void)
{
    const int waited = umakit_device_wait(&array.device, TIMEOUT);
    const uint32_t status = READ(STATUS);
    const uint32_t bytes_left = READ(DMA_BYTES_LEFT);

    if ((status & BIT(ERROR)) != 0u) {
        return (int)READ(ERROR);
    }
    if (READ(COMMANDS_LEFT) == 0u) {
        return bytes_left != 0u      ? UMAKIT_DMA_STOPPED
               : waited == UMAKIT_OK ? UMAKIT_OK
                                     : UMAKIT_LOST_INTERRUPT;
    }
    if ((status & BIT(DMA_BUSY)) != 0u) {
        return bytes_left != 0u ? UMAKIT_DMA_STOPPED : UMAKIT_STUCK_BUSY;
    }
    return (status & BIT(ARRAY_BUSY)) != 0u && READ(ARRAY_CYCLES_LEFT) == 0u
               ? UMAKIT_STUCK_BUSY
               : UMAKIT_TIMEOUT;
}

static int run_all(void)
{
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY) | COMMAND(ENQUEUE_DMA));
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    return diagnose();
}

static void expect_queue_recovery(void)
{
    umakit_simulator_remove_faults(&array.device);
    WRITE(INTERRUPT_ENABLE, EVENT(DMA_DONE) | EVENT(ARRAY_DONE) | EVENT(ERROR));
    expect_recovery();
    WRITE(INTERRUPT_ENABLE, EVENT(QUEUE_DONE) | EVENT(ERROR));
    WRITE(CONTROL, COMMAND(CLEAR));
    CHECK_EQUAL(READ(QUEUE_FREE), DEPTH);
    CHECK_EQUAL(run_all(), UMAKIT_OK);
    expect_result();
}

/* Without a queue there are no such bits, as in version 1.0. */
static void test_no_queue(void)
{
    set_up();
    CHECK_EQUAL(READ(QUEUE_DEPTH), 0u);
    CHECK_EQUAL(READ(QUEUE_FREE), 0u);
    CHECK_EQUAL(READ(COMMANDS_LEFT), 0u);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    CHECK_EQUAL(READ(ERROR), UMAKIT_INVALID_ARGUMENT);
    WRITE(CONTROL, COMMAND(CLEAR));
    WRITE(INTERRUPT_ENABLE, EVENT(QUEUE_DONE));
    CHECK_EQUAL(READ(ERROR), UMAKIT_INVALID_ARGUMENT);
    expect_recovery();
}

static void test_configuration(void)
{
    static int32_t sums[4];
    struct umakit_systolic_array_config config = good_config();

    config.command_queue_depth = UMAKIT_SYSTOLIC_ARRAY_QUEUE_DEPTH + 1u;
    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_INVALID_ARGUMENT);
    config = good_config();
    config.accumulator_bytes = 16u;
    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_INVALID_ARGUMENT);
    config.accumulator = sums;
    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_OK);
    CHECK_EQUAL(READ(ACCUMULATOR_BYTES), 16u);
    config.accumulator_bytes = 14u;
    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_INVALID_ARGUMENT);
    config.accumulator_bytes = 0u;
    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_INVALID_ARGUMENT);
}

static void test_registers(void)
{
    set_up_queue();
    CHECK_EQUAL(READ(QUEUE_DEPTH), DEPTH);
    CHECK_EQUAL(READ(QUEUE_FREE), DEPTH);
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY) | COMMAND(ENQUEUE_DMA) | COMMAND(RESET_COUNTERS));
    CHECK_EQUAL(READ(COMMANDS_LEFT), 2u);
    CHECK_EQUAL(READ(QUEUE_FREE), DEPTH - 2u);
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY) | BIT(DMA_BUSY));
    CHECK_EQUAL(READ(ARRAY_CYCLES_LEFT), JOB_CYCLES - 4u);
    /* Commands are snapshots: what is written now is for the next ones. */
    WRITE(DMA_SCRATCHPAD_START, FREE_AT + 128u);
    WRITE(KERNEL_HEIGHT, 0u);
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY) | BIT(DMA_BUSY) | BIT(QUEUE_FULL));
    CHECK_EQUAL(READ(ERROR), UMAKIT_OK);
    /* Entries are free when a command ended. */
    WRITE(INTERRUPT_ENABLE, EVENT(COMMAND_DONE) | EVENT(ERROR));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK_EQUAL(READ(CLOCK_LOW), TRANSFER_CYCLES + 1u);
    CHECK_EQUAL(READ(QUEUE_FREE), 1u);
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(COMMAND_DONE));
    CHECK(bytes_are(scratchpad() + FREE_AT, 128u, 0x11));
    CHECK(bytes_are(scratchpad() + FREE_AT + 128, 128u, 0x55));
    WRITE(INTERRUPT_PENDING, EVENT(COMMAND_DONE));
    WRITE(INTERRUPT_ENABLE, EVENT(QUEUE_DONE) | EVENT(ERROR));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK_EQUAL(READ(CLOCK_LOW), JOB_CYCLES + 1u); /* transfers took 3 * 56 */
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(COMMAND_DONE) | EVENT(QUEUE_DONE));
    CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 0u);
    expect_result();
    CHECK(bytes_are(scratchpad() + FREE_AT, 256u, 0x11));
    /* QUEUE_DONE is over as soon as the queue is not empty. */
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(COMMAND_DONE));
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 128u - 128u * 2u / TRANSFER_CYCLES);
}

/* Jobs of a START and commands live side by side, in one order. */
static void test_start_beside_commands(void)
{
    set_up_queue();
    WRITE(INTERRUPT_ENABLE, QUEUE_EVENTS | EVENT(DMA_DONE) | EVENT(ARRAY_DONE));
    WRITE(CONTROL, COMMAND(ARRAY_START) | COMMAND(ENQUEUE_DMA));
    CHECK_EQUAL(READ(COMMANDS_LEFT), 1u);
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY));
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(COMMAND_DONE) | EVENT(QUEUE_DONE));
    WRITE(INTERRUPT_PENDING, EVENT(COMMAND_DONE) | EVENT(QUEUE_DONE));
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY)); /* behind it */
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(ARRAY_DONE));
    CHECK_EQUAL(READ(COMMANDS_LEFT), 1u);
    WRITE(CONTROL, COMMAND(ARRAY_START));
    CHECK_EQUAL(READ(ERROR), UMAKIT_BUSY);
    CHECK_EQUAL(READ(COMMANDS_LEFT), 0u); /* an error drops commands ... */
    WRITE(CONTROL, COMMAND(CLEAR) | COMMAND(ARRAY_START));
    WRITE(DMA_ROW_BYTES, 0u);
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    CHECK_EQUAL(READ(ERROR), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY) | BIT(ERROR)); /* ... and no job of a START */
    expect_queue_recovery();
}

static void test_full_queue(void)
{
    struct umakit_simulator_counters counters;
    uint32_t i;

    set_up_queue();
    for (i = 0u; i < DEPTH; ++i) {
        WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY));
    }
    CHECK_EQUAL(READ(ERROR), UMAKIT_OK);
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY));
    CHECK_EQUAL(READ(ERROR), UMAKIT_BUSY);
    CHECK_EQUAL(READ(ERROR_ADDRESS), UMAKIT_SYSTOLIC_ARRAY_CONTROL_OFFSET);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ERROR));
    CHECK_EQUAL(READ(COMMANDS_LEFT), 0u);
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(ERROR));
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA)); /* refused while the error is pending */
    CHECK_EQUAL(READ(COMMANDS_LEFT), 0u);
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(counters.failed_jobs, DEPTH + 1u);
    CHECK(bytes_are(scratchpad() + OFMAP_AT, RESULTS, 0x55));
    expect_queue_recovery();
}

/* What is wrong is found when it is enqueued, long before its turn. */
static void test_errors(void)
{
    set_up_queue();
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY));
    WRITE(OFMAP_START, IFMAP_AT);
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY));
    CHECK_EQUAL(READ(ERROR), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(READ(ERROR_ADDRESS), IFMAP_AT);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ERROR));
    expect_queue_recovery();

    /* What only the data show, when the command completes; the next is dropped. */
    set_up_queue();
    scratchpad()[SHIFTS_AT] = 31;
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY));
    program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT, OFMAP_AT, RESULTS);
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    CHECK_EQUAL(diagnose(), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(READ(ERROR_ADDRESS), SHIFTS_AT);
    CHECK_EQUAL(READ(COMMANDS_LEFT), 0u);
    CHECK(bytes_are((int8_t *)buffer, sizeof(buffer), 0x11));
    expect_queue_recovery();

    /* A buffer that goes away takes what waits for it along. */
    set_up_queue();
    program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT, OFMAP_AT, RESULTS);
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY));
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    umakit_device_unmap(&array.device, buffer_address);
    CHECK_EQUAL(diagnose(), UMAKIT_BUS_ERROR);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ERROR));
}

static void test_clear(void)
{
    set_up_queue();
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY) | COMMAND(ENQUEUE_DMA));
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY));
    WRITE(CONTROL, COMMAND(CLEAR));
    CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    CHECK_EQUAL(READ(COMMANDS_LEFT), 0u);
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_TIMEOUT);
    CHECK(bytes_are(scratchpad() + OFMAP_AT, RESULTS, 0x55));
    CHECK(bytes_are(scratchpad() + FREE_AT, 128u, 0x55));
    expect_queue_recovery();
}

static void test_faults(void)
{
    struct umakit_fault fault = {.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 50u, .count = 1u};

    set_up_queue();
    inject(fault);
    CHECK_EQUAL(run_all(), UMAKIT_DMA_STOPPED);
    CHECK_EQUAL(READ(STATUS), BIT(DMA_BUSY));
    CHECK_EQUAL(READ(COMMANDS_LEFT), 2u); /* it and the one behind it */
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 78u);
    WRITE(CONTROL, COMMAND(CLEAR));
    CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    expect_queue_recovery();

    /* What needs its bank does not run on half of the data. */
    set_up_queue();
    inject(fault);
    program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN, IFMAP_AT, 128u);
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY));
    CHECK_EQUAL(diagnose(), UMAKIT_DMA_STOPPED);
    CHECK(bytes_are(scratchpad() + OFMAP_AT, RESULTS, 0x55));
    expect_queue_recovery();

    fault.ending = UMAKIT_FAULT_ENDS_IN_ERROR;
    set_up_queue();
    inject(fault);
    CHECK_EQUAL(run_all(), UMAKIT_DMA_STOPPED);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ERROR));
    expect_queue_recovery();

    /* Later transfers do not hide that one ended before its time. */
    fault.ending = UMAKIT_FAULT_ENDS_DONE;
    set_up_queue();
    inject(fault);
    CHECK_EQUAL(run_all(), UMAKIT_DMA_STOPPED);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 78u);
    expect_queue_recovery();

    /* Nor does a queue that ran empty meanwhile; CLEAR does. */
    set_up_queue();
    inject(fault);
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    CHECK_EQUAL(diagnose(), UMAKIT_DMA_STOPPED);
    CHECK_EQUAL(READ(COMMANDS_LEFT), 0u);
    CHECK_EQUAL(run_all(), UMAKIT_DMA_STOPPED);
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 78u);
    WRITE(CONTROL, COMMAND(CLEAR));
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 0u);
    CHECK_EQUAL(run_all(), UMAKIT_OK);
    expect_queue_recovery();

    set_up_queue();
    inject((struct umakit_fault){
        .kind = UMAKIT_FAULT_BUS_ERROR, .address = buffer_address + 100u, .bytes = 4u});
    CHECK_EQUAL(run_all(), UMAKIT_BUS_ERROR);
    CHECK_EQUAL(READ(ERROR_ADDRESS), buffer_address + 100u);
    expect_queue_recovery();

    set_up_queue();
    inject((struct umakit_fault){
        .kind = UMAKIT_FAULT_SCRATCHPAD_BIT, .address = WEIGHTS_AT + 1u, .bit = 2u});
    CHECK_EQUAL(run_all(), UMAKIT_PARITY_ERROR);
    CHECK_EQUAL(READ(ERROR_ADDRESS), WEIGHTS_AT + 1u);
    WRITE(CONTROL, COMMAND(CLEAR));
    program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN, WEIGHTS_AT, 4u); /* heals it */
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    CHECK_EQUAL(diagnose(), UMAKIT_OK);
    expect_queue_recovery();
}

static void test_lost_interrupts(void)
{
    /* Only QUEUE_DONE is enabled, so that the only event is the last end. */
    set_up_queue();
    inject((struct umakit_fault){.kind = UMAKIT_FAULT_LOST_INTERRUPT, .count = 1u});
    CHECK_EQUAL(run_all(), UMAKIT_LOST_INTERRUPT);
    expect_result();
    CHECK_EQUAL(run_all(), UMAKIT_OK);

    /* A driver that waits for COMMAND_DONE. */
    set_up_queue();
    WRITE(INTERRUPT_ENABLE, EVENT(COMMAND_DONE) | EVENT(ERROR));
    inject((struct umakit_fault){.kind = UMAKIT_FAULT_LOST_INTERRUPT, .count = 1u});
    WRITE(CONTROL, COMMAND(ENQUEUE_DMA));
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY));
    CHECK_EQUAL(umakit_device_wait(&array.device, TRANSFER_CYCLES + 1u), UMAKIT_TIMEOUT);
    CHECK_EQUAL(READ(QUEUE_FREE), DEPTH - 1u);
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(COMMAND_DONE) | EVENT(QUEUE_DONE));
}

static void test_stuck(void)
{
    int engine;

    for (engine = UMAKIT_ENGINE_ARRAY; engine <= UMAKIT_ENGINE_DMA; ++engine) {
        set_up_queue();
        inject((struct umakit_fault){.kind = UMAKIT_FAULT_STUCK_BUSY,
                                     .engine = (enum umakit_engine)engine,
                                     .count = 1u});
        CHECK_EQUAL(run_all(), UMAKIT_STUCK_BUSY);
        CHECK_EQUAL(READ(STATUS),
                    engine == UMAKIT_ENGINE_DMA ? BIT(DMA_BUSY) : BIT(ARRAY_BUSY));
        CHECK_EQUAL(READ(COMMANDS_LEFT), engine == UMAKIT_ENGINE_DMA ? 2u : 1u);
        /* CLEAR empties the queue and does not help the engine. */
        WRITE(CONTROL, COMMAND(CLEAR));
        CHECK_EQUAL(READ(COMMANDS_LEFT), 0u);
        CHECK_EQUAL(READ(STATUS),
                    engine == UMAKIT_ENGINE_DMA ? BIT(DMA_BUSY) : BIT(ARRAY_BUSY));
        CHECK_EQUAL(run_all(), UMAKIT_STUCK_BUSY);
        expect_queue_recovery();
    }
}

static void test_timeline(void)
{
    static const struct umakit_mac_array_config config = {4u, 4u, 0u};
    static struct umakit_mac_array other;
    struct umakit_systolic_timeline_entry entries[2] = {{.command = 9u}, {.command = 9u}};
    struct umakit_simulator_counters counters;

    set_up_queue();
    umakit_systolic_record_timeline(&array.device, entries, 2u);
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(run_all(), UMAKIT_OK);
    CHECK_EQUAL(umakit_systolic_timeline(&array.device), 3u);
    /* The job came behind the transfer of the same write, and a bit later another. */
    CHECK_EQUAL(entries[0].command, 0u);
    CHECK_EQUAL(entries[0].stream, UMAKIT_SYSTOLIC_LOAD);
    CHECK_EQUAL(entries[0].issued, counters.clock + 1u);
    CHECK_EQUAL(entries[0].start, counters.clock + 1u);
    CHECK_EQUAL(entries[0].completion, counters.clock + 1u + TRANSFER_CYCLES);
    CHECK_EQUAL(entries[1].command, 2u);
    CHECK_EQUAL(entries[1].issued, counters.clock + 2u);
    CHECK_EQUAL(entries[1].start, entries[0].completion);
    /* What is dropped is left out, and of other devices there is nothing. */
    WRITE(CONTROL, COMMAND(ENQUEUE_ARRAY));
    WRITE(CONTROL, COMMAND(CLEAR));
    CHECK_EQUAL(umakit_systolic_timeline(&array.device), 3u);
    CHECK_EQUAL(umakit_mac_array_init(&other, &config), UMAKIT_OK);
    umakit_systolic_record_timeline(&other.device, entries, 2u);
    CHECK_EQUAL(umakit_systolic_timeline(&other.device), 0u);
    umakit_systolic_record_timeline(NULL, entries, 2u);
    CHECK_EQUAL(umakit_systolic_timeline(NULL), 0u);
}

/* Random programs, some of them wrong: nothing crashes or hangs. */
static void test_random_programs(void)
{
    uint32_t state = 7u;
    uint32_t done = 0u;
    int i;

    for (i = 0; i < 2000; ++i) {
        int waited;
        int j;

        set_up_queue();
        for (j = 0; j < 6; ++j) {
            const uint32_t range = UMAKIT_SYSTOLIC_ARRAY_REGISTER_BYTES;
            const uint32_t offset = random_number(&state) % range & ~3u;
            const uint32_t shift = random_number(&state) % 32u;

            if (offset >= UMAKIT_SYSTOLIC_ARRAY_ARRAY_ROWS_OFFSET) {
                umakit_device_write32(&array.device, offset, random_number(&state) >> shift);
            }
            WRITE(CONTROL, (random_number(&state) % 16u == 0u ? COMMAND(CLEAR) : 0u) |
                               (random_number(&state) % 4u) * COMMAND(ENQUEUE_DMA));
        }
        waited = umakit_device_wait(&array.device, UINT32_MAX);
        CHECK(waited == UMAKIT_OK || waited == UMAKIT_TIMEOUT);
        CHECK(READ(ERROR) <= UMAKIT_LAST_STATUS);
        CHECK_EQUAL(READ(COMMANDS_LEFT), 0u);
        done += READ(ERROR) == UMAKIT_OK ? 1u : 0u;
        WRITE(CONTROL, COMMAND(CLEAR));
        CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    }
    CHECK(done > 100u); /* many were sound */
}

int main(void)
{
    test_no_queue();
    test_configuration();
    test_registers();
    test_start_beside_commands();
    test_full_queue();
    test_errors();
    test_clear();
    test_faults();
    test_lost_interrupts();
    test_stuck();
    test_timeline();
    test_random_programs();
    return check_result();
}
