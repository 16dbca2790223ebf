/* SPDX-License-Identifier: Apache-2.0 */
/* What the systolic array's own files share; nobody else includes it. */
#ifndef UMAKIT_SYSTOLIC_ARRAY_INTERNAL_H
#define UMAKIT_SYSTOLIC_ARRAY_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "systolic_array.h"

/* ---- umakit_systolic_array.c: registers ---- */

/* A register that is written, by its offset. */
uint32_t umakit_systolic_register(const struct umakit_systolic_array *array, uint32_t offset);

/* NULL of a device of another kind. */
struct umakit_systolic_array *umakit_systolic_array_of(umakit_device *device);
const struct umakit_systolic_array *umakit_systolic_const_array_of(const umakit_device *device);

/* Keep the first error since the last CLEAR and raise its interrupt. */
void umakit_systolic_report(struct umakit_systolic_array *array, enum umakit_status error,
                            uint32_t address);

/* ---- umakit_systolic_read.c: what registers show ---- */

/* Where DMA and job registers are; they keep what is written. */
bool umakit_systolic_is_dma_register(uint32_t offset);
bool umakit_systolic_is_job_register(uint32_t offset);

uint32_t umakit_systolic_read(struct umakit_systolic_array *array, uint32_t offset);

/* ---- umakit_systolic_queue.c: commands ---- */

/* Which engine, of UMAKIT_ENGINE_ARRAY and UMAKIT_ENGINE_DMA, a command runs on. */
enum umakit_engine umakit_systolic_engine_of(const struct umakit_systolic_command *command);
struct umakit_systolic_engine *umakit_systolic_engine_at(struct umakit_systolic_array *array,
                                                         enum umakit_engine name);

/* What START and ENQUEUE do. */
void umakit_systolic_start(struct umakit_systolic_array *array, enum umakit_engine name);
void umakit_systolic_enqueue(struct umakit_systolic_array *array, enum umakit_engine name);

/* Let every command start that can. */
void umakit_systolic_start_ready(struct umakit_systolic_array *array);

/* Take a command out of the list; a transfer's bytes that were not moved are
 * left. */
void umakit_systolic_remove(struct umakit_systolic_array *array, uint32_t index);

/* What an error does to commands. */
void umakit_systolic_drop_commands(struct umakit_systolic_array *array);

/* Stop both engines and empty the queue, as CLEAR does. */
void umakit_systolic_stop(struct umakit_systolic_array *array);

/* Stop transfers from and to this range of the bus, and report it. */
void umakit_systolic_unmap(struct umakit_systolic_array *array, uint32_t bus_address,
                           size_t bytes);

/* Commands that were enqueued and have not ended. */
uint32_t umakit_systolic_commands_left(const struct umakit_systolic_array *array);

/* Whether an engine runs, waits on behalf of a START, or is kept busy. */
bool umakit_systolic_is_busy(const struct umakit_systolic_array *array,
                             enum umakit_engine name);

/* ---- umakit_systolic_engines.c: time ---- */

void umakit_systolic_advance(struct umakit_systolic_array *array, uint64_t cycles);
uint64_t umakit_systolic_next_event(const struct umakit_systolic_array *array);

/* Free an engine that a fault kept busy. */
void umakit_systolic_free_engine(struct umakit_systolic_array *array, enum umakit_engine name);

/* Of a product or sum that does not fit: UINT64_MAX. */
uint64_t umakit_systolic_product(uint64_t left, uint64_t right);
uint64_t umakit_systolic_sum(uint64_t left, uint64_t right);

/* ---- umakit_systolic_timeline.c ---- */

void umakit_systolic_record(struct umakit_systolic_array *array,
                            const struct umakit_systolic_command *command);

/* ---- umakit_systolic_dma.c: transfers ---- */

/* Check the DMA registers and make a command of them. On failure *address is
 * what the status is about. */
UMAKIT_MUST_USE int umakit_systolic_prepare_dma(struct umakit_systolic_array *array,
                                                struct umakit_systolic_command *command,
                                                uint32_t *address);

/* Move the transfer's bytes up to where it stops. */
UMAKIT_MUST_USE int umakit_systolic_move(struct umakit_systolic_array *array,
                                         struct umakit_systolic_transfer *transfer,
                                         uint32_t *address);

/* ---- umakit_systolic_job.c: what job registers ask for ---- */

/* Of a scale, see umakit/requantize.h. */
#define UMAKIT_SYSTOLIC_MOST_SHIFT_LEFT 30
#define UMAKIT_SYSTOLIC_MOST_SHIFT_RIGHT 31

