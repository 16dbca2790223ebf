// SPDX-License-Identifier: Apache-2.0
// Copies planes of rows of bytes between an AXI4 bus of 64 bits and a scratchpad.
//
// A cycle with `start` begins a transfer; all inputs of the command stay as they are while `busy`
// is 1. It ends with one cycle of `done`, or of `failed`: then failed_decode tells a DECERR from a
// SLVERR, and failed_address is the first byte asked for in the beat (reading) or burst (writing)
// that failed. `stop` ends it without either, as soon as no access is outstanding. moved_bytes are
// those that moved in this cycle.
//
// Each row is cut into bursts of BURST_BYTES at most, and where it crosses 4 KiB. A burst is
// requested in the cycle after the last beat (reading) or the response (writing) of the one
// before: nothing is outstanding meanwhile. Beats are aligned, any address is allowed: bytes
// of the first and last beat that lie outside of the row are not written. A row takes
//
//     bursts * latency of the memory + beats, where beats = ceil((address mod 8 + bytes) / 8)
//
// Scratchpad: lane i of 8 is the byte at address + i, in both directions. Data that is read is
// there in the cycle after read_valid and stays until the next one.
module dma_engine #(
    parameter int unsigned SCRATCHPAD_ADDRESS_BITS = 16,
    parameter int unsigned BURST_BYTES = 256
) (
    input logic clk,
    input logic rst_n,

    input  logic                               start,
    input  logic                               stop,
    input  logic                               is_out,
    input  logic [                       31:0] bus_start,
    input  logic [SCRATCHPAD_ADDRESS_BITS-1:0] scratchpad_start,
    input  logic [                       31:0] row_bytes,
    input  logic [                       31:0] rows,
    input  logic [                       31:0] planes,
    input  logic [                       31:0] bus_row_stride,
    input  logic [                       31:0] bus_plane_stride,
    input  logic [SCRATCHPAD_ADDRESS_BITS-1:0] scratchpad_row_stride,
    input  logic [SCRATCHPAD_ADDRESS_BITS-1:0] scratchpad_plane_stride,
    output logic                               busy,
    output logic                               done,
    output logic                               failed,
    output logic                               failed_decode,
    output logic [                       31:0] failed_address,
    output logic [                       11:0] moved_bytes,

    output logic                               scratchpad_write_valid,
    output logic [SCRATCHPAD_ADDRESS_BITS-1:0] scratchpad_write_address,
    output logic [                       63:0] scratchpad_write_data,
    output logic [                        7:0] scratchpad_write_strobe,
    output logic                               scratchpad_read_valid,
    output logic [SCRATCHPAD_ADDRESS_BITS-1:0] scratchpad_read_address,
    input  logic [                       63:0] scratchpad_read_data,

    output logic [31:0] awaddr,
    output logic [ 7:0] awlen,
    output logic [ 2:0] awsize,
    output logic [ 1:0] awburst,
    output logic        awvalid,
    input  logic        awready,
    output logic [63:0] wdata,
    output logic [ 7:0] wstrb,
    output logic        wlast,
    output logic        wvalid,
    input  logic        wready,
    input  logic [ 1:0] bresp,
    input  logic        bvalid,
    output logic        bready,
    output logic [31:0] araddr,
    output logic [ 7:0] arlen,
    output logic [ 2:0] arsize,
    output logic [ 1:0] arburst,
    output logic        arvalid,
    input  logic        arready,
    input  logic [63:0] rdata,
    input  logic [ 1:0] rresp,
    input  logic        rlast,
    input  logic        rvalid,
    output logic        rready
);
  localparam logic [2:0] EIGHT_BYTES = 3'd3;
  localparam logic [1:0] INCREMENTING = 2'b01;
  localparam int unsigned ADDRESS_BITS = SCRATCHPAD_ADDRESS_BITS;

  // The row and the plane at work.
  logic [31:0] plane_bus;
  logic [31:0] row_bus;
  logic [ADDRESS_BITS-1:0] plane_scratchpad;
  logic [ADDRESS_BITS-1:0] row_scratchpad;
  logic [31:0] rows_left;  // after this one
  logic [31:0] planes_left;
  logic [31:0] row_left;  // bytes of the row after this burst

  // The burst at work, and its next beat.
  logic [31:0] address;
  logic [ADDRESS_BITS-1:0] offset;
  logic [11:0] burst_left;  // bytes from this beat on
  logic [31:0] burst_address;  // its first byte
  logic [11:0] burst_bytes;
  logic stopping;
  logic spoiled;  // a beat of the burst failed

  logic [2:0] lane;
  logic [3:0] lane_bytes;  // from the beat's first byte to the end of the bus word
  logic [3:0] beat_bytes;
  logic [7:0] strobe;
  logic beat;
  logic burst_ends;
  logic last_beat;
  logic beat_failed;

  // Where the transfer goes on after the burst: in the row, in the next row or in the next plane.
  logic at_end;
  logic [31:0] next_address;
  logic [ADDRESS_BITS-1:0] next_offset;
  logic [31:0] next_left;
  logic [11:0] next_bytes;
  logic [31:0] next_row_bus;
  logic [ADDRESS_BITS-1:0] next_row_scratchpad;
  logic takes_burst;

  function automatic logic [11:0] bytes_of_burst(input logic [11:0] first, input logic [31:0] left);
    logic [12:0] bytes;
    bytes = 13'h1000 - {1'b0, first};
    if (bytes > 13'(BURST_BYTES)) bytes = 13'(BURST_BYTES);
    return left < 32'(bytes) ? left[11:0] : bytes[11:0];
  endfunction

  // ---- Beats ----

  assign lane = address[2:0];
  assign lane_bytes = 4'd8 - 4'(lane);
  assign beat_bytes = burst_left < 12'(lane_bytes) ? burst_left[3:0] : lane_bytes;
  assign strobe = ~(8'hFF << beat_bytes) << lane;
  assign last_beat = burst_left == 12'(beat_bytes);

  assign beat_failed = rresp[1];
  assign rready = busy && !is_out && !arvalid;
  assign bready = busy && is_out;

  assign scratchpad_write_valid = rvalid && rready && !beat_failed && !spoiled && !stopping;
  assign scratchpad_write_address = offset - ADDRESS_BITS'(lane);
  assign scratchpad_write_data = rdata;
  assign scratchpad_write_strobe = strobe;

  assign scratchpad_read_valid = busy && is_out && burst_left != 12'd0 && (!wvalid || wready);
  assign scratchpad_read_address = offset - ADDRESS_BITS'(lane);
  assign wdata = scratchpad_read_data;

  assign beat = is_out ? scratchpad_read_valid : rvalid && rready;
  assign burst_ends = is_out ? bvalid && bready : rvalid && rready && last_beat;

  always_comb begin
    moved_bytes = 12'd0;
    if (is_out) begin
      if (bvalid && bready && !bresp[1]) moved_bytes = burst_bytes;
    end else if (scratchpad_write_valid) begin
      moved_bytes = 12'(beat_bytes);
    end
  end

  // ---- Bursts ----

  assign at_end = row_left == 32'd0 && rows_left == 32'd0 && planes_left == 32'd0;
  assign takes_burst = start || (burst_ends && !stopping && !stop && !spoiled && !at_end &&
                                 !(is_out ? bresp[1] : beat_failed));

  always_comb begin
    next_row_bus = row_bus;
    next_row_scratchpad = row_scratchpad;
    if (start) begin
      next_row_bus = bus_start;
      next_row_scratchpad = scratchpad_start;
    end else if (row_left == 32'd0) begin
      next_row_bus = rows_left != 32'd0 ? row_bus + bus_row_stride : plane_bus + bus_plane_stride;
      next_row_scratchpad = rows_left != 32'd0 ? row_scratchpad + scratchpad_row_stride
                                               : plane_scratchpad + scratchpad_plane_stride;
    end
    if (start || row_left == 32'd0) begin
      next_address = next_row_bus;
      next_offset = next_row_scratchpad;
      next_left = row_bytes;
    end else begin
      next_address = burst_address + 32'(burst_bytes);
      next_offset = is_out ? offset : offset + ADDRESS_BITS'(beat_bytes);
      next_left = row_left;
    end
    next_bytes = bytes_of_burst(next_address[11:0], next_left);
  end

  assign awsize  = EIGHT_BYTES;
  assign arsize  = EIGHT_BYTES;
  assign awburst = INCREMENTING;
  assign arburst = INCREMENTING;
  assign awaddr  = {burst_address[31:3], 3'b000};
  assign araddr  = awaddr;
  assign awlen   = 8'((12'(burst_address[2:0]) + burst_bytes - 12'd1) >> 3);
  assign arlen   = awlen;

  always_ff @(posedge clk) begin
    done   <= 1'b0;
    failed <= 1'b0;
    if (!rst_n) begin
      busy <= 1'b0;
      arvalid <= 1'b0;
      awvalid <= 1'b0;
      wvalid <= 1'b0;
      stopping <= 1'b0;
      spoiled <= 1'b0;
    end else if (busy || start) begin
      if (arready) arvalid <= 1'b0;
      if (awready) awvalid <= 1'b0;
      if (wready) wvalid <= 1'b0;
      if (stop) stopping <= 1'b1;

      if (beat) begin
        address <= address + 32'(beat_bytes);
        offset <= offset + ADDRESS_BITS'(beat_bytes);
        burst_left <= burst_left - 12'(beat_bytes);
        if (is_out) begin
          wvalid <= 1'b1;
          wstrb  <= strobe;
          wlast  <= last_beat;
        end else if (beat_failed && !spoiled) begin
          spoiled <= 1'b1;
          failed_decode <= rresp[0];
          failed_address <= address;
        end
      end
      if (burst_ends) begin
        if (is_out && bresp[1]) begin
          failed_decode  <= bresp[0];
          failed_address <= burst_address;
        end
        if (!takes_burst) begin
          busy <= 1'b0;
          stopping <= 1'b0;
          spoiled <= 1'b0;
          if (!stopping && !stop) begin
            failed <= spoiled || (is_out ? bresp[1] : beat_failed);
            done   <= !spoiled && !(is_out ? bresp[1] : beat_failed);
          end
        end
      end
      if (takes_burst) begin
        busy <= 1'b1;
        arvalid <= !is_out;
        awvalid <= is_out;
        address <= next_address;
        offset <= next_offset;
        burst_address <= next_address;
        burst_bytes <= next_bytes;
        burst_left <= next_bytes;
        row_left <= next_left - 32'(next_bytes);
        row_bus <= next_row_bus;
        row_scratchpad <= next_row_scratchpad;
        if (start) begin
          rows_left   <= rows - 32'd1;
          planes_left <= planes - 32'd1;
        end else if (row_left == 32'd0) begin
          rows_left <= rows_left != 32'd0 ? rows_left - 32'd1 : rows - 32'd1;
          if (rows_left == 32'd0) planes_left <= planes_left - 32'd1;
        end
        if (start || (row_left == 32'd0 && rows_left == 32'd0)) begin
          plane_bus <= next_row_bus;
          plane_scratchpad <= next_row_scratchpad;
        end
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, rlast};  // beats are counted
endmodule
