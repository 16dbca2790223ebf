/* SPDX-License-Identifier: Apache-2.0 */
/* The co-simulation device, with two copy machines as model and RTL: machines of any speed
 * agree, and each mistake of the RTL is found and told. */
#define _POSIX_C_SOURCE 200112L /* setenv */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "copy_machine.h"
#include "umakit/simulator.h"
#include "umakit_cosim.h"

#define REPORT "test_cosim.jsonl"
#define BYTES 64u

static struct umakit_device model;
static umakit_device *pair;
static unsigned char input[BYTES];
static unsigned char output[2u * BYTES];
static char report[65536];

enum completion { INTERRUPT, INTERRUPT_AND_STATUS, POLLING, QUEUED };

static const char *const options[] = {
    "UMAKIT_COSIM_LAYERS",   "UMAKIT_COSIM_TILES",       "UMAKIT_COSIM_DOORBELLS",
    "UMAKIT_COSIM_VOLATILE", "UMAKIT_COSIM_CATCH_UP",    "UMAKIT_COSIM_WAVE",
    "UMAKIT_COSIM_CORRUPT",  "UMAKIT_COSIM_WAVE_RESETS", "UMAKIT_COSIM_WAVE_BACKEND",
    "UMAKIT_COSIM_IDLE"};

static void set(const char *name, const char *value)
{
    CHECK_EQUAL(setenv(name, value, 1), 0);
}

/* Equal machines without options; a test changes what it needs. */
static void prepare(uint32_t rtl_latency, uint32_t rtl_cycles_per_byte)
{
    size_t i;

    for (i = 0u; i < sizeof(options) / sizeof(options[0]); ++i) {
        CHECK_EQUAL(unsetenv(options[i]), 0);
    }
    set("UMAKIT_COSIM_REPORT", REPORT);
    copy_machine_init(&copy_machine_model, 20u, 2u);
    copy_machine_init(&copy_machine_rtl, rtl_latency, rtl_cycles_per_byte);
    for (i = 0u; i < BYTES; ++i) {
        input[i] = (unsigned char)(i * 7u + 1u);
    }
    memset(output, 0xee, sizeof(output));
}

static uint64_t trace_first;
static uint64_t trace_last;
static uint32_t trace_resets;
static char trace_file[32];

static int trace(const char *file, uint64_t first_cycle, uint64_t last_cycle)
{
    (void)snprintf(trace_file, sizeof(trace_file), "%s", file);
    trace_first = first_cycle;
    trace_last = last_cycle;
    trace_resets = copy_machine_rtl.resets;
    return 0;
}

static void open_pair(void)
{
    umakit_simulator_open(&model, copy_machine_model_simulator());
    pair = umakit_cosim_open("copier", &model, copy_machine_rtl_simulator(), trace);
    CHECK(pair != NULL);
}

static void read_report(void)
{
    FILE *file = fopen(REPORT, "r");
    size_t bytes = 0u;

    CHECK(file != NULL);
    if (file != NULL) {
        bytes = fread(report, 1u, sizeof(report) - 1u, file);
        (void)fclose(file);
    }
    report[bytes] = '\0';
}

static void close_pair(void)
{
    umakit_cosim_close(pair);
    read_report();
}

static unsigned int count(const char *text)
{
    const char *at = report;
    unsigned int found = 0u;

    for (at = strstr(at, text); at != NULL; at = strstr(at + 1, text)) {
        ++found;
    }
    return found;
}

/* Whether the report has it; print the report if it has not. */
static bool has(const char *text)
{
    if (count(text) == 0u) {
        printf("not in the report: %s\n%s", text, report);
        return false;
    }
    return true;
}

static bool is_failed(void)
{
    return umakit_simulator_failure(pair)[0] != '\0';
}

/* ---- A driver ---- */

static void start_copy(uint32_t from, uint32_t to, uint32_t bytes)
{
    umakit_device_write32(pair, COPY_MACHINE_FROM, from);
    umakit_device_write32(pair, COPY_MACHINE_TO, to);
    umakit_device_write32(pair, COPY_MACHINE_BYTES, bytes);
    umakit_device_write32(pair, COPY_MACHINE_START, 1u);
}

/* Wait until commands have ended, at most 100,000 reads. */
static int poll(uint32_t commands)
{
    uint32_t reads;

    for (reads = 0u; reads < 100000u; ++reads) {
        const uint32_t status = umakit_device_read32(pair, COPY_MACHINE_STATUS);

        if ((status & COPY_MACHINE_ERROR) != 0u) {
            return UMAKIT_DEVICE_ERROR;
        }
        if (status >> COPY_MACHINE_ENDED_SHIFT == commands && (status & COPY_MACHINE_BUSY) == 0u) {
            return UMAKIT_OK;
        }
    }
    return UMAKIT_TIMEOUT;
}

static int complete(enum completion completion, uint32_t commands)
{
    int status = UMAKIT_OK;

    if (completion == POLLING || completion == QUEUED) {
        status = poll(commands);
    } else {
        status = umakit_device_wait(pair, 1000000u);
        if (completion == INTERRUPT_AND_STATUS && status == UMAKIT_OK) {
            status = poll(commands);
        }
    }
    umakit_device_write32(pair, COPY_MACHINE_STATUS, COPY_MACHINE_DONE);
    return status;
}

