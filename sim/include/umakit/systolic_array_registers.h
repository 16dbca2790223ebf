/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated from sim/registers/systolic_array.toml. Do not edit: change that file
 * and run python -m umakit.machine.registers.
 *
 * A systolic array for int8 networks with a DMA engine and a scratchpad of
 * its own. The two engines run side by side, on jobs that are started one by
 * one or on commands of a queue. Operands lie in the scratchpad, at any
 * strides, so that NHWC, NCHW and tiles of either are a matter of
 * programming. Gaps between the groups are reserved.
 */
#ifndef UMAKIT_SYSTOLIC_ARRAY_REGISTERS_H
#define UMAKIT_SYSTOLIC_ARRAY_REGISTERS_H

/* Bytes from the first register to the end of the last one. */
#define UMAKIT_SYSTOLIC_ARRAY_REGISTER_BYTES 0x01D4u

/*
 * ID, read only. Constant, the letters UMA2: a driver checks it before
 * anything else.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ID_OFFSET 0x0000u
#define UMAKIT_SYSTOLIC_ARRAY_ID_RESET 0x554D4132u

/* VERSION, read only. Version of this register map. */
#define UMAKIT_SYSTOLIC_ARRAY_VERSION_OFFSET 0x0004u
#define UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET 0x00010002u
/* MINOR: Grows with additions that old drivers may ignore. */
#define UMAKIT_SYSTOLIC_ARRAY_VERSION_MINOR_SHIFT 0u
#define UMAKIT_SYSTOLIC_ARRAY_VERSION_MINOR_MASK 0x0000FFFFu
/* MAJOR: Grows with changes that old drivers do not survive. */
#define UMAKIT_SYSTOLIC_ARRAY_VERSION_MAJOR_SHIFT 16u
#define UMAKIT_SYSTOLIC_ARRAY_VERSION_MAJOR_MASK 0xFFFF0000u

/*
 * CONTROL, write only. Commands. Several at once take effect in the order
 * CLEAR, RESET_COUNTERS, DMA_START, ARRAY_START, ENQUEUE_DMA, ENQUEUE_ARRAY.
 */
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_OFFSET 0x0008u
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_RESET 0x00000000u
/*
 * DMA_START: Start a transfer. Refused while an error is pending or the DMA
 * engine is busy or has commands left.
 */
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_DMA_START_SHIFT 0u
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_DMA_START_MASK 0x00000001u
/*
 * ARRAY_START: Start a job of the array. Refused while an error is pending or
 * the array is busy or has commands left.
 */
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_ARRAY_START_SHIFT 1u
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_ARRAY_START_MASK 0x00000002u
/*
 * CLEAR: Stop both engines and empty the queue, then clear DMA_DONE,
 * ARRAY_DONE, INTERRUPT_PENDING, ERROR, ERROR_ADDRESS, ADD and ACCUMULATE, so
 * that a driver that does not use the last two need not know them (since
 * version 1.2). What a stopped engine was writing is undefined. It may have
 * to end bus accesses that it began: both engines are idle, and no bus access
 * is outstanding, when DMA_BUSY and ARRAY_BUSY of STATUS are 0.
 */
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_CLEAR_SHIFT 2u
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_CLEAR_MASK 0x00000004u
/* RESET_COUNTERS: Set all counters to zero. */
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_RESET_COUNTERS_SHIFT 3u
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_RESET_COUNTERS_MASK 0x00000008u
/*
 * ENQUEUE_DMA: Append a transfer, as the DMA registers say it now, to the
 * queue. Refused while an error is pending; the error BUSY if QUEUE_FREE is
 * 0. Devices without a queue do not have this bit.
 */
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_ENQUEUE_DMA_SHIFT 4u
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_ENQUEUE_DMA_MASK 0x00000010u
/* ENQUEUE_ARRAY: The same for a job of the array and the job registers. */
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_ENQUEUE_ARRAY_SHIFT 5u
#define UMAKIT_SYSTOLIC_ARRAY_CONTROL_ENQUEUE_ARRAY_MASK 0x00000020u

/* STATUS, read only. State of the device. */
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_OFFSET 0x000Cu
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_RESET 0x00000001u
/* IDLE: No engine is busy. */
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_IDLE_SHIFT 0u
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_IDLE_MASK 0x00000001u
/*
 * DMA_BUSY: A transfer is running. Without a queue the DMA registers may not
 * be written.
 */
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_DMA_BUSY_SHIFT 1u
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_DMA_BUSY_MASK 0x00000002u
/*
 * ARRAY_BUSY: A job is running. Without a queue the job registers may not be
 * written: OPERATION to SCALE_COUNT, ACCUMULATE, ACCUMULATOR_START, and ADD
 * to SUM_CLIP_HIGHEST.
 */
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_ARRAY_BUSY_SHIFT 2u
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_ARRAY_BUSY_MASK 0x00000004u
/*
 * DMA_DONE: The transfer of the last DMA_START ran to its end. Cleared by
 * DMA_START and CLEAR.
 */
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_DMA_DONE_SHIFT 3u
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_DMA_DONE_MASK 0x00000008u
/*
 * ARRAY_DONE: The job of the last ARRAY_START ran to its end. Cleared by
 * ARRAY_START and CLEAR.
 */
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_ARRAY_DONE_SHIFT 4u
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_ARRAY_DONE_MASK 0x00000010u
/* ERROR: An error is pending, see the ERROR register. Cleared by CLEAR. */
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_ERROR_SHIFT 5u
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_ERROR_MASK 0x00000020u
/* QUEUE_FULL: There is a queue and QUEUE_FREE is 0. */
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_QUEUE_FULL_SHIFT 6u
#define UMAKIT_SYSTOLIC_ARRAY_STATUS_QUEUE_FULL_MASK 0x00000040u

