/* SPDX-License-Identifier: Apache-2.0 */
/* A machine that copies bytes, behind a table of functions: a DMA engine with a queue of
 * commands, an interrupt, and mistakes on request. Two of them are the model and the RTL of
 * the tests of co-simulation. */
#ifndef COPY_MACHINE_H
#define COPY_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "umakit/own_simulator.h"

enum copy_machine_register {
    COPY_MACHINE_ID = 0x00,     /* COPY_MACHINE_ID_VALUE */
    COPY_MACHINE_FROM = 0x04,
    COPY_MACHINE_TO = 0x08,
    COPY_MACHINE_BYTES = 0x0c,
    COPY_MACHINE_START = 0x10,  /* puts a command into the queue */
    COPY_MACHINE_STATUS = 0x14, /* see below; writing DONE clears it */
    COPY_MACHINE_CYCLES = 0x18, /* a counter that runs */
    COPY_MACHINE_MODE = 0x1c,   /* bit 0: bytes are inverted */
    COPY_MACHINE_SPACE = 0x20   /* commands that the queue has room for */
};

#define COPY_MACHINE_ID_VALUE 0x434f5059u
#define COPY_MACHINE_BUSY 1u /* commands are in the queue */
#define COPY_MACHINE_DONE 2u /* a command has ended; raises the interrupt */
#define COPY_MACHINE_ERROR 4u
#define COPY_MACHINE_WORKED 8u /* a command has ended since the last start */
#define COPY_MACHINE_ENDED_SHIFT 8u /* commands that have ended, from here on */
#define COPY_MACHINE_QUEUE 4u

#define COPY_MACHINE_NEVER UINT32_MAX

/* Parameters; the state is behind them. */
struct copy_machine {
    uint32_t access_cycles;
    uint32_t latency;
    uint32_t cycles_per_byte;
    uint32_t id;
    uint32_t from_bits;       /* of FROM that can be read */
    uint32_t late_bytes;      /* that are written after the command's end */
    uint32_t wrong_byte;      /* number of a byte, counted over all commands */
    uint32_t outside_byte;    /* a byte after which one behind the buffer's part is written */
    uint32_t lost_interrupt;  /* number of a command */
    uint32_t wrong_status;    /* number of a command whose end is an error */
    uint32_t failing_command;
    uint32_t early_interrupt; /* number of a command that raises it at its start */
    bool has_no_counters;
    bool writes_nothing_counted; /* bytes_written stays unknown */

    umakit_host *host;
    uint64_t now;
    uint64_t read;
    uint64_t written;
    uint64_t command_began;
    uint32_t from;
    uint32_t to;
    uint32_t bytes;
    uint32_t mode;
    uint32_t status;
    uint32_t commands; /* that were started */
    uint32_t ended;
    uint32_t moved;     /* bytes of all commands */
    uint32_t queued;
    uint32_t position;  /* in the command at work */
    uint32_t resets;
    bool is_raised;
    struct {
        uint32_t from;
        uint32_t to;
        uint32_t bytes;
    } queue[COPY_MACHINE_QUEUE];
};

/* The parameters of a machine without mistakes. */
void copy_machine_init(struct copy_machine *machine, uint32_t latency,
                       uint32_t cycles_per_byte);

extern struct copy_machine copy_machine_model;
extern struct copy_machine copy_machine_rtl;
const struct umakit_own_simulator *copy_machine_model_simulator(void);
const struct umakit_own_simulator *copy_machine_rtl_simulator(void);

#endif /* COPY_MACHINE_H */
