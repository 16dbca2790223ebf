/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: accesses of the systolic array's commands to its memories. */
#ifndef UMAKIT_SYSTOLIC_ACCESSES_H
#define UMAKIT_SYSTOLIC_ACCESSES_H

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

#endif /* UMAKIT_SYSTOLIC_ACCESSES_H */
