// SPDX-License-Identifier: Apache-2.0
// Issues single AXI4 bursts of any kind, as registers say, and shows what came back:
//
//   0x00 ADDRESS  0x04 SHAPE: beats - 1 [7:0], size [10:8], kind [13:12], id [19:16]
//   0x08 READ     a write requests a read burst; several may be on their way
//   0x0c WRITE    a write requests a write burst, of the next beats of DATA and STROBES
//   0x10 COUNTS   read beats [15:0], write responses [31:16]
//   0x14 CLEAR    a write sets all counts to 0
//   0x18 LAST     cycle of the last request [15:0] and of the last answer [31:16]
//   0x400 + 8 n   beat n: DATA, both halves; before a write what is sent, after a read what came
//   0x800 + 4 n   of beat n the strobes [7:0], rresp [9:8], rlast [10], rid [15:12];
//                 of write response n bresp [17:16], bid [23:20]
//
// AXI4-Lite has 64 bits here. Requests wait in queues of 4, so that several are outstanding.
module burster #(
    parameter int WAIT = 0  // cycles for which each beat of data is kept waiting
) (
    input  logic        aclk,
    input  logic        aresetn,

    input  logic [11:0] s_awaddr,
    input  logic        s_awvalid,
    output logic        s_awready,
    input  logic [2:0]  s_awprot,
    input  logic [63:0] s_wdata,
    input  logic [7:0]  s_wstrb,
    input  logic        s_wvalid,
    output logic        s_wready,
    output logic        s_bvalid,
    input  logic        s_bready,
    input  logic [11:0] s_araddr,
    input  logic        s_arvalid,
    output logic        s_arready,
    input  logic [2:0]  s_arprot,
    output logic [63:0] s_rdata,
    output logic        s_rvalid,
    input  logic        s_rready,

    output logic [3:0]  m_awid,
    output logic [39:0] m_awaddr,
    output logic [7:0]  m_awlen,
    output logic [2:0]  m_awsize,
    output logic [1:0]  m_awburst,
    output logic [3:0]  m_awcache,
    output logic        m_awvalid,
    input  logic        m_awready,
    output logic [63:0] m_wdata,
    output logic [7:0]  m_wstrb,
    output logic        m_wlast,
    output logic        m_wvalid,
    input  logic        m_wready,
    input  logic [3:0]  m_bid,
    input  logic [1:0]  m_bresp,
    input  logic        m_bvalid,
    output logic        m_bready,
    output logic [3:0]  m_arid,
    output logic [39:0] m_araddr,
    output logic [7:0]  m_arlen,
    output logic [2:0]  m_arsize,
    output logic [1:0]  m_arburst,
    output logic        m_arvalid,
    input  logic        m_arready,
    input  logic [3:0]  m_rid,
    input  logic [63:0] m_rdata,
    input  logic [1:0]  m_rresp,
    input  logic        m_rlast,
    input  logic        m_rvalid,
    output logic        m_rready
);
    typedef struct packed {
        logic [39:0] address;
        logic [3:0]  id;
        logic [1:0]  kind;
        logic [2:0]  size;
        logic [7:0]  length;
    } request_t;

    logic [39:0] address;
    logic [31:0] shape;
    logic [63:0] data[128];
    logic [7:0]  strobes[128];
    logic [7:0]  answers[128];
    logic [7:0]  responses[128];
    logic [15:0] reads, writes, clock, requested, answered;

    request_t    read_queue[4], write_queue[4], data_queue[4];
    logic [2:0]  read_in, read_out, write_in, write_out, data_out;
    logic [7:0]  beat, sent;
    logic [7:0]  waited;

    request_t read_first, write_first, data_first;
    assign read_first  = read_queue[read_out[1:0]];
    assign write_first = write_queue[write_out[1:0]];
    assign data_first  = data_queue[data_out[1:0]];

    assign m_arvalid = read_in != read_out;
    assign {m_araddr, m_arid, m_arburst, m_arsize, m_arlen} = read_first;
    assign m_rready  = 16'(waited) == WAIT;
    assign m_awvalid = write_in != write_out;
    assign {m_awaddr, m_awid, m_awburst, m_awsize, m_awlen} = write_first;
    assign m_awcache = 4'h3;
    assign m_wvalid  = write_in != data_out && 16'(waited) == WAIT;
    assign m_wdata   = data[7'(sent)];
    assign m_wstrb   = strobes[7'(sent)];
    assign m_wlast   = beat == data_first.length;
    assign m_bready  = 1'b1;

    logic     writes_register;
    request_t request;
    assign writes_register = s_awvalid && s_wvalid && !s_bvalid;
    assign s_awready       = writes_register;
    assign s_wready        = writes_register;
    assign s_arready       = !s_rvalid;
    assign request         = {address, shape[19:16], shape[13:12], shape[10:8], shape[7:0]};

    always_ff @(posedge aclk) begin
        clock <= clock + 1;
        if (s_bready) s_bvalid <= 1'b0;
        if (s_rready) s_rvalid <= 1'b0;
        if (s_arvalid && s_arready) begin
            s_rvalid <= 1'b1;
            if (s_araddr[11:10] == 2'd1) s_rdata <= data[s_araddr[9:3]];
            else if (s_araddr[11])
                s_rdata <= {8'b0, responses[{s_araddr[8:3], 1'b1}], answers[{s_araddr[8:3], 1'b1}],
                            strobes[{s_araddr[8:3], 1'b1}],
                            8'b0, responses[{s_araddr[8:3], 1'b0}], answers[{s_araddr[8:3], 1'b0}],
                            strobes[{s_araddr[8:3], 1'b0}]};
            else if (s_araddr[11:3] == 2) s_rdata <= {32'b0, writes, reads};
            else if (s_araddr[11:3] == 3) s_rdata <= {32'b0, answered, requested};
            else s_rdata <= {shape, address[31:0]};
        end
        if (writes_register) begin
            s_bvalid <= 1'b1;
            if (s_awaddr[11:10] == 2'd1) begin
                for (int i = 0; i < 8; ++i)
                    if (s_wstrb[i]) data[s_awaddr[9:3]][8*i+:8] <= s_wdata[8*i+:8];
            end else if (s_awaddr[11]) begin
                if (s_wstrb[0]) strobes[{s_awaddr[8:3], 1'b0}] <= s_wdata[7:0];
                if (s_wstrb[4]) strobes[{s_awaddr[8:3], 1'b1}] <= s_wdata[39:32];
            end else if (s_awaddr[11:3] == 0) begin
                if (s_wstrb[0]) address[31:0] <= s_wdata[31:0];
                if (s_wstrb[4]) shape <= s_wdata[63:32];
            end else if (s_awaddr[11:3] == 1 && s_wstrb[0]) begin
                read_queue[read_in[1:0]] <= request;
                read_in <= read_in + 1;
            end else if (s_awaddr[11:3] == 1) begin
                write_queue[write_in[1:0]] <= request;
                data_queue[write_in[1:0]] <= request;
                write_in <= write_in + 1;
            end else if (s_awaddr[11:3] == 2) begin
                reads  <= '0;
                writes <= '0;
                sent   <= '0;
            end
        end

        waited <= (16'(waited) == WAIT) ? '0 : waited + 1;
        if (m_arvalid && m_arready) begin
            read_out  <= read_out + 1;
            requested <= clock;
        end
        if (m_rvalid && m_rready) begin
            data[7'(reads)]    <= m_rdata;
            answers[7'(reads)] <= {m_rid, 1'b0, m_rlast, m_rresp};
            reads              <= reads + 1;
            answered           <= clock;
        end
        if (m_awvalid && m_awready) begin
            write_out <= write_out + 1;
            requested <= clock;
        end
        // A beat that waits is kept: waited stays while it is not taken.
        if (m_wvalid && !m_wready) waited <= waited;
        if (m_wvalid && m_wready) begin
            sent <= sent + 1;
            beat <= m_wlast ? '0 : beat + 1;
            if (m_wlast) data_out <= data_out + 1;
        end
        if (m_bvalid) begin
            responses[7'(writes)] <= {m_bid, 2'b0, m_bresp};
            writes                <= writes + 1;
            answered              <= clock;
        end
        if (!aresetn) begin
            {s_bvalid, s_rvalid} <= '0;
            {read_in, read_out, write_in, write_out, data_out} <= '0;
            {beat, sent, waited, reads, writes, clock} <= '0;
            {address, shape} <= '0;
        end
    end
endmodule
