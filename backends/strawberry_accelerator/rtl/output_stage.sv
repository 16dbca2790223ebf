// SPDX-License-Identifier: Apache-2.0
// What becomes of sums: bias, scale, zero point and limits, and their place in the scratchpad.
//
// Parameters of a column are stored by `load`. A row of sums comes with row_valid; its results are
// written LATENCY cycles later, those of columns that are used.
module output_stage #(
    parameter int unsigned COLUMNS = 8,
    parameter int unsigned ADDRESS_BITS = 16
) (
    input logic clk,
    input logic rst_n,
    input logic clear,  // forget what is on its way

    input logic                              ort,
    input logic signed [                7:0] zero_point,
    input logic signed [                7:0] lowest,
    input logic signed [                7:0] highest,
    input logic        [   ADDRESS_BITS-1:0] channel_stride,
    input logic                              load,
    input logic        [$clog2(COLUMNS)-1:0] load_column,
    input logic                              load_used,
    input logic signed [               31:0] load_bias,
    input logic signed [               31:0] load_multiplier,
    input logic signed [                7:0] load_shift,

    input logic                           row_valid,
    input logic        [ADDRESS_BITS-1:0] row_address,  // of column 0
    input logic signed [            31:0] sums[COLUMNS],

    output logic                    result_valid[COLUMNS],
    output logic [ADDRESS_BITS-1:0] result_address[COLUMNS],
    output logic [             7:0] result[COLUMNS]
);
  import fixed_point_pkg::*;

  localparam int unsigned LATENCY = 4;  // of the requantizers

  logic used[COLUMNS];
  logic signed [31:0] bias[COLUMNS];
  logic signed [31:0] multiplier[COLUMNS];
  logic signed [7:0] shift[COLUMNS];

  always_ff @(posedge clk) begin
    if (load) begin
      used[load_column] <= load_used;
      bias[load_column] <= load_bias;
      multiplier[load_column] <= load_multiplier;
      shift[load_column] <= load_shift;
    end
  end

  // Where the rows on their way go; columns that are used do not change meanwhile.
  logic [ADDRESS_BITS-1:0] address[LATENCY];
  always_ff @(posedge clk) begin
    address[0] <= row_address;
    for (int i = 1; i < LATENCY; ++i) address[i] <= address[i-1];
  end

  logic scaled_valid[COLUMNS];
  logic signed [31:0] scaled[COLUMNS];
  for (genvar c = 0; c < COLUMNS; ++c) begin : gen_columns
    requantizer requantizer (
        .clk,
        .rst_n(rst_n && !clear),
        .ort,
        .in_valid(row_valid && used[c]),
        .value(sums[c] + bias[c]),
        .multiplier(multiplier[c]),
        .shift(shift[c]),
        .out_valid(scaled_valid[c]),
        .scaled(scaled[c])
    );
  end

  always_comb begin
    for (int c = 0; c < COLUMNS; ++c) begin
      result_valid[c] = scaled_valid[c];
      result_address[c] = address[LATENCY-1] + ADDRESS_BITS'(c) * channel_stride;
      result[c] = scaled_valid[c] ? add_and_clamp(scaled[c], zero_point, lowest, highest) : 8'd0;
    end
  end
endmodule
