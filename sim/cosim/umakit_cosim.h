/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One device that holds two: the model of an accelerator, which is its C simulator, and
 * its RTL, which is a simulator of your own as well (own_simulator.h). The unchanged driver
 * runs on it. Every register access and every wait goes to both; the driver gets what the
 * model answers. The model works on the memory that the driver mapped, the RTL on a copy.
 * The first difference is reported, and the device fails as umakit_host_fail says.
 *
 * The two need not be equally fast. A register that differs is read again, first on the
 * side that is behind, until both agree or a limit is reached. A wait goes on until both
 * have raised their interrupt.
 *
 * Memory that the device may write is compared when the driver unmaps it, which is final:
 * what the RTL writes after the driver has seen its completion is a difference. It is compared
 * at each completion, too: when a wait ends, or when a register changes that the driver reads.
 * A byte that differs there is remembered and is a difference once it still differs when its
 * buffer is unmapped, or with the same values at UMAKIT_COSIM_PATIENCE more completions;
 * until then it may be that one side is ahead by some commands.
 *
 * A *tile* has ended at a completion before which the RTL has written memory.
 *
 * Environment (lists are numbers with commas between them, as in C):
 *
 *   UMAKIT_COSIM_LAYERS     layers in which the RTL takes part; unset: all
 *   UMAKIT_COSIM_TILES      tiles of each layer after which the RTL is detached for the
 *                           rest of it, once no byte is undecided; unset: all
 *   UMAKIT_COSIM_DOORBELLS  offsets of registers that start a command when written
 *   UMAKIT_COSIM_VOLATILE   offsets of registers that are not compared, such as running
 *                           counters and what reading changes; OFFSET:MASK for some bits
 *   UMAKIT_COSIM_CATCH_UP   cycles of the RTL's clock for a register to become equal, and
 *                           for an interrupt that the model raises; 4 times what the model took
 *                           if that is more. Unset: 1,000,000, or 1,000 times what it took
 *   UMAKIT_COSIM_IDLE       offset of a register that nothing changes and whose reading does
 *                           nothing, such as an ID: the model reads it until its accesses have
 *                           taken as long as those of the RTL, whose bus is slower. Cycles of
 *                           both can be compared then; unset: an access takes what it takes
 *   UMAKIT_COSIM_REPORT     file for lines of JSON, see umakit_cosim_report.c
 *   UMAKIT_COSIM_WAVE       FILE:FIRST:LAST, waveform of these cycles of the RTL's clock
 *   UMAKIT_COSIM_WAVE_RESETS   after how many resets of the RTL they are counted (0)
 *   UMAKIT_COSIM_WAVE_BACKEND  whose; unset: the waveform of every backend
 *   UMAKIT_COSIM_WATCH      bus address in a buffer; a difference in it then has the byte among
 *                           those that differ which the RTL wrote first, and when
 *   UMAKIT_COSIM_WATCH_LAYER   layer in which it is watched
 *   UMAKIT_COSIM_CORRUPT    layer; a byte of the first output that the model writes to memory
 *                           from it on is made wrong, to see that it is found
 *
 * When the RTL takes part again after the driver used the model alone, it is reset, and the
 * register accesses that the driver did before it mapped its first buffer are repeated on it.
 * Bits of registers in which it differs from the model then, such as an event of an earlier
 * layer that nobody has cleared, are compared once they have become equal. What the driver left
 * in the memories of the device is not repeated: layers must not rely on it.
 */
#ifndef UMAKIT_COSIM_H
#define UMAKIT_COSIM_H

#include <stdint.h>

#include "umakit/device.h"
#include "umakit/own_simulator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Completions after which a byte that still differs counts although its buffer is mapped. */
#define UMAKIT_COSIM_PATIENCE 8u

/* Starts a waveform of the RTL in these cycles of its clock; 0 if it could. */
typedef int umakit_cosim_trace(const char *file, uint64_t first_cycle, uint64_t last_cycle);

/*
 * The pair of a model and the RTL of the same backend; never NULL unless memory is short.
 * `backend` stays the caller's and valid. `trace` is NULL if the RTL was built without
 * waveforms. If something is wrong, the device has failed and umakit_simulator_failure says why.
 */
umakit_device *umakit_cosim_open(const char *backend, umakit_device *model,
                                 const struct umakit_own_simulator *rtl,
                                 umakit_cosim_trace *trace);

/* End a pair and free what it holds; with the last one the report is closed. The model is
 * the caller's, and so is the simulator of the RTL. */
void umakit_cosim_close(const umakit_device *device);

/* A layer of the network has ended, on whatever it ran; its number, from 0. Writes the line of
 * the layer for each pair. The next one is `layer` + 1. */
void umakit_cosim_after_layer(int32_t layer);

/* The last layer has ended: the next one is 0 again. */
void umakit_cosim_after_inference(void);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_COSIM_H */
