/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated from sim/registers/mac_array.toml. Do not edit: change that file
 * and run python -m umakit.machine.registers.
 *
 * A MAC array that computes one convolution a job: stride 1, float32, batch
 * 1, input and result NCHW, weights OIHW, result as high and wide as the
 * input.
 */
#ifndef UMAKIT_MAC_ARRAY_REGISTERS_H
#define UMAKIT_MAC_ARRAY_REGISTERS_H

/* Bytes from the first register to the end of the last one. */
#define UMAKIT_MAC_ARRAY_REGISTER_BYTES 0x0058u

/*
 * ID, read only. Constant, the letters UMA1: a driver checks it before
 * anything else.
 */
#define UMAKIT_MAC_ARRAY_ID_OFFSET 0x0000u
#define UMAKIT_MAC_ARRAY_ID_RESET 0x554D4131u

/* VERSION, read only. Version of this register map. */
#define UMAKIT_MAC_ARRAY_VERSION_OFFSET 0x0004u
#define UMAKIT_MAC_ARRAY_VERSION_RESET 0x00010000u
/* MINOR: Grows with additions that old drivers may ignore. */
#define UMAKIT_MAC_ARRAY_VERSION_MINOR_SHIFT 0u
#define UMAKIT_MAC_ARRAY_VERSION_MINOR_MASK 0x0000FFFFu
/* MAJOR: Grows with changes that old drivers do not survive. */
#define UMAKIT_MAC_ARRAY_VERSION_MAJOR_SHIFT 16u
#define UMAKIT_MAC_ARRAY_VERSION_MAJOR_MASK 0xFFFF0000u

/*
 * CONTROL, write only. Commands. Several at once take effect in the order
 * CLEAR, RESET_COUNTERS, START.
 */
#define UMAKIT_MAC_ARRAY_CONTROL_OFFSET 0x0008u
#define UMAKIT_MAC_ARRAY_CONTROL_RESET 0x00000000u
/* START: Start a job. Refused while an error is pending. */
#define UMAKIT_MAC_ARRAY_CONTROL_START_SHIFT 0u
#define UMAKIT_MAC_ARRAY_CONTROL_START_MASK 0x00000001u
/*
 * CLEAR: Stop a running job, then clear DONE, ERROR and the ERROR register.
 * It may have to end bus accesses that it began: the device is idle, and no
 * bus access is outstanding, when BUSY of STATUS is 0.
 */
#define UMAKIT_MAC_ARRAY_CONTROL_CLEAR_SHIFT 1u
#define UMAKIT_MAC_ARRAY_CONTROL_CLEAR_MASK 0x00000002u
/* RESET_COUNTERS: Set CYCLES and MACS to zero. */
#define UMAKIT_MAC_ARRAY_CONTROL_RESET_COUNTERS_SHIFT 2u
#define UMAKIT_MAC_ARRAY_CONTROL_RESET_COUNTERS_MASK 0x00000004u

/*
 * STATUS, read only. State of the device. The interrupt line is DONE or ERROR
 * while not BUSY.
 */
#define UMAKIT_MAC_ARRAY_STATUS_OFFSET 0x000Cu
#define UMAKIT_MAC_ARRAY_STATUS_RESET 0x00000001u
/* IDLE: No job is running. */
#define UMAKIT_MAC_ARRAY_STATUS_IDLE_SHIFT 0u
#define UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK 0x00000001u
/* BUSY: A job is running: only CONTROL.CLEAR may be written. */
#define UMAKIT_MAC_ARRAY_STATUS_BUSY_SHIFT 1u
#define UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK 0x00000002u
/* DONE: The last job ran to its end. Cleared by START and CLEAR. */
#define UMAKIT_MAC_ARRAY_STATUS_DONE_SHIFT 2u
#define UMAKIT_MAC_ARRAY_STATUS_DONE_MASK 0x00000004u
/* ERROR: An error is pending, see the ERROR register. Cleared by CLEAR. */
#define UMAKIT_MAC_ARRAY_STATUS_ERROR_SHIFT 3u
#define UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK 0x00000008u

/*
 * ERROR, read only. The first error since the last CLEAR, as enum
 * umakit_status; 0 is none.
 */
#define UMAKIT_MAC_ARRAY_ERROR_OFFSET 0x0010u
#define UMAKIT_MAC_ARRAY_ERROR_RESET 0x00000000u

/*
 * IFMAP_ADDRESS, read and write. Bus address of the input, INPUT_CHANNELS x
 * INPUT_HEIGHT x INPUT_WIDTH. Driver: a multiple of 4.
 */
#define UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_OFFSET 0x0014u
#define UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_RESET 0x00000000u

/*
 * WEIGHTS_ADDRESS, read and write. Bus address of the weights,
 * OUTPUT_CHANNELS x INPUT_CHANNELS x KERNEL_HEIGHT x KERNEL_WIDTH. Driver: a
 * multiple of 4.
 */
#define UMAKIT_MAC_ARRAY_WEIGHTS_ADDRESS_OFFSET 0x0018u
#define UMAKIT_MAC_ARRAY_WEIGHTS_ADDRESS_RESET 0x00000000u

/*
 * RESULT_ADDRESS, read and write. Bus address of the result, OUTPUT_CHANNELS
 * x INPUT_HEIGHT x INPUT_WIDTH; may not overlap an operand. Driver: a
 * multiple of 4.
 */