/*
 * INTERRUPT_ENABLE, read and write. Which bits of INTERRUPT_PENDING raise the
 * interrupt line.
 */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_OFFSET 0x0010u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_RESET 0x00000000u
/* DMA_DONE: The transfer of a DMA_START ran to its end. */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_DMA_DONE_SHIFT 0u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_DMA_DONE_MASK 0x00000001u
/* ARRAY_DONE: The job of an ARRAY_START ran to its end. */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_ARRAY_DONE_SHIFT 1u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_ARRAY_DONE_MASK 0x00000002u
/* ERROR: An error was reported. */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_ERROR_SHIFT 2u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_ERROR_MASK 0x00000004u
/*
 * QUEUE_DONE: COMMANDS_LEFT became 0 because the last command ended. Devices
 * without a queue do not have this bit.
 */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_QUEUE_DONE_SHIFT 3u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_QUEUE_DONE_MASK 0x00000008u
/*
 * COMMAND_DONE: A command ended. Devices without a queue do not have this
 * bit.
 */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_COMMAND_DONE_SHIFT 4u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_COMMAND_DONE_MASK 0x00000010u

/*
 * INTERRUPT_PENDING, read and write. What happened; writing 1 to a bit clears
 * it. The line is high while a bit is set here and in INTERRUPT_ENABLE. A
 * START clears the bit of its engine, an ENQUEUE that of QUEUE_DONE, CLEAR
 * all.
 */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_OFFSET 0x0014u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_RESET 0x00000000u
/* DMA_DONE: The transfer of a DMA_START ran to its end. */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_DMA_DONE_SHIFT 0u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_DMA_DONE_MASK 0x00000001u
/* ARRAY_DONE: The job of an ARRAY_START ran to its end. */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_ARRAY_DONE_SHIFT 1u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_ARRAY_DONE_MASK 0x00000002u
/* ERROR: An error was reported. */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_ERROR_SHIFT 2u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_ERROR_MASK 0x00000004u
/*
 * QUEUE_DONE: COMMANDS_LEFT became 0 because the last command ended. Devices
 * without a queue do not have this bit.
 */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_QUEUE_DONE_SHIFT 3u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_QUEUE_DONE_MASK 0x00000008u
/*
 * COMMAND_DONE: A command ended. Devices without a queue do not have this
 * bit.
 */
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_COMMAND_DONE_SHIFT 4u
#define UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_COMMAND_DONE_MASK 0x00000010u

/*
 * ERROR, read only. The first error since the last CLEAR, as enum
 * umakit_status; 0 is none. It drops all commands, those that run too: what
 * they were writing is undefined. Jobs of a START run on.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ERROR_OFFSET 0x0018u
#define UMAKIT_SYSTOLIC_ARRAY_ERROR_RESET 0x00000000u

/*
 * ERROR_ADDRESS, read only. What the first error is about: a bus address, a
 * scratchpad offset or the offset of a register; 0 if it is about none.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ERROR_ADDRESS_OFFSET 0x001Cu
#define UMAKIT_SYSTOLIC_ARRAY_ERROR_ADDRESS_RESET 0x00000000u

/*
 * QUEUE_DEPTH, read only. Commands that the queue holds; 0 if there is no
 * queue.
 */
#define UMAKIT_SYSTOLIC_ARRAY_QUEUE_DEPTH_OFFSET 0x0020u
#define UMAKIT_SYSTOLIC_ARRAY_QUEUE_DEPTH_RESET 0x00000000u

/*
 * QUEUE_FREE, read only. Entries of the queue that are free. A command has
 * its entry until it ended.
 */
#define UMAKIT_SYSTOLIC_ARRAY_QUEUE_FREE_OFFSET 0x0024u
#define UMAKIT_SYSTOLIC_ARRAY_QUEUE_FREE_RESET 0x00000000u

/*
 * COMMANDS_LEFT, read only. Commands that were enqueued and have not ended.
 */
#define UMAKIT_SYSTOLIC_ARRAY_COMMANDS_LEFT_OFFSET 0x0028u
#define UMAKIT_SYSTOLIC_ARRAY_COMMANDS_LEFT_RESET 0x00000000u

/*
 * ACCUMULATOR_BYTES, read only. Size of the memory of int32 sums; 0 if there
 * is none that a driver sees.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ACCUMULATOR_BYTES_OFFSET 0x002Cu
#define UMAKIT_SYSTOLIC_ARRAY_ACCUMULATOR_BYTES_RESET 0x00000000u

/* ARRAY_ROWS, read only. Rows of the array. */
#define UMAKIT_SYSTOLIC_ARRAY_ARRAY_ROWS_OFFSET 0x0040u
#define UMAKIT_SYSTOLIC_ARRAY_ARRAY_ROWS_RESET 0x00000000u

/*
 * ARRAY_COLUMNS, read only. Columns of the array, and channels in a block of
 * weights.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ARRAY_COLUMNS_OFFSET 0x0044u
#define UMAKIT_SYSTOLIC_ARRAY_ARRAY_COLUMNS_RESET 0x00000000u

/*
 * SCRATCHPAD_BYTES, read only. Size of the scratchpad. Its offsets are 0 to
 * SCRATCHPAD_BYTES - 1; the host cannot address it.
 */
#define UMAKIT_SYSTOLIC_ARRAY_SCRATCHPAD_BYTES_OFFSET 0x0048u
#define UMAKIT_SYSTOLIC_ARRAY_SCRATCHPAD_BYTES_RESET 0x00000000u

/*
 * SCRATCHPAD_BANKS, read only. Banks of equal size, one after the other. A
 * bank serves one engine at a time: a job that accesses a bank of the other
 * engine's running job starts when that one has ended.
 */
