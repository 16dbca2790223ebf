// SPDX-License-Identifier: Apache-2.0
// The registers: what is kept, what is read, what a write does, errors and the interrupt line.
//
// A request is answered in the next cycle; an access that is refused sets ERROR. The pulses `clear`,
// `reset_counters`, `dma_start` and `array_start` come in the cycle of the request; a START is one
// that is not refused. (A job that is started with a transfer waits for the check of that one:
// array_accepted says that it was not in vain.) Of errors in the same cycle the first counts in this order: the DMA engine's,
// the array's, the access's.
module register_file
  import strawberry_pkg::*;
  import systolic_array_registers_pkg::*;
#(
    parameter int unsigned ROWS = 8,
    parameter int unsigned COLUMNS = 8,
    parameter int unsigned SCRATCHPAD_BYTES = 65536
) (
    input logic clk,
    input logic rst_n,

    input  logic        request_valid,
    input  logic        request_write,
    input  logic [11:0] request_offset,
    input  logic [31:0] request_data,
    input  logic [ 3:0] request_strobe,
    output logic [31:0] response_data,

    output registers_t registers,
    output logic       clear,
    output logic       reset_counters,
    output logic       dma_start,
    output logic       array_start,
    output logic       irq,

    input logic           dma_busy,
    input logic           dma_ended,
    input logic           dma_failed,
    input status_t        dma_status,
    input logic    [31:0] dma_address,
    input logic    [31:0] dma_bytes_left,
    input logic           array_busy,
    input logic           array_accepted,
    input logic           array_ended,
    input logic           array_failed,
    input status_t        array_status,
    input logic    [31:0] array_address,
    input logic    [31:0] array_cycles_left,

    output logic        counter_read,
    output logic [ 4:0] counter_word,
    input  logic [31:0] counter_data
);
  localparam logic [31:0] COMMANDS = CONTROL_DMA_START_MASK | CONTROL_ARRAY_START_MASK |
                                     CONTROL_CLEAR_MASK | CONTROL_RESET_COUNTERS_MASK;
  localparam logic [31:0] INTERRUPTS = INTERRUPT_PENDING_DMA_DONE_MASK |
                                       INTERRUPT_PENDING_ARRAY_DONE_MASK |
                                       INTERRUPT_PENDING_ERROR_MASK;
  localparam logic [31:0] FEATURES = FEATURES_OUTPUT_STATIONARY_MASK | FEATURES_DEPTHWISE_MASK;
  localparam logic [31:0] BUS_BYTES = 32'd8;

  logic [31:0] offset;
  logic [31:0] mask;  // bits of the bytes that are written
  logic [31:0] data;
  logic [2:0] enabled;
  logic [2:0] pending;
  logic dma_done;
  logic array_done;
  status_t error;
  logic [31:0] error_address;

  assign offset = 32'(request_offset);
  assign mask = {
    {8{request_strobe[3]}}, {8{request_strobe[2]}}, {8{request_strobe[1]}}, {8{request_strobe[0]}}
  };
  assign data = request_data & mask;
  assign irq = |(pending & enabled);

  function automatic logic is_dma_register(input logic [31:0] at);
    return at[1:0] == 2'b00 && at >= DMA_BUS_ADDRESS_OFFSET &&
           at <= DMA_SCRATCHPAD_PLANE_STRIDE_OFFSET;
  endfunction

  function automatic logic is_job_register(input logic [31:0] at);
    return at[1:0] == 2'b00 && ((at >= OPERATION_OFFSET && at <= SCALE_COUNT_OFFSET) ||
                                (at >= ACCUMULATE_OFFSET && at <= ACCUMULATOR_START_OFFSET) ||
                                (at >= ADD_OFFSET && at <= SUM_CLIP_HIGHEST_OFFSET));
  endfunction

  // ---- What an access asks for ----

  logic is_kept;
  logic is_counter;
  logic is_constant;  // or shows a state
  logic [31:0] read_value;
  logic writes_control;
  logic writes_interrupts;
  logic wants_dma;
  logic wants_array;
  status_t refusal;

  assign is_kept = is_dma_register(offset) || is_job_register(offset);
  assign is_counter = offset[1:0] == 2'b00 && offset >= CLOCK_LOW_OFFSET &&
                      offset <= BYTES_OUT_HIGH_OFFSET;
  assign counter_word = 5'((offset - CLOCK_LOW_OFFSET) >> 2);
  assign counter_read = request_valid && !request_write && is_counter;

  always_comb begin
    is_constant = 1'b1;
    case (offset)
      ID_OFFSET: read_value = ID_RESET;
      VERSION_OFFSET: read_value = VERSION_RESET;
      STATUS_OFFSET: begin
        read_value = 32'd0;
        read_value[STATUS_IDLE_BIT] = !dma_busy && !array_busy;
        read_value[STATUS_DMA_BUSY_BIT] = dma_busy;
        read_value[STATUS_ARRAY_BUSY_BIT] = array_busy;
        read_value[STATUS_DMA_DONE_BIT] = dma_done;
        read_value[STATUS_ARRAY_DONE_BIT] = array_done;
        read_value[STATUS_ERROR_BIT] = error != OK;
      end
      INTERRUPT_ENABLE_OFFSET: read_value = 32'(enabled);
      INTERRUPT_PENDING_OFFSET: read_value = 32'(pending);
      ERROR_OFFSET: read_value = 32'(error);
      ERROR_ADDRESS_OFFSET: read_value = error_address;
      QUEUE_DEPTH_OFFSET, QUEUE_FREE_OFFSET, COMMANDS_LEFT_OFFSET, ACCUMULATOR_BYTES_OFFSET,
      POOLING_LANES_OFFSET:
      read_value = 32'd0;
      ARRAY_ROWS_OFFSET: read_value = ROWS;
      ARRAY_COLUMNS_OFFSET: read_value = COLUMNS;
      SCRATCHPAD_BYTES_OFFSET: read_value = SCRATCHPAD_BYTES;
      SCRATCHPAD_BANKS_OFFSET: read_value = 32'd1;
      DMA_BYTES_PER_CYCLE_OFFSET: read_value = BUS_BYTES;
      DMA_ALIGNMENT_OFFSET: read_value = 32'd1;
      FEATURES_OFFSET: read_value = FEATURES;
      DMA_BYTES_LEFT_OFFSET: read_value = dma_bytes_left;
      ARRAY_CYCLES_LEFT_OFFSET: read_value = array_cycles_left;
      default: begin
        is_constant = 1'b0;
        read_value  = is_counter ? counter_data : 32'd0;
      end
    endcase
  end

  // ---- What a write does ----

  assign writes_control = request_valid && request_write && offset == CONTROL_OFFSET &&
                          (data & ~COMMANDS) == 32'd0;
  assign writes_interrupts = request_valid && request_write &&
                             (offset == INTERRUPT_ENABLE_OFFSET ||
                              offset == INTERRUPT_PENDING_OFFSET) &&
                             (data & ~INTERRUPTS) == 32'd0;
  assign clear = writes_control && data[CONTROL_CLEAR_BIT];
  assign reset_counters = writes_control && data[CONTROL_RESET_COUNTERS_BIT];
  assign wants_dma = writes_control && data[CONTROL_DMA_START_BIT];
  assign wants_array = writes_control && data[CONTROL_ARRAY_START_BIT];
  assign dma_start = wants_dma && (clear || (!dma_busy && error == OK));
  // Not after a refused START in the same write: it left an error.
  assign array_start = wants_array && (clear || (!array_busy && error == OK &&
                                                 !(wants_dma && dma_busy)));

  always_comb begin
    refusal = OK;
    if (request_valid && !request_write) begin
      if (!is_kept && !is_counter && !is_constant) refusal = INVALID_REGISTER;
    end else if (request_valid) begin
      if (offset == CONTROL_OFFSET) begin
        if (!writes_control) refusal = INVALID_ARGUMENT;
        else if (!clear && ((wants_dma && dma_busy) || (wants_array && array_busy))) refusal = BUSY;
      end else if (offset == INTERRUPT_ENABLE_OFFSET || offset == INTERRUPT_PENDING_OFFSET) begin
        if (!writes_interrupts) refusal = INVALID_ARGUMENT;
      end else if (!is_kept) begin
        refusal = INVALID_REGISTER;
      end else if (is_dma_register(offset) ? dma_busy : array_busy) begin
        refusal = BUSY;
      end
    end
  end

  // ---- State ----

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      registers <= '{default: 32'd0};
      registers[DMA_ROWS_OFFSET/4] <= DMA_ROWS_RESET;
      registers[DMA_PLANES_OFFSET/4] <= DMA_PLANES_RESET;
      registers[STRIDE_HEIGHT_OFFSET/4] <= STRIDE_HEIGHT_RESET;
      registers[STRIDE_WIDTH_OFFSET/4] <= STRIDE_WIDTH_RESET;
      registers[DILATION_HEIGHT_OFFSET/4] <= DILATION_HEIGHT_RESET;
      registers[DILATION_WIDTH_OFFSET/4] <= DILATION_WIDTH_RESET;
      registers[SCALE_COUNT_OFFSET/4] <= SCALE_COUNT_RESET;
    end else if (request_valid) begin
      if (request_write && is_kept && refusal == OK) begin
        registers[offset[8:2]] <= (registers[offset[8:2]] & ~mask) | data;
      end
      if (clear) begin
        registers[ADD_OFFSET/4] <= 32'd0;
        registers[ACCUMULATE_OFFSET/4] <= 32'd0;
      end
    end
    if (request_valid && !request_write) begin
      response_data <= is_kept ? registers[offset[8:2]] : read_value;
    end
  end

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      enabled <= 3'b000;
      pending <= 3'b000;
      dma_done <= 1'b0;
      array_done <= 1'b0;
      error <= OK;
      error_address <= 32'd0;
    end else begin
      if (dma_ended) begin
        dma_done <= 1'b1;
        pending[INTERRUPT_PENDING_DMA_DONE_BIT] <= 1'b1;
      end
      if (array_ended) begin
        array_done <= 1'b1;
        pending[INTERRUPT_PENDING_ARRAY_DONE_BIT] <= 1'b1;
      end
      if (writes_interrupts && offset == INTERRUPT_ENABLE_OFFSET) begin
        enabled <= (enabled & ~mask[2:0]) | data[2:0];
      end
      if (writes_interrupts && offset == INTERRUPT_PENDING_OFFSET) begin
        pending <= pending & ~data[2:0] | {1'b0, array_ended, dma_ended};
      end
      if (error == OK && (dma_failed || array_failed || refusal != OK)) begin
        error <= dma_failed ? dma_status : array_failed ? array_status : refusal;
        error_address <= dma_failed ? dma_address : array_failed ? array_address : offset;
        pending[INTERRUPT_PENDING_ERROR_BIT] <= 1'b1;
      end
      if (clear) begin
        pending <= 3'b000;
        dma_done <= 1'b0;
        array_done <= 1'b0;
        error <= OK;
        error_address <= 32'd0;
      end
      if (dma_start) begin
        dma_done <= 1'b0;
        pending[INTERRUPT_PENDING_DMA_DONE_BIT] <= 1'b0;
      end
      if (array_accepted) begin
        array_done <= 1'b0;
        pending[INTERRUPT_PENDING_ARRAY_DONE_BIT] <= 1'b0;
      end
    end
  end
endmodule
