// SPDX-License-Identifier: Apache-2.0
//
// A small Chocolate: a systolic array for int8 networks with a queue of commands, a scratchpad of
// banks, an accumulator, and a DMA engine that works while the array does. AXI4-Lite for its
// registers, AXI4 of 64 bits for memory.

module chocolate
    import chocolate_pkg::*;
    import command_rules_pkg::verdict_t;
#(
    parameter int ROWS = 4,                  // of the array
    parameter int COLUMNS = 4,
    parameter int BANKS = 8,                 // of the scratchpad, a power of two
    parameter int BANK_BYTES = 2048,         // a power of two
    parameter int ACCUMULATOR_BYTES = 4096,  // a power of two
    parameter int QUEUE_DEPTH = 4,           // commands, at most 32
    parameter int BURST_BYTES = 256          // on the bus
) (
    input  logic clk,
    input  logic rst_n,
    output logic irq,

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
    output logic        m_axi_rready
);
    localparam int ByteReaders = ROWS * COLUMNS + COLUMNS + 2;
    localparam int SlotBits = $clog2(ROWS * COLUMNS + 1);

    // ---- Registers ----

    logic        request_valid;
    logic        request_write;
    logic [11:0] request_offset;
    logic [31:0] request_data;
    logic [ 3:0] request_strobe;
    logic [31:0] response_data;
    logic        hold_reads;
    logic        hold_writes;
    logic        takes_araddr;

    // While commands are checked reads wait, and writes but for those of the next command.
    assign s_axil_arready = takes_araddr && !hold_reads;

    axi_lite_registers #(
        .ADDRESS_BITS(12)
    ) bus_of_registers (
        .clk,
        .rst_n,
        .hold(hold_writes),
        .awaddr(s_axil_awaddr),
        .awvalid(s_axil_awvalid),
        .awready(s_axil_awready),
        .wdata(s_axil_wdata),
        .wstrb(s_axil_wstrb),
        .wvalid(s_axil_wvalid),
        .wready(s_axil_wready),
        .bresp(s_axil_bresp),
        .bvalid(s_axil_bvalid),
        .bready(s_axil_bready),
        .araddr(s_axil_araddr),
        .arvalid(s_axil_arvalid && !hold_reads),
        .arready(takes_araddr),
        .rdata(s_axil_rdata),
        .rresp(s_axil_rresp),
        .rvalid(s_axil_rvalid),
        .rready(s_axil_rready),
        .request_valid,
        .request_write,
        .request_offset,
        .request_data,
        .request_strobe,
        .response_data
    );

    logic check_start;
    logic check_is_transfer;
    logic is_enqueued;
    transfer_t transfer_registers;
    job_registers_t job_registers;
    logic check_done;
    verdict_t verdict;
    logic append;
    logic clear;
    logic drop;
    logic [5:0] commands_left;
    logic dma_busy;
    logic array_busy;
    logic dma_has_commands;
    logic array_has_commands;
    logic [31:0] bytes_left;
    logic [31:0] cycles_left;
    logic dma_start_ended;
    logic array_start_ended;
    logic command_ended;
    logic queue_ended;
    logic transfer_failed;
    verdict_t transfer_verdict;
    logic job_failed;
    verdict_t job_verdict;
    logic reset_counters;
    logic counter_read;
    logic [4:0] counter_number;
    logic [31:0] counter_value;

    register_file #(
        .ROWS(ROWS),
        .COLUMNS(COLUMNS),
        .BANKS(BANKS),
        .BANK_BYTES(BANK_BYTES),
        .ACCUMULATOR_BYTES(ACCUMULATOR_BYTES),
        .QUEUE_DEPTH(QUEUE_DEPTH)
    ) registers (
        .transfer(transfer_registers),
        .job(job_registers),
        .*
    );

    // ---- Commands ----

    logic [BANKS-1:0] reads;
    logic [BANKS-1:0] writes;
    logic [31:0] bus_last;
    logic [31:0] bytes;
    transfer_t transfer;
    job_t job;

    command_check #(
        .ROWS(ROWS),
        .COLUMNS(COLUMNS),
        .BANKS(BANKS),
        .BANK_BYTES(BANK_BYTES),
        .ACCUMULATOR_BYTES(ACCUMULATOR_BYTES)
    ) check (
        .start(check_start),
        .is_transfer(check_is_transfer),
        .done(check_done),
        .*
    );

    logic dma_start;
    logic dma_stop;
    transfer_t dma_transfer;
    logic dma_runs;
    logic dma_engine_busy;
    logic dma_done;
    logic dma_failed;
    logic [11:0] moved_bytes;
    logic array_start;
    logic array_stop;
    job_t array_job;
    logic array_runs;
    logic array_done;
    logic array_failed;

    command_queue #(
        .DEPTH(QUEUE_DEPTH),
        .BANKS(BANKS)
    ) queue (
        .is_transfer(check_is_transfer),
        .*
    );

    // ---- Engines ----

    logic dma_failed_decode;
    logic [31:0] dma_failed_address;
    logic dma_write;
    address_t dma_write_address;
    logic [63:0] dma_write_data;
    logic [7:0] dma_write_strobe;
    logic dma_read;
    address_t dma_read_address;
    logic [63:0] dma_read_data;

    dma_engine #(
        .SCRATCHPAD_ADDRESS_BITS(ADDRESS_BITS),
        .BURST_BYTES(BURST_BYTES)
    ) dma (
        .clk,
        .rst_n,
        .start(dma_start && !dma_stop),
        .stop(dma_stop),
        .is_out(dma_transfer.direction[0]),
        .bus_start(dma_transfer.bus_address),
        .scratchpad_start(dma_transfer.scratchpad_start[ADDRESS_BITS-1:0]),
        .row_bytes(dma_transfer.row_bytes),
        .rows(dma_transfer.rows),
        .planes(dma_transfer.planes),
        .bus_row_stride(dma_transfer.bus_row_stride),
        .bus_plane_stride(dma_transfer.bus_plane_stride),
        .scratchpad_row_stride(dma_transfer.scratchpad_row_stride[ADDRESS_BITS-1:0]),
        .scratchpad_plane_stride(dma_transfer.scratchpad_plane_stride[ADDRESS_BITS-1:0]),
        .busy(dma_engine_busy),
        .done(dma_done),
        .failed(dma_failed),
        .failed_decode(dma_failed_decode),
        .failed_address(dma_failed_address),
        .moved_bytes,
        .scratchpad_write_valid(dma_write),
        .scratchpad_write_address(dma_write_address),
        .scratchpad_write_data(dma_write_data),
        .scratchpad_write_strobe(dma_write_strobe),
        .scratchpad_read_valid(dma_read),
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

    // A transfer beyond what is mapped is reported as a whole.
    assign transfer_failed = dma_runs && dma_failed;
    assign transfer_verdict = dma_failed_decode
        ? '{OUT_OF_RANGE, dma_transfer.bus_address}
        : '{BUS_ERROR, dma_failed_address};

    logic computes;
    logic [SlotBits-1:0] slots;
    logic [SlotBits-1:0] useful_slots;
    address_t bad_shift_address;
    logic byte_enable[ByteReaders];
    address_t byte_address[ByteReaders];
    logic [7:0] byte_data[ByteReaders];
    logic word_enable;
    address_t word_address[2];
    logic [31:0] word_data[2];
    logic array_write;
    address_t array_address;
    logic [7:0] array_data;

    systolic_array #(
        .ROWS(ROWS),
        .COLUMNS(COLUMNS),
        .ACCUMULATOR_BYTES(ACCUMULATOR_BYTES)
    ) array (
        .start(array_start && !array_stop),
        .stop(array_stop),
        .job(array_job),
        .done(array_done),
        .failed(array_failed),
        .failed_address(bad_shift_address),
        .write(array_write),
        .write_address(array_address),
        .write_data(array_data),
        .*
    );

    assign job_failed = array_runs && array_done && array_failed;
    assign job_verdict = '{INVALID_ARGUMENT, 32'(bad_shift_address)};

    scratchpad #(
        .BANKS(BANKS),
        .BANK_BYTES(BANK_BYTES),
        .BYTE_READERS(ByteReaders),
        .WORD_READERS(2)
    ) storage (
        .*
    );

    counters #(
        .SLOT_BITS(SlotBits)
    ) counting (
        .array_works(array_runs),
        .dma_works(dma_runs || dma_engine_busy),
        .job_starts(array_start),
        .job_ends(array_runs && array_done && !array_failed),
        .bytes_in(dma_transfer.direction[0] ? '0 : moved_bytes),
        .bytes_out(dma_transfer.direction[0] ? moved_bytes : '0),
        .read(counter_read),
        .number(counter_number),
        .value(counter_value),
        .*
    );

endmodule
