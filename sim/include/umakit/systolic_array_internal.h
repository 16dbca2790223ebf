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

/* Keep the first error since the last CLEAR and raise its interrupt. */
void umakit_systolic_report(struct umakit_systolic_array *array, enum umakit_status error,
                            uint32_t address);

/* ---- umakit_systolic_engines.c: time ---- */

void umakit_systolic_start_dma(struct umakit_systolic_array *array);
void umakit_systolic_start_array(struct umakit_systolic_array *array);

/* Stop both engines, as CLEAR does. */
void umakit_systolic_stop(struct umakit_systolic_array *array);

/* Stop the DMA engine, if it runs. */
void umakit_systolic_stop_dma(struct umakit_systolic_array *array);

void umakit_systolic_advance(struct umakit_systolic_array *array, uint64_t cycles);
uint64_t umakit_systolic_next_event(const struct umakit_systolic_array *array);

/* Of a product that does not fit: UINT64_MAX. */
uint64_t umakit_systolic_product(uint64_t left, uint64_t right);

/* ---- umakit_systolic_dma.c: transfers ---- */

/* Check the DMA registers and set up the transfer and the engine's job. On
 * failure *address is what the status is about. */
UMAKIT_MUST_USE int umakit_systolic_prepare_dma(struct umakit_systolic_array *array,
                                                uint32_t *address);

/* Move the transfer's bytes up to where it stops. */
UMAKIT_MUST_USE int umakit_systolic_move(struct umakit_systolic_array *array,
                                         uint32_t *address);

/* ---- umakit_systolic_job.c: jobs of the array ---- */

/* The same for the job registers. */
UMAKIT_MUST_USE int umakit_systolic_prepare_job(struct umakit_systolic_array *array,
                                                uint32_t *address);

/* Check the operands' bytes, compute, and write the result. */
UMAKIT_MUST_USE int umakit_systolic_run_job(struct umakit_systolic_array *array,
                                            uint32_t *address);

/* ---- umakit_systolic_plan.c: cycles and multiply-accumulates of a job ---- */

void umakit_systolic_plan_product(const struct umakit_systolic_array_config *config,
                                  uint32_t dataflow, struct umakit_systolic_job *job);
void umakit_systolic_plan_pool(const struct umakit_systolic_array_config *config,
                               struct umakit_systolic_job *job);

/* ---- umakit_systolic_scratchpad.c ---- */

/* Bytes of the scratchpad: along each dimension `sizes` of them, `strides`
 * apart. Sizes are at least 1. */
struct umakit_systolic_region {
    uint32_t start;
    uint32_t sizes[3];
    uint32_t strides[3];
};

/* From the first byte to the last; UINT64_MAX if it does not fit 64 bits. */
uint64_t umakit_systolic_extent(const struct umakit_systolic_region *region);

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

/* ---- umakit_systolic_compute.c, umakit_systolic_pooling.c ---- */

/* A job's operands in the scratchpad, all sound. */
struct umakit_systolic_operands {
    const int8_t *ifmap;
    const int8_t *weights;
    const unsigned char *bias;        /* int32 */
    const unsigned char *multipliers; /* int32 */
    const int8_t *shifts;
    int8_t *ofmap;
};

void umakit_systolic_convolve(const struct umakit_systolic_job *job,
                              const struct umakit_systolic_operands *operands);
void umakit_systolic_pool(const struct umakit_systolic_job *job,
                          const struct umakit_systolic_operands *operands);

/* Positions [first, end) of a kernel meet an input; the first of them meets
 * `input`. Along `axis`, 0 for rows and 1 for columns, for one output. */
struct umakit_systolic_taps {
    uint32_t first;
    uint32_t end;
    uint32_t input;
};

struct umakit_systolic_taps umakit_systolic_taps(const struct umakit_systolic_job *job,
                                                 int axis, uint32_t output);

#endif /* UMAKIT_SYSTOLIC_ARRAY_INTERNAL_H */