#define UMAKIT_MAC_ARRAY_RESULT_ADDRESS_OFFSET 0x001Cu
#define UMAKIT_MAC_ARRAY_RESULT_ADDRESS_RESET 0x00000000u

/*
 * INPUT_CHANNELS, read and write. Channels of the input, at least 1. Driver:
 * at least 1.
 */
#define UMAKIT_MAC_ARRAY_INPUT_CHANNELS_OFFSET 0x0020u
#define UMAKIT_MAC_ARRAY_INPUT_CHANNELS_RESET 0x00000000u

/*
 * INPUT_HEIGHT, read and write. Rows of the input and of the result, at least
 * 1. Driver: at least 1.
 */
#define UMAKIT_MAC_ARRAY_INPUT_HEIGHT_OFFSET 0x0024u
#define UMAKIT_MAC_ARRAY_INPUT_HEIGHT_RESET 0x00000000u

/*
 * INPUT_WIDTH, read and write. Columns of the input and of the result, at
 * least 1. Driver: at least 1.
 */
#define UMAKIT_MAC_ARRAY_INPUT_WIDTH_OFFSET 0x0028u
#define UMAKIT_MAC_ARRAY_INPUT_WIDTH_RESET 0x00000000u

/*
 * OUTPUT_CHANNELS, read and write. Channels of the result, at least 1.
 * Driver: at least 1.
 */
#define UMAKIT_MAC_ARRAY_OUTPUT_CHANNELS_OFFSET 0x002Cu
#define UMAKIT_MAC_ARRAY_OUTPUT_CHANNELS_RESET 0x00000000u

/*
 * KERNEL_HEIGHT, read and write. Rows of the kernel, at least 1; may exceed
 * the input's. Driver: at least 1.
 */
#define UMAKIT_MAC_ARRAY_KERNEL_HEIGHT_OFFSET 0x0030u
#define UMAKIT_MAC_ARRAY_KERNEL_HEIGHT_RESET 0x00000000u

/*
 * KERNEL_WIDTH, read and write. Columns of the kernel, at least 1; may exceed
 * the input's. Driver: at least 1.
 */
#define UMAKIT_MAC_ARRAY_KERNEL_WIDTH_OFFSET 0x0034u
#define UMAKIT_MAC_ARRAY_KERNEL_WIDTH_RESET 0x00000000u

/*
 * PAD_TOP, read and write. Rows of zeros above the input, less than
 * KERNEL_HEIGHT; below it are KERNEL_HEIGHT - 1 - PAD_TOP. Driver: not above
 * KERNEL_HEIGHT - 1.
 */
#define UMAKIT_MAC_ARRAY_PAD_TOP_OFFSET 0x0038u
#define UMAKIT_MAC_ARRAY_PAD_TOP_RESET 0x00000000u

/*
 * PAD_LEFT, read and write. Columns of zeros left of the input, less than
 * KERNEL_WIDTH; right of it are KERNEL_WIDTH - 1 - PAD_LEFT. Driver: not
 * above KERNEL_WIDTH - 1.
 */
#define UMAKIT_MAC_ARRAY_PAD_LEFT_OFFSET 0x003Cu
#define UMAKIT_MAC_ARRAY_PAD_LEFT_RESET 0x00000000u

/*
 * CYCLES_LOW, read only. Cycles of all finished jobs since RESET_COUNTERS,
 * bits 0 to 31. Reading it captures CYCLES_HIGH.
 */
#define UMAKIT_MAC_ARRAY_CYCLES_LOW_OFFSET 0x0040u
#define UMAKIT_MAC_ARRAY_CYCLES_LOW_RESET 0x00000000u

/*
 * CYCLES_HIGH, read only. Bits 32 to 63 of the cycles, as they were when
 * CYCLES_LOW was read.
 */
#define UMAKIT_MAC_ARRAY_CYCLES_HIGH_OFFSET 0x0044u
#define UMAKIT_MAC_ARRAY_CYCLES_HIGH_RESET 0x00000000u

/*
 * MACS_LOW, read only. Multiply-accumulates of all finished jobs since
 * RESET_COUNTERS, bits 0 to 31. Reading it captures MACS_HIGH.
 */
#define UMAKIT_MAC_ARRAY_MACS_LOW_OFFSET 0x0048u
#define UMAKIT_MAC_ARRAY_MACS_LOW_RESET 0x00000000u

/*
 * MACS_HIGH, read only. Bits 32 to 63 of the multiply-accumulates, as they
 * were when MACS_LOW was read.
 */
#define UMAKIT_MAC_ARRAY_MACS_HIGH_OFFSET 0x004Cu
#define UMAKIT_MAC_ARRAY_MACS_HIGH_RESET 0x00000000u

/* ARRAY_ROWS, read only. Rows of the array. */
#define UMAKIT_MAC_ARRAY_ARRAY_ROWS_OFFSET 0x0050u
#define UMAKIT_MAC_ARRAY_ARRAY_ROWS_RESET 0x00000000u

/* ARRAY_COLUMNS, read only. Columns of the array. */
#define UMAKIT_MAC_ARRAY_ARRAY_COLUMNS_OFFSET 0x0054u
#define UMAKIT_MAC_ARRAY_ARRAY_COLUMNS_RESET 0x00000000u

#endif /* UMAKIT_MAC_ARRAY_REGISTERS_H */
