/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: registers, and the DMA engine and the array on one clock. */
#ifndef UMAKIT_SYSTOLIC_ENGINES_H
#define UMAKIT_SYSTOLIC_ENGINES_H

#include <stddef.h>
#include <stdint.h>

#include "faults.h"
#include "systolic_array.h"

/* ---- Accesses of the systolic array's commands to its memories ---- */

struct umakit_systolic_array;
struct umakit_systolic_job;
struct umakit_systolic_transfer;

/* Name the memories: their accesses are counted from now on. */
void umakit_systolic_name_memories(struct umakit_systolic_array *array);

/* Count those of a job that ran to its end. */
void umakit_systolic_count_job(struct umakit_systolic_array *array,
                               const struct umakit_systolic_job *job);

/* Count those of the bytes that a transfer has moved. */
void umakit_systolic_count_transfer(struct umakit_systolic_array *array,
                                    const struct umakit_systolic_transfer *transfer);

/* ---- What commands did when ---- */

/* Record the commands that come from now on, until `capacity` entries are full. */
void umakit_systolic_begin_timeline(struct umakit_systolic_array *array,
                                    struct umakit_systolic_timeline_entry *entries,
                                    size_t capacity);

/* A command completes now. */
void umakit_systolic_record(struct umakit_systolic_array *array,
                            const struct umakit_systolic_command *command);

/* ---- The DMA engine and the array on one clock ---- */

/* Advance by `cycles`. */
void umakit_systolic_advance(struct umakit_systolic_array *array, uint64_t cycles);

/* Cycles until a command changes its state or completes; UINT64_MAX: none runs. */
uint64_t umakit_systolic_next_event(const struct umakit_systolic_array *array);

/* Free an engine that a fault kept busy. */
void umakit_systolic_free_engine(struct umakit_systolic_array *array, enum umakit_engine name);

/* ---- How commands are given ---- */

/* What START and ENQUEUE do. */
void umakit_systolic_start(struct umakit_systolic_array *array, enum umakit_engine name);
void umakit_systolic_enqueue(struct umakit_systolic_array *array, enum umakit_engine name);

/* ---- What registers show ---- */

uint32_t umakit_systolic_read(struct umakit_systolic_array *array, uint32_t offset);

/* ---- What writing a register does ---- */

void umakit_systolic_write(struct umakit_systolic_array *array, uint32_t offset,
                           uint32_t value);

#endif /* UMAKIT_SYSTOLIC_ENGINES_H */
