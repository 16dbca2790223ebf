// SPDX-License-Identifier: Apache-2.0
// Counters of 64 bits, read as two registers each, in the order of the register map from CLOCK_LOW
// on: reading the low half captures the high one.
//
// read_data is there in the cycle of read_valid; read_word counts registers of 32 bits.
module counters (
    input  logic        clk,
    input  logic        rst_n,
    input  logic        clear,
    input  logic        computes,      // the array works
    input  logic        drains,        // results move out of it
    input  logic        moves,         // the DMA engine works
    input  logic        job_done,
    input  logic [47:0] macs,          // of the job
    input  logic [47:0] useful_macs,
    input  logic [11:0] bytes_in,      // in this cycle
    input  logic [11:0] bytes_out,
    input  logic        read_valid,
    input  logic [ 4:0] read_word,
    output logic [31:0] read_data
);
  localparam int unsigned COUNT = 10;
  localparam int unsigned CLOCK = 0;
  localparam int unsigned COMPUTE = 1;
  localparam int unsigned DRAIN = 2;
  localparam int unsigned STALL = 3;
  localparam int unsigned IDLE = 4;
  localparam int unsigned DMA = 5;
  localparam int unsigned MACS = 6;
  localparam int unsigned USEFUL_MACS = 7;
  localparam int unsigned BYTES_IN = 8;
  localparam int unsigned BYTES_OUT = 9;

  logic [63:0] value[COUNT];
  logic [31:0] captured_high[COUNT];
  logic [3:0] index;

  assign index = read_word[4:1];
  assign read_data = read_word[0] ? captured_high[index] : value[index][31:0];

  always_ff @(posedge clk) begin
    if (!rst_n || clear) begin
      for (int i = 0; i < COUNT; ++i) begin
        value[i] <= 64'd0;
        captured_high[i] <= 32'd0;
      end
    end else begin
      value[CLOCK] <= value[CLOCK] + 64'd1;
      if (computes) value[COMPUTE] <= value[COMPUTE] + 64'd1;
      else if (drains) value[DRAIN] <= value[DRAIN] + 64'd1;
      else if (moves) value[STALL] <= value[STALL] + 64'd1;
      else value[IDLE] <= value[IDLE] + 64'd1;
      if (moves) begin
        value[DMA] <= value[DMA] + 64'd1;
        value[BYTES_IN] <= value[BYTES_IN] + 64'(bytes_in);
        value[BYTES_OUT] <= value[BYTES_OUT] + 64'(bytes_out);
      end
      if (job_done) begin
        value[MACS] <= value[MACS] + 64'(macs);
        value[USEFUL_MACS] <= value[USEFUL_MACS] + 64'(useful_macs);
      end
      if (read_valid && !read_word[0]) captured_high[index] <= value[index][63:32];
    end
  end
endmodule
