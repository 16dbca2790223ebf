// SPDX-License-Identifier: Apache-2.0
// The scratchpad: bytes, and a port for each use. Any port reads or writes at any byte address.
//
//   rows         the array's inputs: one byte for each row, or one for each cell of it, depthwise,
//                at the row's address plus the offset of the column
//   weights      COLUMNS bytes that follow each other
//   parameters   two words of 32 bits at multiples of 4, and a byte; in the same cycle
//   results      a byte for each column, at addresses of its own
//   DMA          8 bytes that follow each other, in both directions
//
// Apart from parameters, what is read is there in the cycle after. One module uses the memory at a
// time, so nothing is read while it is written. Addresses wrap around at the end.
module scratchpad #(
    parameter int unsigned ROWS = 8,
    parameter int unsigned COLUMNS = 8,
    parameter int unsigned BYTES = 65536,
    parameter int unsigned ADDRESS_BITS = $clog2(BYTES)
) (
    input logic clk,

    input  logic                    depthwise,
    input  logic                    row_read_valid[ROWS],
    input  logic [ADDRESS_BITS-1:0] row_address[ROWS],
    input  logic [ADDRESS_BITS-1:0] column_offset[COLUMNS],
    output logic signed [      7:0] row_data[ROWS][COLUMNS],
    output logic                    row_data_valid[ROWS],

    input  logic                    weights_read_valid,
    input  logic [ADDRESS_BITS-1:0] weights_address,
    output logic signed [      7:0] weights[COLUMNS],

    input  logic [ADDRESS_BITS-1:0] bias_address,
    input  logic [ADDRESS_BITS-1:0] multiplier_address,
    input  logic [ADDRESS_BITS-1:0] shift_address,
    output logic [            31:0] bias,
    output logic [            31:0] multiplier,
    output logic signed [      7:0] shift,

    input logic                    result_valid[COLUMNS],
    input logic [ADDRESS_BITS-1:0] result_address[COLUMNS],
    input logic [             7:0] result[COLUMNS],

    input  logic                    dma_write_valid,
    input  logic [ADDRESS_BITS-1:0] dma_write_address,
    input  logic [            63:0] dma_write_data,
    input  logic [             7:0] dma_write_strobe,
    input  logic                    dma_read_valid,
    input  logic [ADDRESS_BITS-1:0] dma_read_address,
    output logic [            63:0] dma_read_data
);
  logic [7:0] memory[BYTES];

  assign bias = {
    memory[bias_address+ADDRESS_BITS'(3)], memory[bias_address+ADDRESS_BITS'(2)],
    memory[bias_address+ADDRESS_BITS'(1)], memory[bias_address]
  };
  assign multiplier = {
    memory[multiplier_address+ADDRESS_BITS'(3)], memory[multiplier_address+ADDRESS_BITS'(2)],
    memory[multiplier_address+ADDRESS_BITS'(1)], memory[multiplier_address]
  };
  assign shift = memory[shift_address];

  always_ff @(posedge clk) begin
    for (int r = 0; r < ROWS; ++r) begin
      row_data_valid[r] <= row_read_valid[r];
      if (row_read_valid[r]) begin
        if (depthwise) begin
          for (int c = 0; c < COLUMNS; ++c) begin
            row_data[r][c] <= memory[row_address[r]+column_offset[c]];
          end
        end else begin
          row_data[r][0] <= memory[row_address[r]];
        end
      end
    end
    if (weights_read_valid) begin
      for (int c = 0; c < COLUMNS; ++c) begin
        weights[c] <= memory[weights_address+ADDRESS_BITS'(c)];
      end
    end
    if (dma_read_valid) begin
      for (int i = 0; i < 8; ++i) begin
        dma_read_data[8*i+:8] <= memory[dma_read_address+ADDRESS_BITS'(i)];
      end
    end
  end

  always_ff @(posedge clk) begin
    for (int c = 0; c < COLUMNS; ++c) begin
      if (result_valid[c]) memory[result_address[c]] <= result[c];
    end
    if (dma_write_valid) begin
      for (int i = 0; i < 8; ++i) begin
        if (dma_write_strobe[i]) begin
          memory[dma_write_address+ADDRESS_BITS'(i)] <= dma_write_data[8*i+:8];
        end
      end
    end
  end
endmodule