static uint32_t commands_before; /* of the run */

/* Copy `input` to the first half of `output` in parts. */
static int copy(enum completion completion, uint32_t parts)
{
    const uint32_t bytes = BYTES / parts;
    int status = UMAKIT_OK;
    uint32_t from = 0u;
    uint32_t to = 0u;
    uint32_t part;

    CHECK_EQUAL(umakit_device_map(pair, input, BYTES, UMAKIT_TO_DEVICE, &from), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(pair, output, sizeof(output), UMAKIT_FROM_DEVICE, &to),
                UMAKIT_OK);
    for (part = 0u; part < parts && status == UMAKIT_OK; ++part) {
        start_copy(from + part * bytes, to + part * bytes, bytes);
        ++commands_before;
        if (completion != QUEUED || part == parts - 1u) {
            status = complete(completion, commands_before);
        }
    }
    umakit_device_unmap(pair, to);
    umakit_device_unmap(pair, from);
    return status;
}

static int run(enum completion completion, uint32_t parts)
{
    commands_before = 0u;
    open_pair();
    (void)umakit_device_read32(pair, COPY_MACHINE_ID);
    return copy(completion, parts);
}

/* ---- Machines that agree ---- */

static void test_equal_machines_agree(void)
{
    static const uint32_t latencies[] = {20u, 1u, 300u};
    static const uint32_t costs[] = {2u, 1u, 37u};
    size_t i;
    int completion;

    for (completion = INTERRUPT; completion <= (int)QUEUED; ++completion) {
        for (i = 0u; i < 9u; ++i) {
            prepare(latencies[i % 3u], costs[i / 3u]);
            CHECK_EQUAL(run((enum completion)completion, 4u), UMAKIT_OK);
            CHECK(!is_failed());
            CHECK(memcmp(output, input, BYTES) == 0);
            CHECK_EQUAL(output[BYTES], 0xee);
            umakit_cosim_after_layer(0);
            close_pair();
            CHECK_EQUAL(count("difference"), 0u);
            CHECK(has("\"backend\": \"copier\", \"layer\": 0, \"inference\": 0, "
                      "\"checked\": true"));
            CHECK(has("\"compared_bytes\": 128, \"register_writes\": "));
            CHECK_EQUAL(copy_machine_rtl.written, BYTES);
            if (completion == (int)INTERRUPT) {
                CHECK(has("\"register_writes\": 20, \"register_reads\": 1, \"waits\": 4, "
                          "\"tiles\": 4}"));
            }
        }
    }
}

/* With an interrupt, the cycles of a layer are those of its accesses, latencies and bytes. */
static void test_cycles_are_those_of_each_clock(void)
{
    struct umakit_own_counters measured;

    prepare(25u, 3u);
    copy_machine_rtl.access_cycles = 2u;
    CHECK_EQUAL(run(INTERRUPT, 2u), UMAKIT_OK);
    umakit_simulator_measure(pair, &measured);
    CHECK_EQUAL(measured.clock, 2u + 2u * (5u * 2u + 25u + 32u * 3u));
    CHECK_EQUAL(measured.bytes_written, BYTES);
    CHECK_EQUAL(measured.macs, UMAKIT_UNKNOWN);
    umakit_cosim_after_layer(0);
    umakit_cosim_after_layer(1); /* on the CPU */
    close_pair();
    CHECK(has("\"model_cycles\": 179, \"rtl_cycles\": 264, \"model_access_cycles\": 11, "
              "\"rtl_access_cycles\": 22, \"layer_model_cycles\": 179"));
    CHECK(has("\"layer\": 1, \"inference\": 0, \"checked\": false, \"detached\": false, "
              "\"model_cycles\": null, \"rtl_cycles\": null"));
}

/* With a register to read meanwhile, the model's accesses take as long as those of the RTL. */
static void test_accesses_in_step(void)
{
    prepare(20u, 2u);
    set("UMAKIT_COSIM_IDLE", "0");
    copy_machine_rtl.access_cycles = 3u;
    CHECK_EQUAL(run(INTERRUPT_AND_STATUS, 2u), UMAKIT_OK);
    CHECK_EQUAL(copy_machine_rtl.now, 3u + 2u * (6u * 3u + 84u));
    CHECK_EQUAL(copy_machine_model.now, copy_machine_rtl.now);
    umakit_cosim_after_layer(0);
    CHECK_EQUAL(copy(INTERRUPT, 2u), UMAKIT_OK); /* counted anew */
    CHECK_EQUAL(copy_machine_model.now, copy_machine_rtl.now);
    close_pair();
    CHECK(has("\"model_cycles\": 207, \"rtl_cycles\": 207, \"model_access_cycles\": 39, "
              "\"rtl_access_cycles\": 39, \"layer_model_cycles\": 207"));
    prepare(20u, 2u);
    set("UMAKIT_COSIM_IDLE", "0");
    copy_machine_rtl.access_cycles = 3u;
    copy_machine_model.access_cycles = 0u; /* reading takes no time */
    CHECK_EQUAL(run(INTERRUPT, 2u), UMAKIT_OK);
    close_pair();
}

