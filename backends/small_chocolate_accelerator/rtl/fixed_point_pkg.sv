// SPDX-License-Identifier: Apache-2.0
// Rounding of integers, as umakit/requantize.h defines it.
package fixed_point_pkg;

  // Bits up to the highest one; 0 of 0.
  function automatic logic [6:0] bit_length(input logic [63:0] value);
    logic [63:0] rest;
    logic [ 6:0] bits;
    rest = value;
    bits = 7'd0;
    for (int step = 32; step >= 1; step /= 2) begin
      if ((rest >> step) != 64'd0) begin
        rest = rest >> step;
        bits = bits + 7'(step);
      end
    end
    return bits + 7'(rest[0]);
  endfunction

  // value / 2^exponent to the nearest integer, ties to even; exponents of 1 to 62, a magnitude.
  function automatic logic [63:0] divide_to_even(input logic [63:0] value,
                                                 input logic [5:0] exponent);
    logic [63:0] odd;
    odd = (value >> exponent) & 64'd1;
    return (value + (64'd1 << (exponent - 6'd1)) - 64'd1 + odd) >> exponent;
  endfunction

  // What float32 makes of a magnitude: 24 significant bits, ties to even.
  function automatic logic [63:0] round_to_float32(input logic [63:0] value);
    logic [6:0] bits;
    logic [5:0] excess;
    bits = bit_length(value);
    if (bits <= 7'd24) return value;
    excess = 6'(bits - 7'd24);
    return divide_to_even(value, excess) << excess;
  endfunction

  // value / 2^exponent to the nearest integer, ties away from 0; exponents of 1 to 32.
  function automatic logic signed [31:0] divide_by_power_of_two(input logic signed [31:0] value,
                                                                input logic [5:0] exponent);
    logic [31:0] magnitude;
    logic [31:0] quotient;
    magnitude = value < 0 ? -value : value;
    quotient  = ((magnitude >> (exponent - 6'd1)) + 32'd1) >> 1;
    return value < 0 ? -quotient : quotient;
  endfunction

  // A sign and a magnitude as an integer limited to 32 bits.
  function automatic logic signed [31:0] saturate(input logic is_negative,
                                                  input logic [63:0] magnitude);
    if (is_negative) return magnitude > 64'h8000_0000 ? 32'sh8000_0000 : -magnitude[31:0];
    return magnitude > 64'h7FFF_FFFF ? 32'sh7FFF_FFFF : magnitude[31:0];
  endfunction

  // value + zero_point, limited to [lowest, highest].
  function automatic logic signed [7:0] add_and_clamp(
      input logic signed [31:0] value, input logic signed [7:0] zero_point,
      input logic signed [7:0] lowest, input logic signed [7:0] highest);
    logic signed [32:0] sum;
    sum = 33'(value) + 33'(zero_point);
    if (sum < 33'(lowest)) return lowest;
    if (sum > 33'(highest)) return highest;
    return sum[7:0];
  endfunction

endpackage
