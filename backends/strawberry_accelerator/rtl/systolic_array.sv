// SPDX-License-Identifier: Apache-2.0
// The array: ROWS x COLUMNS cells, each of which multiplies and adds once a cycle. Sums stay.
//
// Inputs enter on the left and move right, weights enter at the top and move down, a cell a cycle;
// the weight of column c has to come c cycles after that of column 0, which this module sees to,
// and the input of row r r cycles after that of row 0. Depthwise, each cell has an input of its own
// and weights enter all columns at once. What is not valid counts as 0.
//
// While `drain` is 1 sums move down instead, 0 comes in at the top, and `sums` are those of the
// row that leaves. After ROWS such cycles all sums are 0.
module systolic_array #(
    parameter int unsigned ROWS = 8,
    parameter int unsigned COLUMNS = 8
) (
    input  logic               clk,
    input  logic               rst_n,
    input  logic               step,          // else everything stays
    input  logic               drain,
    input  logic               clear,         // all sums and what moves
    input  logic               depthwise,
    input  logic signed [ 7:0] zero_point,    // of inputs
    input  logic               row_valid[ROWS],
    input  logic signed [ 7:0] row_data[ROWS][COLUMNS],  // not depthwise: of column 0
    input  logic signed [ 7:0] weights[COLUMNS],
    output logic signed [31:0] sums[COLUMNS]
);
  // What a cell passes on: an input less its zero point to the right, a weight down.
  logic signed [8:0] right[ROWS][COLUMNS];
  logic signed [7:0] down[ROWS][COLUMNS];
  logic signed [31:0] sum[ROWS][COLUMNS];

  // What comes to a cell.
  logic signed [8:0] from_left[ROWS][COLUMNS];
  logic signed [7:0] from_above[ROWS][COLUMNS];

  // Weights on their way to the top row: column c waits for c cycles.
  logic signed [7:0] delayed[COLUMNS][COLUMNS];

  for (genvar c = 0; c < COLUMNS; ++c) begin : gen_columns
    for (genvar r = 0; r < ROWS; ++r) begin : gen_rows
      logic signed [8:0] own;
      assign own = row_valid[r] ? 9'(row_data[r][depthwise ? c : 0]) - 9'(zero_point) : 9'sd0;
      if (c == 0) begin : gen_first
        assign from_left[r][c] = own;
      end else begin : gen_others
        assign from_left[r][c] = depthwise ? own : right[r][c-1];
      end
      if (r == 0 && c == 0) begin : gen_corner
        assign from_above[r][c] = weights[c];
      end else if (r == 0) begin : gen_top
        assign from_above[r][c] = depthwise ? weights[c] : delayed[c][c-1];
      end else begin : gen_below
        assign from_above[r][c] = down[r-1][c];
      end
      always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
          right[r][c] <= 9'sd0;
          down[r][c] <= 8'sd0;
          sum[r][c] <= 32'sd0;
        end else if (step) begin
          right[r][c] <= from_left[r][c];
          down[r][c] <= from_above[r][c];
          if (drain) sum[r][c] <= r == 0 ? 32'sd0 : sum[r==0?0 : r-1][c];
          else sum[r][c] <= sum[r][c] + 32'(from_left[r][c]) * 32'(from_above[r][c]);
        end
      end
    end
    assign sums[c] = sum[ROWS-1][c];
    always_ff @(posedge clk) begin
      if (step) begin
        delayed[c][0] <= weights[c];
        for (int i = 1; i < COLUMNS; ++i) delayed[c][i] <= delayed[c][i-1];
      end
    end
  end
endmodule