static void test_unknown_counters(void)
{
    struct umakit_own_counters measured;

    prepare(25u, 3u);
    copy_machine_rtl.has_no_counters = true;
    CHECK_EQUAL(run(POLLING, 2u), UMAKIT_OK);
    umakit_simulator_measure(pair, &measured);
    CHECK_EQUAL(measured.clock, UMAKIT_UNKNOWN);
    umakit_cosim_after_layer(0);
    close_pair();
    CHECK(has("\"rtl_cycles\": null"));
    CHECK_EQUAL(count("\"model_cycles\": null"), 0u);
}

/* Input and output in the same memory: the RTL reads what it has written itself. */
static void test_overlapping_buffers(void)
{
    unsigned char expected[BYTES];
    uint32_t a = 0u;
    uint32_t b = 0u;
    uint32_t c = 0u;

    prepare(5u, 9u);
    commands_before = 0u;
    memcpy(expected, input, BYTES);
    memmove(expected + 8, expected, 8u);
    memmove(expected + 16, expected + 8, 8u);
    open_pair();
    CHECK_EQUAL(umakit_device_map(pair, input, 16u, UMAKIT_TO_DEVICE, &a), UMAKIT_OK);
    (void)umakit_device_read32(pair, COPY_MACHINE_STATUS);
    CHECK_EQUAL(umakit_device_map(pair, input + 8, 16u, UMAKIT_BIDIRECTIONAL, &b), UMAKIT_OK);
    start_copy(a, b, 8u);
    CHECK_EQUAL(complete(INTERRUPT, 1u), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(pair, input + 16, 8u, UMAKIT_FROM_DEVICE, &c), UMAKIT_OK);
    start_copy(a + 8u, c, 8u);
    CHECK_EQUAL(complete(INTERRUPT, 2u), UMAKIT_OK);
    umakit_device_unmap(pair, b);
    CHECK_EQUAL(umakit_device_map(pair, input + 12, 8u, UMAKIT_BIDIRECTIONAL, &b), UMAKIT_OK);
    (void)umakit_device_read32(pair, COPY_MACHINE_STATUS);
    umakit_device_unmap(pair, a);
    umakit_device_unmap(pair, b);
    umakit_device_unmap(pair, c);
    CHECK(!is_failed());
    CHECK(memcmp(input, expected, BYTES) == 0);
    close_pair();
}

/* What the RTL has written stays when a buffer is mapped that overlaps. */
static void test_wrong_byte_under_another_buffer(void)
{
    uint32_t from = 0u;
    uint32_t to = 0u;
    uint32_t more = 0u;

    prepare(20u, 2u);
    copy_machine_rtl.wrong_byte = 9u;
    open_pair();
    CHECK_EQUAL(umakit_device_map(pair, input, BYTES, UMAKIT_TO_DEVICE, &from), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(pair, output, BYTES, UMAKIT_FROM_DEVICE, &to), UMAKIT_OK);
    start_copy(from, to, 16u);
    CHECK_EQUAL(complete(INTERRUPT, 1u), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(pair, output + 8, BYTES, UMAKIT_TO_DEVICE, &more), UMAKIT_OK);
    (void)umakit_device_read32(pair, COPY_MACHINE_ID);
    CHECK(!is_failed());
    umakit_device_unmap(pair, to);
    CHECK(is_failed());
    close_pair();
}

/* Mostly who is behind reads again. */
static void test_reading_again(void)
{
    prepare(5000u, 2u);
    CHECK_EQUAL(run(POLLING, 1u), UMAKIT_OK);
    CHECK(copy_machine_rtl.now > 5000u && copy_machine_model.now < 2500u);
    close_pair();
    prepare(20u, 2u);
    copy_machine_model.latency = 5000u;
    CHECK_EQUAL(run(POLLING, 1u), UMAKIT_OK);
    CHECK(copy_machine_model.now > 5000u && copy_machine_rtl.now < 2500u);
    close_pair();
}

/* Commands take about as long as the driver needs for the next one. When it looks, the model has
 * room for one, as at its last look, and the RTL, which is slower, has none: the RTL is behind. */
static void test_space_of_a_queue(void)
{
    uint32_t from = 0u;
    uint32_t to = 0u;
    uint32_t part;
    uint32_t i;

    prepare(27u, 2u);
    copy_machine_model.latency = 23u;
    commands_before = BYTES;
    open_pair();
    CHECK_EQUAL(umakit_device_map(pair, input, BYTES, UMAKIT_TO_DEVICE, &from), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(pair, output, BYTES, UMAKIT_FROM_DEVICE, &to), UMAKIT_OK);
    for (part = 0u; part < BYTES; ++part) {
        for (i = 0u; i < 18u; ++i) {
            umakit_device_write32(pair, COPY_MACHINE_MODE, 0u);
        }
        i = 0u;
        while (umakit_device_read32(pair, COPY_MACHINE_SPACE) == 0u && i < 10000u) {
            ++i;
        }
        start_copy(from + part, to + part, 1u);
    }
    CHECK_EQUAL(poll(BYTES), UMAKIT_OK);
    umakit_device_unmap(pair, to);
    umakit_device_unmap(pair, from);
    CHECK(!is_failed());
    CHECK(copy_machine_model.now <= copy_machine_rtl.now);
    close_pair();
}

