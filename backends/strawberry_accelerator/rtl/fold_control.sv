// SPDX-License-Identifier: Apache-2.0
// Runs a job: cuts it into folds of the array, and says in each cycle what its parts do.
//
// A fold computes ROWS positions of the result (in the order of rows, then columns) for COLUMNS
// channels, all positions of a block of channels before the next block. With K taps in a window
// (of each input channel, unless depthwise) it takes
//
//     K                      taps, one a cycle
//     ROWS + COLUMNS - 2     until the last one has reached the far corner of the array
//     DRAIN_CYCLES           while a row of sums leaves the array in each of the first ROWS
//
// cycles. From cycle ROWS after the last tap on, while the array empties itself, the walk finds in
// as many cycles as the array has rows or columns: parameters of the block's channels, positions of
// the next fold, and, depthwise, where the inputs of its channels lie.
//
// `prepare` computes what a job needs before its first fold, in 7 cycles and a walk; `ready` is 1
// from then on. `start` runs it; `done` comes for one cycle when all results are written, or
// `failed` with `failed_address` when a shift is out of range. All that leaves this module but
// what its header names otherwise is a cycle ahead of the row feeders' and the weights' reads.
module fold_control
  import strawberry_pkg::*;
  import systolic_array_registers_pkg::*;
#(
    parameter int unsigned ROWS = 8,
    parameter int unsigned COLUMNS = 8,
    parameter int unsigned DRAIN_CYCLES = 8,
    parameter int unsigned ADDRESS_BITS = 16
) (
    input  logic                    clk,
    input  logic                    rst_n,
    input  logic                    clear,
    input  registers_t              registers,
    input  logic                    prepare,
    input  logic             [23:0] channel_multiplier,
    input  logic             [31:0] cycles,              // of all folds
    output logic                    ready,
    input  logic                    start,
    output logic                    done,
    output logic                    failed,
    output logic             [31:0] failed_address,
    output logic             [31:0] cycles_left,
    output logic                    computes,
    output logic                    drains,

    // The tap, for the first row.
    output logic                    tap_valid,
    output logic [            34:0] tap_y,
    output logic [            34:0] tap_x,
    output logic [ADDRESS_BITS-1:0] tap_distance,

    // Weights of the tap; these are read in the cycle in which the first row's inputs are.
    output logic                    weights_read_valid,
    output logic [ADDRESS_BITS-1:0] weights_address,

    // The walk: position of a row, offset of a column.
    output logic                           row_load[ROWS],
    output logic                           row_valid,
    output logic signed [            34:0] row_top,
    output logic signed [            34:0] row_left,
    output logic        [ADDRESS_BITS-1:0] row_start,
    output logic        [ADDRESS_BITS-1:0] column_offset[COLUMNS],

    // The walk: parameters of a column.
    output logic                              parameters_load,
    output logic        [$clog2(COLUMNS)-1:0] parameters_column,
    output logic                              parameters_used,
    output logic        [   ADDRESS_BITS-1:0] bias_address,
    output logic        [   ADDRESS_BITS-1:0] multiplier_address,
    output logic        [   ADDRESS_BITS-1:0] shift_address,
    input  logic signed [                7:0] shift,

    // The array: these are right for its cells.
    output logic                    array_step,
    output logic                    array_drain,
    output logic                    result_row_valid,
    output logic [ADDRESS_BITS-1:0] result_row_address
);
  localparam int unsigned LINES = ROWS > COLUMNS ? ROWS : COLUMNS;
  localparam int unsigned TAIL = ROWS + COLUMNS - 2 + DRAIN_CYCLES;  // cycles of a fold, less taps
  localparam int unsigned DRAIN_BEGIN = ROWS + COLUMNS - 2;
  localparam int unsigned WALK_BEGIN = ROWS;
  localparam int unsigned FLUSH = 6;  // from the end of the last fold to its results
  localparam int unsigned PRODUCTS = 7;  // cycles: 6 products, and the last one is stored
  localparam int unsigned INDEX_BITS = $clog2(TAIL + 1);

  if (WALK_BEGIN + LINES > TAIL) $error("the walk does not fit the end of a fold");
  if (DRAIN_CYCLES < ROWS) $error("a row of results leaves the array in each cycle of a drain");

  typedef logic [ADDRESS_BITS-1:0] address_t;
  typedef enum logic [2:0] {
    IDLE,
    MULTIPLY,
    WALK,
    READY,
    TAPS,
    EMPTY,  // the end of a fold, after its taps
    WRITE   // after the last fold
  } state_t;
  state_t state;
  logic [INDEX_BITS-1:0] index;  // cycles of the state

  // ---- Registers, those of addresses without bits that lead out of the scratchpad ----

  logic is_depthwise;
  logic [31:0] output_channels;
  address_t column_stride, row_stride, channel_stride, result_column_stride;
  assign is_depthwise = registers[OPERATION_OFFSET/4] == OPERATION_DEPTHWISE;
  assign output_channels = registers[OUTPUT_CHANNELS_OFFSET/4];
  assign row_stride = registers[IFMAP_ROW_STRIDE_OFFSET/4][ADDRESS_BITS-1:0];
  assign column_stride = registers[IFMAP_COLUMN_STRIDE_OFFSET/4][ADDRESS_BITS-1:0];
  assign channel_stride = registers[IFMAP_CHANNEL_STRIDE_OFFSET/4][ADDRESS_BITS-1:0];
  assign result_column_stride = registers[OFMAP_COLUMN_STRIDE_OFFSET/4][ADDRESS_BITS-1:0];

  // ---- Products: from a tap, and from a position of the result, to the next one ----

  address_t tap_column_step, tap_row_step, position_column_step, position_row_step;
  address_t origin;  // of the window of the first position
  address_t factor, stride;
  address_t product;

  always_comb begin
    case (index[2:0])
      3'd0: factor = registers[DILATION_WIDTH_OFFSET/4][ADDRESS_BITS-1:0];
      3'd1: factor = registers[DILATION_HEIGHT_OFFSET/4][ADDRESS_BITS-1:0];
      3'd2: factor = registers[STRIDE_WIDTH_OFFSET/4][ADDRESS_BITS-1:0];
      3'd3: factor = registers[STRIDE_HEIGHT_OFFSET/4][ADDRESS_BITS-1:0];
      3'd4: factor = registers[PAD_LEFT_OFFSET/4][ADDRESS_BITS-1:0];
      default: factor = registers[PAD_TOP_OFFSET/4][ADDRESS_BITS-1:0];
    endcase
    stride  = index[0] ? row_stride : column_stride;
    product = factor * stride;
  end

  always_ff @(posedge clk) begin
    if (state == MULTIPLY) begin
      case (index[2:0])
        3'd0: tap_column_step <= product;
        3'd1: tap_row_step <= product;
        3'd2: position_column_step <= product;
        3'd3: position_row_step <= product;
        3'd4: origin <= registers[IFMAP_START_OFFSET/4][ADDRESS_BITS-1:0] - product;
        3'd5: origin <= origin - product;
        default: ;
      endcase
    end
  end

  // ---- Folds ----

  logic last_positions;  // of the block
  logic last_block;
  logic [31:0] block_channel;  // its first one
  logic fold_ends;
  logic last_tap;
  logic walks;
  logic [INDEX_BITS-1:0] line;  // of the walk
  logic bad_shift;
  logic positions_end;

  assign last_block = block_channel + 32'(COLUMNS) >= output_channels;
  assign fold_ends = state == EMPTY && index == INDEX_BITS'(TAIL - 1);
  assign walks = state == WALK || (state == EMPTY && index >= INDEX_BITS'(WALK_BEGIN) &&
                                   index < INDEX_BITS'(WALK_BEGIN + LINES));
  assign line = state == WALK ? index : index - INDEX_BITS'(WALK_BEGIN);
  assign ready = state == READY;
  assign computes = state == TAPS || (state == EMPTY && index < INDEX_BITS'(DRAIN_BEGIN));
  assign drains = (state == EMPTY && !computes) || state == WRITE;

  always_ff @(posedge clk) begin
    done   <= 1'b0;
    failed <= 1'b0;
    index  <= index + INDEX_BITS'(1);
    if (!rst_n || clear) begin
      state <= IDLE;
    end else begin
      case (state)
        MULTIPLY:
        if (index == INDEX_BITS'(PRODUCTS - 1)) begin
          state <= WALK;
          index <= '0;
        end
        WALK: if (index == INDEX_BITS'(LINES - 1)) state <= READY;
        READY: if (start) state <= TAPS;
        TAPS: begin
          index <= '0;
          if (last_tap) state <= EMPTY;
        end
        EMPTY:
        if (bad_shift) begin
          state  <= IDLE;
          failed <= 1'b1;
          failed_address <= registers[SHIFTS_START_OFFSET/4] +
                            (registers[SCALE_COUNT_OFFSET/4] == 32'd1 ? 32'd0
                             : block_channel + 32'(line));
        end else if (fold_ends) begin
          state <= last_positions && last_block ? WRITE : TAPS;
          index <= '0;
        end
        WRITE:
        if (index == INDEX_BITS'(FLUSH - 1)) begin
          state <= IDLE;
          done  <= 1'b1;
        end
        default: ;
      endcase
      if (prepare) begin
        state <= MULTIPLY;
        index <= '0;
      end
    end
    if (state == READY) begin
      cycles_left <= &cycles[31:4] ? 32'hFFFF_FFFF : cycles + 32'(FLUSH) + 32'd1;
    end else if (state == TAPS || state == EMPTY || state == WRITE) begin
      if (cycles_left != 32'd1) cycles_left <= cycles_left - 32'd1;
    end else cycles_left <= 32'd0;
  end

  // ---- Taps: channels of a place in the window, then columns, then rows ----

  logic [31:0] channel;
  logic [15:0] kernel_column, kernel_row;
  address_t place_distance, line_distance;  // of the place, and of its row's first one
  logic last_channel, last_column;

  assign last_channel = is_depthwise || channel == registers[INPUT_CHANNELS_OFFSET/4] - 32'd1;
  assign last_column = 32'(kernel_column) == registers[KERNEL_WIDTH_OFFSET/4] - 32'd1;
  assign last_tap = last_channel && last_column &&
                    32'(kernel_row) == registers[KERNEL_HEIGHT_OFFSET/4] - 32'd1;
  assign tap_valid = state == TAPS;

  always_ff @(posedge clk) begin
    if (state != TAPS) begin
      channel <= 32'd0;
      kernel_column <= 16'd0;
      kernel_row <= 16'd0;
      tap_y <= 35'd0;
      tap_x <= 35'd0;
      tap_distance <= '0;
      place_distance <= '0;
      line_distance <= '0;
    end else if (!last_channel) begin
      channel <= channel + 32'd1;
      tap_distance <= tap_distance + channel_stride;
    end else if (!last_column) begin
      channel <= 32'd0;
      kernel_column <= kernel_column + 16'd1;
      tap_x <= tap_x + 35'(registers[DILATION_WIDTH_OFFSET/4]);
      place_distance <= place_distance + tap_column_step;
      tap_distance <= place_distance + tap_column_step;
    end else begin
      channel <= 32'd0;
      kernel_column <= 16'd0;
      kernel_row <= kernel_row + 16'd1;
      tap_x <= 35'd0;
      tap_y <= tap_y + 35'(registers[DILATION_HEIGHT_OFFSET/4]);
      line_distance <= line_distance + tap_row_step;
      place_distance <= line_distance + tap_row_step;
      tap_distance <= line_distance + tap_row_step;
    end
  end

  // ---- Weights: those of a block follow each other, or, depthwise, those of a tap ----

  address_t next_weights;
  address_t block_weights;

  always_ff @(posedge clk) begin
    weights_read_valid <= state == TAPS;
    weights_address <= next_weights;
    if (state == READY) begin
      next_weights  <= registers[WEIGHTS_START_OFFSET/4][ADDRESS_BITS-1:0];
      block_weights <= registers[WEIGHTS_START_OFFSET/4][ADDRESS_BITS-1:0];
      block_channel <= 32'd0;
    end else if (state == TAPS) begin
      next_weights <= next_weights +
                      (is_depthwise ? output_channels[ADDRESS_BITS-1:0] : address_t'(COLUMNS));
    end else if (fold_ends) begin
      if (!last_positions) begin
        next_weights <= block_weights;
      end else begin
        block_channel <= block_channel + 32'(COLUMNS);
        if (is_depthwise) begin
          next_weights  <= block_weights + address_t'(COLUMNS);
          block_weights <= block_weights + address_t'(COLUMNS);
        end else begin
          block_weights <= next_weights;
        end
      end
    end
  end

  // ---- The walk along positions ----

  logic [16:0] result_row, result_column;
  logic signed [34:0] top, left;
  address_t line_start, place_start;  // in the input
  address_t line_result, place_result;
  address_t block_result;  // of its first channel
  address_t result_start[ROWS];  // of the fold in the array, and of the next one
  address_t next_result_start[ROWS];
  logic result_used[ROWS];
  logic next_result_used[ROWS];
  logic begins_block;  // the next fold does

  assign positions_end = 32'(result_row) >= registers[OUTPUT_HEIGHT_OFFSET/4];
  assign row_valid = !positions_end;
  assign row_top = top;
  assign row_left = left;
  assign row_start = place_start;
  assign begins_block = state == MULTIPLY ||
                        (state == EMPTY && index == INDEX_BITS'(WALK_BEGIN - 1) && last_positions);

  always_comb for (int r = 0; r < ROWS; ++r) row_load[r] = walks && line == INDEX_BITS'(r);

  always_ff @(posedge clk) begin
    if (begins_block) begin
      result_row <= 17'd0;
      result_column <= 17'd0;
      top <= -35'(registers[PAD_TOP_OFFSET/4]);
      left <= -35'(registers[PAD_LEFT_OFFSET/4]);
      line_start <= origin;
      place_start <= origin;
      line_result <= registers[OFMAP_START_OFFSET/4][ADDRESS_BITS-1:0];
      place_result <= registers[OFMAP_START_OFFSET/4][ADDRESS_BITS-1:0];
    end else if (walks && line < INDEX_BITS'(ROWS)) begin
      if (32'(result_column) + 32'd1 != registers[OUTPUT_WIDTH_OFFSET/4]) begin
        result_column <= result_column + 17'd1;
        left <= left + 35'(registers[STRIDE_WIDTH_OFFSET/4]);
        place_start <= place_start + position_column_step;
        place_result <= place_result + result_column_stride;
      end else if (!positions_end) begin
        result_column <= 17'd0;
        result_row <= result_row + 17'd1;
        left <= -35'(registers[PAD_LEFT_OFFSET/4]);
        top <= top + 35'(registers[STRIDE_HEIGHT_OFFSET/4]);
        line_start <= line_start + position_row_step;
        place_start <= line_start + position_row_step;
        line_result <= line_result + registers[OFMAP_ROW_STRIDE_OFFSET/4][ADDRESS_BITS-1:0];
        place_result <= line_result + registers[OFMAP_ROW_STRIDE_OFFSET/4][ADDRESS_BITS-1:0];
      end
    end
    if (state == READY) begin
      last_positions <= positions_end;
      block_result   <= '0;
    end else if (fold_ends) begin
      last_positions <= positions_end;
      if (last_positions) begin
        block_result <= block_result + address_t'(COLUMNS) *
                        registers[OFMAP_CHANNEL_STRIDE_OFFSET/4][ADDRESS_BITS-1:0];
      end
    end
  end

  // ---- The walk along channels ----

  logic [23:0] uses_left;  // of the input channel by columns that follow
  address_t channel_offset;
  logic goes_on;  // to other channels than those of the fold before

  address_t scale;  // of the channel
  assign scale = registers[SCALE_COUNT_OFFSET/4] == 32'd1
                 ? '0 : block_channel[ADDRESS_BITS-1:0] + address_t'(line);

  assign goes_on = state == WALK || last_positions;
  assign parameters_load = walks && state == EMPTY && line < INDEX_BITS'(COLUMNS);
  assign parameters_column = line[$clog2(COLUMNS)-1:0];
  assign parameters_used = block_channel + 32'(line) < output_channels;
  assign bias_address = registers[BIAS_START_OFFSET/4][ADDRESS_BITS-1:0] +
                        ((block_channel[ADDRESS_BITS-1:0] + address_t'(line)) << 2);
  assign shift_address = registers[SHIFTS_START_OFFSET/4][ADDRESS_BITS-1:0] + scale;
  assign multiplier_address = registers[MULTIPLIERS_START_OFFSET/4][ADDRESS_BITS-1:0] +
                              (scale << 2);
  assign bad_shift = parameters_load && parameters_used && (shift < -8'sd31 || shift > 8'sd30);

  always_ff @(posedge clk) begin
    if (state == MULTIPLY) begin
      uses_left <= channel_multiplier;
      channel_offset <= '0;
    end else if (walks && goes_on && line < INDEX_BITS'(COLUMNS)) begin
      column_offset[line[$clog2(COLUMNS)-1:0]] <= channel_offset;
      uses_left <= uses_left - 24'd1;
      if (uses_left == 24'd1) begin
        uses_left <= channel_multiplier;
        channel_offset <= channel_offset + channel_stride;
      end
    end
  end

  // ---- The array and its results: inputs reach it 2 cycles after their tap ----

  logic drain_1;
  logic drain_2;
  logic [$clog2(ROWS)-1:0] drained;  // the row that leaves

  assign array_step = state == TAPS || state == EMPTY || state == WRITE;
  assign array_drain = drain_2;
  assign result_row_valid = drain_2 && result_used[drained];
  assign result_row_address = result_start[drained];

  always_ff @(posedge clk) begin
    drain_1 <= state == EMPTY && index >= INDEX_BITS'(DRAIN_BEGIN) &&
               index < INDEX_BITS'(DRAIN_BEGIN + ROWS) && rst_n && !clear;
    drain_2 <= drain_1 && rst_n && !clear;
    drained <= drain_2 ? drained - 1'b1 : ($clog2(ROWS))'(ROWS - 1);
    if (walks && line < INDEX_BITS'(ROWS)) begin
      next_result_start[line[$clog2(ROWS)-1:0]] <= place_result;
      next_result_used[line[$clog2(ROWS)-1:0]]  <= !positions_end;
    end
    if (state == EMPTY && index == INDEX_BITS'(WALK_BEGIN - 1)) begin
      for (int r = 0; r < ROWS; ++r) begin
        result_start[r] <= next_result_start[r] + block_result;
        result_used[r]  <= next_result_used[r];
      end
    end
  end
endmodule
