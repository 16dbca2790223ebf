/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: jobs and transfers, from the registers to their results. */
#ifndef UMAKIT_SYSTOLIC_JOBS_H
#define UMAKIT_SYSTOLIC_JOBS_H

#include <stdint.h>

#include "status.h"
#include "systolic_array.h"
#include "systolic_command.h"

/* ---- Busy and tail of commands, as systolic_array.h says ---- */

/* Of a transfer whose regions are set. */
void umakit_systolic_set_transfer_cycles(const struct umakit_systolic_array_config *config,
                                         struct umakit_systolic_command *command);

/* Of a job that is valid; its folds and multiply-accumulates too. */
void umakit_systolic_set_job_cycles(const struct umakit_systolic_array_config *config,
                                    struct umakit_systolic_command *command);

/* ---- Where the operands of a job lie ---- */

/* Find them, from the registers' addresses. */
void umakit_systolic_find_operands(const struct umakit_systolic_array *array,
                                   struct umakit_systolic_job *job);

/* Whether they may lie there; if not, *address is what the status is about. */
UMAKIT_MUST_USE int umakit_systolic_check_operands(const struct umakit_systolic_array *array,
                                                   const struct umakit_systolic_job *job,
                                                   uint32_t *address);

/* ---- What the job registers ask for ---- */

/* Check the job registers and make a command of them. On failure *address is
 * what the status is about. */
UMAKIT_MUST_USE int umakit_systolic_prepare_job(const struct umakit_systolic_array *array,
                                                struct umakit_systolic_command *command,
                                                uint32_t *address);

/* ---- Transfers between the bus and the scratchpad ---- */

/* Check the DMA registers and make a command of them. On failure *address is
 * what the status is about. */
UMAKIT_MUST_USE int umakit_systolic_prepare_dma(struct umakit_systolic_array *array,
                                                struct umakit_systolic_command *command,
                                                uint32_t *address);

/* Move the transfer's bytes up to where it stops. */
UMAKIT_MUST_USE int umakit_systolic_move(struct umakit_systolic_array *array,
                                         struct umakit_systolic_transfer *transfer,
                                         uint32_t *address);

/* ---- What precedes and follows the sums of products ---- */

/* Of channels `channel` to `channel + count - 1` at one position: what their
 * accumulators start from, ... */
void umakit_systolic_load_accumulators(const struct umakit_systolic_job *job,
                                       const struct umakit_systolic_operands *operands,
                                       uint32_t position, uint32_t channel, uint32_t count,
                                       uint32_t *accumulators);

/* ... and where they go: to the accumulator memory, or requantized to the ofmap. */
void umakit_systolic_store_accumulators(const struct umakit_systolic_job *job,
                                        const struct umakit_systolic_operands *operands,
                                        uint32_t position, uint32_t channel, uint32_t count,
                                        const uint32_t *accumulators);

/* ---- Sums of products ---- */

void umakit_systolic_convolve(const struct umakit_systolic_job *job,
                              const struct umakit_systolic_operands *operands);

/* ---- The pooling stage ---- */

void umakit_systolic_pool(const struct umakit_systolic_job *job,
                          const struct umakit_systolic_operands *operands);

/* ---- Running a job on the bytes of its operands ---- */

/* Check the operands' bytes, compute, and write the result. */
UMAKIT_MUST_USE int umakit_systolic_run_job(struct umakit_systolic_array *array,
                                            const struct umakit_systolic_job *job,
                                            uint32_t *address);

#endif /* UMAKIT_SYSTOLIC_JOBS_H */