/* The RTL may take four times as long as the model, also beyond UMAKIT_COSIM_CATCH_UP. */
static void test_slower_waits(void)
{
    prepare(20u + 220u, 2u);
    set("UMAKIT_COSIM_CATCH_UP", "100");
    CHECK_EQUAL(run(INTERRUPT, 1u), UMAKIT_OK);
    close_pair();
    prepare(20u + 1000u, 2u);
    set("UMAKIT_COSIM_CATCH_UP", "100");
    CHECK_EQUAL(run(INTERRUPT, 1u), UMAKIT_DEVICE_ERROR);
    close_pair();
    CHECK(has("no interrupt of the RTL within 592 cycles, that of the model came after 148"));
}

/* Without a limit that is given, it may take a thousand times as long. */
static void test_much_slower_waits(void)
{
    uint32_t from = 0u;
    uint32_t to = 0u;

    prepare(1500000u, 2u);
    copy_machine_model.latency = 2000u;
    open_pair();
    CHECK_EQUAL(umakit_device_map(pair, input, BYTES, UMAKIT_TO_DEVICE, &from), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(pair, output, BYTES, UMAKIT_FROM_DEVICE, &to), UMAKIT_OK);
    start_copy(from, to, BYTES);
    CHECK_EQUAL(umakit_device_wait(pair, UINT32_MAX), UMAKIT_OK);
    umakit_device_write32(pair, COPY_MACHINE_STATUS, COPY_MACHINE_DONE);
    start_copy(from, to, BYTES);
    CHECK_EQUAL(poll(2u), UMAKIT_OK);
    CHECK(!is_failed());
    close_pair();
}

/* After a wait in vain the driver stops the work, which both leave somewhere. */
static void test_stopped_in_the_middle(void)
{
    uint32_t from = 0u;
    uint32_t to = 0u;

    prepare(90u, 2u);
    open_pair();
    CHECK_EQUAL(umakit_device_map(pair, input, BYTES, UMAKIT_TO_DEVICE, &from), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(pair, output, BYTES, UMAKIT_FROM_DEVICE, &to), UMAKIT_OK);
    start_copy(from, to, BYTES);
    CHECK_EQUAL(umakit_device_wait(pair, 100u), UMAKIT_TIMEOUT);
    umakit_device_unmap(pair, to);
    CHECK(!is_failed());
    CHECK(copy_machine_model.written > copy_machine_rtl.written);
    CHECK_EQUAL(copy_machine_model.queued, 0u);
    CHECK_EQUAL(copy_machine_rtl.queued, 0u);
    umakit_device_unmap(pair, from);
    close_pair();
}

/* Neither has an interrupt: the driver is told so, and nothing is compared. */
static void test_both_time_out(void)
{
    uint32_t to = 0u;

    prepare(20u, 2u);
    open_pair();
    CHECK_EQUAL(umakit_device_map(pair, output, BYTES, UMAKIT_FROM_DEVICE, &to), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_wait(pair, 100u), UMAKIT_TIMEOUT);
    CHECK_EQUAL(copy_machine_model.now, 100u);
    CHECK_EQUAL(copy_machine_rtl.now, 100u);
    umakit_device_unmap(pair, to);
    CHECK(!is_failed());
    close_pair();
}

static void test_volatile_registers(void)
{
    uint32_t cycles;

    prepare(20u, 9u);
    set("UMAKIT_COSIM_VOLATILE", "0x18,0:0xff");
    copy_machine_rtl.id ^= 0x81u;
    CHECK_EQUAL(run(INTERRUPT, 1u), UMAKIT_OK);
    cycles = umakit_device_read32(pair, COPY_MACHINE_CYCLES);
    CHECK_EQUAL(cycles, copy_machine_model.now);
    CHECK(!is_failed());
    copy_machine_rtl.id ^= 0x100u;
    set("UMAKIT_COSIM_CATCH_UP", "1000");
    (void)umakit_device_read32(pair, COPY_MACHINE_ID);
    CHECK(is_failed());
    close_pair();
}

/* ---- Machines that do not ---- */

static void expect_kind(const char *kind)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "\"kind\": \"%s\"", kind);
    CHECK(is_failed());
    close_pair();
    CHECK_EQUAL(count("{\"difference\""), 1u);
    CHECK(has(text));
}

static void test_wrong_byte(void)
{
    prepare(30u, 3u);
    set("UMAKIT_COSIM_DOORBELLS", "16");
    copy_machine_rtl.wrong_byte = 37u;
    (void)run(INTERRUPT, 4u);
    CHECK(strstr(umakit_simulator_failure(pair),
                 "the RTL of copier differs from its model in layer 0, tile 2, command 3: byte 37 "
                 "of the buffer of 128 bytes, at bus address 0x20000025, is 0x14, expected 0x04; "
                 "1 bytes of it differ") != NULL);
    expect_kind("memory");
    /* Each part: 4 writes, the 4th at cycle 1 + 79 x part + 3, and the writing of STATUS. */
    CHECK(has("\"access\": 15, \"command\": 3, \"tile\": 2, \"address\": 536870949, \"byte\": 37, "
              "\"buffer_bytes\": 128, \"bytes_differing\": 1, \"pointers\": [8], "
              "\"expected\": 4, \"found\": 20, "
              "\"last_writes\": [[8, 536870928], [12, 16], [16, 1], [20, 2], [4, "));
    CHECK(has("\"first_cycle\": 170, \"last_cycle\": 249, \"resets\": 0"));
}

