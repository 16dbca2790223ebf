/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lane_npu shows to the outside: five registers, and instructions of 32-bit words
 * that are written to one of them. Its driver and its simulator share this file.
 */
#ifndef LANE_NPU_ISA_H
#define LANE_NPU_ISA_H

#include <stdint.h>

/* Registers, in bytes from the first one. */
#define LANE_NPU_ID 0x00u          /* reads as LANE_NPU_IS */
#define LANE_NPU_SHAPE 0x04u       /* lanes, steps << 16 */
#define LANE_NPU_STATUS 0x08u      /* 0, or LANE_NPU_BUSY, or an enum umakit_status */
#define LANE_NPU_CLEAR 0x0Cu       /* any value drops all instructions, and the error */
#define LANE_NPU_INSTRUCTION 0x10u /* the next word */

#define LANE_NPU_IS 0x4C4E5055u
#define LANE_NPU_BUSY 0x100u

/*
 * Instructions. Bits 0 to 3 of the first word are the opcode, the others are flags.
 *
 * LOAD, STORE    bus address, place in the memory, planes, rows, bytes of a row, distance of
 *                planes, distance of rows, bytes of a line: a line is what begins at a row of
 *                32 bytes of the memory, 0 for one line
 * CONFIGURE      kernel, strides, dilations (height, width << 16), zero points of data and
 *                result, lowest and highest result
 * ADD            zero point of the addend, left shift, multiplier and shift of the result, the
 *                addend and the sum, zero point of the sum, lowest and highest sum
 * JOB            places of data, weights, bias, multipliers, shifts, result and addend; input
 *                (height, width << 16) and its channels, output and its channels, padding
 *                (above, left << 16)
 */
#define LANE_NPU_LOAD 1u
#define LANE_NPU_STORE 2u
#define LANE_NPU_CONFIGURE 3u
#define LANE_NPU_ADD 4u
#define LANE_NPU_JOB 5u

#define LANE_NPU_COPY_WORDS 9u
#define LANE_NPU_CONFIGURE_WORDS 8u
#define LANE_NPU_ADD_WORDS 12u
#define LANE_NPU_JOB_WORDS 13u

/* Flags of LOAD and STORE. */
#define LANE_NPU_OF_WEIGHTS (1u << 4) /* the memory of weights, not that of data */
#define LANE_NPU_BY_PLANES (1u << 5)  /* the host has channels x positions, not the reverse */
#define LANE_NPU_CHANNEL_SHIFT 8u     /* number of the DMA channel */

/* Flags of CONFIGURE. */
#define LANE_NPU_DEPTHWISE (1u << 4)
#define LANE_NPU_FLOAT (1u << 5) /* sums are scaled in float32, else in fixed point */

/* Flags of JOB. */
#define LANE_NPU_CONTINUES (1u << 4) /* add to the sums that the job before left */
#define LANE_NPU_KEEPS (1u << 5)     /* leave sums for the next job, give no result */

#endif
