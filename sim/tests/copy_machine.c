/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_machine.h"

#include <stddef.h>
#include <string.h>

struct copy_machine copy_machine_model;
struct copy_machine copy_machine_rtl;

void copy_machine_init(struct copy_machine *machine, uint32_t latency,
                       uint32_t cycles_per_byte)
{
    *machine = (struct copy_machine){.access_cycles = 1u,
                                     .latency = latency,
                                     .cycles_per_byte = cycles_per_byte,
                                     .id = COPY_MACHINE_ID_VALUE,
                                     .from_bits = UINT32_MAX,
                                     .wrong_byte = COPY_MACHINE_NEVER,
                                     .outside_byte = COPY_MACHINE_NEVER,
                                     .lost_interrupt = COPY_MACHINE_NEVER,
                                     .wrong_status = COPY_MACHINE_NEVER,
                                     .failing_command = COPY_MACHINE_NEVER,
                                     .early_interrupt = COPY_MACHINE_NEVER};
}

static void put(struct copy_machine *machine, uint32_t address, unsigned char value)
{
    if (umakit_host_write(machine->host, address, 1u, &value) != UMAKIT_OK) {
        machine->status |= COPY_MACHINE_ERROR;
    }
    ++machine->written;
}

static void move_byte(struct copy_machine *machine)
{
    const uint32_t position = machine->position++;
    unsigned char value = 0u;

    if (umakit_host_read(machine->host, machine->queue[0].from + position, 1u, &value) !=
        UMAKIT_OK) {
        machine->status |= COPY_MACHINE_ERROR;
        return;
    }
    ++machine->read;
    if ((machine->mode & 1u) != 0u) {
        value ^= 0xffu;
    }
    if (machine->moved == machine->wrong_byte) {
        value ^= 0x10u;
    }
    put(machine, machine->queue[0].to + position, value);
    if (machine->moved == machine->outside_byte) {
        put(machine, machine->queue[0].to + machine->queue[0].bytes, 0xa5u);
    }
    ++machine->moved;
}

static void finish(struct copy_machine *machine)
{
    if (machine->ended != machine->lost_interrupt) {
        machine->is_raised = true;
    }
    if (machine->ended == machine->wrong_status) {
        machine->status |= COPY_MACHINE_ERROR;
    }
    machine->status |= COPY_MACHINE_DONE | COPY_MACHINE_WORKED;
    ++machine->ended;
}

static void leave_queue(struct copy_machine *machine)
{
    --machine->queued;
    memmove(&machine->queue[0], &machine->queue[1],
            machine->queued * sizeof(machine->queue[0]));
    machine->position = 0u;
    machine->command_began = machine->now;
}

/* A cycle of the command at work: byte i moves `cycles_per_byte` x (i + 1) after the latency. */
static void work(struct copy_machine *machine)
{
    const uint64_t age = machine->now - machine->command_began;
    const uint32_t bytes = machine->queue[0].bytes;
    const uint32_t late = machine->late_bytes < bytes ? machine->late_bytes : bytes;

    if (age >= machine->latency + (uint64_t)(machine->position + 1u) * machine->cycles_per_byte) {
        move_byte(machine);
        if (machine->position == bytes - late) {
            finish(machine);
        }
        if (machine->position == bytes) {
            leave_queue(machine);
        }
    }
}

static void pass(struct copy_machine *machine, uint64_t cycles)
{
    uint64_t i;

    for (i = 0u; i < cycles; ++i) {
        ++machine->now;
        if (machine->queued > 0u) {
            work(machine);
        }
    }
}

static void reset(void *simulator)
{
    struct copy_machine *machine = simulator;
    const uint32_t resets = machine->resets;
    umakit_host *host = machine->host;

    memset((unsigned char *)machine + offsetof(struct copy_machine, host), 0,
           sizeof(*machine) - offsetof(struct copy_machine, host));
    machine->host = host;
    machine->resets = resets + 1u;
}

