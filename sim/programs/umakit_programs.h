/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Varied programs: the register accesses of a driver, recorded on the model of an accelerator,
 * and programs made of them with values changed, run on the model and on its RTL.
 *
 * The recording is a text with a line for each access, numbers in hexadecimal:
 *
 *   w OFFSET VALUE                    a write
 *   r OFFSET VALUE                    a read, and what the model answered
 *   i CYCLES RAISED                   a wait for the interrupt, and whether it came
 *   m ADDRESS BYTES DIRECTION DATA    a buffer is mapped, with its content
 *   u ADDRESS                         it is unmapped
 *   l CYCLES LIVE                     a layer has ended, after so many cycles of the model's clock,
 *                                     0 if it has none; LIVE: 1 if the model's counter of busy
 *                                     cycles grows while work goes on, 0 if it stands still, - if
 *                                     no work was seen
 *
 * Programs are given in lines of the standard input:
 *
 *   d OFFSET               a write to this register begins work; none given: each write does
 *   n OFFSET               a register whose reading only takes time
 *   y OFFSET MASK          is not 0 while there is work
 *   v 1                    the model's counter of busy cycles grows while there is work
 *   x OFFSET MASK          is 0 unless there is an error
 *   q OFFSET MASK          bits that are compared whenever both sides have come to rest
 *   c OFFSET MASK          bits that are compared at the end of a program
 *   o 1                    programs in which the model accesses what no buffer has are not compared
 *   p NUMBER PAUSES CYCLES a program begins, with a seed of pauses of the memory bus, made of a layer
 *                          that takes the model so many cycles
 *   w, i, m, u             as in the recording: i CYCLES, m ADDRESS BYTES DIRECTION DATA
 *   r OFFSET MASK RUNNING EXPECTED   a read: bits that are compared at rest, and while there is
 *                          work; EXPECTED is a value at rest, another one ends the program, or -
 *   s OFFSET MASK VALUE    both sides come to rest; behind `s` is what the driver polls for, if it
 *                          polls: bits of a register, and their value when there is no more work
 *   e                      the program ends, and is run
 *
 * An answer is a line on the standard output:
 *
 *   NUMBER ok CYCLES              no difference, so many cycles of the RTL
 *   NUMBER error CYCLES           none, and both say the same error
 *   NUMBER time                   what the model does depends on when accesses come
 *   NUMBER long                   the model exceeds its limit, or the RTL is not done
 *   NUMBER beyond                 the model accesses what no buffer has
 *   NUMBER model SENTENCE         the model cannot go on
 *   NUMBER differs ACCESS KIND REFUSED ADDRESS EXPECTED FOUND SENTENCE
 *
 * SENTENCE is why the RTL failed, or the bus error in which its read of the register ended.
 * KIND is register, error, memory, interrupt or failure; ACCESS the index of the access. REFUSED is
 * `model` or `rtl` if only that side says an error there, `both` if they say different ones, else
 * `none`. Without a register of errors, that is a read that gives another value than EXPECTED.
 *
 * A side has come to rest when it says so itself: by the register of `y`, by what the driver polls
 * for, or by the interrupt. Without any of these, when the counter of busy cycles stands still: for
 * a moment if it grows while there is work, else for as long as the layer takes. If the RTL differs,
 * the model runs again and rests far longer: what it shows then is what counts.
 *
 * With UMAKIT_RTL_WAVE in the environment, the RTL's run of each program is repeated and written to
 * this file, at most UMAKIT_RTL_WAVE_CYCLES of it.
 */
#ifndef UMAKIT_PROGRAMS_H
#define UMAKIT_PROGRAMS_H

#include <stdint.h>

#include "umakit/device.h"
#include "umakit/own_simulator.h"
#include "umakit/simulator.h"

/* Seeds the state of a design at its next reset, and pauses of its memory bus. */
typedef void umakit_programs_randomize(uint32_t state_seed, uint32_t pause_seed);

/* Writes the waveform of these cycles of the design's clock to a file. */
typedef int umakit_programs_trace(const char *file, uint64_t first_cycle, uint64_t last_cycle);

/* The device that records what a driver does with `model`, into the file that the environment
 * variable UMAKIT_PROGRAMS_RECORD names. */
umakit_device *umakit_programs_recorder(umakit_device *model);

/* A layer of the network has ended. */
void umakit_programs_after_layer(void);

/* Run the programs of the standard input; the exit code of the process. `trace` is NULL if the
 * design has no waveforms. */
int umakit_programs_replay(umakit_device *model, const struct umakit_own_simulator *rtl,
                           umakit_programs_randomize *randomize, umakit_programs_trace *trace);

#endif /* UMAKIT_PROGRAMS_H */
