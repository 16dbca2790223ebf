// SPDX-License-Identifier: Apache-2.0
// Whether the job registers describe a job that the array can do, and how large it is.
//
// A cycle with `start` begins the check; the registers stay as they are until its end. It looks at
// values first, then multiplies sizes with one multiplier, a product a cycle, and compares where
// operands lie. `fields_valid` is 1 for a cycle when values are known to be right; `done` when all
// is: with `status` 0 the outputs below describe the job, else `address` is what is wrong.
// A depthwise job whose channels are a multiple of its inputs' takes 24 cycles more, for a division.
module job_check
  import strawberry_pkg::*;
  import systolic_array_registers_pkg::*;
#(
    parameter int unsigned ROWS = 8,
    parameter int unsigned COLUMNS = 8,
    parameter int unsigned DRAIN_CYCLES = 8,
    parameter int unsigned SCRATCHPAD_BYTES = 65536
) (
    input  logic              clk,
    input  logic              rst_n,
    input  logic              start,
    input  registers_t        registers,
    output logic              fields_valid,
    output logic              done,
    output status_t           status,
    output logic       [31:0] address,
    output logic       [23:0] channel_multiplier,  // outputs of an input, depthwise
    output logic       [31:0] cycles,              // of all folds, at most 2^32 - 1
    output logic       [47:0] macs,                // that the folds have room for
    output logic       [47:0] useful_macs
);
  // Sizes and strides above this are as wrong as this: no scratchpad is that large.
  localparam logic [31:0] LARGE = 32'h0002_0000;
  localparam logic [31:0] MOST_SIZE = 32'h0000_FFFF;
  localparam logic [31:0] MOST_CHANNELS = 32'h00FF_FFFF;

  typedef logic [17:0] count_t;  // at most LARGE
  typedef logic [19:0] extent_t;  // a sum of three, and 1

  function automatic count_t limited(input logic [35:0] value);
    return value > 36'(LARGE) ? LARGE[17:0] : value[17:0];
  endfunction

  function automatic logic is_size(input logic [31:0] value, input logic [31:0] most);
    return value != 32'd0 && value <= most;
  endfunction

  // By its bits from the sign on.
  function automatic logic is_int8(input logic [31:7] bits);
    return bits == 25'd0 || bits == {25{1'b1}};
  endfunction

  // ---- Registers ----

  logic is_depthwise, is_pool;
  logic [31:0] input_channels, output_channels;
  logic [31:0] scale_count;
  assign is_depthwise = registers[OPERATION_OFFSET/4] == OPERATION_DEPTHWISE;
  assign is_pool = registers[OPERATION_OFFSET/4] == OPERATION_MAX_POOL ||
                   registers[OPERATION_OFFSET/4] == OPERATION_AVERAGE_POOL;
  assign input_channels = registers[INPUT_CHANNELS_OFFSET/4];
  assign output_channels = registers[OUTPUT_CHANNELS_OFFSET/4];
  assign scale_count = registers[SCALE_COUNT_OFFSET/4];

  function automatic logic sizes_are_valid(input registers_t r);
    return is_size(r[INPUT_HEIGHT_OFFSET/4], MOST_SIZE) &&
           is_size(r[INPUT_WIDTH_OFFSET/4], MOST_SIZE) &&
           is_size(r[OUTPUT_HEIGHT_OFFSET/4], MOST_SIZE) &&
           is_size(r[OUTPUT_WIDTH_OFFSET/4], MOST_SIZE) &&
           is_size(r[KERNEL_HEIGHT_OFFSET/4], MOST_SIZE) &&
           is_size(r[KERNEL_WIDTH_OFFSET/4], MOST_SIZE) &&
           is_size(r[STRIDE_HEIGHT_OFFSET/4], MOST_SIZE) &&
           is_size(r[STRIDE_WIDTH_OFFSET/4], MOST_SIZE) &&
           is_size(r[DILATION_HEIGHT_OFFSET/4], MOST_SIZE) &&
           is_size(r[DILATION_WIDTH_OFFSET/4], MOST_SIZE) &&
           r[PAD_TOP_OFFSET/4] <= MOST_SIZE && r[PAD_LEFT_OFFSET/4] <= MOST_SIZE &&
           is_size(r[INPUT_CHANNELS_OFFSET/4], MOST_CHANNELS) &&
           is_size(r[OUTPUT_CHANNELS_OFFSET/4], MOST_CHANNELS);
  endfunction

  function automatic logic values_are_valid(input registers_t r);
    return is_int8(r[CLIP_LOWEST_OFFSET/4][31:7]) && is_int8(r[CLIP_HIGHEST_OFFSET/4][31:7]) &&
           signed'(r[CLIP_LOWEST_OFFSET/4]) <= signed'(r[CLIP_HIGHEST_OFFSET/4]) &&
           is_int8(r[INPUT_ZERO_POINT_OFFSET/4][31:7]) && is_int8(r[OUTPUT_ZERO_POINT_OFFSET/4][31:7]) &&
           r[ROUNDING_OFFSET/4] <= ROUNDING_ORT &&
           (r[SCALE_COUNT_OFFSET/4] == 32'd1 ||
            r[SCALE_COUNT_OFFSET/4] == r[OUTPUT_CHANNELS_OFFSET/4]);
  endfunction

  // ---- Steps ----

  typedef enum logic [4:0] {
    IDLE,
    KIND,
    DIVIDE,
    VALUES,
    WINDOW,  // from here on a product each
    DEPTH,
    POSITIONS,
    OUTPUTS,
    INPUT_PLANE,
    INPUTS,
    WEIGHTS,
    IFMAP_ROWS,
    IFMAP_COLUMNS,
    IFMAP_CHANNELS,
    OFMAP_ROWS,
    OFMAP_COLUMNS,
    OFMAP_CHANNELS,
    FOLDS,
    CYCLES,
    SLOTS,
    USEFUL,
    OPERANDS
  } step_t;
  step_t step;

  logic [31:0] left, right;  // factors
  logic [35:0] product;
  count_t window, depth, positions, outputs, inputs, weights, folds;
  extent_t ifmap, ofmap;  // bytes from the first to the last, less 1

  // Of the division: the quotient comes in from the right while the dividend leaves.
  logic [23:0] quotient;
  logic [24:0] remainder;
  logic [24:0] next_remainder;
  logic [ 4:0] bits_left;

  always_comb begin
    left  = 32'd1;
    right = 32'd1;
    case (step)
      WINDOW: begin
        left  = registers[KERNEL_HEIGHT_OFFSET/4];
        right = registers[KERNEL_WIDTH_OFFSET/4];
      end
      DEPTH: begin
        left  = 32'(window);
        right = is_depthwise ? 32'd1 : input_channels;
      end
      POSITIONS: begin
        left  = registers[OUTPUT_HEIGHT_OFFSET/4];
        right = registers[OUTPUT_WIDTH_OFFSET/4];
      end
      OUTPUTS: begin
        left  = 32'(positions);
        right = output_channels;
      end
      INPUT_PLANE: begin
        left  = registers[INPUT_HEIGHT_OFFSET/4];
        right = registers[INPUT_WIDTH_OFFSET/4];
      end
      INPUTS: begin
        left  = 32'(inputs);
        right = input_channels;
      end
      WEIGHTS: begin
        left  = 32'(depth);
        right = is_depthwise ? output_channels
                             : (output_channels + 32'(COLUMNS - 1)) / COLUMNS * COLUMNS;
      end
      IFMAP_ROWS: begin
        left  = registers[INPUT_HEIGHT_OFFSET/4] - 32'd1;
        right = registers[IFMAP_ROW_STRIDE_OFFSET/4];
      end
      IFMAP_COLUMNS: begin
        left  = registers[INPUT_WIDTH_OFFSET/4] - 32'd1;
        right = registers[IFMAP_COLUMN_STRIDE_OFFSET/4];
      end
      IFMAP_CHANNELS: begin
        left  = input_channels - 32'd1;
        right = registers[IFMAP_CHANNEL_STRIDE_OFFSET/4];
      end
      OFMAP_ROWS: begin
        left  = registers[OUTPUT_HEIGHT_OFFSET/4] - 32'd1;
        right = registers[OFMAP_ROW_STRIDE_OFFSET/4];
      end
      OFMAP_COLUMNS: begin
        left  = registers[OUTPUT_WIDTH_OFFSET/4] - 32'd1;
        right = registers[OFMAP_COLUMN_STRIDE_OFFSET/4];
      end
      OFMAP_CHANNELS: begin
        left  = output_channels - 32'd1;
        right = registers[OFMAP_CHANNEL_STRIDE_OFFSET/4];
      end
      FOLDS: begin
        left  = (32'(positions) + 32'(ROWS - 1)) / ROWS;
        right = (output_channels + 32'(COLUMNS - 1)) / COLUMNS;
      end
      CYCLES: begin
        left  = 32'(folds);
        right = 32'(depth) + ROWS + COLUMNS - 32'd2 + DRAIN_CYCLES;
      end
      SLOTS: begin
        left  = 32'(folds);
        right = 32'(depth);
      end
      USEFUL: begin
        left  = 32'(outputs);
        right = 32'(depth);
      end
      default: ;
    endcase
    product = 36'(limited(36'(left))) * 36'(limited(36'(right)));
    next_remainder = {remainder[23:0], quotient[23]};
  end

  // ---- Where operands lie ----

  // Bytes of each, all small where it matters; starts are compared first.
  logic [31:0] ifmap_start, weights_start, bias_start, multipliers_start, shifts_start, ofmap_start;
  extent_t bias_bytes, multiplier_bytes, shift_bytes;
  assign ifmap_start = registers[IFMAP_START_OFFSET/4];
  assign weights_start = registers[WEIGHTS_START_OFFSET/4];
  assign bias_start = registers[BIAS_START_OFFSET/4];
  assign multipliers_start = registers[MULTIPLIERS_START_OFFSET/4];
  assign shifts_start = registers[SHIFTS_START_OFFSET/4];
  assign ofmap_start = registers[OFMAP_START_OFFSET/4];
  assign bias_bytes = 20'(limited(36'(output_channels))) << 2;
  assign multiplier_bytes = 20'(limited(36'(scale_count))) << 2;
  assign shift_bytes = 20'(limited(36'(scale_count)));

  function automatic logic fits(input logic [31:0] first, input extent_t bytes);
    return first < SCRATCHPAD_BYTES && 32'(bytes) <= SCRATCHPAD_BYTES - first;
  endfunction

  // Whether an operand shares a byte with the result, counting those between their own.
  function automatic logic overlaps(input logic [31:0] first, input extent_t bytes,
                                    input logic [31:0] result, input extent_t result_bytes);
    return first < result ? result - first < 32'(bytes) : first - result < 32'(result_bytes);
  endfunction

  always_ff @(posedge clk) begin
    fields_valid <= 1'b0;
    done <= 1'b0;
    if (!rst_n) begin
      step <= IDLE;
    end else if (start) begin
      step <= KIND;
    end else if (step != IDLE) begin
      step <= step_t'(step + 5'd1);
      case (step)
        KIND: begin
          status <= OK;
          quotient <= output_channels[23:0];
          remainder <= 25'd0;
          bits_left <= 5'd24;
          channel_multiplier <= output_channels == input_channels ? 24'd1 : output_channels[23:0];
          if (!is_depthwise || output_channels == input_channels || input_channels == 32'd1) begin
            step <= VALUES;
          end
          if (registers[OPERATION_OFFSET/4] > OPERATION_AVERAGE_POOL) begin
            fail(INVALID_ARGUMENT, OPERATION_OFFSET);
          end else if (!is_pool && registers[DATAFLOW_OFFSET/4] > DATAFLOW_INPUT_STATIONARY) begin
            fail(INVALID_ARGUMENT, DATAFLOW_OFFSET);
          end else if (is_pool ||
                       registers[DATAFLOW_OFFSET/4] != DATAFLOW_OUTPUT_STATIONARY) begin
            fail(UNSUPPORTED, OPERATION_OFFSET);
          end else if (!sizes_are_valid(registers)) begin
            fail(INVALID_ARGUMENT, INPUT_HEIGHT_OFFSET);
          end
        end
        DIVIDE: begin
          if (bits_left != 5'd0) begin
            quotient <= {quotient[22:0], next_remainder >= 25'(input_channels)};
            remainder <= next_remainder >= 25'(input_channels)
                         ? next_remainder - 25'(input_channels) : next_remainder;
            bits_left <= bits_left - 5'd1;
            step <= DIVIDE;
          end else begin
            channel_multiplier <= quotient;
            if (remainder != 25'd0) fail(INVALID_ARGUMENT, INPUT_HEIGHT_OFFSET);
          end
        end
        VALUES: begin
          fields_valid <= 1'b1;
          if (!values_are_valid(registers)) begin
            fail(INVALID_ARGUMENT, CLIP_LOWEST_OFFSET);
          end else if (!registers[ACCUMULATE_OFFSET/4][ACCUMULATE_KEEP_BIT] &&
                       registers[ADD_OFFSET/4] != 32'd0) begin
            fail(registers[ADD_OFFSET/4] == 32'd1 ? UNSUPPORTED : INVALID_ARGUMENT, ADD_OFFSET);
          end else if (registers[ACCUMULATE_OFFSET/4] != 32'd0) begin
            fail(UNSUPPORTED, ACCUMULATE_OFFSET);
          end
        end
        WINDOW: window <= limited(product);
        DEPTH: depth <= limited(product);
        POSITIONS: positions <= limited(product);
        OUTPUTS: outputs <= limited(product);
        INPUT_PLANE, INPUTS: inputs <= limited(product);
        WEIGHTS: weights <= limited(product);
        IFMAP_ROWS: ifmap <= 20'(limited(product));
        IFMAP_COLUMNS, IFMAP_CHANNELS: ifmap <= ifmap + 20'(limited(product));
        OFMAP_ROWS: ofmap <= 20'(limited(product));
        OFMAP_COLUMNS, OFMAP_CHANNELS: ofmap <= ofmap + 20'(limited(product));
        FOLDS: folds <= limited(product);
        CYCLES: cycles <= product[35:32] != 4'd0 ? 32'hFFFF_FFFF : product[31:0];
        SLOTS: macs <= 48'(product) * 48'(ROWS * COLUMNS);
        USEFUL: useful_macs <= 48'(product);
        default: begin  // OPERANDS
          step <= IDLE;
          done <= 1'b1;
          if (!fits(ifmap_start, ifmap + 20'd1)) begin
            fail(OUT_OF_RANGE, ifmap_start);
          end else if (!fits(weights_start, 20'(weights))) begin
            fail(OUT_OF_RANGE, weights_start);
          end else if (bias_start[1:0] != 2'd0) begin
            fail(MISALIGNED, bias_start);
          end else if (!fits(bias_start, bias_bytes)) begin
            fail(OUT_OF_RANGE, bias_start);
          end else if (multipliers_start[1:0] != 2'd0) begin
            fail(MISALIGNED, multipliers_start);
          end else if (!fits(multipliers_start, multiplier_bytes)) begin
            fail(OUT_OF_RANGE, multipliers_start);
          end else if (!fits(shifts_start, shift_bytes)) begin
            fail(OUT_OF_RANGE, shifts_start);
          end else if (!fits(ofmap_start, ofmap + 20'd1)) begin
            fail(OUT_OF_RANGE, ofmap_start);
          end else if (32'(inputs) > SCRATCHPAD_BYTES || 32'(outputs) > SCRATCHPAD_BYTES) begin
            fail(OUT_OF_RANGE, INPUT_HEIGHT_OFFSET);
          end else if (overlaps(ifmap_start, ifmap + 20'd1, ofmap_start, ofmap + 20'd1) ||
                       overlaps(weights_start, 20'(weights), ofmap_start, ofmap + 20'd1) ||
                       overlaps(bias_start, bias_bytes, ofmap_start, ofmap + 20'd1) ||
                       overlaps(multipliers_start, multiplier_bytes, ofmap_start,
                                ofmap + 20'd1) ||
                       overlaps(shifts_start, shift_bytes, ofmap_start, ofmap + 20'd1)) begin
            fail(INVALID_ARGUMENT, ofmap_start);
          end
        end
      endcase
    end
  end

  task automatic fail(input status_t why, input logic [31:0] where);
    status <= why;
    address <= where;
    step <= IDLE;
    done <= 1'b1;
    fields_valid <= 1'b0;
  endtask
endmodule