#define UMAKIT_SYSTOLIC_ARRAY_SCRATCHPAD_BANKS_OFFSET 0x004Cu
#define UMAKIT_SYSTOLIC_ARRAY_SCRATCHPAD_BANKS_RESET 0x00000000u

/* DMA_BYTES_PER_CYCLE, read only. Width of the DMA engine's bus port. */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_BYTES_PER_CYCLE_OFFSET 0x0050u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_BYTES_PER_CYCLE_RESET 0x00000000u

/*
 * DMA_ALIGNMENT, read only. What DMA_BUS_ADDRESS, DMA_SCRATCHPAD_START and
 * the strides in use are multiples of. DMA_ROW_BYTES is any number.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_ALIGNMENT_OFFSET 0x0054u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_ALIGNMENT_RESET 0x00000000u

/*
 * POOLING_LANES, read only. Channels that the pooling stage takes in a cycle;
 * 0 if there is none.
 */
#define UMAKIT_SYSTOLIC_ARRAY_POOLING_LANES_OFFSET 0x0058u
#define UMAKIT_SYSTOLIC_ARRAY_POOLING_LANES_RESET 0x00000000u

/* FEATURES, read only. What this instance can do. */
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_OFFSET 0x005Cu
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_RESET 0x00000000u
/* OUTPUT_STATIONARY: DATAFLOW 0. */
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_OUTPUT_STATIONARY_SHIFT 0u
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_OUTPUT_STATIONARY_MASK 0x00000001u
/* WEIGHT_STATIONARY: DATAFLOW 1. */
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_WEIGHT_STATIONARY_SHIFT 1u
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_WEIGHT_STATIONARY_MASK 0x00000002u
/* INPUT_STATIONARY: DATAFLOW 2. */
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_INPUT_STATIONARY_SHIFT 2u
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_INPUT_STATIONARY_MASK 0x00000004u
/* DEPTHWISE: OPERATION 1: each column has an input of its own. */
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_DEPTHWISE_SHIFT 3u
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_DEPTHWISE_MASK 0x00000008u
/* POOLING: OPERATION 2 and 3. */
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_POOLING_SHIFT 4u
#define UMAKIT_SYSTOLIC_ARRAY_FEATURES_POOLING_MASK 0x00000010u

/*
 * DMA_BUS_ADDRESS, read and write. First byte on the bus, as
 * umakit_device_map gave it, plus an offset.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_BUS_ADDRESS_OFFSET 0x0060u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_BUS_ADDRESS_RESET 0x00000000u

/*
 * DMA_SCRATCHPAD_START, read and write. First byte in the scratchpad. Driver:
 * not above SCRATCHPAD_BYTES - 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_SCRATCHPAD_START_OFFSET 0x0064u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_SCRATCHPAD_START_RESET 0x00000000u

/* DMA_DIRECTION, read and write. Which way the bytes go. */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OFFSET 0x0068u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_RESET 0x00000000u
/* IN: From the bus into the scratchpad. */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN 0u
/* OUT: From the scratchpad to the bus. */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT 1u

/*
 * DMA_ROW_BYTES, read and write. Bytes that follow each other without a gap,
 * at least 1. Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_ROW_BYTES_OFFSET 0x006Cu
#define UMAKIT_SYSTOLIC_ARRAY_DMA_ROW_BYTES_RESET 0x00000000u

/*
 * DMA_ROWS, read and write. Rows in a plane, at least 1. A 1-D transfer has
 * one row and one plane. Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_ROWS_OFFSET 0x0070u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_ROWS_RESET 0x00000001u

/* DMA_PLANES, read and write. Planes, at least 1. Driver: at least 1. */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_PLANES_OFFSET 0x0074u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_PLANES_RESET 0x00000001u

/*
 * DMA_BUS_ROW_STRIDE, read and write. Bytes from a row to the next on the
 * bus; not used with one row.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_BUS_ROW_STRIDE_OFFSET 0x0078u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_BUS_ROW_STRIDE_RESET 0x00000000u

/*
 * DMA_BUS_PLANE_STRIDE, read and write. Bytes from a plane to the next on the
 * bus; not used with one plane.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_BUS_PLANE_STRIDE_OFFSET 0x007Cu
#define UMAKIT_SYSTOLIC_ARRAY_DMA_BUS_PLANE_STRIDE_RESET 0x00000000u

/*
 * DMA_SCRATCHPAD_ROW_STRIDE, read and write. Bytes from a row to the next in
 * the scratchpad; not used with one row.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_SCRATCHPAD_ROW_STRIDE_OFFSET 0x0080u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_SCRATCHPAD_ROW_STRIDE_RESET 0x00000000u

/*
 * DMA_SCRATCHPAD_PLANE_STRIDE, read and write. Bytes from a plane to the next
 * in the scratchpad; not used with one plane.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_SCRATCHPAD_PLANE_STRIDE_OFFSET 0x0084u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_SCRATCHPAD_PLANE_STRIDE_RESET 0x00000000u

/*
 * DMA_BYTES_LEFT, read only. Bytes that transfers have not moved, of all that
 * started since the last CLEAR or DMA_START: 0 if they ran to their ends. A
 * transfer that stopped before its end is not forgotten because another one
 * follows.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_BYTES_LEFT_OFFSET 0x0088u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_BYTES_LEFT_RESET 0x00000000u

/* OPERATION, read and write. What the array computes. */
#define UMAKIT_SYSTOLIC_ARRAY_OPERATION_OFFSET 0x00A0u
#define UMAKIT_SYSTOLIC_ARRAY_OPERATION_RESET 0x00000000u
/* CONVOLUTION: A fully connected layer is one with a 1 x 1 kernel. */
#define UMAKIT_SYSTOLIC_ARRAY_OPERATION_CONVOLUTION 0u
/* DEPTHWISE: One input channel for each output channel. */
#define UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE 1u
/* MAX_POOL: The largest input of each window. */
#define UMAKIT_SYSTOLIC_ARRAY_OPERATION_MAX_POOL 2u
/*
 * AVERAGE_POOL: The mean of the inputs of each window, ties rounded away from
 * zero.
 */
