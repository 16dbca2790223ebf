// SPDX-License-Identifier: Apache-2.0
//
// The ten counters of 64 bits, in the order of their registers. Each cycle is one in which the
// array computes, drains, stalls (the DMA engine works and the array does not) or all is idle;
// multiply-accumulates count when their job ends.

module counters #(
    parameter int SLOT_BITS = 5
) (
    input logic clk,
    input logic rst_n,
    input logic reset_counters,

    input logic                 array_works,
    input logic                 computes,
    input logic                 dma_works,
    input logic                 job_starts,
    input logic                 job_ends,  // without an error
    input logic [SLOT_BITS-1:0] slots,
    input logic [SLOT_BITS-1:0] useful_slots,
    input logic [         11:0] bytes_in,
    input logic [         11:0] bytes_out,

    // The value of a register of CLOCK_LOW to BYTES_OUT_HIGH, by its number. Reading a low half
    // keeps the high one.
    input  logic        read,
    input  logic [ 4:0] number,
    output logic [31:0] value
);
    localparam int Count = 10;
    localparam int Clock = 0;
    localparam int Compute = 1;
    localparam int Drain = 2;
    localparam int Stall = 3;
    localparam int Idle = 4;
    localparam int Dma = 5;
    localparam int Macs = 6;
    localparam int UsefulMacs = 7;
    localparam int BytesIn = 8;
    localparam int BytesOut = 9;

    logic [63:0] counter[Count];
    logic [31:0] captured[Count];
    logic [47:0] job_macs;
    logic [47:0] job_useful_macs;

    assign value = number[0] ? captured[number[4:1]] : counter[number[4:1]][31:0];

    always_ff @(posedge clk) begin
        if (job_starts) begin
            job_macs <= '0;
            job_useful_macs <= '0;
        end else if (slots != '0) begin
            job_macs <= job_macs + 48'(slots);
            job_useful_macs <= job_useful_macs + 48'(useful_slots);
        end
    end

    always_ff @(posedge clk) begin
        counter[Clock] <= counter[Clock] + 64'd1;
        if (array_works && computes) begin
            counter[Compute] <= counter[Compute] + 64'd1;
        end else if (array_works) begin
            counter[Drain] <= counter[Drain] + 64'd1;
        end else if (dma_works) begin
            counter[Stall] <= counter[Stall] + 64'd1;
        end else begin
            counter[Idle] <= counter[Idle] + 64'd1;
        end
        if (dma_works) begin
            counter[Dma] <= counter[Dma] + 64'd1;
        end
        if (job_ends) begin
            counter[Macs] <= counter[Macs] + 64'(job_macs);
            counter[UsefulMacs] <= counter[UsefulMacs] + 64'(job_useful_macs);
        end
        if (bytes_in != '0) begin
            counter[BytesIn] <= counter[BytesIn] + 64'(bytes_in);
        end
        if (bytes_out != '0) begin
            counter[BytesOut] <= counter[BytesOut] + 64'(bytes_out);
        end
        if (read && !number[0]) begin
            captured[number[4:1]] <= counter[number[4:1]][63:32];
        end
        if (!rst_n || reset_counters) begin
            for (int i = 0; i < Count; ++i) begin
                counter[i] <= '0;
                captured[i] <= '0;
            end
        end
    end

endmodule
