// SPDX-License-Identifier: Apache-2.0
// Feeds a row of the array: where the inputs of one position of the result lie.
//
// A tap, which is a place in the window, comes in one cycle after it came to the row above; what it
// means for this row's position is read from the scratchpad in the cycle after. A tap that meets
// padding, or comes to a row without a position, is not read.
module row_feeder #(
    parameter int unsigned ADDRESS_BITS = 16
) (
    input logic clk,
    input logic rst_n,

    // The position: where its window begins in the input, which may be outside of it.
    input logic                           load,
    input logic                           load_valid,
    input logic signed [            34:0] load_top,
    input logic signed [            34:0] load_left,
    input logic        [ADDRESS_BITS-1:0] load_start,

    input logic [15:0] input_height,
    input logic [15:0] input_width,

    // The tap: how far it lies from the beginning of the window.
    input  logic                    tap_valid,
    input  logic [            34:0] tap_y,
    input  logic [            34:0] tap_x,
    input  logic [ADDRESS_BITS-1:0] tap_distance,
    output logic                    next_valid,   // for the row below
    output logic [            34:0] next_y,
    output logic [            34:0] next_x,
    output logic [ADDRESS_BITS-1:0] next_distance,

    output logic                    read_valid,
    output logic [ADDRESS_BITS-1:0] read_address
);
  logic valid;
  logic [34:0] top;
  logic [34:0] left;
  logic [ADDRESS_BITS-1:0] start;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      next_valid <= 1'b0;
      read_valid <= 1'b0;
    end else begin
      next_valid <= tap_valid;
      // Numbers below 0 are large ones.
      read_valid <= tap_valid && valid && 35'(top + tap_y) < 35'(input_height) &&
                    35'(left + tap_x) < 35'(input_width);
    end
    if (tap_valid) begin
      next_y <= tap_y;
      next_x <= tap_x;
      next_distance <= tap_distance;
      read_address <= start + tap_distance;
    end
    if (load) begin
      valid <= load_valid;
      top <= load_top;
      left <= load_left;
      start <= load_start;
    end
  end
endmodule