#define UMAKIT_SYSTOLIC_ARRAY_OPERATION_AVERAGE_POOL 3u

/*
 * DATAFLOW, read and write. What stays in the array while the rest moves
 * through. Results are the same, cycles are not. Not used by pools.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OFFSET 0x00A4u
#define UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_RESET 0x00000000u
/* OUTPUT_STATIONARY: Sums. */
#define UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OUTPUT_STATIONARY 0u
/* WEIGHT_STATIONARY: Weights. */
#define UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_WEIGHT_STATIONARY 1u
/* INPUT_STATIONARY: Inputs. */
#define UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_INPUT_STATIONARY 2u

/*
 * IFMAP_START, read and write. Scratchpad offset of input row 0, column 0,
 * channel 0; int8. Driver: not above SCRATCHPAD_BYTES - 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_IFMAP_START_OFFSET 0x00A8u
#define UMAKIT_SYSTOLIC_ARRAY_IFMAP_START_RESET 0x00000000u

/*
 * WEIGHTS_START, read and write. Scratchpad offset of the weights; int8.
 * Convolution: ceil(OUTPUT_CHANNELS / ARRAY_COLUMNS) blocks of KERNEL_HEIGHT
 * x KERNEL_WIDTH x INPUT_CHANNELS x ARRAY_COLUMNS, the last one padded with
 * anything. Depthwise: KERNEL_HEIGHT x KERNEL_WIDTH x OUTPUT_CHANNELS.
 * Driver: not above SCRATCHPAD_BYTES - 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_WEIGHTS_START_OFFSET 0x00ACu
#define UMAKIT_SYSTOLIC_ARRAY_WEIGHTS_START_RESET 0x00000000u

/*
 * BIAS_START, read and write. Scratchpad offset of the bias, OUTPUT_CHANNELS
 * x int32; a multiple of 4. Driver: a multiple of 4, not above
 * SCRATCHPAD_BYTES - 4.
 */
#define UMAKIT_SYSTOLIC_ARRAY_BIAS_START_OFFSET 0x00B0u
#define UMAKIT_SYSTOLIC_ARRAY_BIAS_START_RESET 0x00000000u

/*
 * MULTIPLIERS_START, read and write. Scratchpad offset of the multipliers,
 * SCALE_COUNT x int32; a multiple of 4. Driver: a multiple of 4, not above
 * SCRATCHPAD_BYTES - 4.
 */
#define UMAKIT_SYSTOLIC_ARRAY_MULTIPLIERS_START_OFFSET 0x00B4u
#define UMAKIT_SYSTOLIC_ARRAY_MULTIPLIERS_START_RESET 0x00000000u

/*
 * SHIFTS_START, read and write. Scratchpad offset of the shifts, SCALE_COUNT
 * x int8: -31 to 30, negative ones shift right. Driver: not above
 * SCRATCHPAD_BYTES - 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_SHIFTS_START_OFFSET 0x00B8u
#define UMAKIT_SYSTOLIC_ARRAY_SHIFTS_START_RESET 0x00000000u

/*
 * OFMAP_START, read and write. Scratchpad offset of output row 0, column 0,
 * channel 0; int8. From its first to its last byte the result may not overlap
 * an operand. Driver: not above SCRATCHPAD_BYTES - 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_OFMAP_START_OFFSET 0x00BCu
#define UMAKIT_SYSTOLIC_ARRAY_OFMAP_START_RESET 0x00000000u

/*
 * INPUT_HEIGHT, read and write. Rows of the input in the scratchpad, at least
 * 1; outside them is padding. Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_INPUT_HEIGHT_OFFSET 0x00C0u
#define UMAKIT_SYSTOLIC_ARRAY_INPUT_HEIGHT_RESET 0x00000000u

/*
 * INPUT_WIDTH, read and write. Columns of the input in the scratchpad, at
 * least 1; outside them is padding. Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_INPUT_WIDTH_OFFSET 0x00C4u
#define UMAKIT_SYSTOLIC_ARRAY_INPUT_WIDTH_RESET 0x00000000u

/*
 * INPUT_CHANNELS, read and write. Channels of the input, at least 1.
 * Depthwise: OUTPUT_CHANNELS is a multiple of it, and output channel o reads
 * input channel o / (OUTPUT_CHANNELS / INPUT_CHANNELS). Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_INPUT_CHANNELS_OFFSET 0x00C8u
#define UMAKIT_SYSTOLIC_ARRAY_INPUT_CHANNELS_RESET 0x00000000u

/*
 * OUTPUT_HEIGHT, read and write. Rows of the result, at least 1. Driver: at
 * least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_OUTPUT_HEIGHT_OFFSET 0x00CCu
#define UMAKIT_SYSTOLIC_ARRAY_OUTPUT_HEIGHT_RESET 0x00000000u

/*
 * OUTPUT_WIDTH, read and write. Columns of the result, at least 1. Driver: at
 * least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_OUTPUT_WIDTH_OFFSET 0x00D0u
#define UMAKIT_SYSTOLIC_ARRAY_OUTPUT_WIDTH_RESET 0x00000000u

/*
 * OUTPUT_CHANNELS, read and write. Channels of the result, at least 1; of
 * pools equal to INPUT_CHANNELS. Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_OUTPUT_CHANNELS_OFFSET 0x00D4u
#define UMAKIT_SYSTOLIC_ARRAY_OUTPUT_CHANNELS_RESET 0x00000000u

/*
 * KERNEL_HEIGHT, read and write. Rows of the kernel or window, at least 1.
 * Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_KERNEL_HEIGHT_OFFSET 0x00D8u
#define UMAKIT_SYSTOLIC_ARRAY_KERNEL_HEIGHT_RESET 0x00000000u

/*
 * KERNEL_WIDTH, read and write. Columns of the kernel or window, at least 1.
 * Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_KERNEL_WIDTH_OFFSET 0x00DCu
#define UMAKIT_SYSTOLIC_ARRAY_KERNEL_WIDTH_RESET 0x00000000u

/*
 * STRIDE_HEIGHT, read and write. Input rows from an output row to the next,
 * at least 1. Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_STRIDE_HEIGHT_OFFSET 0x00E0u
#define UMAKIT_SYSTOLIC_ARRAY_STRIDE_HEIGHT_RESET 0x00000001u

/*
 * STRIDE_WIDTH, read and write. Input columns from an output column to the
 * next, at least 1. Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_STRIDE_WIDTH_OFFSET 0x00E4u
#define UMAKIT_SYSTOLIC_ARRAY_STRIDE_WIDTH_RESET 0x00000001u

/*
 * DILATION_HEIGHT, read and write. Input rows from a kernel row to the next,
 * at least 1. Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DILATION_HEIGHT_OFFSET 0x00E8u
#define UMAKIT_SYSTOLIC_ARRAY_DILATION_HEIGHT_RESET 0x00000001u

/*
 * DILATION_WIDTH, read and write. Input columns from a kernel column to the
 * next, at least 1. Driver: at least 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DILATION_WIDTH_OFFSET 0x00ECu
#define UMAKIT_SYSTOLIC_ARRAY_DILATION_WIDTH_RESET 0x00000001u

/*
 * PAD_TOP, read and write. Rows of padding above the input. Padding has the
 * value INPUT_ZERO_POINT; pools leave it out, and each of their windows must
 * have an input.
 */