/* In the last part it is found although the RTL has time to go on. */
static void test_byte_outside_of_the_result(void)
{
    prepare(30u, 3u);
    copy_machine_rtl.outside_byte = BYTES - 1u;
    (void)run(POLLING, 4u);
    expect_kind("memory");
    CHECK(has("\"command\": null"));
    CHECK(has("\"byte\": 64, "));
    CHECK(has("\"expected\": 238, \"found\": 165"));
}

/* DONE before the last bytes are written: what comes later does not count. */
static void test_write_after_done(void)
{
    prepare(20u, 2u);
    copy_machine_rtl.late_bytes = 3u;
    (void)run(INTERRUPT, 1u);
    expect_kind("memory");
    CHECK(has("\"byte\": 61, "));
    CHECK(has("\"bytes_differing\": 3"));
}

/* Unless they are written while the driver is still at it, which may be one command later. */
static void test_write_before_the_next_completion(void)
{
    prepare(20u, 2u);
    copy_machine_rtl.late_bytes = 1u;
    (void)run(INTERRUPT, 4u);
    expect_kind("memory");
    CHECK(has("\"byte\": 63, "));
    CHECK(has("\"tile\": 3"));
}

/* A wrong byte whose buffer stays mapped is found before the end. */
static void test_patience(void)
{
    uint32_t from = 0u;
    uint32_t to = 0u;
    uint32_t part;

    prepare(20u, 2u);
    copy_machine_rtl.wrong_byte = 2u;
    open_pair();
    CHECK_EQUAL(umakit_device_map(pair, input, BYTES, UMAKIT_TO_DEVICE, &from), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(pair, output, BYTES, UMAKIT_FROM_DEVICE, &to), UMAKIT_OK);
    for (part = 0u; part <= UMAKIT_COSIM_PATIENCE; ++part) {
        CHECK(!is_failed());
        start_copy(from + part * 4u, to + part * 4u, 4u);
        (void)complete(INTERRUPT, part + 1u);
    }
    expect_kind("memory");
    CHECK(has("\"access\": 4, ")); /* where it was seen first */
    CHECK(has("\"tile\": 0"));
}

static void test_interrupts(void)
{
    prepare(20u, 2u);
    set("UMAKIT_COSIM_CATCH_UP", "5000");
    copy_machine_rtl.lost_interrupt = 1u;
    CHECK_EQUAL(run(INTERRUPT, 2u), UMAKIT_DEVICE_ERROR);
    CHECK(strstr(umakit_simulator_failure(pair),
                 "no interrupt of the RTL within 5000 cycles, that of the model came after 84") !=
          NULL);
    expect_kind("interrupt");
    /* The first part took 1 + 4 + 84 cycles; the wait for the second began 5 later. */
    CHECK(has("\"first_cycle\": 89, \"last_cycle\": 262, \"gave_up_cycle\": 5094"));
    prepare(20u, 2u);
    copy_machine_model.lost_interrupt = 1u;
    (void)run(INTERRUPT, 2u);
    expect_kind("interrupt");
}

static void test_registers(void)
{
    prepare(20u, 2u);
    copy_machine_rtl.id = 7u;
    CHECK_EQUAL(run(INTERRUPT, 1u), UMAKIT_DEVICE_ERROR);
    CHECK(strstr(umakit_simulator_failure(pair), "layer 0, tile 0: the register at 0x0 is "
                                                 "0x00000007, expected 0x434f5059") != NULL);
    expect_kind("register");
    CHECK(has("\"access\": 1, \"command\": null, \"tile\": 0, \"offset\": 0, \"expected\": "
              "1129271385, \"found\": 7, \"last_writes\": [], \"first_cycle\": 0"));
    prepare(20u, 2u);
    set("UMAKIT_COSIM_CATCH_UP", "5000");
    copy_machine_rtl.from_bits = 0x00ffffffu;
    open_pair();
    CHECK_EQUAL(copy(INTERRUPT, 1u), UMAKIT_OK);
    (void)umakit_device_read32(pair, COPY_MACHINE_FROM);
    expect_kind("register");
    prepare(20u, 2u);
    set("UMAKIT_COSIM_CATCH_UP", "5000");
    copy_machine_rtl.wrong_status = 1u;
    CHECK_EQUAL(run(INTERRUPT_AND_STATUS, 2u), UMAKIT_DEVICE_ERROR);
    expect_kind("status");
    CHECK(has("\"offset\": 20, \"expected\": 522, \"found\": 526"));
    CHECK(has("\"first_cycle\": 90, \"last_cycle\": 180"));
}

