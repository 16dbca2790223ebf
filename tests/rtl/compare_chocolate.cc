/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs random programs of register accesses on the Verilated Chocolate and on the C model with
 * the same figures, and compares what registers say, every byte of the scratchpad and of memory,
 * and the cycles of streams of commands.
 *
 *     compare PROGRAMS SEED       prints differences and a table of cycles; 1 if there was one
 *
 * A register access takes two cycles on AXI4-Lite and one in the model, which is made to wait as
 * long, so that what is left are the engines.
 */
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "umakit/own_simulator.h"
#include "umakit/simulator.h"
#include "umakit/systolic_array.h"

extern "C" const umakit_own_simulator *chocolate_simulator(void);

#define OFFSET(name) UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET
#define MASK(name) UMAKIT_SYSTOLIC_ARRAY_##name##_MASK

namespace {

using Word = std::uint32_t;

/* The configuration of accel.toml in backends/small_chocolate_accelerator/rtl, unless others are given. */
#ifndef ROWS
#define ROWS 4
#endif
#ifndef COLUMNS
#define COLUMNS 4
#endif
#ifndef QUEUE_DEPTH
#define QUEUE_DEPTH 4
#endif
constexpr Word BANKS = 8, BANK_BYTES = 2048, SUM_BYTES = 4096, DEPTH = QUEUE_DEPTH;
constexpr Word SCRATCHPAD = BANKS * BANK_BYTES;
constexpr Word LATENCY = 16, BURST = 256;

/* Cycles that the driver waits beyond those of the model. */
constexpr Word ACCESS = 1;

/* Memory: random bytes, shifts that are valid, multipliers; and room for results. */
constexpr Word RANDOM = SCRATCHPAD, SHIFTS = RANDOM, MULTIPLIERS = SHIFTS + 4096;
constexpr Word INPUT_BYTES = MULTIPLIERS + 4096, OUTPUT_BYTES = 2 * SCRATCHPAD;

std::mt19937 random_bits;

Word below(Word count)
{
    return count == 0 ? 0 : static_cast<Word>(random_bits() % count);
}

Word between(Word low, Word high)
{
    return low + below(high - low + 1);
}

bool one_in(Word count)
{
    return below(count) == 0;
}

/* ---- A device, and what happened on it ---- */

enum class What { WRITE, READ, ROOM, WAIT_QUEUE, WAIT_DMA, WAIT_ARRAY, PAUSE, QUIET, FAULT, FAULTLESS, BEGIN, END };

struct Step {
    What what;
    Word offset = 0;
    Word value = 0;
};

using Program = std::vector<Step>;

struct Device {
    Device(bool is_model_, umakit_device *device_) : is_model(is_model_), device(device_) {}

    bool is_model;
    umakit_device *device;
    std::vector<unsigned char> input, output;
    Word input_address = 0, output_address = 0;
    std::vector<Word> seen;
    std::uint64_t begin = 0, cycles = 0;

    void map()
    {
        if (umakit_device_map(device, input.data(), input.size(), UMAKIT_TO_DEVICE,
                              &input_address) != UMAKIT_OK ||
            umakit_device_map(device, output.data(), output.size(), UMAKIT_BIDIRECTIONAL,
                              &output_address) != UMAKIT_OK) {
            std::abort();
        }
    }

    std::uint64_t clock() const
    {
        umakit_own_counters counters;
        umakit_simulator_measure(device, &counters);
        return counters.clock;
    }

    void wait(Word cycles_)
    {
        if (umakit_device_wait(device, cycles_) == UMAKIT_NO_DEVICE) {
            std::abort();
        }
    }

    void spend(Word cycles_) /* of a model that no interrupt wakes */
    {
        if (is_model) {
            wait(cycles_);
        }
    }

    void write(Word offset, Word value)
    {
        spend(ACCESS);
        umakit_device_write32(device, offset, value);
    }

    Word read(Word offset)
    {
        spend(ACCESS);
        return umakit_device_read32(device, offset);
    }

    void until(Word offset, Word mask, Word value)
    {
        for (Word i = 0; i < 200000; ++i) {
            if ((read(offset) & mask) == value ||
                (read(OFFSET(STATUS)) & MASK(STATUS_ERROR)) != 0) {
                return;
            }
        }
        seen.push_back(0xDEAD0000u | offset);
    }