#define UMAKIT_SYSTOLIC_ARRAY_PAD_TOP_OFFSET 0x00F0u
#define UMAKIT_SYSTOLIC_ARRAY_PAD_TOP_RESET 0x00000000u

/* PAD_LEFT, read and write. Columns of padding left of the input. */
#define UMAKIT_SYSTOLIC_ARRAY_PAD_LEFT_OFFSET 0x00F4u
#define UMAKIT_SYSTOLIC_ARRAY_PAD_LEFT_RESET 0x00000000u

/* IFMAP_ROW_STRIDE, read and write. Bytes from an input row to the next. */
#define UMAKIT_SYSTOLIC_ARRAY_IFMAP_ROW_STRIDE_OFFSET 0x00F8u
#define UMAKIT_SYSTOLIC_ARRAY_IFMAP_ROW_STRIDE_RESET 0x00000000u

/*
 * IFMAP_COLUMN_STRIDE, read and write. Bytes from an input column to the
 * next.
 */
#define UMAKIT_SYSTOLIC_ARRAY_IFMAP_COLUMN_STRIDE_OFFSET 0x00FCu
#define UMAKIT_SYSTOLIC_ARRAY_IFMAP_COLUMN_STRIDE_RESET 0x00000000u

/*
 * IFMAP_CHANNEL_STRIDE, read and write. Bytes from an input channel to the
 * next.
 */
#define UMAKIT_SYSTOLIC_ARRAY_IFMAP_CHANNEL_STRIDE_OFFSET 0x0100u
#define UMAKIT_SYSTOLIC_ARRAY_IFMAP_CHANNEL_STRIDE_RESET 0x00000000u

/* OFMAP_ROW_STRIDE, read and write. Bytes from an output row to the next. */
#define UMAKIT_SYSTOLIC_ARRAY_OFMAP_ROW_STRIDE_OFFSET 0x0104u
#define UMAKIT_SYSTOLIC_ARRAY_OFMAP_ROW_STRIDE_RESET 0x00000000u

/*
 * OFMAP_COLUMN_STRIDE, read and write. Bytes from an output column to the
 * next.
 */
#define UMAKIT_SYSTOLIC_ARRAY_OFMAP_COLUMN_STRIDE_OFFSET 0x0108u
#define UMAKIT_SYSTOLIC_ARRAY_OFMAP_COLUMN_STRIDE_RESET 0x00000000u

/*
 * OFMAP_CHANNEL_STRIDE, read and write. Bytes from an output channel to the
 * next.
 */
#define UMAKIT_SYSTOLIC_ARRAY_OFMAP_CHANNEL_STRIDE_OFFSET 0x010Cu
#define UMAKIT_SYSTOLIC_ARRAY_OFMAP_CHANNEL_STRIDE_RESET 0x00000000u

/*
 * INPUT_ZERO_POINT, read and write. Subtracted from each input; -128 to 127
 * in two's complement. Not used by pools. Driver: -128 to 127.
 */
#define UMAKIT_SYSTOLIC_ARRAY_INPUT_ZERO_POINT_OFFSET 0x0110u
#define UMAKIT_SYSTOLIC_ARRAY_INPUT_ZERO_POINT_RESET 0x00000000u

/*
 * OUTPUT_ZERO_POINT, read and write. Added to each scaled sum; -128 to 127 in
 * two's complement. Not used by pools. Driver: -128 to 127.
 */
#define UMAKIT_SYSTOLIC_ARRAY_OUTPUT_ZERO_POINT_OFFSET 0x0114u
#define UMAKIT_SYSTOLIC_ARRAY_OUTPUT_ZERO_POINT_RESET 0x00000000u

/*
 * CLIP_LOWEST, read and write. Least result, -128 to CLIP_HIGHEST in two's
 * complement. Driver: at least -128, not above CLIP_HIGHEST.
 */