static void test_failure_of_the_rtl(void)
{
    prepare(20u, 2u);
    copy_machine_rtl.failing_command = 1u;
    CHECK_EQUAL(run(INTERRUPT, 2u), UMAKIT_DEVICE_ERROR);
    CHECK(strstr(umakit_simulator_failure(pair), "the RTL of copier failed in layer 0, tile 1: the "
                                                 "bus \"m\" is stuck") != NULL);
    expect_kind("failure");
    CHECK(has("the bus \\\"m\\\" is stuck\"}}"));
    prepare(20u, 2u);
    copy_machine_model.failing_command = 0u;
    CHECK_EQUAL(run(INTERRUPT, 2u), UMAKIT_DEVICE_ERROR);
    CHECK(strcmp(umakit_simulator_failure(pair), "the bus \"m\" is stuck") == 0);
    close_pair();
    CHECK_EQUAL(count("difference"), 0u);
}

/* ---- Layers and tiles ---- */

/* A network of layers 0 to `layers` - 1 on the device; layer 0 begins with initial accesses. */
static void run_layers(int32_t layers, uint32_t parts)
{
    int32_t layer;

    commands_before = 0u;
    open_pair();
    (void)umakit_device_read32(pair, COPY_MACHINE_ID);
    umakit_device_write32(pair, COPY_MACHINE_MODE, 1u);
    for (layer = 0; layer < layers && !is_failed(); ++layer) {
        CHECK(copy(INTERRUPT, parts) == UMAKIT_OK || is_failed());
        CHECK(is_failed() || output[0] == (input[0] ^ 0xffu));
        umakit_cosim_after_layer(layer);
    }
}

/* The RTL is inverted in layer 2, too: the initial access is repeated. */
static void test_chosen_layers(void)
{
    struct umakit_own_counters measured;
    uint64_t before;

    prepare(25u, 3u);
    set("UMAKIT_COSIM_LAYERS", "2,4");
    run_layers(4, 2u);
    CHECK(!is_failed());
    CHECK_EQUAL(copy_machine_rtl.resets, 2u);
    CHECK_EQUAL(copy_machine_rtl.written, BYTES);
    umakit_simulator_measure(pair, &measured);
    /* Model in three layers, RTL in one; the repeated accesses are not the driver's. */
    before = measured.clock;
    /* ID and MODE, and ID for the comparison of what is stale. */
    CHECK_EQUAL(copy_machine_rtl.now, 2u + 1u + 252u);
    CHECK_EQUAL(before, 2u + 3u * 2u * (5u + 20u + 64u) + 2u * (5u + 25u + 96u));
    close_pair();
    CHECK_EQUAL(count("\"checked\": true"), 1u);
    CHECK_EQUAL(count("\"checked\": false"), 3u);
    CHECK(has("\"layer\": 2, \"inference\": 0, \"checked\": true, \"detached\": false, "
              "\"model_cycles\": 178, \"rtl_cycles\": 252"));
}

/* A bit of an earlier layer, which the RTL has not seen, may differ until both agree; one that
 * is equal when the RTL takes part again may not. */
static void test_stale_bits(void)
{
    int32_t layer;

    for (layer = 0; layer < 2; ++layer) {
        prepare(25u, 3u);
        set("UMAKIT_COSIM_LAYERS", "1");
        set("UMAKIT_COSIM_CATCH_UP", "5000");
        set("UMAKIT_COSIM_VOLATILE", "0x14:0xffffff00"); /* commands since the reset */
        commands_before = 0u;
        copy_machine_rtl.wrong_status = layer == 0 ? COPY_MACHINE_NEVER : 1u;
        open_pair();
        (void)umakit_device_read32(pair, COPY_MACHINE_STATUS);
        CHECK_EQUAL(copy(INTERRUPT_AND_STATUS, 1u), UMAKIT_OK);
        umakit_cosim_after_layer(0);
        CHECK_EQUAL(umakit_device_read32(pair, COPY_MACHINE_STATUS) & COPY_MACHINE_WORKED,
                    COPY_MACHINE_WORKED);
        CHECK_EQUAL(copy_machine_rtl.status, 0u);
        CHECK(!is_failed());
        (void)copy(INTERRUPT_AND_STATUS, 2u);
        if (layer == 0) {
            CHECK(!is_failed());
            close_pair();
        } else {
            expect_kind("status");
            CHECK(has("\"expected\": 778, \"found\": 526"));
        }
    }
}

static void test_mistake_in_a_layer(void)
{
    prepare(25u, 3u);
    set("UMAKIT_COSIM_LAYERS", "1,3");
    copy_machine_rtl.wrong_byte = 3u;
    run_layers(3, 2u); /* a byte of the RTL's first layer, which is layer 1 */
    CHECK(is_failed());
    close_pair();
    CHECK(has("{\"difference\": {\"backend\": \"copier\", \"layer\": 1, "));
    CHECK(has("\"resets\": 1"));
    prepare(25u, 3u);
    set("UMAKIT_COSIM_LAYERS", "");
    copy_machine_rtl.wrong_byte = 3u;
    run_layers(3, 2u);
    CHECK(!is_failed());
    CHECK_EQUAL(copy_machine_rtl.written, 0u);
    close_pair();
}