/* The same for the job registers. */
UMAKIT_MUST_USE int umakit_systolic_prepare_job(struct umakit_systolic_array *array,
                                                struct umakit_systolic_command *command,
                                                uint32_t *address);

bool umakit_systolic_is_pool(const struct umakit_systolic_job *job);

/* The bits of ACCUMULATE. */
bool umakit_systolic_continues(const struct umakit_systolic_job *job);
bool umakit_systolic_keeps(const struct umakit_systolic_job *job);

/* ---- umakit_systolic_operands.c: where a job's operands lie ---- */

/* Find them, from the registers' addresses. */
void umakit_systolic_find_operands(const struct umakit_systolic_array *array,
                                   struct umakit_systolic_job *job);

UMAKIT_MUST_USE int umakit_systolic_check_operands(const struct umakit_systolic_array *array,
                                                   const struct umakit_systolic_job *job,
                                                   uint32_t *address);

/* Check the operands' bytes, compute, and write the result. */
UMAKIT_MUST_USE int umakit_systolic_run_job(struct umakit_systolic_array *array,
                                            const struct umakit_systolic_job *job,
                                            uint32_t *address);

/* ---- umakit_systolic_plan.c: cycles and multiply-accumulates of a job ---- */

/* The job's folds, and busy and tail of the command. */
void umakit_systolic_plan(const struct umakit_systolic_array_config *config,
                          struct umakit_systolic_command *command);

/* ---- umakit_systolic_scratchpad.c ---- */

/* From the first byte to the last; UINT64_MAX if it does not fit 64 bits. */
uint64_t umakit_systolic_extent(const struct umakit_systolic_region *region);

/* Whether they share a byte, counting those between their own. */
bool umakit_systolic_ranges_overlap(const struct umakit_systolic_region *left,
                                    const struct umakit_systolic_region *right);

bool umakit_systolic_is_in_scratchpad(const struct umakit_systolic_array *array,
                                      const struct umakit_systolic_region *region);

/* A bit for each bank between the first and the last byte. */
uint32_t umakit_systolic_banks(const struct umakit_systolic_array *array,
                               const struct umakit_systolic_region *region);

/* Reading: whether parity holds, and if not the first byte found where it does
 * not. Writing makes it hold again. */
bool umakit_systolic_parity_holds(const struct umakit_systolic_array *array,
                                  const struct umakit_systolic_region *region,
                                  uint32_t *offset);
void umakit_systolic_heal(struct umakit_systolic_array *array,
                          const struct umakit_systolic_region *region);

/* UMAKIT_OUT_OF_RANGE, or UMAKIT_TABLE_FULL. */
UMAKIT_MUST_USE int umakit_systolic_flip(struct umakit_systolic_array *array, uint32_t offset,
                                         uint32_t bit);

/* ---- umakit_systolic_compute.c, umakit_systolic_output.c, umakit_systolic_pooling.c ---- */

/* A job's operands in the scratchpad, all sound. */
struct umakit_systolic_operands {
    const int8_t *ifmap;
    const int8_t *weights;
    const unsigned char *bias;        /* int32 */
    const unsigned char *multipliers; /* int32 */
    const int8_t *shifts;
    const int8_t *addend; /* may be the result's place */
    int8_t *ofmap;
    uint32_t *sums; /* in the accumulator, those of the job */
};

void umakit_systolic_convolve(const struct umakit_systolic_job *job,
                              const struct umakit_systolic_operands *operands);
/* Sums of channels `channel` to `channel + count - 1` at one position: what they
 * start from, and where they go. */
void umakit_systolic_first_sums(const struct umakit_systolic_job *job,
                                const struct umakit_systolic_operands *operands,
                                uint32_t position, uint32_t channel, uint32_t count,
                                uint32_t *sums);
void umakit_systolic_put_sums(const struct umakit_systolic_job *job,
                              const struct umakit_systolic_operands *operands,
                              uint32_t position, uint32_t channel, uint32_t count,
                              const uint32_t *sums);

void umakit_systolic_pool(const struct umakit_systolic_job *job,
                          const struct umakit_systolic_operands *operands);

/* Positions [first, end) of a kernel meet an input; the first of them meets
 * `input`. Along `axis`, 0 for rows and 1 for columns, for one output. */
struct umakit_systolic_taps {
    uint32_t first;
    uint32_t end;
    uint32_t input;
};

struct umakit_systolic_taps umakit_systolic_taps_of(const struct umakit_systolic_job *job,
                                                    int axis, uint32_t output);

#endif /* UMAKIT_SYSTOLIC_ARRAY_INTERNAL_H */