#define UMAKIT_SYSTOLIC_ARRAY_CLIP_LOWEST_OFFSET 0x0118u
#define UMAKIT_SYSTOLIC_ARRAY_CLIP_LOWEST_RESET 0x00000000u

/*
 * CLIP_HIGHEST, read and write. Largest result, at most 127 in two's
 * complement. Driver: -128 to 127.
 */
#define UMAKIT_SYSTOLIC_ARRAY_CLIP_HIGHEST_OFFSET 0x011Cu
#define UMAKIT_SYSTOLIC_ARRAY_CLIP_HIGHEST_RESET 0x00000000u

/* ROUNDING, read and write. How a sum is scaled. Not used by pools. */
#define UMAKIT_SYSTOLIC_ARRAY_ROUNDING_OFFSET 0x0120u
#define UMAKIT_SYSTOLIC_ARRAY_ROUNDING_RESET 0x00000000u
/* TFLM: As umakit_requantize_tflm of umakit/requantize.h. */
#define UMAKIT_SYSTOLIC_ARRAY_ROUNDING_TFLM 0u
/* ORT: As umakit_requantize_ort of umakit/requantize.h. */
#define UMAKIT_SYSTOLIC_ARRAY_ROUNDING_ORT 1u

/*
 * SCALE_COUNT, read and write. Multipliers and shifts: 1, or one for each
 * output channel. Driver: 1 or OUTPUT_CHANNELS.
 */
#define UMAKIT_SYSTOLIC_ARRAY_SCALE_COUNT_OFFSET 0x0124u
#define UMAKIT_SYSTOLIC_ARRAY_SCALE_COUNT_RESET 0x00000001u

/*
 * ARRAY_CYCLES_LEFT, read only. Cycles until what the array runs ends, at
 * most 2^32 - 1; 0 after a job that ran to its end.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ARRAY_CYCLES_LEFT_OFFSET 0x0128u
#define UMAKIT_SYSTOLIC_ARRAY_ARRAY_CYCLES_LEFT_RESET 0x00000000u

/*
 * ACCUMULATE, read and write. Sums of several jobs over input channels of
 * their own meet in the accumulator. CLEAR sets it to 0. Not used by pools;
 * not 0 is UNSUPPORTED if ACCUMULATOR_BYTES is 0.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_OFFSET 0x012Cu
#define UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_RESET 0x00000000u
/*
 * CONTINUE: Start from the sums in the accumulator in place of the bias,
 * which is not used.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_CONTINUE_SHIFT 0u
#define UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_CONTINUE_MASK 0x00000001u
/*
 * KEEP: Leave the sums in the accumulator and write no result: multipliers,
 * shifts, OFMAP_START, its strides and ADD are not used.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_KEEP_SHIFT 1u
#define UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_KEEP_MASK 0x00000002u

/*
 * ACCUMULATOR_START, read and write. Offset in the accumulator of the sum of
 * output row 0, column 0, channel 0; a multiple of 4. OUTPUT_HEIGHT x
 * OUTPUT_WIDTH x OUTPUT_CHANNELS x int32 without gaps. Used with CONTINUE or
 * KEEP. Driver: a multiple of 4.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ACCUMULATOR_START_OFFSET 0x0130u
#define UMAKIT_SYSTOLIC_ARRAY_ACCUMULATOR_START_RESET 0x00000000u

/*
 * CLOCK_LOW, read only. Cycles since RESET_COUNTERS, bits 0 to 31. Reading it
 * captures CLOCK_HIGH.
 */
#define UMAKIT_SYSTOLIC_ARRAY_CLOCK_LOW_OFFSET 0x0140u
#define UMAKIT_SYSTOLIC_ARRAY_CLOCK_LOW_RESET 0x00000000u

/*
 * CLOCK_HIGH, read only. Bits 32 to 63, as they were when CLOCK_LOW was read.
 */
#define UMAKIT_SYSTOLIC_ARRAY_CLOCK_HIGH_OFFSET 0x0144u
#define UMAKIT_SYSTOLIC_ARRAY_CLOCK_HIGH_RESET 0x00000000u

/*
 * COMPUTE_CYCLES_LOW, read only. Cycles in which the array or the pooling
 * stage worked since RESET_COUNTERS, bits 0 to 31. Reading it captures
 * COMPUTE_CYCLES_HIGH.
 */
#define UMAKIT_SYSTOLIC_ARRAY_COMPUTE_CYCLES_LOW_OFFSET 0x0148u
#define UMAKIT_SYSTOLIC_ARRAY_COMPUTE_CYCLES_LOW_RESET 0x00000000u

/*
 * COMPUTE_CYCLES_HIGH, read only. Bits 32 to 63, as they were when
 * COMPUTE_CYCLES_LOW was read.
 */
#define UMAKIT_SYSTOLIC_ARRAY_COMPUTE_CYCLES_HIGH_OFFSET 0x014Cu
#define UMAKIT_SYSTOLIC_ARRAY_COMPUTE_CYCLES_HIGH_RESET 0x00000000u

/*
 * DRAIN_CYCLES_LOW, read only. Cycles in which results moved out of the array
 * since RESET_COUNTERS, bits 0 to 31. Reading it captures DRAIN_CYCLES_HIGH.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DRAIN_CYCLES_LOW_OFFSET 0x0150u
#define UMAKIT_SYSTOLIC_ARRAY_DRAIN_CYCLES_LOW_RESET 0x00000000u

/*
 * DRAIN_CYCLES_HIGH, read only. Bits 32 to 63, as they were when
 * DRAIN_CYCLES_LOW was read.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DRAIN_CYCLES_HIGH_OFFSET 0x0154u
#define UMAKIT_SYSTOLIC_ARRAY_DRAIN_CYCLES_HIGH_RESET 0x00000000u

/*
 * STALL_CYCLES_LOW, read only. Cycles in which the DMA engine worked and the
 * array did not since RESET_COUNTERS, bits 0 to 31. Reading it captures
 * STALL_CYCLES_HIGH.
 */
