// SPDX-License-Identifier: Apache-2.0
// Whether a transfer is valid, as far as the device knows: what lies on the bus, the bus says.
//
// A cycle with `start` begins the check; its inputs stay as they are. Three cycles later `done` is 1
// for a cycle: with `status` 0 `total_bytes` is what the transfer moves, else `address` is what is
// wrong.
module transfer_check
  import strawberry_pkg::*;
  import systolic_array_registers_pkg::*;
#(
    parameter int unsigned SCRATCHPAD_BYTES = 65536
) (
    input  logic           clk,
    input  logic           rst_n,
    input  logic           start,
    input  logic    [31:0] direction,
    input  logic    [31:0] scratchpad_start,
    input  logic    [31:0] row_bytes,
    input  logic    [31:0] rows,
    input  logic    [31:0] planes,
    input  logic    [31:0] scratchpad_row_stride,
    input  logic    [31:0] scratchpad_plane_stride,
    output logic           done,
    output status_t        status,
    output logic    [31:0] address,
    output logic    [31:0] total_bytes
);
  // A count that does not fit 32 bits is far too large, and so is what is put in its place.
  function automatic logic [31:0] saturated(input logic [63:0] value);
    return value[63:32] != 32'd0 ? 32'hFFFF_FFFF : value[31:0];
  endfunction

  logic step_1, step_2;
  logic [63:0] all_rows;
  logic [31:0] row_distance;  // from the first to the last one in a plane
  logic [31:0] plane_distance;
  logic too_many_rows;
  logic [63:0] bytes;
  logic [33:0] extent;

  always_ff @(posedge clk) begin
    step_1 <= start && rst_n;
    step_2 <= step_1 && rst_n;
    done   <= step_2 && rst_n;
    if (start) begin
      all_rows <= 64'(rows) * 64'(planes);
      row_distance <= saturated((64'(rows) - 64'd1) * 64'(scratchpad_row_stride));
      plane_distance <= saturated((64'(planes) - 64'd1) * 64'(scratchpad_plane_stride));
    end
    if (step_1) begin
      too_many_rows <= all_rows[63:32] != 32'd0;
      bytes <= 64'(all_rows[31:0]) * 64'(row_bytes);
      extent <= 34'(row_distance) + 34'(plane_distance) + 34'(row_bytes);
    end
    if (step_2) begin
      total_bytes <= bytes[31:0];
      status <= OK;
      address <= scratchpad_start;
      if (rows == 32'd0 || planes == 32'd0 || row_bytes == 32'd0) begin
        status  <= INVALID_ARGUMENT;
        address <= DMA_ROW_BYTES_OFFSET;
      end else if (too_many_rows || bytes[63:32] != 32'd0) begin
        status  <= OUT_OF_RANGE;
        address <= DMA_ROW_BYTES_OFFSET;
      end else if (direction > DMA_DIRECTION_OUT) begin
        status  <= INVALID_ARGUMENT;
        address <= DMA_DIRECTION_OFFSET;
      end else if (scratchpad_start >= SCRATCHPAD_BYTES ||
                   extent > 34'(SCRATCHPAD_BYTES) - 34'(scratchpad_start)) begin
        status <= OUT_OF_RANGE;
      end
    end
  end
endmodule