    void step(const Step &step_)
    {
        switch (step_.what) {
        case What::WRITE:
            write(step_.offset, step_.value);
            break;
        case What::READ:
            seen.push_back(read(step_.offset));
            break;
        case What::ROOM:
            for (Word i = 0; i < 200000 && read(OFFSET(QUEUE_FREE)) == 0; ++i) {
            }
            break;
        case What::WAIT_QUEUE:
            until(OFFSET(COMMANDS_LEFT), ~0u, 0);
            break;
        case What::WAIT_DMA:
            until(OFFSET(STATUS), MASK(STATUS_DMA_BUSY), 0);
            break;
        case What::WAIT_ARRAY:
            until(OFFSET(STATUS), MASK(STATUS_ARRAY_BUSY), 0);
            break;
        case What::PAUSE:
            wait(step_.value);
            break;
        case What::QUIET: /* after an error engines may have accesses to end */
            for (Word i = 0; i < 100000 && (read(OFFSET(STATUS)) & MASK(STATUS_IDLE)) == 0; ++i) {
            }
            break;
        case What::FAULT: {
            umakit_fault fault = {};

            fault.kind = UMAKIT_FAULT_BUS_ERROR;
            fault.address = step_.offset;
            fault.bytes = step_.value;
            if (umakit_simulator_inject(device, &fault) != UMAKIT_OK) {
                std::abort();
            }
            break;
        }
        case What::FAULTLESS:
            umakit_simulator_remove_faults(device);
            break;
        case What::BEGIN:
            begin = clock();
            break;
        case What::END: /* as exactly as an interrupt says it */
            umakit_device_write32(device, OFFSET(INTERRUPT_ENABLE),
                                  MASK(INTERRUPT_ENABLE_QUEUE_DONE) | MASK(INTERRUPT_ENABLE_ERROR));
            if (umakit_device_wait(device, 100000000u) != UMAKIT_OK) {
                seen.push_back(0xDEADBEEFu);
            }
            cycles = clock() - begin;
            umakit_device_write32(device, OFFSET(INTERRUPT_ENABLE), 0);
            break;
        default:
            break;
        }
    }
};

/* ---- Programs ---- */

Word input_address, output_address;

void write(Program &program, Word offset, Word value)
{
    program.push_back({What::WRITE, offset, value});
}

void read(Program &program, Word offset)
{
    program.push_back({What::READ, offset, 0});
}

void read_state(Program &program)
{
    for (Word offset : {OFFSET(STATUS), OFFSET(INTERRUPT_PENDING), OFFSET(ERROR),
                        OFFSET(ERROR_ADDRESS), OFFSET(COMMANDS_LEFT), OFFSET(QUEUE_FREE),
                        OFFSET(DMA_BYTES_LEFT), OFFSET(ARRAY_CYCLES_LEFT)}) {
        read(program, offset);
    }
}

void read_counters(Program &program)
{
    for (Word offset : {OFFSET(COMPUTE_CYCLES_LOW), OFFSET(MACS_LOW), OFFSET(MACS_HIGH),
                        OFFSET(USEFUL_MACS_LOW), OFFSET(USEFUL_MACS_HIGH), OFFSET(BYTES_IN_LOW),
                        OFFSET(BYTES_IN_HIGH), OFFSET(BYTES_OUT_LOW), OFFSET(BYTES_OUT_HIGH)}) {
        read(program, offset);
    }
}

struct Transfer {
    Word bus, scratchpad, direction, row_bytes, rows = 1, planes = 1;
    Word bus_row = 0, bus_plane = 0, row = 0, plane = 0;
};

using Registers = std::map<Word, Word>; /* by offset */

Registers registers_of(const Transfer &t)
{
    return {{OFFSET(DMA_BUS_ADDRESS), t.bus},
            {OFFSET(DMA_SCRATCHPAD_START), t.scratchpad},
            {OFFSET(DMA_DIRECTION), t.direction},
            {OFFSET(DMA_ROW_BYTES), t.row_bytes},
            {OFFSET(DMA_ROWS), t.rows},
            {OFFSET(DMA_PLANES), t.planes},
            {OFFSET(DMA_BUS_ROW_STRIDE), t.bus_row},
            {OFFSET(DMA_BUS_PLANE_STRIDE), t.bus_plane},
            {OFFSET(DMA_SCRATCHPAD_ROW_STRIDE), t.row},
            {OFFSET(DMA_SCRATCHPAD_PLANE_STRIDE), t.plane}};
}

void set(Registers &registers, Word first, std::initializer_list<Word> values)
{
    for (Word value : values) {
        registers[first] = value;
        first += 4;
    }
}

enum class How { ENQUEUE, START };

void command(Program &program, const Registers &registers, bool is_transfer, How how)
{
    for (const auto &[offset, value] : registers) {
        write(program, offset, value);
    }
    if (how == How::ENQUEUE) {
        program.push_back({What::ROOM});
        write(program, OFFSET(CONTROL),
              is_transfer ? MASK(CONTROL_ENQUEUE_DMA) : MASK(CONTROL_ENQUEUE_ARRAY));
    } else {
        write(program, OFFSET(CONTROL),
              is_transfer ? MASK(CONTROL_DMA_START) : MASK(CONTROL_ARRAY_START));
    }
}

void load(Program &program, Word from, Word to, Word bytes, How how = How::ENQUEUE)
{
    command(program, registers_of({input_address + from, to, 0, bytes}), true, how);
}

void store(Program &program, Word from, Word to, Word bytes, How how = How::ENQUEUE)
{
    command(program, registers_of({output_address + to, from, 1, bytes}), true, how);
}

/* Everything anew, the scratchpad, sums and memory: after an error what was written is undefined. */
void refill(Program &program)
{
    Registers r;

    program.push_back({What::QUIET});
    write(program, OFFSET(CONTROL), MASK(CONTROL_CLEAR));
    program.push_back({What::QUIET});
    load(program, 0, 0, SCRATCHPAD, How::START);
    program.push_back({What::WAIT_DMA});
    store(program, 0, SCRATCHPAD, SCRATCHPAD, How::START);
    program.push_back({What::WAIT_DMA});
    set(r, OFFSET(OPERATION), {0, 0, 0, 0, 0, 0, 0, 8192});
    set(r, OFFSET(INPUT_HEIGHT), {1, 1, 1, 16, 16, 4, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 64, 4, 1});
    set(r, OFFSET(INPUT_ZERO_POINT), {0, 0, 0, 0, 0, 1});
    set(r, OFFSET(ACCUMULATE), {2, 0});
    command(program, r, false, How::START);
    program.push_back({What::WAIT_ARRAY});
}

void dump(Program &program)
{
    store(program, 0, 0, SCRATCHPAD, How::START);
    program.push_back({What::WAIT_DMA});
    read_state(program);
}

/* A copy of planes of rows that fits both sides. */
Transfer random_transfer(bool is_out)
{
    const bool is_shared = is_out || one_in(2); /* loads of what stores wrote */
    const Word bus_bytes = is_shared ? OUTPUT_BYTES : INPUT_BYTES;
    const Word bus = is_shared ? output_address : input_address;

    for (;;) {
        Transfer t = {};
        t.direction = is_out;
        t.row_bytes = one_in(4) ? between(1, 700) : between(1, 40);
        t.rows = one_in(2) ? 1 : between(1, 9);
        t.planes = one_in(2) ? 1 : between(1, 4);
        const bool is_apart = is_out || one_in(2);
        t.bus_row = is_apart ? t.row_bytes + below(40) : below(300);
        t.bus_plane = is_apart ? t.bus_row * t.rows + below(40) : below(3000);
        t.row = !is_out ? t.row_bytes + below(8) : below(200);
        t.plane = !is_out ? t.row * t.rows + below(8) : below(3000);
        const Word bus_end = (t.planes - 1) * t.bus_plane + (t.rows - 1) * t.bus_row + t.row_bytes;
        const Word end = (t.planes - 1) * t.plane + (t.rows - 1) * t.row + t.row_bytes;
        if (t.rows == 1 && one_in(2)) {
            t.bus_row = random_bits();
            t.row = random_bits();
        }
        if (t.planes == 1 && one_in(2)) {
            t.bus_plane = random_bits();
            t.plane = random_bits();
        }
        if (bus_end <= bus_bytes && end <= SCRATCHPAD) {
            t.bus = bus + below(bus_bytes - bus_end + 1);
            t.scratchpad = below(SCRATCHPAD - end + 1);
            return t;
        }
    }
}

struct Job {
    Registers registers;
    std::vector<std::pair<Word, Word>> edges; /* values at a limit and next to it, by offset */
    Word shifts, multipliers, scales, ofmap, ofmap_bytes;
};

Word signed_between(int low, int high)
{
    return static_cast<Word>(low + static_cast<int>(below(static_cast<Word>(high - low + 1))));
}

/* Strides of height x width x channels in a random order with gaps, and the bytes. */
Word random_strides(const Word sizes[3], Word strides[3])
{
    int order[3] = {2, 1, 0};
    Word stride = one_in(5) ? between(1, 3) : 1;

    if (one_in(3)) {
        std::shuffle(order, order + 3, random_bits);
    } else if (one_in(2)) { /* planes */
        order[0] = 1;
        order[1] = 0;
        order[2] = 2;
    }
    for (int axis : order) {
        strides[axis] = stride;
        stride = stride * sizes[axis] + (one_in(5) ? below(5) : 0);
    }
    return (sizes[0] - 1) * strides[0] + (sizes[1] - 1) * strides[1] +
           (sizes[2] - 1) * strides[2] + 1;
}

/* The product of sizes that random jobs have; larger ones take longer. */
Job random_job(Word size)
{
    for (;;) {
        Job job = {};
        Registers &r = job.registers;
        const bool is_depthwise = one_in(3);
        const Word input[3] = {between(1, 3 + 2 * size), between(1, 3 + 2 * size),
                               between(1, is_depthwise ? 8 : 6 * size)};
        const Word repeats = one_in(3) ? between(2, 3) : 1;
        const Word output[3] = {between(1, 2 + 2 * size), between(1, 2 + 2 * size),
                                is_depthwise ? input[2] * repeats : between(1, 5 * size)};
        const Word kernel[2] = {between(1, 3), between(1, 3)};
        const bool differs = one_in(2);
        const Word accumulate = one_in(2) ? 0 : between(1, 3);
        const bool adds = one_in(3);
        Word in_stride[3], out_stride[3];
        const Word depth = kernel[0] * kernel[1] * (is_depthwise ? 1 : input[2]);
        const Word blocks = (output[2] + COLUMNS - 1) / COLUMNS;
        const Word scales = differs ? output[2] : 1;
        const Word sums = 4 * output[0] * output[1] * output[2];
        struct {
            Word bytes, alignment, start;
        } operand[7] = {
            {random_strides(input, in_stride), 1, 0},
            {is_depthwise ? depth * output[2] : depth * blocks * COLUMNS, 1, 0},
            {4 * output[2], 4, 0},
            {4 * scales, 4, 0},
            {scales, 1, 0},
            {random_strides(output, out_stride), 1, 0},
            {0, 1, 0}};
        operand[6].bytes = operand[5].bytes;
        int order[7] = {0, 1, 2, 3, 4, 5, 6};
        std::shuffle(order, order + 7, random_bits);
        Word place = one_in(2) ? 0 : below(SCRATCHPAD / 4);
        for (int i : order) {
            place += one_in(3) ? below(SCRATCHPAD / 8) : one_in(2) ? 0 : below(5);
            place = (place + operand[i].alignment - 1) / operand[i].alignment * operand[i].alignment;
            operand[i].start = place;
            place += operand[i].bytes;
        }
        if (place > SCRATCHPAD || sums > SUM_BYTES) {
            continue;
        }
        if (one_in(2)) {
            operand[5].start = operand[6].start; /* the addend in place */
        }
        if (one_in(6)) {
            operand[0].start = operand[1].start; /* operands may overlap */
            if (operand[0].start + operand[0].bytes > SCRATCHPAD ||
                (operand[0].start < operand[6].start + operand[6].bytes &&
                 operand[6].start < operand[0].start + operand[0].bytes)) {
                continue;
            }
        }
        set(r, OFFSET(OPERATION), {is_depthwise, 0});
        set(r, OFFSET(IFMAP_START), {operand[0].start, operand[1].start, operand[2].start,
                                     operand[3].start, operand[4].start, operand[6].start});
        set(r, OFFSET(INPUT_HEIGHT), {input[0], input[1], input[2], output[0], output[1], output[2]});
        set(r, OFFSET(KERNEL_HEIGHT), {kernel[0], kernel[1], between(1, 3), between(1, 3),
                                       between(1, 2), between(1, 3), below(4), below(4)});
        set(r, OFFSET(IFMAP_ROW_STRIDE), {in_stride[0], in_stride[1], in_stride[2], out_stride[0],
                                          out_stride[1], out_stride[2]});
        set(r, OFFSET(INPUT_ZERO_POINT), {signed_between(-128, 127), signed_between(-128, 127)});
        const bool clips = one_in(3);
        set(r, OFFSET(CLIP_LOWEST), {clips ? signed_between(-128, 0) : signed_between(-128, -128),
                                     clips ? signed_between(0, 127) : 127u, below(2), scales});
        set(r, OFFSET(ACCUMULATE), {accumulate, 4 * below((SUM_BYTES - sums) / 4 + 1)});
        const Word multiplier = one_in(3) ? below(0x80000000u) : between(0x40000000u, 0x7FFFFFFFu);
        set(r, OFFSET(ADD), {adds, operand[5].start, signed_between(-128, 127),
                             one_in(4) ? below(23) : 20u, multiplier, signed_between(-3, 1),
                             between(0x40000000u, 0x7FFFFFFFu), signed_between(-3, 0), multiplier,
                             one_in(4) ? signed_between(-31, 30) : signed_between(-22, -16),
                             signed_between(-128, 127), signed_between(-128, -40),
                             signed_between(-40, 127)});
        const Word starts[7] = {OFFSET(IFMAP_START), OFFSET(WEIGHTS_START), OFFSET(BIAS_START),
                                OFFSET(MULTIPLIERS_START), OFFSET(SHIFTS_START),
                                OFFSET(ADDEND_START), OFFSET(OFMAP_START)};
        for (int i = 0; i < 7; ++i) {
            const auto &[bytes, alignment, start] = operand[i];
            const Word last = (SCRATCHPAD - bytes) / alignment * alignment;

            job.edges.insert(job.edges.end(), {{starts[i], last},
                                               {starts[i], last + alignment},
                                               {OFFSET(OFMAP_START), start + bytes},
                                               {OFFSET(OFMAP_START), start + bytes - 1},
                                               {OFFSET(OFMAP_START), start - operand[6].bytes},
                                               {OFFSET(OFMAP_START), start - operand[6].bytes + 1}});
        }
        for (Word i = 0; accumulate != 0 && i < 8; ++i) {
            job.edges.emplace_back(OFFSET(ACCUMULATOR_START), SUM_BYTES - sums + 4 * (i % 2));
        }
        job.shifts = operand[4].start;
        job.multipliers = operand[3].start;
        job.scales = scales;
        job.ofmap = operand[6].start;
        job.ofmap_bytes = operand[6].bytes;
        return job;
    }
}

/* Loads of what a job needs to be right, the job, and sometimes a store of its result. */
void random_work(Program &program, Word size, How how)
{
    const Job job = random_job(size);
    const How copies = how;
    const auto wait = [&](What what) {
        if (how == How::START) {
            program.push_back({what});
        }
    };

    for (Word i = below(3); i > 0; --i) {
        command(program, registers_of(random_transfer(false)), true, copies);
        wait(What::WAIT_DMA);
    }
    load(program, MULTIPLIERS + 4 * below(512), job.multipliers, 4 * job.scales, copies);
    wait(What::WAIT_DMA);
    load(program, SHIFTS + below(2048), job.shifts, job.scales, copies);
    wait(What::WAIT_DMA);
    command(program, job.registers, false, how);
    wait(What::WAIT_ARRAY);
    if (one_in(2)) {
        const Word to = below(SCRATCHPAD);

        store(program, job.ofmap, to, job.ofmap_bytes, copies);
        wait(What::WAIT_DMA);
        if (one_in(2)) { /* as the next layer does */
            const Word bytes = between(1, 64);

            command(program,
                    registers_of({output_address + to + below(job.ofmap_bytes),
                                  below(SCRATCHPAD - bytes + 1), 0, bytes}),
                    true, copies);
            wait(What::WAIT_DMA);
        }
    }
    if (one_in(3)) {
        command(program, registers_of(random_transfer(true)), true, copies);
        wait(What::WAIT_DMA);
    }
}

void reset_counters(Program &program)
{
    write(program, OFFSET(CONTROL), MASK(CONTROL_RESET_COUNTERS));
    write(program, OFFSET(INTERRUPT_PENDING), MASK(INTERRUPT_PENDING_QUEUE_DONE) |
                                                  MASK(INTERRUPT_PENDING_COMMAND_DONE));
}

Program random_stream()
{
    Program program;
    const Word size = between(1, 3);

    reset_counters(program);
    for (Word i = between(1, 6); i > 0; --i) {
        random_work(program, size, How::ENQUEUE);
    }
    program.push_back({What::WAIT_QUEUE});
    program.push_back({What::QUIET});
    read_state(program);
    read_counters(program);
    dump(program);
    return program;
}

Program random_starts()
{
    Program program;

    reset_counters(program);
    for (Word i = between(1, 3); i > 0; --i) {
        random_work(program, between(1, 2), How::START);
        read_state(program);
    }
    read_counters(program);
    dump(program);
    return program;
}

/* As a driver does it: tiles of a layer in turns in two places, banks apart. `bound` makes the
 * array or the DMA engine the slower one. */
Program tiled_stream(Word rows_of_tile, Word channels, Word out_channels, Word kernel, Word tiles)
{
    Program program;
    const Word width = 16, pad = kernel / 2;
    const Word in_rows = rows_of_tile + kernel - 1;
    const Word in_bytes = in_rows * width * channels;
    const Word out_bytes = rows_of_tile * width * out_channels;
    const Word depth = kernel * kernel * channels;
    const Word weights = 4 * BANK_BYTES, parameters = 6 * BANK_BYTES;
    const Word weight_bytes = depth * ((out_channels + COLUMNS - 1) / COLUMNS * COLUMNS);

    if (in_bytes > BANK_BYTES || out_bytes > BANK_BYTES || weight_bytes > 2 * BANK_BYTES) {
        return {};
    }
    reset_counters(program);
    program.push_back({What::BEGIN});
    load(program, 0, weights, weight_bytes);
    load(program, 64, parameters, 4 * out_channels);
    load(program, MULTIPLIERS, parameters + 512, 4 * out_channels);
    load(program, SHIFTS, parameters + 1024, out_channels);
    for (Word tile = 0; tile < tiles; ++tile) {
        const Word in = (tile % 2) * BANK_BYTES, out = (2 + tile % 2) * BANK_BYTES;
        Registers r;

        load(program, tile * 128, in, in_bytes);
        set(r, OFFSET(OPERATION), {0, 0});
        set(r, OFFSET(IFMAP_START), {in, weights, parameters, parameters + 512, parameters + 1024,
                                     out});
        set(r, OFFSET(INPUT_HEIGHT), {in_rows, width, channels, rows_of_tile, width, out_channels});
        set(r, OFFSET(KERNEL_HEIGHT), {kernel, kernel, 1, 1, 1, 1, 0, pad});
        set(r, OFFSET(IFMAP_ROW_STRIDE), {width * channels, channels, 1, width * out_channels,
                                          out_channels, 1});
        set(r, OFFSET(INPUT_ZERO_POINT), {3, signed_between(-4, -4), signed_between(-128, -128),
                                          127, tile % 2, out_channels});
        set(r, OFFSET(ACCUMULATE), {0, 0});
        set(r, OFFSET(ADD), {0});
        command(program, r, false, How::ENQUEUE);
        store(program, out, tile * out_bytes % SCRATCHPAD, out_bytes);
    }
    program.push_back({What::END});
    program.push_back({What::QUIET});
    read_state(program);
    read_counters(program);
    dump(program);
    return program;
}

/* ---- Commands that are wrong in one way ---- */

const std::vector<std::pair<Word, std::vector<Word>>> &wrong_values()
{
    static const Word most = 0xFFFFFFFFu, size = 0xFFFFu, channels = 0xFFFFFFu;
    static const std::vector<std::pair<Word, std::vector<Word>>> values = {
        {OFFSET(OPERATION), {1, 2, 3, 4, most}},
        {OFFSET(DATAFLOW), {1, 2, 3, most}},
        {OFFSET(IFMAP_START), {0, SCRATCHPAD - 1, SCRATCHPAD, most}},
        {OFFSET(WEIGHTS_START), {0, SCRATCHPAD - 1, SCRATCHPAD, most}},
        {OFFSET(BIAS_START), {1, 2, 3, SCRATCHPAD - 4, SCRATCHPAD, most - 3}},
        {OFFSET(MULTIPLIERS_START), {1, 2, 3, SCRATCHPAD - 4, SCRATCHPAD, most - 3}},
        {OFFSET(SHIFTS_START), {SCRATCHPAD - 1, SCRATCHPAD, most}},
        {OFFSET(OFMAP_START), {0, SCRATCHPAD - 1, SCRATCHPAD, most}},
        {OFFSET(INPUT_HEIGHT), {0, size, size + 1, most}},
        {OFFSET(INPUT_WIDTH), {0, size, size + 1, most}},
        {OFFSET(INPUT_CHANNELS), {0, channels, channels + 1, most}},
        {OFFSET(OUTPUT_HEIGHT), {0, size, size + 1, most}},
        {OFFSET(OUTPUT_WIDTH), {0, size, size + 1, most}},
        {OFFSET(OUTPUT_CHANNELS), {0, channels, channels + 1, most}},
        {OFFSET(KERNEL_HEIGHT), {0, size, size + 1, most}},
        {OFFSET(KERNEL_WIDTH), {0, size, size + 1, most}},
        {OFFSET(STRIDE_HEIGHT), {0, size, size + 1, most}},
        {OFFSET(STRIDE_WIDTH), {0, size, size + 1, most}},
        {OFFSET(DILATION_HEIGHT), {0, size, size + 1, most}},
        {OFFSET(DILATION_WIDTH), {0, size, size + 1, most}},
        {OFFSET(PAD_TOP), {size, size + 1, most}},
        {OFFSET(PAD_LEFT), {size, size + 1, most}},
        {OFFSET(IFMAP_ROW_STRIDE), {most, SCRATCHPAD}},
        {OFFSET(IFMAP_COLUMN_STRIDE), {most, SCRATCHPAD}},
        {OFFSET(IFMAP_CHANNEL_STRIDE), {most, SCRATCHPAD}},
        {OFFSET(OFMAP_ROW_STRIDE), {most, SCRATCHPAD}},
        {OFFSET(OFMAP_COLUMN_STRIDE), {most, SCRATCHPAD}},
        {OFFSET(OFMAP_CHANNEL_STRIDE), {most, SCRATCHPAD}},
        {OFFSET(INPUT_ZERO_POINT), {128, most - 128, most}},
        {OFFSET(OUTPUT_ZERO_POINT), {128, most - 128, most}},
        {OFFSET(CLIP_LOWEST), {128, most - 128, 127}},
        {OFFSET(CLIP_HIGHEST), {128, most - 128, most - 127}},
        {OFFSET(ROUNDING), {2, most}},
        {OFFSET(SCALE_COUNT), {0, 2, 3, most}},
        {OFFSET(ACCUMULATE), {4, 7, most}},
        {OFFSET(ACCUMULATOR_START), {1, 2, SUM_BYTES - 4, SUM_BYTES, SUM_BYTES + 4, most - 3}},
        {OFFSET(ADD), {2, most}},
        {OFFSET(ADDEND_START), {0, SCRATCHPAD - 1, SCRATCHPAD, most}},
        {OFFSET(ADDEND_ZERO_POINT), {128, most - 128}},
        {OFFSET(ADD_LEFT_SHIFT), {22, 23, most}},
        {OFFSET(ADD_RESULT_MULTIPLIER), {0x80000000u, most}},
        {OFFSET(ADD_RESULT_SHIFT), {30, 31, most - 30, most - 31}},
        {OFFSET(ADD_ADDEND_MULTIPLIER), {0x80000000u, most}},
        {OFFSET(ADD_ADDEND_SHIFT), {30, 31, most - 30, most - 31}},
        {OFFSET(ADD_MULTIPLIER), {0x80000000u, most}},
        {OFFSET(ADD_SHIFT), {30, 31, most - 30, most - 31}},
        {OFFSET(SUM_ZERO_POINT), {128, most - 128}},
        {OFFSET(SUM_CLIP_LOWEST), {128, most - 128, 127}},
        {OFFSET(SUM_CLIP_HIGHEST), {128, most - 128, most - 127}},
    };
    return values;
}

const std::vector<std::pair<Word, std::vector<Word>>> &wrong_transfers()
{
    static const Word most = 0xFFFFFFFFu;
    static const std::vector<std::pair<Word, std::vector<Word>>> values = {
        {OFFSET(DMA_SCRATCHPAD_START), {SCRATCHPAD - 1, SCRATCHPAD, most}},
        {OFFSET(DMA_DIRECTION), {2, 3, most}},
        {OFFSET(DMA_ROW_BYTES), {0, SCRATCHPAD, SCRATCHPAD + 1, most}},
        {OFFSET(DMA_ROWS), {0, 0x10000u, most}},
        {OFFSET(DMA_PLANES), {0, 0x10000u, most}},
        {OFFSET(DMA_SCRATCHPAD_ROW_STRIDE), {SCRATCHPAD, most}},
        {OFFSET(DMA_SCRATCHPAD_PLANE_STRIDE), {SCRATCHPAD, most}},
    };
    return values;
}

/* A value near a limit instead of what is far from it. */
Word pick(const std::vector<Word> &values)
{
    const Word value = values[below(static_cast<Word>(values.size()))];
    return one_in(4) ? value + between(0, 2) - 1 : value;
}

Program wrong_command()
{
    Program program;
    const bool is_transfer = one_in(4);
    const How how = one_in(2) ? How::START : How::ENQUEUE;
    Job job = random_job(1);
    Registers r = is_transfer ? registers_of(random_transfer(one_in(2))) : job.registers;
    const auto &values = is_transfer ? wrong_transfers() : wrong_values();
    const auto &[offset, wrong] = values[below(static_cast<Word>(values.size()))];

    load(program, MULTIPLIERS, job.multipliers, 4 * job.scales, How::START);
    program.push_back({What::WAIT_DMA});
    load(program, SHIFTS, job.shifts, job.scales, How::START);
    program.push_back({What::WAIT_DMA});
    if (is_transfer) { /* that is right on the bus, whatever its size and direction */
        r[OFFSET(DMA_BUS_ROW_STRIDE)] = r[OFFSET(DMA_BUS_PLANE_STRIDE)] = 0;
        r[OFFSET(DMA_BUS_ADDRESS)] = output_address;
    }
    r[offset] = pick(wrong);
    if (!is_transfer && one_in(2)) {
        const auto &[edge, value] = job.edges[below(static_cast<Word>(job.edges.size()))];

        r = job.registers;
        r[edge] = value;
    }
    command(program, r, is_transfer, how);
    read(program, OFFSET(ERROR));
    read(program, OFFSET(ERROR_ADDRESS));
    program.push_back({What::QUIET});
    read_state(program);
    write(program, OFFSET(CONTROL), MASK(CONTROL_CLEAR));
    read(program, OFFSET(ADD));
    read(program, OFFSET(ACCUMULATE));
    refill(program);
    dump(program);
    return program;
}

/* A wrong shift is found while the job runs. */
Program wrong_shift()
{
    Program program;
    Job job = random_job(1);
    const Word which = below(job.scales);

    reset_counters(program);
    job.registers[OFFSET(ACCUMULATE)] &= 1u;
    load(program, MULTIPLIERS, job.multipliers, 4 * job.scales, How::START);
    program.push_back({What::WAIT_DMA});
    load(program, SHIFTS, job.shifts, job.scales, How::START);
    program.push_back({What::WAIT_DMA});
    load(program, SHIFTS + 4090 + below(2), job.shifts + which, 1, How::START); /* 31 or -32 */
    program.push_back({What::WAIT_DMA});
    command(program, job.registers, false, one_in(2) ? How::START : How::ENQUEUE);
    program.push_back({What::QUIET});
    read_state(program);
    read_counters(program);
    refill(program);
    dump(program);
    return program;
}

/* An error, or CLEAR, while commands run. */
Program interrupted()
{
    Program program;

    for (Word i = between(1, 3); i > 0; --i) {
        random_work(program, 2, How::ENQUEUE);
    }
    program.push_back({What::PAUSE, 0, below(300)});
    switch (below(5)) {
    case 0:
        write(program, OFFSET(CONTROL), MASK(CONTROL_CLEAR));
        break;
    case 1:
        write(program, OFFSET(STATUS), 0);
        break;
    case 2:
        read(program, 0x3Cu);
        break;
    case 3:
        write(program, OFFSET(CONTROL), 0x40u);
        break;
    default:
        write(program, OFFSET(OPERATION), 9u);
        program.push_back({What::ROOM});
        write(program, OFFSET(CONTROL), MASK(CONTROL_ENQUEUE_ARRAY));
        break;
    }
    program.push_back({What::QUIET});
    for (Word offset : {OFFSET(STATUS), OFFSET(ERROR), OFFSET(ERROR_ADDRESS),
                        OFFSET(COMMANDS_LEFT), OFFSET(ARRAY_CYCLES_LEFT)}) {
        read(program, offset);
    }
    /* A START is refused while an error is pending. */
    write(program, OFFSET(CONTROL), MASK(CONTROL_DMA_START) | MASK(CONTROL_ARRAY_START));
    read(program, OFFSET(ERROR));
    refill(program);
    dump(program);
    return program;
}

/* More than the queue holds, and STARTs beside commands. */
Program refused()
{
    Program program;
    const Transfer transfer = {input_address, 0, 0, 4096};

    write(program, OFFSET(INTERRUPT_PENDING), 0x1Fu);
    for (const auto &[offset, value] : registers_of(transfer)) {
        write(program, offset, value);
    }
    const Word count = between(1, DEPTH + 1);
    for (Word i = 0; i < count; ++i) {
        write(program, OFFSET(CONTROL), MASK(CONTROL_ENQUEUE_DMA));
        read(program, OFFSET(QUEUE_FREE));
        if (i < DEPTH) { /* after an error the engine may have accesses to end */
            read(program, OFFSET(STATUS));
        }
    }
    if (one_in(2)) {
        write(program, OFFSET(CONTROL), MASK(CONTROL_DMA_START));
    }
    read(program, OFFSET(ERROR));
    read(program, OFFSET(ERROR_ADDRESS));
    program.push_back({What::WAIT_QUEUE});
    program.push_back({What::QUIET});
    read(program, OFFSET(INTERRUPT_PENDING));
    refill(program);
    dump(program);
    return program;
}

/* A transfer that the bus refuses, or that goes beyond what is mapped. Which byte of a beat or of a
 * burst is at fault the RTL does not know, and what is not mapped it finds when it gets there. */
Program bus_error()
{
    Program program;
    const bool is_out = one_in(2);
    Transfer t = random_transfer(is_out);
    const Word end = t.bus >= output_address ? output_address + OUTPUT_BYTES
                                             : input_address + INPUT_BYTES;
    const bool is_fault = one_in(2);
    const How how = one_in(2) ? How::START : How::ENQUEUE;

    if (is_fault) {
        const Word row = t.rows == 1 ? 0 : t.bus_row, plane = t.planes == 1 ? 0 : t.bus_plane;

        program.push_back({What::FAULT, t.bus + below(t.rows) * row + below(t.planes) * plane +
                                            below(t.row_bytes), between(1, 20)});
    } else if (one_in(3)) {
        t.bus = one_in(2) ? 0u : end + 4096 * between(1, 9); /* wholly outside */
    } else {
        t.rows = t.planes = 1;
        t.row_bytes = between(16, 600);
        t.scratchpad = below(SCRATCHPAD - t.row_bytes);
        t.bus = end - t.row_bytes + (is_out ? between(1, t.row_bytes - 1) : between(8, t.row_bytes));
    }
    command(program, registers_of(t), true, how);
    if (how == How::ENQUEUE && one_in(2)) {
        Registers job = random_job(1).registers; /* is dropped, or refused */

        job[OFFSET(ACCUMULATE)] = 2; /* without shifts, which might be wrong as well */
        command(program, job, false, how);
    }
    program.push_back({What::QUIET});
    for (Word offset : {OFFSET(STATUS), OFFSET(ERROR), OFFSET(COMMANDS_LEFT)}) {
        read(program, offset);
    }
    if (!is_fault) {
        read(program, OFFSET(ERROR_ADDRESS));
    }
    program.push_back({What::FAULTLESS});
    refill(program);
    dump(program);
    return program;
}

/* Registers of an idle device, in any order, written with anything. */
Program registers_only()
{
    Program program;

    reset_counters(program); /* of what was stopped, the model counts all or nothing */
    for (Word i = 0; i < 40; ++i) {
        Word offset = below(0x200u) & ~3u;
        const bool is_clock = offset >= OFFSET(CLOCK_LOW) && offset <= OFFSET(DMA_CYCLES_HIGH);

        if (one_in(2)) {
            write(program, offset, offset == OFFSET(CONTROL) ? (one_in(2) ? 0u : 0x40u)
                          : offset == OFFSET(INTERRUPT_ENABLE) ? 0x20u
                          : one_in(3) ? below(64) : static_cast<Word>(random_bits()));
        } else if (!is_clock) {
            read(program, offset);
        }
        if (one_in(4)) {
            read(program, OFFSET(ERROR));
            read(program, OFFSET(ERROR_ADDRESS));
        }
        if (one_in(8)) {
            write(program, OFFSET(CONTROL), MASK(CONTROL_CLEAR));
        }
    }
    read_state(program);
    refill(program);
    dump(program);
    return program;
}

/* ---- Comparing ---- */

struct Class {
    unsigned streams = 0;
    std::uint64_t model = 0, rtl = 0;
    double worst = 0;
};

void fill(Device &model, Device &rtl)
{
    for (Device *device : {&model, &rtl}) {
        device->input.resize(INPUT_BYTES);
        device->output.assign(OUTPUT_BYTES, 0x5A);
    }
    for (Word i = 0; i < INPUT_BYTES; ++i) {
        Word byte = random_bits() & 0xFFu;
        if (i >= SHIFTS && i < MULTIPLIERS) {
            byte = one_in(4) ? signed_between(-31, 30) : signed_between(-12, 0);
        }
        if (i == SHIFTS + 4090 || i == SHIFTS + 4091) {
            byte = i == SHIFTS + 4090 ? 31u : 0xE0u;
        }
        if (i >= MULTIPLIERS && i % 4 == 3) {
            byte = one_in(8) ? random_bits() & 0x7Fu : 0x40u | (random_bits() & 0x3Fu);
        }
        model.input[i] = rtl.input[i] = static_cast<unsigned char>(byte);
    }
}

bool is_same(const char *kind, unsigned number, const Program &program, Device &model, Device &rtl)
{
    model.seen.clear();
    rtl.seen.clear();
    std::vector<std::size_t> reads;
    for (std::size_t i = 0; i < program.size(); ++i) {
        model.step(program[i]);
        rtl.step(program[i]);
        const char *failure = umakit_simulator_failure(rtl.device);
        if (failure[0] != '\0') {
            std::printf("program %u (%s), step %zu: %s\n", number, kind, i, failure);
            return false;
        }
        if (model.seen != rtl.seen) {
            std::printf("program %u (%s), step %zu: offset 0x%x: model 0x%x, RTL 0x%x\n", number, kind,
                        i, program[i].offset, model.seen.empty() ? 0 : model.seen.back(),
                        rtl.seen.empty() ? 0 : rtl.seen.back());
            std::printf("    error: model %u at 0x%x, RTL %u at 0x%x\n",
                        model.read(OFFSET(ERROR)), model.read(OFFSET(ERROR_ADDRESS)),
                        rtl.read(OFFSET(ERROR)), rtl.read(OFFSET(ERROR_ADDRESS)));
            return false;
        }
    }
    for (Word i = 0; i < OUTPUT_BYTES; ++i) {
        if (model.output[i] != rtl.output[i]) {
            std::printf("program %u (%s): byte %u of the memory: model 0x%x, RTL 0x%x\n", number,
                        kind, i, model.output[i], rtl.output[i]);
            return false;
        }
    }
    return true;
}

unsigned char scratchpad[SCRATCHPAD] __attribute__((aligned(16)));
Word sums[SUM_BYTES / 4];

} // namespace