#define UMAKIT_SYSTOLIC_ARRAY_STALL_CYCLES_LOW_OFFSET 0x0158u
#define UMAKIT_SYSTOLIC_ARRAY_STALL_CYCLES_LOW_RESET 0x00000000u

/*
 * STALL_CYCLES_HIGH, read only. Bits 32 to 63, as they were when
 * STALL_CYCLES_LOW was read.
 */
#define UMAKIT_SYSTOLIC_ARRAY_STALL_CYCLES_HIGH_OFFSET 0x015Cu
#define UMAKIT_SYSTOLIC_ARRAY_STALL_CYCLES_HIGH_RESET 0x00000000u

/*
 * IDLE_CYCLES_LOW, read only. Cycles in which no engine worked: CLOCK is the
 * sum of these four since RESET_COUNTERS, bits 0 to 31. Reading it captures
 * IDLE_CYCLES_HIGH.
 */
#define UMAKIT_SYSTOLIC_ARRAY_IDLE_CYCLES_LOW_OFFSET 0x0160u
#define UMAKIT_SYSTOLIC_ARRAY_IDLE_CYCLES_LOW_RESET 0x00000000u

/*
 * IDLE_CYCLES_HIGH, read only. Bits 32 to 63, as they were when
 * IDLE_CYCLES_LOW was read.
 */
#define UMAKIT_SYSTOLIC_ARRAY_IDLE_CYCLES_HIGH_OFFSET 0x0164u
#define UMAKIT_SYSTOLIC_ARRAY_IDLE_CYCLES_HIGH_RESET 0x00000000u

/*
 * DMA_CYCLES_LOW, read only. Cycles in which the DMA engine worked, whether
 * the array did or not, since RESET_COUNTERS, bits 0 to 31. Reading it
 * captures DMA_CYCLES_HIGH.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_CYCLES_LOW_OFFSET 0x0168u
#define UMAKIT_SYSTOLIC_ARRAY_DMA_CYCLES_LOW_RESET 0x00000000u

/*
 * DMA_CYCLES_HIGH, read only. Bits 32 to 63, as they were when DMA_CYCLES_LOW
 * was read.
 */
#define UMAKIT_SYSTOLIC_ARRAY_DMA_CYCLES_HIGH_OFFSET 0x016Cu
#define UMAKIT_SYSTOLIC_ARRAY_DMA_CYCLES_HIGH_RESET 0x00000000u

/*
 * MACS_LOW, read only. Multiply-accumulates that the folds of finished jobs
 * had room for since RESET_COUNTERS, bits 0 to 31. Reading it captures
 * MACS_HIGH.
 */
#define UMAKIT_SYSTOLIC_ARRAY_MACS_LOW_OFFSET 0x0170u
#define UMAKIT_SYSTOLIC_ARRAY_MACS_LOW_RESET 0x00000000u

/*
 * MACS_HIGH, read only. Bits 32 to 63, as they were when MACS_LOW was read.
 */
#define UMAKIT_SYSTOLIC_ARRAY_MACS_HIGH_OFFSET 0x0174u
#define UMAKIT_SYSTOLIC_ARRAY_MACS_HIGH_RESET 0x00000000u

/*
 * USEFUL_MACS_LOW, read only. Multiply-accumulates of finished jobs with
 * inputs or padding, without those that only fill up folds, since
 * RESET_COUNTERS, bits 0 to 31. Reading it captures USEFUL_MACS_HIGH.
 */
#define UMAKIT_SYSTOLIC_ARRAY_USEFUL_MACS_LOW_OFFSET 0x0178u
#define UMAKIT_SYSTOLIC_ARRAY_USEFUL_MACS_LOW_RESET 0x00000000u

/*
 * USEFUL_MACS_HIGH, read only. Bits 32 to 63, as they were when
 * USEFUL_MACS_LOW was read.
 */
#define UMAKIT_SYSTOLIC_ARRAY_USEFUL_MACS_HIGH_OFFSET 0x017Cu
#define UMAKIT_SYSTOLIC_ARRAY_USEFUL_MACS_HIGH_RESET 0x00000000u

/*
 * BYTES_IN_LOW, read only. Bytes moved into the scratchpad since
 * RESET_COUNTERS, bits 0 to 31. Reading it captures BYTES_IN_HIGH.
 */
#define UMAKIT_SYSTOLIC_ARRAY_BYTES_IN_LOW_OFFSET 0x0180u
#define UMAKIT_SYSTOLIC_ARRAY_BYTES_IN_LOW_RESET 0x00000000u

/*
 * BYTES_IN_HIGH, read only. Bits 32 to 63, as they were when BYTES_IN_LOW was
 * read.
 */
#define UMAKIT_SYSTOLIC_ARRAY_BYTES_IN_HIGH_OFFSET 0x0184u
#define UMAKIT_SYSTOLIC_ARRAY_BYTES_IN_HIGH_RESET 0x00000000u

/*
 * BYTES_OUT_LOW, read only. Bytes moved out of the scratchpad since
 * RESET_COUNTERS, bits 0 to 31. Reading it captures BYTES_OUT_HIGH.
 */
#define UMAKIT_SYSTOLIC_ARRAY_BYTES_OUT_LOW_OFFSET 0x0188u
#define UMAKIT_SYSTOLIC_ARRAY_BYTES_OUT_LOW_RESET 0x00000000u

/*
 * BYTES_OUT_HIGH, read only. Bits 32 to 63, as they were when BYTES_OUT_LOW
 * was read.
 */