static void test_tiles(void)
{
    prepare(25u, 3u);
    set("UMAKIT_COSIM_TILES", "1");
    run_layers(2, 4u);
    CHECK(!is_failed());
    CHECK_EQUAL(copy_machine_rtl.resets, 2u); /* it missed tiles of layer 0 */
    CHECK_EQUAL(copy_machine_rtl.written, BYTES / 4u);
    close_pair();
    CHECK_EQUAL(count("\"checked\": true, \"detached\": true"), 2u);
    CHECK_EQUAL(count("\"compared_bytes\": 128"), 2u);
    CHECK_EQUAL(count("\"tiles\": 1}"), 2u);
    prepare(25u, 3u);
    set("UMAKIT_COSIM_TILES", "1");
    copy_machine_rtl.wrong_byte = 20u; /* of the second tile */
    run_layers(1, 4u);
    CHECK(!is_failed());
    close_pair();
    prepare(25u, 3u);
    set("UMAKIT_COSIM_TILES", "1");
    copy_machine_rtl.wrong_byte = 15u; /* of the first one: the RTL stays until it is decided */
    run_layers(1, 4u);
    expect_kind("memory");
    CHECK(has("\"tile\": 0, "));
}

static void test_inferences(void)
{
    prepare(25u, 3u);
    set("UMAKIT_COSIM_LAYERS", "0");
    run_layers(2, 2u);
    umakit_cosim_after_inference();
    CHECK_EQUAL(copy(INTERRUPT, 2u), UMAKIT_OK);
    umakit_cosim_after_layer(0);
    close_pair();
    CHECK(has("\"layer\": 1, \"inference\": 0, \"checked\": false"));
    CHECK(has("\"layer\": 0, \"inference\": 1, \"checked\": true"));
}

/* Each pair has a line for a layer, also one that the driver did not touch. */
static void test_two_backends(void)
{
    static struct umakit_device other_model;
    umakit_device *other;

    prepare(25u, 3u);
    umakit_simulator_open(&other_model, copy_machine_model_simulator());
    other = umakit_cosim_open("other", &other_model, copy_machine_rtl_simulator(), trace);
    CHECK_EQUAL(run(INTERRUPT, 2u), UMAKIT_OK);
    umakit_cosim_after_layer(0);
    umakit_cosim_close(other);
    CHECK_EQUAL(copy(INTERRUPT, 2u), UMAKIT_OK);
    umakit_cosim_after_layer(1);
    close_pair();
    CHECK_EQUAL(count("{\"backend\": \"copier\""), 2u);
    CHECK_EQUAL(count("{\"backend\": \"other\""), 1u);
    CHECK(has("{\"backend\": \"other\", \"layer\": 0, \"inference\": 0, \"checked\": false"));
}

static void test_corrupted_on_purpose(void)
{
    int completion;

    for (completion = INTERRUPT; completion <= (int)QUEUED; ++completion) {
        prepare(25u, 3u);
        set("UMAKIT_COSIM_CORRUPT", "0");
        (void)run((enum completion)completion, 4u);
        expect_kind("memory");
        CHECK(has("\"byte\": 64, "));
        CHECK(has("\"expected\": 17, \"found\": 238"));
    }
    prepare(25u, 3u);
    set("UMAKIT_COSIM_CORRUPT", "2");
    run_layers(3, 2u);
    expect_kind("memory");
    CHECK(has("\"layer\": 2, \"inference\": 0, \"kind\": \"memory\""));
}

/* ---- Options ---- */

static void test_waveform(void)
{
    prepare(20u, 2u);
    set("UMAKIT_COSIM_WAVE", "a:b.fst:10:0x20");
    trace_last = 0u;
    open_pair();
    CHECK(strcmp(trace_file, "a:b.fst") == 0);
    CHECK_EQUAL(trace_first, 10u);
    CHECK_EQUAL(trace_last, 32u);
    close_pair();
    set("UMAKIT_COSIM_WAVE_BACKEND", "other");
    trace_last = 0u;
    open_pair();
    CHECK_EQUAL(trace_last, 0u);
    close_pair();
    prepare(20u, 2u);
    set("UMAKIT_COSIM_WAVE", "b.fst:10:20");
    set("UMAKIT_COSIM_WAVE_RESETS", "1");
    set("UMAKIT_COSIM_LAYERS", "0,2");
    trace_last = 0u;
    run_layers(2, 2u);
    CHECK_EQUAL(trace_last, 0u);
    CHECK_EQUAL(copy(INTERRUPT, 1u), UMAKIT_OK);
    CHECK_EQUAL(trace_last, 20u);
    CHECK_EQUAL(trace_resets, 2u); /* the first one by opening */
    close_pair();
    prepare(20u, 2u);
    set("UMAKIT_COSIM_WAVE", "b.fst:10:20");
    umakit_simulator_open(&model, copy_machine_model_simulator());
    pair = umakit_cosim_open("copier", &model, copy_machine_rtl_simulator(), NULL);
    CHECK(strcmp(umakit_simulator_failure(pair), "UMAKIT_COSIM_WAVE is set, but the RTL was built "
                                                 "without waveforms") == 0);
    close_pair();
}