int main(int argc, char **argv)
{
    const unsigned programs = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 200u;
    const unsigned seed = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1u;
    static umakit_systolic_array array;
    static umakit_device chocolate;
    umakit_systolic_array_config config = {};
    Device model(true, &array.device), rtl(false, &chocolate);
    std::map<std::string, unsigned> counts;
    std::map<std::string, Class> classes;
    unsigned differences = 0;

    random_bits.seed(seed);
    config.array_rows = ROWS;
    config.array_columns = COLUMNS;
    config.drain_cycles_per_fold = ROWS * COLUMNS;
    config.output_stationary = config.depthwise = true;
    config.scratchpad = scratchpad;
    config.scratchpad_bytes = SCRATCHPAD;
    config.scratchpad_banks = BANKS;
    config.dma_bytes_per_cycle = 8;
    config.dma_latency_cycles = LATENCY;
    config.dma_burst_bytes = BURST;
    config.dma_alignment = 1;
    config.accumulator = sums;
    config.accumulator_bytes = SUM_BYTES;
    config.command_queue_depth = DEPTH;
    if (umakit_systolic_array_init(&array, &config) != UMAKIT_OK) {
        return 2;
    }
    umakit_simulator_open(&chocolate, chocolate_simulator());
    fill(model, rtl);
    model.map();
    rtl.map();
    input_address = model.input_address;
    output_address = model.output_address;
    if (rtl.input_address != input_address || rtl.output_address != output_address) {
        return 2;
    }

    { /* Both begin with the same bytes and sums. */
        Program program;

        refill(program);
        dump(program);
        differences += !is_same("begin", 0, program, model, rtl);
    }
    for (unsigned i = 1; i <= programs && differences == 0; ++i) {
        const Word kind = below(17);
        Program program;
        const char *name = "stream";

        if (kind < 4) {
            program = random_stream();
        } else if (kind < 6) {
            name = "starts";
            program = random_starts();
        } else if (kind < 10) {
            name = "wrong";
            program = wrong_command();
        } else if (kind < 11) {
            name = "shift";
            program = wrong_shift();
        } else if (kind < 12) {
            name = "interrupted";
            program = interrupted();
        } else if (kind < 13) {
            name = "refused";
            program = refused();
        } else if (kind < 14) {
            name = "registers";
            program = registers_only();
        } else if (kind < 15) {
            name = "bus";
            program = bus_error();
        } else {
            name = "tiles";
            const Word channels = between(1, 24), outputs = between(1, 24);
            program = tiled_stream(between(1, 4), channels, outputs, one_in(2) ? 3u : 1u, between(4, 40));
            if (program.empty()) {
                --i;
                continue;
            }
        }
        ++counts[name];
        model.cycles = rtl.cycles = 0;
        if (!is_same(name, i, program, model, rtl)) {
            ++differences;
        }
        if (model.cycles != 0) {
            const std::string size = model.cycles < 3000    ? "1: below 3,000"
                                     : model.cycles < 10000 ? "2: 3,000 to 10,000"
                                     : model.cycles < 50000 ? "3: 10,000 to 50,000"
                                                            : "4: from 50,000";
            Class &found = classes[size];
            const double off = 100.0 * (double(rtl.cycles) / double(model.cycles) - 1.0);
            ++found.streams;
            found.model += model.cycles;
            found.rtl += rtl.cycles;
            if (std::abs(off) > std::abs(found.worst)) {
                found.worst = off;
            }
        }
    }
    std::printf("%u differences in", differences);
    for (const auto &[name, count] : counts) {
        std::printf(" %u %s", count, name.c_str());
    }
    std::printf("\n%-24s %8s %12s %12s %9s %9s\n", "cycles of a stream", "streams", "model", "RTL",
                "off", "worst");
    for (const auto &[name, found] : classes) {
        std::printf("%-24s %8u %12" PRIu64 " %12" PRIu64 " %8.2f%% %8.2f%%\n", name.c_str() + 3,
                    found.streams, found.model, found.rtl,
                    100.0 * (double(found.rtl) / double(found.model) - 1.0), found.worst);
    }
    std::printf("RTL clock: %" PRIu64 "\n", rtl.clock());
    return differences != 0;
}
