// SPDX-License-Identifier: Apache-2.0
//
// Generated from sim/registers/systolic_array.toml. Do not edit: change that file
// and run python -m umakit.machine.registers.
//
// A systolic array for int8 networks with a DMA engine and a scratchpad of its own. The two engines
// run side by side, on jobs that are started one by one or on commands of a queue. Operands lie in
// the scratchpad, at any strides, so that NHWC, NCHW and tiles of either are a matter of
// programming. Gaps between the groups are reserved.
//
// Of each register: its offset in bytes, its value after reset, and the bits that a write
// changes. Of each field: its lowest bit, its width in bits, and its bits in the register.

// verilator lint_off UNUSEDPARAM
package systolic_array_registers_pkg;

    // Bytes from the first register to the end of the last one.
    localparam logic [31:0] REGISTER_BYTES = 32'h0000_01D4;

    // ID, read only. Constant, the letters UMA2: a driver checks it before anything else.
    localparam logic [31:0] ID_OFFSET = 32'h0000_0000;
    localparam logic [31:0] ID_RESET = 32'h554D_4132;
    localparam logic [31:0] ID_WRITABLE_MASK = 32'h0000_0000;

    // VERSION, read only. Version of this register map.
    localparam logic [31:0] VERSION_OFFSET = 32'h0000_0004;
    localparam logic [31:0] VERSION_RESET = 32'h0001_0002;
    localparam logic [31:0] VERSION_WRITABLE_MASK = 32'h0000_0000;
    // MINOR: Grows with additions that old drivers may ignore.
    localparam int unsigned VERSION_MINOR_BIT = 0;
    localparam int unsigned VERSION_MINOR_WIDTH = 16;
    localparam logic [31:0] VERSION_MINOR_MASK = 32'h0000_FFFF;
    // MAJOR: Grows with changes that old drivers do not survive.
    localparam int unsigned VERSION_MAJOR_BIT = 16;
    localparam int unsigned VERSION_MAJOR_WIDTH = 16;
    localparam logic [31:0] VERSION_MAJOR_MASK = 32'hFFFF_0000;

    // CONTROL, write only. Commands. Several at once take effect in the order CLEAR,
    // RESET_COUNTERS, DMA_START, ARRAY_START, ENQUEUE_DMA, ENQUEUE_ARRAY.
    localparam logic [31:0] CONTROL_OFFSET = 32'h0000_0008;
    localparam logic [31:0] CONTROL_RESET = 32'h0000_0000;
    localparam logic [31:0] CONTROL_WRITABLE_MASK = 32'h0000_003F;
    // DMA_START: Start a transfer. Refused while an error is pending or the DMA engine is busy or
    // has commands left.
    localparam int unsigned CONTROL_DMA_START_BIT = 0;
    localparam int unsigned CONTROL_DMA_START_WIDTH = 1;
    localparam logic [31:0] CONTROL_DMA_START_MASK = 32'h0000_0001;
    // ARRAY_START: Start a job of the array. Refused while an error is pending or the array is busy
    // or has commands left.
    localparam int unsigned CONTROL_ARRAY_START_BIT = 1;
    localparam int unsigned CONTROL_ARRAY_START_WIDTH = 1;
    localparam logic [31:0] CONTROL_ARRAY_START_MASK = 32'h0000_0002;
    // CLEAR: Stop both engines and empty the queue, then clear DMA_DONE, ARRAY_DONE,
    // INTERRUPT_PENDING, ERROR, ERROR_ADDRESS, ADD and ACCUMULATE, so that a driver that does not
    // use the last two need not know them (since version 1.2). What a stopped engine was writing is
    // undefined. It may have to end bus accesses that it began: both engines are idle, and no bus
    // access is outstanding, when DMA_BUSY and ARRAY_BUSY of STATUS are 0.
    localparam int unsigned CONTROL_CLEAR_BIT = 2;
    localparam int unsigned CONTROL_CLEAR_WIDTH = 1;
    localparam logic [31:0] CONTROL_CLEAR_MASK = 32'h0000_0004;
    // RESET_COUNTERS: Set all counters to zero.
    localparam int unsigned CONTROL_RESET_COUNTERS_BIT = 3;
    localparam int unsigned CONTROL_RESET_COUNTERS_WIDTH = 1;
    localparam logic [31:0] CONTROL_RESET_COUNTERS_MASK = 32'h0000_0008;
    // ENQUEUE_DMA: Append a transfer, as the DMA registers say it now, to the queue. Refused while
    // an error is pending; the error BUSY if QUEUE_FREE is 0. Devices without a queue do not have
    // this bit.
    localparam int unsigned CONTROL_ENQUEUE_DMA_BIT = 4;
    localparam int unsigned CONTROL_ENQUEUE_DMA_WIDTH = 1;
    localparam logic [31:0] CONTROL_ENQUEUE_DMA_MASK = 32'h0000_0010;
    // ENQUEUE_ARRAY: The same for a job of the array and the job registers.
    localparam int unsigned CONTROL_ENQUEUE_ARRAY_BIT = 5;
    localparam int unsigned CONTROL_ENQUEUE_ARRAY_WIDTH = 1;
    localparam logic [31:0] CONTROL_ENQUEUE_ARRAY_MASK = 32'h0000_0020;

    // STATUS, read only. State of the device.
    localparam logic [31:0] STATUS_OFFSET = 32'h0000_000C;
    localparam logic [31:0] STATUS_RESET = 32'h0000_0001;
    localparam logic [31:0] STATUS_WRITABLE_MASK = 32'h0000_0000;
    // IDLE: No engine is busy.
    localparam int unsigned STATUS_IDLE_BIT = 0;
    localparam int unsigned STATUS_IDLE_WIDTH = 1;
    localparam logic [31:0] STATUS_IDLE_MASK = 32'h0000_0001;
    // DMA_BUSY: A transfer is running. Without a queue the DMA registers may not be written.
    localparam int unsigned STATUS_DMA_BUSY_BIT = 1;
    localparam int unsigned STATUS_DMA_BUSY_WIDTH = 1;
    localparam logic [31:0] STATUS_DMA_BUSY_MASK = 32'h0000_0002;
    // ARRAY_BUSY: A job is running. Without a queue the job registers may not be written: OPERATION
    // to SCALE_COUNT, ACCUMULATE, ACCUMULATOR_START, and ADD to SUM_CLIP_HIGHEST.
    localparam int unsigned STATUS_ARRAY_BUSY_BIT = 2;
    localparam int unsigned STATUS_ARRAY_BUSY_WIDTH = 1;
    localparam logic [31:0] STATUS_ARRAY_BUSY_MASK = 32'h0000_0004;
    // DMA_DONE: The transfer of the last DMA_START ran to its end. Cleared by DMA_START and CLEAR.
    localparam int unsigned STATUS_DMA_DONE_BIT = 3;
    localparam int unsigned STATUS_DMA_DONE_WIDTH = 1;
    localparam logic [31:0] STATUS_DMA_DONE_MASK = 32'h0000_0008;
    // ARRAY_DONE: The job of the last ARRAY_START ran to its end. Cleared by ARRAY_START and CLEAR.
    localparam int unsigned STATUS_ARRAY_DONE_BIT = 4;
    localparam int unsigned STATUS_ARRAY_DONE_WIDTH = 1;
    localparam logic [31:0] STATUS_ARRAY_DONE_MASK = 32'h0000_0010;
    // ERROR: An error is pending, see the ERROR register. Cleared by CLEAR.
    localparam int unsigned STATUS_ERROR_BIT = 5;
    localparam int unsigned STATUS_ERROR_WIDTH = 1;
    localparam logic [31:0] STATUS_ERROR_MASK = 32'h0000_0020;
    // QUEUE_FULL: There is a queue and QUEUE_FREE is 0.
    localparam int unsigned STATUS_QUEUE_FULL_BIT = 6;
    localparam int unsigned STATUS_QUEUE_FULL_WIDTH = 1;
    localparam logic [31:0] STATUS_QUEUE_FULL_MASK = 32'h0000_0040;

    // INTERRUPT_ENABLE, read and write. Which bits of INTERRUPT_PENDING raise the interrupt line.
    localparam logic [31:0] INTERRUPT_ENABLE_OFFSET = 32'h0000_0010;
    localparam logic [31:0] INTERRUPT_ENABLE_RESET = 32'h0000_0000;
    localparam logic [31:0] INTERRUPT_ENABLE_WRITABLE_MASK = 32'h0000_001F;
    // DMA_DONE: The transfer of a DMA_START ran to its end.
    localparam int unsigned INTERRUPT_ENABLE_DMA_DONE_BIT = 0;
    localparam int unsigned INTERRUPT_ENABLE_DMA_DONE_WIDTH = 1;
    localparam logic [31:0] INTERRUPT_ENABLE_DMA_DONE_MASK = 32'h0000_0001;
    // ARRAY_DONE: The job of an ARRAY_START ran to its end.
    localparam int unsigned INTERRUPT_ENABLE_ARRAY_DONE_BIT = 1;
    localparam int unsigned INTERRUPT_ENABLE_ARRAY_DONE_WIDTH = 1;
    localparam logic [31:0] INTERRUPT_ENABLE_ARRAY_DONE_MASK = 32'h0000_0002;
    // ERROR: An error was reported.
    localparam int unsigned INTERRUPT_ENABLE_ERROR_BIT = 2;
    localparam int unsigned INTERRUPT_ENABLE_ERROR_WIDTH = 1;
    localparam logic [31:0] INTERRUPT_ENABLE_ERROR_MASK = 32'h0000_0004;
    // QUEUE_DONE: COMMANDS_LEFT became 0 because the last command ended. Devices without a queue do
    // not have this bit.
    localparam int unsigned INTERRUPT_ENABLE_QUEUE_DONE_BIT = 3;
    localparam int unsigned INTERRUPT_ENABLE_QUEUE_DONE_WIDTH = 1;
    localparam logic [31:0] INTERRUPT_ENABLE_QUEUE_DONE_MASK = 32'h0000_0008;
    // COMMAND_DONE: A command ended. Devices without a queue do not have this bit.
    localparam int unsigned INTERRUPT_ENABLE_COMMAND_DONE_BIT = 4;
    localparam int unsigned INTERRUPT_ENABLE_COMMAND_DONE_WIDTH = 1;
    localparam logic [31:0] INTERRUPT_ENABLE_COMMAND_DONE_MASK = 32'h0000_0010;

    // INTERRUPT_PENDING, read and write. What happened; writing 1 to a bit clears it. The line is
    // high while a bit is set here and in INTERRUPT_ENABLE. A START clears the bit of its engine,
    // an ENQUEUE that of QUEUE_DONE, CLEAR all.
    localparam logic [31:0] INTERRUPT_PENDING_OFFSET = 32'h0000_0014;
    localparam logic [31:0] INTERRUPT_PENDING_RESET = 32'h0000_0000;
    localparam logic [31:0] INTERRUPT_PENDING_WRITABLE_MASK = 32'h0000_001F;
    // DMA_DONE: The transfer of a DMA_START ran to its end.
    localparam int unsigned INTERRUPT_PENDING_DMA_DONE_BIT = 0;
    localparam int unsigned INTERRUPT_PENDING_DMA_DONE_WIDTH = 1;
    localparam logic [31:0] INTERRUPT_PENDING_DMA_DONE_MASK = 32'h0000_0001;
    // ARRAY_DONE: The job of an ARRAY_START ran to its end.
    localparam int unsigned INTERRUPT_PENDING_ARRAY_DONE_BIT = 1;
    localparam int unsigned INTERRUPT_PENDING_ARRAY_DONE_WIDTH = 1;
    localparam logic [31:0] INTERRUPT_PENDING_ARRAY_DONE_MASK = 32'h0000_0002;
    // ERROR: An error was reported.
    localparam int unsigned INTERRUPT_PENDING_ERROR_BIT = 2;
    localparam int unsigned INTERRUPT_PENDING_ERROR_WIDTH = 1;
    localparam logic [31:0] INTERRUPT_PENDING_ERROR_MASK = 32'h0000_0004;
    // QUEUE_DONE: COMMANDS_LEFT became 0 because the last command ended. Devices without a queue do
    // not have this bit.
    localparam int unsigned INTERRUPT_PENDING_QUEUE_DONE_BIT = 3;
    localparam int unsigned INTERRUPT_PENDING_QUEUE_DONE_WIDTH = 1;
    localparam logic [31:0] INTERRUPT_PENDING_QUEUE_DONE_MASK = 32'h0000_0008;
    // COMMAND_DONE: A command ended. Devices without a queue do not have this bit.
    localparam int unsigned INTERRUPT_PENDING_COMMAND_DONE_BIT = 4;
    localparam int unsigned INTERRUPT_PENDING_COMMAND_DONE_WIDTH = 1;
    localparam logic [31:0] INTERRUPT_PENDING_COMMAND_DONE_MASK = 32'h0000_0010;

    // ERROR, read only. The first error since the last CLEAR, as enum umakit_status; 0 is none. It
    // drops all commands, those that run too: what they were writing is undefined. Jobs of a START
    // run on.
    localparam logic [31:0] ERROR_OFFSET = 32'h0000_0018;
    localparam logic [31:0] ERROR_RESET = 32'h0000_0000;
    localparam logic [31:0] ERROR_WRITABLE_MASK = 32'h0000_0000;

    // ERROR_ADDRESS, read only. What the first error is about: a bus address, a scratchpad offset
    // or the offset of a register; 0 if it is about none.
    localparam logic [31:0] ERROR_ADDRESS_OFFSET = 32'h0000_001C;
    localparam logic [31:0] ERROR_ADDRESS_RESET = 32'h0000_0000;
    localparam logic [31:0] ERROR_ADDRESS_WRITABLE_MASK = 32'h0000_0000;

    // QUEUE_DEPTH, read only. Commands that the queue holds; 0 if there is no queue.
    localparam logic [31:0] QUEUE_DEPTH_OFFSET = 32'h0000_0020;
    localparam logic [31:0] QUEUE_DEPTH_RESET = 32'h0000_0000;
    localparam logic [31:0] QUEUE_DEPTH_WRITABLE_MASK = 32'h0000_0000;

    // QUEUE_FREE, read only. Entries of the queue that are free. A command has its entry until it
    // ended.
    localparam logic [31:0] QUEUE_FREE_OFFSET = 32'h0000_0024;
    localparam logic [31:0] QUEUE_FREE_RESET = 32'h0000_0000;
    localparam logic [31:0] QUEUE_FREE_WRITABLE_MASK = 32'h0000_0000;

    // COMMANDS_LEFT, read only. Commands that were enqueued and have not ended.
    localparam logic [31:0] COMMANDS_LEFT_OFFSET = 32'h0000_0028;
    localparam logic [31:0] COMMANDS_LEFT_RESET = 32'h0000_0000;
    localparam logic [31:0] COMMANDS_LEFT_WRITABLE_MASK = 32'h0000_0000;

    // ACCUMULATOR_BYTES, read only. Size of the memory of int32 sums; 0 if there is none that a
    // driver sees.
    localparam logic [31:0] ACCUMULATOR_BYTES_OFFSET = 32'h0000_002C;
    localparam logic [31:0] ACCUMULATOR_BYTES_RESET = 32'h0000_0000;
    localparam logic [31:0] ACCUMULATOR_BYTES_WRITABLE_MASK = 32'h0000_0000;

    // ARRAY_ROWS, read only. Rows of the array.
    localparam logic [31:0] ARRAY_ROWS_OFFSET = 32'h0000_0040;
    localparam logic [31:0] ARRAY_ROWS_RESET = 32'h0000_0000;
    localparam logic [31:0] ARRAY_ROWS_WRITABLE_MASK = 32'h0000_0000;

    // ARRAY_COLUMNS, read only. Columns of the array, and channels in a block of weights.
    localparam logic [31:0] ARRAY_COLUMNS_OFFSET = 32'h0000_0044;
    localparam logic [31:0] ARRAY_COLUMNS_RESET = 32'h0000_0000;
    localparam logic [31:0] ARRAY_COLUMNS_WRITABLE_MASK = 32'h0000_0000;

    // SCRATCHPAD_BYTES, read only. Size of the scratchpad. Its offsets are 0 to SCRATCHPAD_BYTES -
    // 1; the host cannot address it.
    localparam logic [31:0] SCRATCHPAD_BYTES_OFFSET = 32'h0000_0048;
    localparam logic [31:0] SCRATCHPAD_BYTES_RESET = 32'h0000_0000;
    localparam logic [31:0] SCRATCHPAD_BYTES_WRITABLE_MASK = 32'h0000_0000;

    // SCRATCHPAD_BANKS, read only. Banks of equal size, one after the other. A bank serves one
    // engine at a time: a job that accesses a bank of the other engine's running job starts when
    // that one has ended.
    localparam logic [31:0] SCRATCHPAD_BANKS_OFFSET = 32'h0000_004C;
    localparam logic [31:0] SCRATCHPAD_BANKS_RESET = 32'h0000_0000;
    localparam logic [31:0] SCRATCHPAD_BANKS_WRITABLE_MASK = 32'h0000_0000;

    // DMA_BYTES_PER_CYCLE, read only. Width of the DMA engine's bus port.
    localparam logic [31:0] DMA_BYTES_PER_CYCLE_OFFSET = 32'h0000_0050;
    localparam logic [31:0] DMA_BYTES_PER_CYCLE_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_BYTES_PER_CYCLE_WRITABLE_MASK = 32'h0000_0000;

    // DMA_ALIGNMENT, read only. What DMA_BUS_ADDRESS, DMA_SCRATCHPAD_START and the strides in use
    // are multiples of. DMA_ROW_BYTES is any number.
    localparam logic [31:0] DMA_ALIGNMENT_OFFSET = 32'h0000_0054;
    localparam logic [31:0] DMA_ALIGNMENT_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_ALIGNMENT_WRITABLE_MASK = 32'h0000_0000;

    // POOLING_LANES, read only. Channels that the pooling stage takes in a cycle; 0 if there is
    // none.
    localparam logic [31:0] POOLING_LANES_OFFSET = 32'h0000_0058;
    localparam logic [31:0] POOLING_LANES_RESET = 32'h0000_0000;
    localparam logic [31:0] POOLING_LANES_WRITABLE_MASK = 32'h0000_0000;

    // FEATURES, read only. What this instance can do.
    localparam logic [31:0] FEATURES_OFFSET = 32'h0000_005C;
    localparam logic [31:0] FEATURES_RESET = 32'h0000_0000;
    localparam logic [31:0] FEATURES_WRITABLE_MASK = 32'h0000_0000;
    // OUTPUT_STATIONARY: DATAFLOW 0.
    localparam int unsigned FEATURES_OUTPUT_STATIONARY_BIT = 0;
    localparam int unsigned FEATURES_OUTPUT_STATIONARY_WIDTH = 1;
    localparam logic [31:0] FEATURES_OUTPUT_STATIONARY_MASK = 32'h0000_0001;
    // WEIGHT_STATIONARY: DATAFLOW 1.
    localparam int unsigned FEATURES_WEIGHT_STATIONARY_BIT = 1;
    localparam int unsigned FEATURES_WEIGHT_STATIONARY_WIDTH = 1;
    localparam logic [31:0] FEATURES_WEIGHT_STATIONARY_MASK = 32'h0000_0002;
    // INPUT_STATIONARY: DATAFLOW 2.
    localparam int unsigned FEATURES_INPUT_STATIONARY_BIT = 2;
    localparam int unsigned FEATURES_INPUT_STATIONARY_WIDTH = 1;
    localparam logic [31:0] FEATURES_INPUT_STATIONARY_MASK = 32'h0000_0004;
    // DEPTHWISE: OPERATION 1: each column has an input of its own.
    localparam int unsigned FEATURES_DEPTHWISE_BIT = 3;
    localparam int unsigned FEATURES_DEPTHWISE_WIDTH = 1;
    localparam logic [31:0] FEATURES_DEPTHWISE_MASK = 32'h0000_0008;
    // POOLING: OPERATION 2 and 3.
    localparam int unsigned FEATURES_POOLING_BIT = 4;
    localparam int unsigned FEATURES_POOLING_WIDTH = 1;
    localparam logic [31:0] FEATURES_POOLING_MASK = 32'h0000_0010;

    // DMA_BUS_ADDRESS, read and write. First byte on the bus, as umakit_device_map gave it, plus an
    // offset.
    localparam logic [31:0] DMA_BUS_ADDRESS_OFFSET = 32'h0000_0060;
    localparam logic [31:0] DMA_BUS_ADDRESS_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_BUS_ADDRESS_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DMA_SCRATCHPAD_START, read and write. First byte in the scratchpad. Driver: not above
    // SCRATCHPAD_BYTES - 1.
    localparam logic [31:0] DMA_SCRATCHPAD_START_OFFSET = 32'h0000_0064;
    localparam logic [31:0] DMA_SCRATCHPAD_START_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_SCRATCHPAD_START_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DMA_DIRECTION, read and write. Which way the bytes go.
    localparam logic [31:0] DMA_DIRECTION_OFFSET = 32'h0000_0068;
    localparam logic [31:0] DMA_DIRECTION_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_DIRECTION_WRITABLE_MASK = 32'hFFFF_FFFF;
    // IN: From the bus into the scratchpad.
    localparam logic [31:0] DMA_DIRECTION_IN = 32'h0000_0000;
    // OUT: From the scratchpad to the bus.
    localparam logic [31:0] DMA_DIRECTION_OUT = 32'h0000_0001;

    // DMA_ROW_BYTES, read and write. Bytes that follow each other without a gap, at least 1.
    // Driver: at least 1.
    localparam logic [31:0] DMA_ROW_BYTES_OFFSET = 32'h0000_006C;
    localparam logic [31:0] DMA_ROW_BYTES_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_ROW_BYTES_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DMA_ROWS, read and write. Rows in a plane, at least 1. A 1-D transfer has one row and one
    // plane. Driver: at least 1.
    localparam logic [31:0] DMA_ROWS_OFFSET = 32'h0000_0070;
    localparam logic [31:0] DMA_ROWS_RESET = 32'h0000_0001;
    localparam logic [31:0] DMA_ROWS_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DMA_PLANES, read and write. Planes, at least 1. Driver: at least 1.
    localparam logic [31:0] DMA_PLANES_OFFSET = 32'h0000_0074;
    localparam logic [31:0] DMA_PLANES_RESET = 32'h0000_0001;
    localparam logic [31:0] DMA_PLANES_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DMA_BUS_ROW_STRIDE, read and write. Bytes from a row to the next on the bus; not used with
    // one row.
    localparam logic [31:0] DMA_BUS_ROW_STRIDE_OFFSET = 32'h0000_0078;
    localparam logic [31:0] DMA_BUS_ROW_STRIDE_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_BUS_ROW_STRIDE_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DMA_BUS_PLANE_STRIDE, read and write. Bytes from a plane to the next on the bus; not used
    // with one plane.
    localparam logic [31:0] DMA_BUS_PLANE_STRIDE_OFFSET = 32'h0000_007C;
    localparam logic [31:0] DMA_BUS_PLANE_STRIDE_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_BUS_PLANE_STRIDE_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DMA_SCRATCHPAD_ROW_STRIDE, read and write. Bytes from a row to the next in the scratchpad;
    // not used with one row.
    localparam logic [31:0] DMA_SCRATCHPAD_ROW_STRIDE_OFFSET = 32'h0000_0080;
    localparam logic [31:0] DMA_SCRATCHPAD_ROW_STRIDE_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_SCRATCHPAD_ROW_STRIDE_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DMA_SCRATCHPAD_PLANE_STRIDE, read and write. Bytes from a plane to the next in the
    // scratchpad; not used with one plane.
    localparam logic [31:0] DMA_SCRATCHPAD_PLANE_STRIDE_OFFSET = 32'h0000_0084;
    localparam logic [31:0] DMA_SCRATCHPAD_PLANE_STRIDE_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_SCRATCHPAD_PLANE_STRIDE_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DMA_BYTES_LEFT, read only. Bytes that transfers have not moved, of all that started since the
    // last CLEAR or DMA_START: 0 if they ran to their ends. A transfer that stopped before its end
    // is not forgotten because another one follows.
    localparam logic [31:0] DMA_BYTES_LEFT_OFFSET = 32'h0000_0088;
    localparam logic [31:0] DMA_BYTES_LEFT_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_BYTES_LEFT_WRITABLE_MASK = 32'h0000_0000;

    // OPERATION, read and write. What the array computes.
    localparam logic [31:0] OPERATION_OFFSET = 32'h0000_00A0;
    localparam logic [31:0] OPERATION_RESET = 32'h0000_0000;
    localparam logic [31:0] OPERATION_WRITABLE_MASK = 32'hFFFF_FFFF;
    // CONVOLUTION: A fully connected layer is one with a 1 x 1 kernel.
    localparam logic [31:0] OPERATION_CONVOLUTION = 32'h0000_0000;
    // DEPTHWISE: One input channel for each output channel.
    localparam logic [31:0] OPERATION_DEPTHWISE = 32'h0000_0001;
    // MAX_POOL: The largest input of each window.
    localparam logic [31:0] OPERATION_MAX_POOL = 32'h0000_0002;
    // AVERAGE_POOL: The mean of the inputs of each window, ties rounded away from zero.
    localparam logic [31:0] OPERATION_AVERAGE_POOL = 32'h0000_0003;

    // DATAFLOW, read and write. What stays in the array while the rest moves through. Results are
    // the same, cycles are not. Not used by pools.
    localparam logic [31:0] DATAFLOW_OFFSET = 32'h0000_00A4;
    localparam logic [31:0] DATAFLOW_RESET = 32'h0000_0000;
    localparam logic [31:0] DATAFLOW_WRITABLE_MASK = 32'hFFFF_FFFF;
    // OUTPUT_STATIONARY: Sums.
    localparam logic [31:0] DATAFLOW_OUTPUT_STATIONARY = 32'h0000_0000;
    // WEIGHT_STATIONARY: Weights.
    localparam logic [31:0] DATAFLOW_WEIGHT_STATIONARY = 32'h0000_0001;
    // INPUT_STATIONARY: Inputs.
    localparam logic [31:0] DATAFLOW_INPUT_STATIONARY = 32'h0000_0002;

    // IFMAP_START, read and write. Scratchpad offset of input row 0, column 0, channel 0; int8.
    // Driver: not above SCRATCHPAD_BYTES - 1.
    localparam logic [31:0] IFMAP_START_OFFSET = 32'h0000_00A8;
    localparam logic [31:0] IFMAP_START_RESET = 32'h0000_0000;
    localparam logic [31:0] IFMAP_START_WRITABLE_MASK = 32'hFFFF_FFFF;

    // WEIGHTS_START, read and write. Scratchpad offset of the weights; int8. Convolution:
    // ceil(OUTPUT_CHANNELS / ARRAY_COLUMNS) blocks of KERNEL_HEIGHT x KERNEL_WIDTH x INPUT_CHANNELS
    // x ARRAY_COLUMNS, the last one padded with anything. Depthwise: KERNEL_HEIGHT x KERNEL_WIDTH x
    // OUTPUT_CHANNELS. Driver: not above SCRATCHPAD_BYTES - 1.
    localparam logic [31:0] WEIGHTS_START_OFFSET = 32'h0000_00AC;
    localparam logic [31:0] WEIGHTS_START_RESET = 32'h0000_0000;
    localparam logic [31:0] WEIGHTS_START_WRITABLE_MASK = 32'hFFFF_FFFF;

    // BIAS_START, read and write. Scratchpad offset of the bias, OUTPUT_CHANNELS x int32; a
    // multiple of 4. Driver: a multiple of 4, not above SCRATCHPAD_BYTES - 4.
    localparam logic [31:0] BIAS_START_OFFSET = 32'h0000_00B0;
    localparam logic [31:0] BIAS_START_RESET = 32'h0000_0000;
    localparam logic [31:0] BIAS_START_WRITABLE_MASK = 32'hFFFF_FFFF;

    // MULTIPLIERS_START, read and write. Scratchpad offset of the multipliers, SCALE_COUNT x int32;
    // a multiple of 4. Driver: a multiple of 4, not above SCRATCHPAD_BYTES - 4.
    localparam logic [31:0] MULTIPLIERS_START_OFFSET = 32'h0000_00B4;
    localparam logic [31:0] MULTIPLIERS_START_RESET = 32'h0000_0000;
    localparam logic [31:0] MULTIPLIERS_START_WRITABLE_MASK = 32'hFFFF_FFFF;

    // SHIFTS_START, read and write. Scratchpad offset of the shifts, SCALE_COUNT x int8: -31 to 30,
    // negative ones shift right. Driver: not above SCRATCHPAD_BYTES - 1.
    localparam logic [31:0] SHIFTS_START_OFFSET = 32'h0000_00B8;
    localparam logic [31:0] SHIFTS_START_RESET = 32'h0000_0000;
    localparam logic [31:0] SHIFTS_START_WRITABLE_MASK = 32'hFFFF_FFFF;

    // OFMAP_START, read and write. Scratchpad offset of output row 0, column 0, channel 0; int8.
    // From its first to its last byte the result may not overlap an operand. Driver: not above
    // SCRATCHPAD_BYTES - 1.
    localparam logic [31:0] OFMAP_START_OFFSET = 32'h0000_00BC;
    localparam logic [31:0] OFMAP_START_RESET = 32'h0000_0000;
    localparam logic [31:0] OFMAP_START_WRITABLE_MASK = 32'hFFFF_FFFF;

    // INPUT_HEIGHT, read and write. Rows of the input in the scratchpad, at least 1; outside them
    // is padding. Driver: at least 1.
    localparam logic [31:0] INPUT_HEIGHT_OFFSET = 32'h0000_00C0;
    localparam logic [31:0] INPUT_HEIGHT_RESET = 32'h0000_0000;
    localparam logic [31:0] INPUT_HEIGHT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // INPUT_WIDTH, read and write. Columns of the input in the scratchpad, at least 1; outside them
    // is padding. Driver: at least 1.
    localparam logic [31:0] INPUT_WIDTH_OFFSET = 32'h0000_00C4;
    localparam logic [31:0] INPUT_WIDTH_RESET = 32'h0000_0000;
    localparam logic [31:0] INPUT_WIDTH_WRITABLE_MASK = 32'hFFFF_FFFF;

    // INPUT_CHANNELS, read and write. Channels of the input, at least 1. Depthwise: OUTPUT_CHANNELS
    // is a multiple of it, and output channel o reads input channel o / (OUTPUT_CHANNELS /
    // INPUT_CHANNELS). Driver: at least 1.
    localparam logic [31:0] INPUT_CHANNELS_OFFSET = 32'h0000_00C8;
    localparam logic [31:0] INPUT_CHANNELS_RESET = 32'h0000_0000;
    localparam logic [31:0] INPUT_CHANNELS_WRITABLE_MASK = 32'hFFFF_FFFF;

    // OUTPUT_HEIGHT, read and write. Rows of the result, at least 1. Driver: at least 1.
    localparam logic [31:0] OUTPUT_HEIGHT_OFFSET = 32'h0000_00CC;
    localparam logic [31:0] OUTPUT_HEIGHT_RESET = 32'h0000_0000;
    localparam logic [31:0] OUTPUT_HEIGHT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // OUTPUT_WIDTH, read and write. Columns of the result, at least 1. Driver: at least 1.
    localparam logic [31:0] OUTPUT_WIDTH_OFFSET = 32'h0000_00D0;
    localparam logic [31:0] OUTPUT_WIDTH_RESET = 32'h0000_0000;
    localparam logic [31:0] OUTPUT_WIDTH_WRITABLE_MASK = 32'hFFFF_FFFF;

    // OUTPUT_CHANNELS, read and write. Channels of the result, at least 1; of pools equal to
    // INPUT_CHANNELS. Driver: at least 1.
    localparam logic [31:0] OUTPUT_CHANNELS_OFFSET = 32'h0000_00D4;
    localparam logic [31:0] OUTPUT_CHANNELS_RESET = 32'h0000_0000;
    localparam logic [31:0] OUTPUT_CHANNELS_WRITABLE_MASK = 32'hFFFF_FFFF;

    // KERNEL_HEIGHT, read and write. Rows of the kernel or window, at least 1. Driver: at least 1.
    localparam logic [31:0] KERNEL_HEIGHT_OFFSET = 32'h0000_00D8;
    localparam logic [31:0] KERNEL_HEIGHT_RESET = 32'h0000_0000;
    localparam logic [31:0] KERNEL_HEIGHT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // KERNEL_WIDTH, read and write. Columns of the kernel or window, at least 1. Driver: at least
    // 1.
    localparam logic [31:0] KERNEL_WIDTH_OFFSET = 32'h0000_00DC;
    localparam logic [31:0] KERNEL_WIDTH_RESET = 32'h0000_0000;
    localparam logic [31:0] KERNEL_WIDTH_WRITABLE_MASK = 32'hFFFF_FFFF;

    // STRIDE_HEIGHT, read and write. Input rows from an output row to the next, at least 1. Driver:
    // at least 1.
    localparam logic [31:0] STRIDE_HEIGHT_OFFSET = 32'h0000_00E0;
    localparam logic [31:0] STRIDE_HEIGHT_RESET = 32'h0000_0001;
    localparam logic [31:0] STRIDE_HEIGHT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // STRIDE_WIDTH, read and write. Input columns from an output column to the next, at least 1.
    // Driver: at least 1.
    localparam logic [31:0] STRIDE_WIDTH_OFFSET = 32'h0000_00E4;
    localparam logic [31:0] STRIDE_WIDTH_RESET = 32'h0000_0001;
    localparam logic [31:0] STRIDE_WIDTH_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DILATION_HEIGHT, read and write. Input rows from a kernel row to the next, at least 1.
    // Driver: at least 1.
    localparam logic [31:0] DILATION_HEIGHT_OFFSET = 32'h0000_00E8;
    localparam logic [31:0] DILATION_HEIGHT_RESET = 32'h0000_0001;
    localparam logic [31:0] DILATION_HEIGHT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // DILATION_WIDTH, read and write. Input columns from a kernel column to the next, at least 1.
    // Driver: at least 1.
    localparam logic [31:0] DILATION_WIDTH_OFFSET = 32'h0000_00EC;
    localparam logic [31:0] DILATION_WIDTH_RESET = 32'h0000_0001;
    localparam logic [31:0] DILATION_WIDTH_WRITABLE_MASK = 32'hFFFF_FFFF;

    // PAD_TOP, read and write. Rows of padding above the input. Padding has the value
    // INPUT_ZERO_POINT; pools leave it out, and each of their windows must have an input.
    localparam logic [31:0] PAD_TOP_OFFSET = 32'h0000_00F0;
    localparam logic [31:0] PAD_TOP_RESET = 32'h0000_0000;
    localparam logic [31:0] PAD_TOP_WRITABLE_MASK = 32'hFFFF_FFFF;

    // PAD_LEFT, read and write. Columns of padding left of the input.
    localparam logic [31:0] PAD_LEFT_OFFSET = 32'h0000_00F4;
    localparam logic [31:0] PAD_LEFT_RESET = 32'h0000_0000;
    localparam logic [31:0] PAD_LEFT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // IFMAP_ROW_STRIDE, read and write. Bytes from an input row to the next.
    localparam logic [31:0] IFMAP_ROW_STRIDE_OFFSET = 32'h0000_00F8;
    localparam logic [31:0] IFMAP_ROW_STRIDE_RESET = 32'h0000_0000;
    localparam logic [31:0] IFMAP_ROW_STRIDE_WRITABLE_MASK = 32'hFFFF_FFFF;

    // IFMAP_COLUMN_STRIDE, read and write. Bytes from an input column to the next.
    localparam logic [31:0] IFMAP_COLUMN_STRIDE_OFFSET = 32'h0000_00FC;
    localparam logic [31:0] IFMAP_COLUMN_STRIDE_RESET = 32'h0000_0000;
    localparam logic [31:0] IFMAP_COLUMN_STRIDE_WRITABLE_MASK = 32'hFFFF_FFFF;

    // IFMAP_CHANNEL_STRIDE, read and write. Bytes from an input channel to the next.
    localparam logic [31:0] IFMAP_CHANNEL_STRIDE_OFFSET = 32'h0000_0100;
    localparam logic [31:0] IFMAP_CHANNEL_STRIDE_RESET = 32'h0000_0000;
    localparam logic [31:0] IFMAP_CHANNEL_STRIDE_WRITABLE_MASK = 32'hFFFF_FFFF;

    // OFMAP_ROW_STRIDE, read and write. Bytes from an output row to the next.
    localparam logic [31:0] OFMAP_ROW_STRIDE_OFFSET = 32'h0000_0104;
    localparam logic [31:0] OFMAP_ROW_STRIDE_RESET = 32'h0000_0000;
    localparam logic [31:0] OFMAP_ROW_STRIDE_WRITABLE_MASK = 32'hFFFF_FFFF;

    // OFMAP_COLUMN_STRIDE, read and write. Bytes from an output column to the next.
    localparam logic [31:0] OFMAP_COLUMN_STRIDE_OFFSET = 32'h0000_0108;
    localparam logic [31:0] OFMAP_COLUMN_STRIDE_RESET = 32'h0000_0000;
    localparam logic [31:0] OFMAP_COLUMN_STRIDE_WRITABLE_MASK = 32'hFFFF_FFFF;

    // OFMAP_CHANNEL_STRIDE, read and write. Bytes from an output channel to the next.
    localparam logic [31:0] OFMAP_CHANNEL_STRIDE_OFFSET = 32'h0000_010C;
    localparam logic [31:0] OFMAP_CHANNEL_STRIDE_RESET = 32'h0000_0000;
    localparam logic [31:0] OFMAP_CHANNEL_STRIDE_WRITABLE_MASK = 32'hFFFF_FFFF;

    // INPUT_ZERO_POINT, read and write. Subtracted from each input; -128 to 127 in two's
    // complement. Not used by pools. Driver: -128 to 127.
    localparam logic [31:0] INPUT_ZERO_POINT_OFFSET = 32'h0000_0110;
    localparam logic [31:0] INPUT_ZERO_POINT_RESET = 32'h0000_0000;
    localparam logic [31:0] INPUT_ZERO_POINT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // OUTPUT_ZERO_POINT, read and write. Added to each scaled sum; -128 to 127 in two's complement.
    // Not used by pools. Driver: -128 to 127.
    localparam logic [31:0] OUTPUT_ZERO_POINT_OFFSET = 32'h0000_0114;
    localparam logic [31:0] OUTPUT_ZERO_POINT_RESET = 32'h0000_0000;
    localparam logic [31:0] OUTPUT_ZERO_POINT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // CLIP_LOWEST, read and write. Least result, -128 to CLIP_HIGHEST in two's complement. Driver:
    // at least -128, not above CLIP_HIGHEST.
    localparam logic [31:0] CLIP_LOWEST_OFFSET = 32'h0000_0118;
    localparam logic [31:0] CLIP_LOWEST_RESET = 32'h0000_0000;
    localparam logic [31:0] CLIP_LOWEST_WRITABLE_MASK = 32'hFFFF_FFFF;

    // CLIP_HIGHEST, read and write. Largest result, at most 127 in two's complement. Driver: -128
    // to 127.
    localparam logic [31:0] CLIP_HIGHEST_OFFSET = 32'h0000_011C;
    localparam logic [31:0] CLIP_HIGHEST_RESET = 32'h0000_0000;
    localparam logic [31:0] CLIP_HIGHEST_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ROUNDING, read and write. How a sum is scaled. Not used by pools.
    localparam logic [31:0] ROUNDING_OFFSET = 32'h0000_0120;
    localparam logic [31:0] ROUNDING_RESET = 32'h0000_0000;
    localparam logic [31:0] ROUNDING_WRITABLE_MASK = 32'hFFFF_FFFF;
    // TFLM: As umakit_requantize_tflm of umakit/requantize.h.
    localparam logic [31:0] ROUNDING_TFLM = 32'h0000_0000;
    // ORT: As umakit_requantize_ort of umakit/requantize.h.
    localparam logic [31:0] ROUNDING_ORT = 32'h0000_0001;

    // SCALE_COUNT, read and write. Multipliers and shifts: 1, or one for each output channel.
    // Driver: 1 or OUTPUT_CHANNELS.
    localparam logic [31:0] SCALE_COUNT_OFFSET = 32'h0000_0124;
    localparam logic [31:0] SCALE_COUNT_RESET = 32'h0000_0001;
    localparam logic [31:0] SCALE_COUNT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ARRAY_CYCLES_LEFT, read only. Cycles until what the array runs ends, at most 2^32 - 1; 0
    // after a job that ran to its end.
    localparam logic [31:0] ARRAY_CYCLES_LEFT_OFFSET = 32'h0000_0128;
    localparam logic [31:0] ARRAY_CYCLES_LEFT_RESET = 32'h0000_0000;
    localparam logic [31:0] ARRAY_CYCLES_LEFT_WRITABLE_MASK = 32'h0000_0000;

    // ACCUMULATE, read and write. Sums of several jobs over input channels of their own meet in the
    // accumulator. CLEAR sets it to 0. Not used by pools; not 0 is UNSUPPORTED if ACCUMULATOR_BYTES
    // is 0.
    localparam logic [31:0] ACCUMULATE_OFFSET = 32'h0000_012C;
    localparam logic [31:0] ACCUMULATE_RESET = 32'h0000_0000;
    localparam logic [31:0] ACCUMULATE_WRITABLE_MASK = 32'hFFFF_FFFF;
    // CONTINUE: Start from the sums in the accumulator in place of the bias, which is not used.
    localparam int unsigned ACCUMULATE_CONTINUE_BIT = 0;
    localparam int unsigned ACCUMULATE_CONTINUE_WIDTH = 1;
    localparam logic [31:0] ACCUMULATE_CONTINUE_MASK = 32'h0000_0001;
    // KEEP: Leave the sums in the accumulator and write no result: multipliers, shifts,
    // OFMAP_START, its strides and ADD are not used.
    localparam int unsigned ACCUMULATE_KEEP_BIT = 1;
    localparam int unsigned ACCUMULATE_KEEP_WIDTH = 1;
    localparam logic [31:0] ACCUMULATE_KEEP_MASK = 32'h0000_0002;

    // ACCUMULATOR_START, read and write. Offset in the accumulator of the sum of output row 0,
    // column 0, channel 0; a multiple of 4. OUTPUT_HEIGHT x OUTPUT_WIDTH x OUTPUT_CHANNELS x int32
    // without gaps. Used with CONTINUE or KEEP. Driver: a multiple of 4.
    localparam logic [31:0] ACCUMULATOR_START_OFFSET = 32'h0000_0130;
    localparam logic [31:0] ACCUMULATOR_START_RESET = 32'h0000_0000;
    localparam logic [31:0] ACCUMULATOR_START_WRITABLE_MASK = 32'hFFFF_FFFF;

    // CLOCK_LOW, read only. Cycles since RESET_COUNTERS, bits 0 to 31. Reading it captures
    // CLOCK_HIGH.
    localparam logic [31:0] CLOCK_LOW_OFFSET = 32'h0000_0140;
    localparam logic [31:0] CLOCK_LOW_RESET = 32'h0000_0000;
    localparam logic [31:0] CLOCK_LOW_WRITABLE_MASK = 32'h0000_0000;

    // CLOCK_HIGH, read only. Bits 32 to 63, as they were when CLOCK_LOW was read.
    localparam logic [31:0] CLOCK_HIGH_OFFSET = 32'h0000_0144;
    localparam logic [31:0] CLOCK_HIGH_RESET = 32'h0000_0000;
    localparam logic [31:0] CLOCK_HIGH_WRITABLE_MASK = 32'h0000_0000;

    // COMPUTE_CYCLES_LOW, read only. Cycles in which the array or the pooling stage worked since
    // RESET_COUNTERS, bits 0 to 31. Reading it captures COMPUTE_CYCLES_HIGH.
    localparam logic [31:0] COMPUTE_CYCLES_LOW_OFFSET = 32'h0000_0148;
    localparam logic [31:0] COMPUTE_CYCLES_LOW_RESET = 32'h0000_0000;
    localparam logic [31:0] COMPUTE_CYCLES_LOW_WRITABLE_MASK = 32'h0000_0000;

    // COMPUTE_CYCLES_HIGH, read only. Bits 32 to 63, as they were when COMPUTE_CYCLES_LOW was read.
    localparam logic [31:0] COMPUTE_CYCLES_HIGH_OFFSET = 32'h0000_014C;
    localparam logic [31:0] COMPUTE_CYCLES_HIGH_RESET = 32'h0000_0000;
    localparam logic [31:0] COMPUTE_CYCLES_HIGH_WRITABLE_MASK = 32'h0000_0000;

    // DRAIN_CYCLES_LOW, read only. Cycles in which results moved out of the array since
    // RESET_COUNTERS, bits 0 to 31. Reading it captures DRAIN_CYCLES_HIGH.
    localparam logic [31:0] DRAIN_CYCLES_LOW_OFFSET = 32'h0000_0150;
    localparam logic [31:0] DRAIN_CYCLES_LOW_RESET = 32'h0000_0000;
    localparam logic [31:0] DRAIN_CYCLES_LOW_WRITABLE_MASK = 32'h0000_0000;

    // DRAIN_CYCLES_HIGH, read only. Bits 32 to 63, as they were when DRAIN_CYCLES_LOW was read.
    localparam logic [31:0] DRAIN_CYCLES_HIGH_OFFSET = 32'h0000_0154;
    localparam logic [31:0] DRAIN_CYCLES_HIGH_RESET = 32'h0000_0000;
    localparam logic [31:0] DRAIN_CYCLES_HIGH_WRITABLE_MASK = 32'h0000_0000;

    // STALL_CYCLES_LOW, read only. Cycles in which the DMA engine worked and the array did not
    // since RESET_COUNTERS, bits 0 to 31. Reading it captures STALL_CYCLES_HIGH.
    localparam logic [31:0] STALL_CYCLES_LOW_OFFSET = 32'h0000_0158;
    localparam logic [31:0] STALL_CYCLES_LOW_RESET = 32'h0000_0000;
    localparam logic [31:0] STALL_CYCLES_LOW_WRITABLE_MASK = 32'h0000_0000;

    // STALL_CYCLES_HIGH, read only. Bits 32 to 63, as they were when STALL_CYCLES_LOW was read.
    localparam logic [31:0] STALL_CYCLES_HIGH_OFFSET = 32'h0000_015C;
    localparam logic [31:0] STALL_CYCLES_HIGH_RESET = 32'h0000_0000;
    localparam logic [31:0] STALL_CYCLES_HIGH_WRITABLE_MASK = 32'h0000_0000;

    // IDLE_CYCLES_LOW, read only. Cycles in which no engine worked: CLOCK is the sum of these four
    // since RESET_COUNTERS, bits 0 to 31. Reading it captures IDLE_CYCLES_HIGH.
    localparam logic [31:0] IDLE_CYCLES_LOW_OFFSET = 32'h0000_0160;
    localparam logic [31:0] IDLE_CYCLES_LOW_RESET = 32'h0000_0000;
    localparam logic [31:0] IDLE_CYCLES_LOW_WRITABLE_MASK = 32'h0000_0000;

    // IDLE_CYCLES_HIGH, read only. Bits 32 to 63, as they were when IDLE_CYCLES_LOW was read.
    localparam logic [31:0] IDLE_CYCLES_HIGH_OFFSET = 32'h0000_0164;
    localparam logic [31:0] IDLE_CYCLES_HIGH_RESET = 32'h0000_0000;
    localparam logic [31:0] IDLE_CYCLES_HIGH_WRITABLE_MASK = 32'h0000_0000;

    // DMA_CYCLES_LOW, read only. Cycles in which the DMA engine worked, whether the array did or
    // not, since RESET_COUNTERS, bits 0 to 31. Reading it captures DMA_CYCLES_HIGH.
    localparam logic [31:0] DMA_CYCLES_LOW_OFFSET = 32'h0000_0168;
    localparam logic [31:0] DMA_CYCLES_LOW_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_CYCLES_LOW_WRITABLE_MASK = 32'h0000_0000;

    // DMA_CYCLES_HIGH, read only. Bits 32 to 63, as they were when DMA_CYCLES_LOW was read.
    localparam logic [31:0] DMA_CYCLES_HIGH_OFFSET = 32'h0000_016C;
    localparam logic [31:0] DMA_CYCLES_HIGH_RESET = 32'h0000_0000;
    localparam logic [31:0] DMA_CYCLES_HIGH_WRITABLE_MASK = 32'h0000_0000;

    // MACS_LOW, read only. Multiply-accumulates that the folds of finished jobs had room for since
    // RESET_COUNTERS, bits 0 to 31. Reading it captures MACS_HIGH.
    localparam logic [31:0] MACS_LOW_OFFSET = 32'h0000_0170;
    localparam logic [31:0] MACS_LOW_RESET = 32'h0000_0000;
    localparam logic [31:0] MACS_LOW_WRITABLE_MASK = 32'h0000_0000;

    // MACS_HIGH, read only. Bits 32 to 63, as they were when MACS_LOW was read.
    localparam logic [31:0] MACS_HIGH_OFFSET = 32'h0000_0174;
    localparam logic [31:0] MACS_HIGH_RESET = 32'h0000_0000;
    localparam logic [31:0] MACS_HIGH_WRITABLE_MASK = 32'h0000_0000;

    // USEFUL_MACS_LOW, read only. Multiply-accumulates of finished jobs with inputs or padding,
    // without those that only fill up folds, since RESET_COUNTERS, bits 0 to 31. Reading it
    // captures USEFUL_MACS_HIGH.
    localparam logic [31:0] USEFUL_MACS_LOW_OFFSET = 32'h0000_0178;
    localparam logic [31:0] USEFUL_MACS_LOW_RESET = 32'h0000_0000;
    localparam logic [31:0] USEFUL_MACS_LOW_WRITABLE_MASK = 32'h0000_0000;

    // USEFUL_MACS_HIGH, read only. Bits 32 to 63, as they were when USEFUL_MACS_LOW was read.
    localparam logic [31:0] USEFUL_MACS_HIGH_OFFSET = 32'h0000_017C;
    localparam logic [31:0] USEFUL_MACS_HIGH_RESET = 32'h0000_0000;
    localparam logic [31:0] USEFUL_MACS_HIGH_WRITABLE_MASK = 32'h0000_0000;

    // BYTES_IN_LOW, read only. Bytes moved into the scratchpad since RESET_COUNTERS, bits 0 to 31.
    // Reading it captures BYTES_IN_HIGH.
    localparam logic [31:0] BYTES_IN_LOW_OFFSET = 32'h0000_0180;
    localparam logic [31:0] BYTES_IN_LOW_RESET = 32'h0000_0000;
    localparam logic [31:0] BYTES_IN_LOW_WRITABLE_MASK = 32'h0000_0000;

    // BYTES_IN_HIGH, read only. Bits 32 to 63, as they were when BYTES_IN_LOW was read.
    localparam logic [31:0] BYTES_IN_HIGH_OFFSET = 32'h0000_0184;
    localparam logic [31:0] BYTES_IN_HIGH_RESET = 32'h0000_0000;
    localparam logic [31:0] BYTES_IN_HIGH_WRITABLE_MASK = 32'h0000_0000;

    // BYTES_OUT_LOW, read only. Bytes moved out of the scratchpad since RESET_COUNTERS, bits 0 to
    // 31. Reading it captures BYTES_OUT_HIGH.
    localparam logic [31:0] BYTES_OUT_LOW_OFFSET = 32'h0000_0188;
    localparam logic [31:0] BYTES_OUT_LOW_RESET = 32'h0000_0000;
    localparam logic [31:0] BYTES_OUT_LOW_WRITABLE_MASK = 32'h0000_0000;

    // BYTES_OUT_HIGH, read only. Bits 32 to 63, as they were when BYTES_OUT_LOW was read.
    localparam logic [31:0] BYTES_OUT_HIGH_OFFSET = 32'h0000_018C;
    localparam logic [31:0] BYTES_OUT_HIGH_RESET = 32'h0000_0000;
    localparam logic [31:0] BYTES_OUT_HIGH_WRITABLE_MASK = 32'h0000_0000;

    // ADD, read and write. 0, or 1: the result, with its limits, is a summand of an integer
    // addition, and what is written is the sum: ((((result - OUTPUT_ZERO_POINT) << ADD_LEFT_SHIFT)
    // scaled by ADD_RESULT) + (((addend - ADDEND_ZERO_POINT) << ADD_LEFT_SHIFT) scaled by
    // ADD_ADDEND)) scaled by ADD_MULTIPLIER and ADD_SHIFT, + SUM_ZERO_POINT, limited to
    // SUM_CLIP_LOWEST to SUM_CLIP_HIGHEST. ROUNDING says how all three are scaled. Takes no time of
    // its own. CLEAR sets it to 0. Not used by pools. Driver: at most 1.
    localparam logic [31:0] ADD_OFFSET = 32'h0000_01A0;
    localparam logic [31:0] ADD_RESET = 32'h0000_0000;
    localparam logic [31:0] ADD_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ADDEND_START, read and write. Scratchpad offset of the addend for output row 0, column 0,
    // channel 0; int8, with the strides of the result. It may be OFMAP_START; else the two may not
    // overlap. Driver: not above SCRATCHPAD_BYTES - 1.
    localparam logic [31:0] ADDEND_START_OFFSET = 32'h0000_01A4;
    localparam logic [31:0] ADDEND_START_RESET = 32'h0000_0000;
    localparam logic [31:0] ADDEND_START_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ADDEND_ZERO_POINT, read and write. Subtracted from each addend; -128 to 127 in two's
    // complement. Driver: -128 to 127.
    localparam logic [31:0] ADDEND_ZERO_POINT_OFFSET = 32'h0000_01A8;
    localparam logic [31:0] ADDEND_ZERO_POINT_RESET = 32'h0000_0000;
    localparam logic [31:0] ADDEND_ZERO_POINT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ADD_LEFT_SHIFT, read and write. Bits that both summands are shifted left by before they are
    // scaled, 0 to 22. Driver: at most 22.
    localparam logic [31:0] ADD_LEFT_SHIFT_OFFSET = 32'h0000_01AC;
    localparam logic [31:0] ADD_LEFT_SHIFT_RESET = 32'h0000_0000;
    localparam logic [31:0] ADD_LEFT_SHIFT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ADD_RESULT_MULTIPLIER, read and write. Multiplier of the result, 0 to 2^31 - 1. Driver: at
    // most 2147483647.
    localparam logic [31:0] ADD_RESULT_MULTIPLIER_OFFSET = 32'h0000_01B0;
    localparam logic [31:0] ADD_RESULT_MULTIPLIER_RESET = 32'h0000_0000;
    localparam logic [31:0] ADD_RESULT_MULTIPLIER_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ADD_RESULT_SHIFT, read and write. Shift of the result, -31 to 30 in two's complement,
    // negative ones shift right. Driver: -31 to 30.
    localparam logic [31:0] ADD_RESULT_SHIFT_OFFSET = 32'h0000_01B4;
    localparam logic [31:0] ADD_RESULT_SHIFT_RESET = 32'h0000_0000;
    localparam logic [31:0] ADD_RESULT_SHIFT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ADD_ADDEND_MULTIPLIER, read and write. Multiplier of the addend, 0 to 2^31 - 1. Driver: at
    // most 2147483647.
    localparam logic [31:0] ADD_ADDEND_MULTIPLIER_OFFSET = 32'h0000_01B8;
    localparam logic [31:0] ADD_ADDEND_MULTIPLIER_RESET = 32'h0000_0000;
    localparam logic [31:0] ADD_ADDEND_MULTIPLIER_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ADD_ADDEND_SHIFT, read and write. Shift of the addend, as ADD_RESULT_SHIFT. Driver: -31 to
    // 30.
    localparam logic [31:0] ADD_ADDEND_SHIFT_OFFSET = 32'h0000_01BC;
    localparam logic [31:0] ADD_ADDEND_SHIFT_RESET = 32'h0000_0000;
    localparam logic [31:0] ADD_ADDEND_SHIFT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ADD_MULTIPLIER, read and write. Multiplier of the sum of both, 0 to 2^31 - 1. Driver: at most
    // 2147483647.
    localparam logic [31:0] ADD_MULTIPLIER_OFFSET = 32'h0000_01C0;
    localparam logic [31:0] ADD_MULTIPLIER_RESET = 32'h0000_0000;
    localparam logic [31:0] ADD_MULTIPLIER_WRITABLE_MASK = 32'hFFFF_FFFF;

    // ADD_SHIFT, read and write. Shift of the sum of both, as ADD_RESULT_SHIFT. Driver: -31 to 30.
    localparam logic [31:0] ADD_SHIFT_OFFSET = 32'h0000_01C4;
    localparam logic [31:0] ADD_SHIFT_RESET = 32'h0000_0000;
    localparam logic [31:0] ADD_SHIFT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // SUM_ZERO_POINT, read and write. Added to the scaled sum; -128 to 127 in two's complement.
    // Driver: -128 to 127.
    localparam logic [31:0] SUM_ZERO_POINT_OFFSET = 32'h0000_01C8;
    localparam logic [31:0] SUM_ZERO_POINT_RESET = 32'h0000_0000;
    localparam logic [31:0] SUM_ZERO_POINT_WRITABLE_MASK = 32'hFFFF_FFFF;

    // SUM_CLIP_LOWEST, read and write. Least sum, -128 to SUM_CLIP_HIGHEST in two's complement.
    // Driver: at least -128, not above SUM_CLIP_HIGHEST.
    localparam logic [31:0] SUM_CLIP_LOWEST_OFFSET = 32'h0000_01CC;
    localparam logic [31:0] SUM_CLIP_LOWEST_RESET = 32'h0000_0000;
    localparam logic [31:0] SUM_CLIP_LOWEST_WRITABLE_MASK = 32'hFFFF_FFFF;

    // SUM_CLIP_HIGHEST, read and write. Largest sum, at most 127 in two's complement. Driver: -128
    // to 127.
    localparam logic [31:0] SUM_CLIP_HIGHEST_OFFSET = 32'h0000_01D0;
    localparam logic [31:0] SUM_CLIP_HIGHEST_RESET = 32'h0000_0000;
    localparam logic [31:0] SUM_CLIP_HIGHEST_WRITABLE_MASK = 32'hFFFF_FFFF;

endpackage
// verilator lint_on UNUSEDPARAM