#define UMAKIT_SYSTOLIC_ARRAY_BYTES_OUT_HIGH_OFFSET 0x018Cu
#define UMAKIT_SYSTOLIC_ARRAY_BYTES_OUT_HIGH_RESET 0x00000000u

/*
 * ADD, read and write. 0, or 1: the result, with its limits, is a summand of
 * an integer addition, and what is written is the sum: ((((result -
 * OUTPUT_ZERO_POINT) << ADD_LEFT_SHIFT) scaled by ADD_RESULT) + (((addend -
 * ADDEND_ZERO_POINT) << ADD_LEFT_SHIFT) scaled by ADD_ADDEND)) scaled by
 * ADD_MULTIPLIER and ADD_SHIFT, + SUM_ZERO_POINT, limited to SUM_CLIP_LOWEST
 * to SUM_CLIP_HIGHEST. ROUNDING says how all three are scaled. Takes no time
 * of its own. CLEAR sets it to 0. Not used by pools. Driver: at most 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ADD_OFFSET 0x01A0u
#define UMAKIT_SYSTOLIC_ARRAY_ADD_RESET 0x00000000u

/*
 * ADDEND_START, read and write. Scratchpad offset of the addend for output
 * row 0, column 0, channel 0; int8, with the strides of the result. It may be
 * OFMAP_START; else the two may not overlap. Driver: not above
 * SCRATCHPAD_BYTES - 1.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ADDEND_START_OFFSET 0x01A4u
#define UMAKIT_SYSTOLIC_ARRAY_ADDEND_START_RESET 0x00000000u

/*
 * ADDEND_ZERO_POINT, read and write. Subtracted from each addend; -128 to 127
 * in two's complement. Driver: -128 to 127.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ADDEND_ZERO_POINT_OFFSET 0x01A8u
#define UMAKIT_SYSTOLIC_ARRAY_ADDEND_ZERO_POINT_RESET 0x00000000u

/*
 * ADD_LEFT_SHIFT, read and write. Bits that both summands are shifted left by
 * before they are scaled, 0 to 22. Driver: at most 22.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ADD_LEFT_SHIFT_OFFSET 0x01ACu
#define UMAKIT_SYSTOLIC_ARRAY_ADD_LEFT_SHIFT_RESET 0x00000000u

/*
 * ADD_RESULT_MULTIPLIER, read and write. Multiplier of the result, 0 to 2^31
 * - 1. Driver: at most 2147483647.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ADD_RESULT_MULTIPLIER_OFFSET 0x01B0u
#define UMAKIT_SYSTOLIC_ARRAY_ADD_RESULT_MULTIPLIER_RESET 0x00000000u

/*
 * ADD_RESULT_SHIFT, read and write. Shift of the result, -31 to 30 in two's
 * complement, negative ones shift right. Driver: -31 to 30.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ADD_RESULT_SHIFT_OFFSET 0x01B4u
#define UMAKIT_SYSTOLIC_ARRAY_ADD_RESULT_SHIFT_RESET 0x00000000u

/*
 * ADD_ADDEND_MULTIPLIER, read and write. Multiplier of the addend, 0 to 2^31
 * - 1. Driver: at most 2147483647.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ADD_ADDEND_MULTIPLIER_OFFSET 0x01B8u
#define UMAKIT_SYSTOLIC_ARRAY_ADD_ADDEND_MULTIPLIER_RESET 0x00000000u

/*
 * ADD_ADDEND_SHIFT, read and write. Shift of the addend, as ADD_RESULT_SHIFT.
 * Driver: -31 to 30.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ADD_ADDEND_SHIFT_OFFSET 0x01BCu
#define UMAKIT_SYSTOLIC_ARRAY_ADD_ADDEND_SHIFT_RESET 0x00000000u

/*
 * ADD_MULTIPLIER, read and write. Multiplier of the sum of both, 0 to 2^31 -
 * 1. Driver: at most 2147483647.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ADD_MULTIPLIER_OFFSET 0x01C0u
#define UMAKIT_SYSTOLIC_ARRAY_ADD_MULTIPLIER_RESET 0x00000000u

/*
 * ADD_SHIFT, read and write. Shift of the sum of both, as ADD_RESULT_SHIFT.
 * Driver: -31 to 30.
 */
#define UMAKIT_SYSTOLIC_ARRAY_ADD_SHIFT_OFFSET 0x01C4u
#define UMAKIT_SYSTOLIC_ARRAY_ADD_SHIFT_RESET 0x00000000u

/*
 * SUM_ZERO_POINT, read and write. Added to the scaled sum; -128 to 127 in
 * two's complement. Driver: -128 to 127.
 */
#define UMAKIT_SYSTOLIC_ARRAY_SUM_ZERO_POINT_OFFSET 0x01C8u
#define UMAKIT_SYSTOLIC_ARRAY_SUM_ZERO_POINT_RESET 0x00000000u

/*
 * SUM_CLIP_LOWEST, read and write. Least sum, -128 to SUM_CLIP_HIGHEST in
 * two's complement. Driver: at least -128, not above SUM_CLIP_HIGHEST.
 */
#define UMAKIT_SYSTOLIC_ARRAY_SUM_CLIP_LOWEST_OFFSET 0x01CCu
#define UMAKIT_SYSTOLIC_ARRAY_SUM_CLIP_LOWEST_RESET 0x00000000u

/*
 * SUM_CLIP_HIGHEST, read and write. Largest sum, at most 127 in two's
 * complement. Driver: -128 to 127.
 */
#define UMAKIT_SYSTOLIC_ARRAY_SUM_CLIP_HIGHEST_OFFSET 0x01D0u
#define UMAKIT_SYSTOLIC_ARRAY_SUM_CLIP_HIGHEST_RESET 0x00000000u

#endif /* UMAKIT_SYSTOLIC_ARRAY_REGISTERS_H */
