// SPDX-License-Identifier: Apache-2.0
// Strawberry: a systolic array for int8 networks, with a DMA engine and a scratchpad. README.md says
// how its parts hang together, sim/registers/systolic_array.toml what its registers do.
module strawberry
  import strawberry_pkg::*;
  import systolic_array_registers_pkg::*;
#(
    parameter int unsigned ROWS = 8,
    parameter int unsigned COLUMNS = 8,
    parameter int unsigned DRAIN_CYCLES = 8,  // of a fold, at least ROWS
    parameter int unsigned SCRATCHPAD_BYTES = 65536  // a power of two, at most 131072
) (
    input logic clk,
    input logic rst_n,

    input  logic [11:0] s_axil_awaddr,
    input  logic        s_axil_awvalid,
    output logic        s_axil_awready,
    input  logic [31:0] s_axil_wdata,
    input  logic [ 3:0] s_axil_wstrb,
    input  logic        s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [ 1:0] s_axil_bresp,
    output logic        s_axil_bvalid,
    input  logic        s_axil_bready,
    input  logic [11:0] s_axil_araddr,
    input  logic        s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [ 1:0] s_axil_rresp,
    output logic        s_axil_rvalid,
    input  logic        s_axil_rready,

    output logic [31:0] m_axi_awaddr,
    output logic [ 7:0] m_axi_awlen,
    output logic [ 2:0] m_axi_awsize,
    output logic [ 1:0] m_axi_awburst,
    output logic        m_axi_awvalid,
    input  logic        m_axi_awready,
    output logic [63:0] m_axi_wdata,
    output logic [ 7:0] m_axi_wstrb,
    output logic        m_axi_wlast,
    output logic        m_axi_wvalid,
    input  logic        m_axi_wready,
    input  logic [ 1:0] m_axi_bresp,
    input  logic        m_axi_bvalid,
    output logic        m_axi_bready,
    output logic [31:0] m_axi_araddr,
    output logic [ 7:0] m_axi_arlen,
    output logic [ 2:0] m_axi_arsize,
    output logic [ 1:0] m_axi_arburst,
    output logic        m_axi_arvalid,
    input  logic        m_axi_arready,
    input  logic [63:0] m_axi_rdata,
    input  logic [ 1:0] m_axi_rresp,
    input  logic        m_axi_rlast,
    input  logic        m_axi_rvalid,
    output logic        m_axi_rready,

    output logic irq
);
  localparam int unsigned ADDRESS_BITS = $clog2(SCRATCHPAD_BYTES);
  typedef logic [ADDRESS_BITS-1:0] address_t;

  // ---- Registers ----

  logic request_valid, request_write, hold;
  logic [11:0] request_offset;
  logic [31:0] request_data, response_data;
  logic [3:0] request_strobe;

  registers_t registers;
  logic clear, reset_counters, dma_start, array_start;

  logic dma_busy, dma_ended, dma_failed;
  status_t dma_status;
  logic [31:0] dma_address, dma_bytes_left;
  logic array_busy, array_ended, array_failed;
  status_t array_status;
  logic [31:0] array_address, array_cycles_left;

  logic counter_read;
  logic [4:0] counter_word;
  logic [31:0] counter_data;

  axi_lite_registers bus (
      .clk,
      .rst_n,
      .awaddr (s_axil_awaddr),
      .awvalid(s_axil_awvalid),
      .awready(s_axil_awready),
      .wdata  (s_axil_wdata),
      .wstrb  (s_axil_wstrb),
      .wvalid (s_axil_wvalid),
      .wready (s_axil_wready),
      .bresp  (s_axil_bresp),
      .bvalid (s_axil_bvalid),
      .bready (s_axil_bready),
      .araddr (s_axil_araddr),
      .arvalid(s_axil_arvalid),
      .arready(s_axil_arready),
      .rdata  (s_axil_rdata),
      .rresp  (s_axil_rresp),
      .rvalid (s_axil_rvalid),
      .rready (s_axil_rready),
      .*
  );

  logic job_check_start;

  register_file #(
      .ROWS(ROWS),
      .COLUMNS(COLUMNS),
      .SCRATCHPAD_BYTES(SCRATCHPAD_BYTES)
  ) register_file (
      .array_accepted(job_check_start),
      .*
  );

  // ---- START ----

  logic transfer_check_start, transfer_check_done;
  status_t transfer_check_status;
  logic [31:0] transfer_check_address, transfer_bytes;
  logic transfer_start, transfer_busy, transfer_done, transfer_failed;
  logic transfer_failed_decode;
  logic [31:0] transfer_failed_address;
  logic [11:0] moved_bytes;
  logic is_out;

  logic job_check_done, job_fields_valid;
  status_t job_check_status;
  logic [31:0] job_check_address, job_cycles;
  logic [23:0] channel_multiplier;
  logic [47:0] job_macs, job_useful_macs;
  logic job_start, job_ready, job_done, job_failed;
  logic [31:0] job_failed_address, job_cycles_left;
  logic array_runs;

  engine_control engine_control (.*);

  transfer_check #(
      .SCRATCHPAD_BYTES(SCRATCHPAD_BYTES)
  ) transfer_check (
      .clk,
      .rst_n,
      .start(transfer_check_start),
      .direction(registers[DMA_DIRECTION_OFFSET/4]),
      .scratchpad_start(registers[DMA_SCRATCHPAD_START_OFFSET/4]),
      .row_bytes(registers[DMA_ROW_BYTES_OFFSET/4]),
      .rows(registers[DMA_ROWS_OFFSET/4]),
      .planes(registers[DMA_PLANES_OFFSET/4]),
      .scratchpad_row_stride(registers[DMA_SCRATCHPAD_ROW_STRIDE_OFFSET/4]),
      .scratchpad_plane_stride(registers[DMA_SCRATCHPAD_PLANE_STRIDE_OFFSET/4]),
      .done(transfer_check_done),
      .status(transfer_check_status),
      .address(transfer_check_address),
      .total_bytes(transfer_bytes)
  );

  job_check #(
      .ROWS(ROWS),
      .COLUMNS(COLUMNS),
      .DRAIN_CYCLES(DRAIN_CYCLES),
      .SCRATCHPAD_BYTES(SCRATCHPAD_BYTES)
  ) job_check (
      .clk,
      .rst_n,
      .start(job_check_start),
      .registers,
      .fields_valid(job_fields_valid),
      .done(job_check_done),
      .status(job_check_status),
      .address(job_check_address),
      .channel_multiplier,
      .cycles(job_cycles),
      .macs(job_macs),
      .useful_macs(job_useful_macs)
  );

  // ---- How transfers and jobs end ----

  assign is_out = registers[DMA_DIRECTION_OFFSET/4] == DMA_DIRECTION_OUT;
  assign dma_ended = transfer_done && !clear;
  assign array_ended = job_done && !clear;

  always_comb begin
    dma_failed  = transfer_failed && !clear;
    dma_status  = transfer_failed_decode ? OUT_OF_RANGE : BUS_ERROR;
    // Of an address that nobody answers to, the whole buffer is wrong.
    dma_address = transfer_failed_decode ? registers[DMA_BUS_ADDRESS_OFFSET/4]
                                         : transfer_failed_address;
    if (transfer_check_done && transfer_check_status != OK) begin
      dma_failed  = 1'b1;
      dma_status  = transfer_check_status;
      dma_address = transfer_check_address;
    end
    array_failed  = job_failed && !clear;
    array_status  = INVALID_ARGUMENT;
    array_address = job_failed_address;
    if (job_check_done && job_check_status != OK) begin
      array_failed  = 1'b1;
      array_status  = job_check_status;
      array_address = job_check_address;
    end
  end

  assign array_cycles_left = array_busy ? job_cycles_left : 32'd0;

  logic transfer_moves;  // bytes that count

  always_ff @(posedge clk) begin
    if (!rst_n || clear) dma_bytes_left <= 32'd0;
    else if (transfer_check_done && transfer_check_status == OK) dma_bytes_left <= transfer_bytes;
    else if (transfer_moves) dma_bytes_left <= dma_bytes_left - 32'(moved_bytes);
  end

  // ---- Counters ----

  logic computes, drains, transfer_stops;

  // Bytes of a transfer that was stopped are not left.
  assign transfer_moves = transfer_busy && !transfer_stops;
  always_ff @(posedge clk) begin
    if (!rst_n || !transfer_busy) transfer_stops <= 1'b0;
    else if (clear) transfer_stops <= 1'b1;
  end

  counters counters (
      .clk,
      .rst_n,
      .clear(reset_counters),
      .computes,
      .drains,
      .moves(transfer_busy),
      .job_done,
      .macs(job_macs),
      .useful_macs(job_useful_macs),
      .bytes_in(is_out ? 12'd0 : moved_bytes),
      .bytes_out(is_out ? moved_bytes : 12'd0),
      .read_valid(counter_read),
      .read_word(counter_word),
      .read_data(counter_data)
  );

  // ---- The DMA engine ----

  logic dma_write_valid, dma_read_valid;
  address_t dma_write_address, dma_read_address;
  logic [63:0] dma_write_data, dma_read_data;
  logic [7:0] dma_write_strobe;

  dma_engine #(
      .SCRATCHPAD_ADDRESS_BITS(ADDRESS_BITS)
  ) dma_engine (
      .clk,
      .rst_n,
      .start(transfer_start),
      .stop(clear),
      .is_out,
      .bus_start(registers[DMA_BUS_ADDRESS_OFFSET/4]),
      .scratchpad_start(registers[DMA_SCRATCHPAD_START_OFFSET/4][ADDRESS_BITS-1:0]),
      .row_bytes(registers[DMA_ROW_BYTES_OFFSET/4]),
      .rows(registers[DMA_ROWS_OFFSET/4]),
      .planes(registers[DMA_PLANES_OFFSET/4]),
      .bus_row_stride(registers[DMA_BUS_ROW_STRIDE_OFFSET/4]),
      .bus_plane_stride(registers[DMA_BUS_PLANE_STRIDE_OFFSET/4]),
      .scratchpad_row_stride(registers[DMA_SCRATCHPAD_ROW_STRIDE_OFFSET/4][ADDRESS_BITS-1:0]),
      .scratchpad_plane_stride(registers[DMA_SCRATCHPAD_PLANE_STRIDE_OFFSET/4][ADDRESS_BITS-1:0]),
      .busy(transfer_busy),
      .done(transfer_done),
      .failed(transfer_failed),
      .failed_decode(transfer_failed_decode),
      .failed_address(transfer_failed_address),
      .moved_bytes,
      .scratchpad_write_valid(dma_write_valid),
      .scratchpad_write_address(dma_write_address),
      .scratchpad_write_data(dma_write_data),
      .scratchpad_write_strobe(dma_write_strobe),
      .scratchpad_read_valid(dma_read_valid),
      .scratchpad_read_address(dma_read_address),
      .scratchpad_read_data(dma_read_data),
      .awaddr(m_axi_awaddr),
      .awlen(m_axi_awlen),
      .awsize(m_axi_awsize),
      .awburst(m_axi_awburst),
      .awvalid(m_axi_awvalid),
      .awready(m_axi_awready),
      .wdata(m_axi_wdata),
      .wstrb(m_axi_wstrb),
      .wlast(m_axi_wlast),
      .wvalid(m_axi_wvalid),
      .wready(m_axi_wready),
      .bresp(m_axi_bresp),
      .bvalid(m_axi_bvalid),
      .bready(m_axi_bready),
      .araddr(m_axi_araddr),
      .arlen(m_axi_arlen),
      .arsize(m_axi_arsize),
      .arburst(m_axi_arburst),
      .arvalid(m_axi_arvalid),
      .arready(m_axi_arready),
      .rdata(m_axi_rdata),
      .rresp(m_axi_rresp),
      .rlast(m_axi_rlast),
      .rvalid(m_axi_rvalid),
      .rready(m_axi_rready)
  );

  // ---- The array ----

  logic tap_valid[ROWS+1];
  logic [34:0] tap_y[ROWS+1];
  logic [34:0] tap_x[ROWS+1];
  address_t tap_distance[ROWS+1];

  logic row_load[ROWS];
  logic row_valid;
  logic signed [34:0] row_top, row_left;
  address_t row_start;
  address_t column_offset[COLUMNS];
  logic row_read_valid[ROWS];
  address_t row_address[ROWS];
  logic signed [7:0] row_data[ROWS][COLUMNS];
  logic row_data_valid[ROWS];

  logic weights_read_valid;
  address_t weights_address;
  logic signed [7:0] weights[COLUMNS];

  logic parameters_load, parameters_used;
  logic [$clog2(COLUMNS)-1:0] parameters_column;
  address_t bias_address, multiplier_address, shift_address;
  logic [31:0] bias, multiplier;
  logic signed [7:0] shift;

  logic array_step, array_drain, result_row_valid;
  address_t result_row_address;
  logic signed [31:0] sums[COLUMNS];
  logic result_valid[COLUMNS];
  address_t result_address[COLUMNS];
  logic [7:0] result[COLUMNS];

  logic depthwise;
  assign depthwise = registers[OPERATION_OFFSET/4] == OPERATION_DEPTHWISE;

  fold_control #(
      .ROWS(ROWS),
      .COLUMNS(COLUMNS),
      .DRAIN_CYCLES(DRAIN_CYCLES),
      .ADDRESS_BITS(ADDRESS_BITS)
  ) fold_control (
      .prepare(job_fields_valid),
      .cycles(job_cycles),
      .ready(job_ready),
      .start(job_start),
      .done(job_done),
      .failed(job_failed),
      .failed_address(job_failed_address),
      .cycles_left(job_cycles_left),
      .tap_valid(tap_valid[0]),
      .tap_y(tap_y[0]),
      .tap_x(tap_x[0]),
      .tap_distance(tap_distance[0]),
      .*
  );

  for (genvar r = 0; r < ROWS; ++r) begin : gen_rows
    row_feeder #(
        .ADDRESS_BITS(ADDRESS_BITS)
    ) row_feeder (
        .clk,
        .rst_n,
        .load(row_load[r]),
        .load_valid(row_valid),
        .load_top(row_top),
        .load_left(row_left),
        .load_start(row_start),
        .input_height(registers[INPUT_HEIGHT_OFFSET/4][15:0]),
        .input_width(registers[INPUT_WIDTH_OFFSET/4][15:0]),
        .tap_valid(tap_valid[r]),
        .tap_y(tap_y[r]),
        .tap_x(tap_x[r]),
        .tap_distance(tap_distance[r]),
        .next_valid(tap_valid[r+1]),
        .next_y(tap_y[r+1]),
        .next_x(tap_x[r+1]),
        .next_distance(tap_distance[r+1]),
        .read_valid(row_read_valid[r]),
        .read_address(row_address[r])
    );
  end

  systolic_array #(
      .ROWS(ROWS),
      .COLUMNS(COLUMNS)
  ) systolic_array (
      .clk,
      .rst_n,
      .step(array_step),
      .drain(array_drain),
      .clear(job_fields_valid),
      .depthwise,
      .zero_point(registers[INPUT_ZERO_POINT_OFFSET/4][7:0]),
      .row_valid(row_data_valid),
      .row_data,
      .weights,
      .sums
  );

  output_stage #(
      .COLUMNS(COLUMNS),
      .ADDRESS_BITS(ADDRESS_BITS)
  ) output_stage (
      .ort(registers[ROUNDING_OFFSET/4] == ROUNDING_ORT),
      .zero_point(registers[OUTPUT_ZERO_POINT_OFFSET/4][7:0]),
      .lowest(registers[CLIP_LOWEST_OFFSET/4][7:0]),
      .highest(registers[CLIP_HIGHEST_OFFSET/4][7:0]),
      .channel_stride(registers[OFMAP_CHANNEL_STRIDE_OFFSET/4][ADDRESS_BITS-1:0]),
      .load(parameters_load),
      .load_column(parameters_column),
      .load_used(parameters_used),
      .load_bias(bias),
      .load_multiplier(multiplier),
      .load_shift(shift),
      .row_valid(result_row_valid),
      .row_address(result_row_address),
      .*
  );

  scratchpad #(
      .ROWS(ROWS),
      .COLUMNS(COLUMNS),
      .BYTES(SCRATCHPAD_BYTES)
  ) scratchpad (
      .*
  );

  // What the row below the last one would get.
  logic unused;
  assign unused = &{1'b0, tap_valid[ROWS], tap_y[ROWS], tap_x[ROWS], tap_distance[ROWS], array_runs};
endmodule