static uint32_t read32(void *simulator, uint32_t offset)
{
    struct copy_machine *machine = simulator;

    pass(machine, machine->access_cycles);
    switch (offset) {
    case COPY_MACHINE_ID:
        return machine->id;
    case COPY_MACHINE_FROM:
        return machine->from & machine->from_bits;
    case COPY_MACHINE_STATUS:
        return machine->status | (machine->queued > 0u ? COPY_MACHINE_BUSY : 0u) |
               (machine->ended << COPY_MACHINE_ENDED_SHIFT);
    case COPY_MACHINE_CYCLES:
        return (uint32_t)machine->now;
    case COPY_MACHINE_SPACE:
        return COPY_MACHINE_QUEUE - machine->queued;
    default:
        return 0u;
    }
}

static void start(struct copy_machine *machine)
{
    if (machine->commands == machine->failing_command) {
        umakit_host_fail(machine->host, "the bus \"m\" is stuck");
        return;
    }
    if (machine->commands == machine->early_interrupt) {
        machine->is_raised = true;
    }
    ++machine->commands;
    machine->status &= ~COPY_MACHINE_WORKED;
    if (machine->queued == COPY_MACHINE_QUEUE) {
        machine->status |= COPY_MACHINE_ERROR;
        return;
    }
    if (machine->queued == 0u) {
        machine->command_began = machine->now;
        machine->position = 0u;
    }
    machine->queue[machine->queued].from = machine->from;
    machine->queue[machine->queued].to = machine->to;
    machine->queue[machine->queued].bytes = machine->bytes;
    ++machine->queued;
}

static void write32(void *simulator, uint32_t offset, uint32_t value)
{
    struct copy_machine *machine = simulator;

    pass(machine, machine->access_cycles);
    if (offset == COPY_MACHINE_FROM) {
        machine->from = value;
    } else if (offset == COPY_MACHINE_TO) {
        machine->to = value;
    } else if (offset == COPY_MACHINE_BYTES) {
        machine->bytes = value;
    } else if (offset == COPY_MACHINE_MODE) {
        machine->mode = value;
    } else if (offset == COPY_MACHINE_START) {
        start(machine);
    } else if (offset == COPY_MACHINE_STATUS && (value & COPY_MACHINE_DONE) != 0u) {
        machine->status &= ~COPY_MACHINE_DONE;
        machine->is_raised = false;
    }
}

static bool wait(void *simulator, uint64_t cycles)
{
    struct copy_machine *machine = simulator;
    uint64_t i;

    for (i = 0u; i < cycles && !machine->is_raised; ++i) {
        pass(machine, 1u);
    }
    return machine->is_raised;
}

static void counters(void *simulator, struct umakit_own_counters *counted)
{
    const struct copy_machine *machine = simulator;

    if (!machine->has_no_counters) {
        counted->clock = machine->now;
        counted->bytes_read = machine->read;
        if (!machine->writes_nothing_counted) {
            counted->bytes_written = machine->written;
        }
    }
}

static void unmapping(void *simulator, uint32_t address, size_t bytes)
{
    struct copy_machine *machine = simulator;

    if (machine->queued > 0u && machine->queue[0].to - address < bytes) {
        machine->queued = 0u;
    }
}

static void *create_model(umakit_host *host)
{
    copy_machine_model.host = host;
    return &copy_machine_model;
}

static void *create_rtl(umakit_host *host)
{
    copy_machine_rtl.host = host;
    return &copy_machine_rtl;
}

const struct umakit_own_simulator *copy_machine_model_simulator(void)
{
    static const struct umakit_own_simulator table = {.version = UMAKIT_OWN_SIMULATOR_VERSION,
                                                      .create = create_model,
                                                      .reset = reset,
                                                      .read32 = read32,
                                                      .write32 = write32,
                                                      .wait = wait,
                                                      .counters = counters,
                                                      .unmapping = unmapping};

    return &table;
}

const struct umakit_own_simulator *copy_machine_rtl_simulator(void)
{
    static const struct umakit_own_simulator table = {.version = UMAKIT_OWN_SIMULATOR_VERSION,
                                                      .map_alignment = 4u,
                                                      .create = create_rtl,
                                                      .reset = reset,
                                                      .read32 = read32,
                                                      .write32 = write32,
                                                      .wait = wait,
                                                      .counters = counters,
                                                      .unmapping = unmapping};

    return &table;
}