static void test_wrong_options(void)
{
    static const char *const wrong[][2] = {
        {"UMAKIT_COSIM_LAYERS", "1;2"},    {"UMAKIT_COSIM_LAYERS", "-1"},
        {"UMAKIT_COSIM_DOORBELLS", "x"},   {"UMAKIT_COSIM_VOLATILE", "1:"},
        {"UMAKIT_COSIM_TILES", ""},        {"UMAKIT_COSIM_TILES", "4294967296"},
        {"UMAKIT_COSIM_CATCH_UP", "1M"},   {"UMAKIT_COSIM_CORRUPT", "1,2"},
        {"UMAKIT_COSIM_WAVE", "f.fst"},    {"UMAKIT_COSIM_WAVE", "f.fst:3:2"},
        {"UMAKIT_COSIM_WAVE", ":1:2"},     {"UMAKIT_COSIM_WAVE_RESETS", "first"},
        {"UMAKIT_COSIM_IDLE", "ID"},       {"UMAKIT_COSIM_REPORT", "no/such/folder/report"}};
    size_t i;

    for (i = 0u; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        prepare(20u, 2u);
        set(wrong[i][0], wrong[i][1]);
        open_pair();
        CHECK(strstr(umakit_simulator_failure(pair), wrong[i][0]) != NULL);
        CHECK_EQUAL(umakit_device_read32(pair, 0u), UINT32_MAX);
        umakit_cosim_close(pair);
    }
}

static void test_pairs_that_cannot_be(void)
{
    prepare(20u, 2u);
    umakit_simulator_open(&model, copy_machine_model_simulator());
    pair = umakit_cosim_open("copier", &model, NULL, NULL);
    CHECK(strcmp(umakit_simulator_failure(pair), "the simulator has no table of functions") == 0);
    umakit_cosim_close(pair);
    pair = umakit_cosim_open("copier", NULL, copy_machine_rtl_simulator(), NULL);
    CHECK(strcmp(umakit_simulator_failure(pair), "there is no model") == 0);
    umakit_cosim_close(pair);
    umakit_cosim_close(NULL);
}

/* ---- The rest of device.h and of simulator.h ---- */

static void test_reset_and_misuse(void)
{
    struct umakit_own_counters measured;

    prepare(20u, 2u);
    CHECK_EQUAL(run(INTERRUPT, 1u), UMAKIT_OK);
    umakit_device_unmap(pair, 0x10000000u);
    CHECK_EQUAL(umakit_simulator_reset(pair), UMAKIT_OK);
    CHECK_EQUAL(copy_machine_model.resets, 2u);
    CHECK_EQUAL(copy_machine_rtl.resets, 2u);
    umakit_simulator_measure(pair, &measured);
    CHECK_EQUAL(measured.clock, 0u);
    commands_before = 0u;
    CHECK_EQUAL(copy(INTERRUPT_AND_STATUS, 2u), UMAKIT_OK);
    close_pair();
}

/* Initial accesses are those since the reset. */
static void test_initial_accesses_after_reset(void)
{
    prepare(20u, 2u);
    set("UMAKIT_COSIM_LAYERS", "1");
    open_pair();
    umakit_device_write32(pair, COPY_MACHINE_MODE, 1u);
    CHECK_EQUAL(umakit_simulator_reset(pair), UMAKIT_OK);
    commands_before = 0u;
    CHECK_EQUAL(copy(INTERRUPT, 2u), UMAKIT_OK);
    umakit_cosim_after_layer(0);
    CHECK_EQUAL(copy(INTERRUPT, 2u), UMAKIT_OK);
    CHECK(!is_failed());
    CHECK(memcmp(output, input, BYTES) == 0);
    close_pair();
}

static void test_faults_go_to_both(void)
{
    struct umakit_fault fault = {.kind = UMAKIT_FAULT_LOST_INTERRUPT, .count = 1u};

    prepare(20u, 2u);
    open_pair();
    CHECK_EQUAL(umakit_simulator_inject(pair, &fault), UMAKIT_OK);
    commands_before = 0u;
    CHECK_EQUAL(copy(INTERRUPT, 1u), UMAKIT_TIMEOUT);
    CHECK(!is_failed());
    umakit_simulator_remove_faults(pair);
    CHECK_EQUAL(copy(INTERRUPT, 1u), UMAKIT_OK);
    CHECK(!is_failed());
    close_pair();
}

int main(void)
{
    test_equal_machines_agree();
    test_cycles_are_those_of_each_clock();
    test_accesses_in_step();
    test_unknown_counters();
    test_overlapping_buffers();
    test_wrong_byte_under_another_buffer();
    test_reading_again();
    test_space_of_a_queue();
    test_slower_waits();
    test_much_slower_waits();
    test_stopped_in_the_middle();
    test_both_time_out();
    test_volatile_registers();
    test_wrong_byte();
    test_byte_outside_of_the_result();
    test_write_after_done();
    test_write_before_the_next_completion();
    test_patience();
    test_interrupts();
    test_registers();
    test_failure_of_the_rtl();
    test_chosen_layers();
    test_stale_bits();
    test_mistake_in_a_layer();
    test_tiles();
    test_inferences();
    test_two_backends();
    test_corrupted_on_purpose();
    test_waveform();
    test_wrong_options();
    test_pairs_that_cannot_be();
    test_reset_and_misuse();
    test_initial_accesses_after_reset();
    test_faults_go_to_both();
    return check_result();
}
