// SPDX-License-Identifier: Apache-2.0
// value * multiplier * 2^(shift - 31), rounded as TensorFlow Lite Micro or ONNX Runtime do: bit for
// bit umakit_requantize_tflm and umakit_requantize_ort of umakit/requantize.h.
//
// A value enters in each cycle with in_valid, with a multiplier and a shift (-31 to 30) of its own;
// what becomes of it leaves 4 cycles later with out_valid. There is no way to make it wait. `ort`
// chooses the rounding and stays as it is while values are on their way.
module requantizer (
    input  logic               clk,
    input  logic               rst_n,
    input  logic               ort,
    input  logic               in_valid,
    input  logic signed [31:0] value,
    input  logic signed [31:0] multiplier,
    input  logic signed [ 7:0] shift,
    output logic               out_valid,
    output logic signed [31:0] scaled
);
  import fixed_point_pkg::*;

  logic [3:1] valid;

  logic signed [32:0] factor;
  logic signed [31:0] multiplier_1;
  logic signed [5:0] shift_1;

  logic signed [63:0] product;
  logic signed [5:0] shift_2;

  logic signed [31:0] high;  // TFLM: product / 2^31
  logic negative;  // ORT: the product with 24 significant bits
  logic [63:0] magnitude;
  logic signed [5:0] shift_3;

  // As float32 sees it, or shifted left where 32 bits are kept.
  function automatic logic signed [32:0] prepared(
      input logic is_ort, input logic signed [31:0] number, input logic signed [5:0] by);
    logic signed [31:0] shifted;
    logic signed [32:0] rounded;
    shifted = by < 0 ? number : number <<< by[4:0];
    if (!is_ort) return 33'(shifted);
    rounded = 33'(round_to_float32(64'(unsigned'(number < 0 ? -number : number))));
    return number < 0 ? -rounded : rounded;
  endfunction

  // ORT rounds the magnitude: ties to even are the same for both signs.
  function automatic logic signed [31:0] finished(
      input logic is_ort, input logic signed [31:0] high_product, input logic is_negative,
      input logic [63:0] rounded, input logic signed [5:0] by);
    if (is_ort) return saturate(is_negative, divide_to_even(rounded, 6'(7'sd31 - 7'(by))));
    return by < 0 ? divide_by_power_of_two(high_product, 6'(-by)) : high_product;
  endfunction

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      valid <= 3'b000;
      out_valid <= 1'b0;
    end else begin
      valid <= {valid[2:1], in_valid};
      out_valid <= valid[3];
    end
    if (in_valid) begin
      factor <= prepared(ort, value, shift[5:0]);
      multiplier_1 <= multiplier;
      shift_1 <= shift[5:0];
    end
    if (valid[1]) begin
      product <= 64'(factor) * 64'(multiplier_1);
      shift_2 <= shift_1;
    end
    if (valid[2]) begin
      high <= 32'((product + 64'sh4000_0000) >>> 31);
      negative <= product < 0;
      if (ort) magnitude <= round_to_float32(unsigned'(product < 0 ? -product : product));
      shift_3 <= shift_2;
    end
    if (valid[3]) scaled <= finished(ort, high, negative, magnitude, shift_3);
  end

  logic unused;
  assign unused = &{1'b0, shift[7:6]};
endmodule
