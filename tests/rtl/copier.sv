// SPDX-License-Identifier: Apache-2.0
// Copies bytes from one address to another, over AXI4, by registers on AXI4-Lite:
//
//   0x00 SOURCE  0x04 DESTINATION  0x08 BYTES  0x0c START (write)
//   0x10 STATUS  bit 0 busy, bit 1 done, bits 5:4 worst read response, bits 7:6 write response;
//                a write clears done and the interrupt
//   0x14 ID      0xc0b1e500 + DATA / 8, read only; writes answer SLVERR
//   0x18         reads answer SLVERR
//   0x1c MISTAKE number of a mistake in the use of a bus that is made from here on
//
// Chunks of at most CHUNK bytes, and none crosses 4 KiB: a read burst, then a write burst.
module copier #(
    parameter int DATA  = 64,
    parameter int CHUNK = 64,
    parameter bit BAD_RESET = 0  // a request during the reset
) (
    input  logic              clk,
    input  logic              rst_n,
    output logic              irq,

    input  logic [7:0]        s_axil_awaddr,
    input  logic              s_axil_awvalid,
    output logic              s_axil_awready,
    input  logic [31:0]       s_axil_wdata,
    input  logic [3:0]        s_axil_wstrb,
    input  logic              s_axil_wvalid,
    output logic              s_axil_wready,
    output logic [1:0]        s_axil_bresp,
    output logic              s_axil_bvalid,
    input  logic              s_axil_bready,
    input  logic [7:0]        s_axil_araddr,
    input  logic              s_axil_arvalid,
    output logic              s_axil_arready,
    output logic [31:0]       s_axil_rdata,
    output logic [1:0]        s_axil_rresp,
    output logic              s_axil_rvalid,
    input  logic              s_axil_rready,

    output logic [31:0]       m_axi_awaddr,
    output logic [7:0]        m_axi_awlen,
    output logic [2:0]        m_axi_awsize,
    output logic [1:0]        m_axi_awburst,
    output logic              m_axi_awvalid,
    input  logic              m_axi_awready,
    output logic [DATA-1:0]   m_axi_wdata,
    output logic [DATA/8-1:0] m_axi_wstrb,
    output logic              m_axi_wlast,
    output logic              m_axi_wvalid,
    input  logic              m_axi_wready,
    input  logic [1:0]        m_axi_bresp,
    input  logic              m_axi_bvalid,
    output logic              m_axi_bready,
    output logic [31:0]       m_axi_araddr,
    output logic [7:0]        m_axi_arlen,
    output logic [2:0]        m_axi_arsize,
    output logic [1:0]        m_axi_arburst,
    output logic              m_axi_arvalid,
    input  logic              m_axi_arready,
    input  logic [DATA-1:0]   m_axi_rdata,
    input  logic [1:0]        m_axi_rresp,
    input  logic              m_axi_rlast,
    input  logic              m_axi_rvalid,
    output logic              m_axi_rready
);
    localparam int BYTES = DATA / 8;
    localparam int LANE  = $clog2(BYTES);

    typedef enum logic [2:0] {IDLE, AR, R, AW, W, B} state_t;

    state_t      state;
    logic [31:0] source, destination, left;
    logic [1:0]  read_response, write_response;
    logic        done;
    logic [7:0]  buffer[CHUNK];
    logic [12:0] at;      // bytes of the chunk that were moved
    logic [8:0]  beat;
    logic [15:0] age;     // cycles in a state, of some mistakes
    logic [7:0]  mistake;

    // ---- The chunk: up to 4 KiB of either address ----
    logic [12:0] to_source_end, to_destination_end, chunk;
    always_comb begin
        to_source_end      = 13'h1000 - {1'b0, source[11:0]};
        to_destination_end = 13'h1000 - {1'b0, destination[11:0]};
        chunk              = CHUNK[12:0];
        if (left < {19'b0, chunk}) chunk = left[12:0];
        if (mistake != 3 && to_source_end < chunk) chunk = to_source_end;
        if (mistake != 3 && to_destination_end < chunk) chunk = to_destination_end;
    end

    logic [12:0] read_beats, write_beats;
    assign read_beats  = (13'(source[LANE-1:0]) + chunk + 13'(BYTES - 1)) >> LANE;
    assign write_beats = (13'(destination[LANE-1:0]) + chunk + 13'(BYTES - 1)) >> LANE;

    // ---- Requests ----
    assign m_axi_arvalid = (BAD_RESET && !rst_n) || (state == AR && !(mistake == 4 && age == 1));
    assign m_axi_araddr  = source + ((mistake == 5) ? 32'(age) * BYTES : 0);
    assign m_axi_arlen   = 8'(read_beats - 13'd1);
    assign m_axi_arsize  = (mistake == 8) ? 3'd7 : 3'(LANE);
    assign m_axi_arburst = (mistake == 9) ? 2'b11 : (mistake == 13) ? 2'b10 : 2'b01;
    assign m_axi_rready  = state == R;
    assign m_axi_awvalid = state == AW && !(mistake == 16 && age == 1);
    assign m_axi_awaddr  = destination;
    assign m_axi_awlen   = 8'(write_beats - 13'd1);
    assign m_axi_awsize  = 3'(LANE);
    assign m_axi_awburst = 2'b01;
    assign m_axi_wvalid  = state == W && !(mistake == 17 && age == 1);
    assign m_axi_bready  = state == B;

    logic last_beat;
    assign last_beat   = 13'(beat) + 1 == write_beats;
    assign m_axi_wlast = (mistake == 1) ? 13'(beat) + 2 == write_beats : (mistake == 2) ? 1'b0 : last_beat;

    // ---- Lanes ----
    logic [LANE-1:0] read_lane, write_lane;  // of the first byte of the beat
    logic [12:0]     read_room, write_room;  // bytes of the beat
    always_comb begin
        read_lane   = (beat == 0) ? source[LANE-1:0] : '0;
        write_lane  = (beat == 0) ? destination[LANE-1:0] : '0;
        read_room   = 13'(BYTES) - 13'(read_lane);
        write_room  = 13'(BYTES) - 13'(write_lane);
        if (chunk - at < read_room) read_room = chunk - at;
        if (chunk - at < write_room) write_room = chunk - at;
        m_axi_wdata = '0;
        m_axi_wstrb = (mistake == 6) ? '1 : '0;
        for (int i = 0; i < BYTES; ++i) begin
            if (13'(i) >= 13'(write_lane) && 13'(i) < 13'(write_lane) + write_room) begin
                m_axi_wdata[8*i+:8] = buffer[$clog2(CHUNK)'(at + 13'(i) - 13'(write_lane))];
                m_axi_wstrb[i]      = 1'b1;
            end
        end
        if (mistake == 7) m_axi_wdata[7:0] = age[7:0];
    end

    // ---- Registers ----
    logic writes, start;
    assign writes         = s_axil_awvalid && (s_axil_wvalid || mistake == 23) && !s_axil_bvalid &&
                            !(mistake == 18 && s_axil_awaddr == 8'h20);
    assign s_axil_awready = writes;
    assign s_axil_wready  = writes;
    assign s_axil_arready = !s_axil_rvalid && mistake != 10;
    assign start          = writes && s_axil_awaddr == 8'h0c;
    assign irq            = done;

    always_ff @(posedge clk) begin
        if (s_axil_rready || mistake == 22) s_axil_rvalid <= 1'b0;
        if (s_axil_bready || mistake == 21) s_axil_bvalid <= 1'b0;
        if (mistake == 15 && state == B) s_axil_bvalid <= 1'b1;
        if (s_axil_arvalid && s_axil_arready) begin
            s_axil_rvalid <= mistake != 19;
            s_axil_rresp  <= (s_axil_araddr == 8'h18) ? 2'b10 : 2'b00;
            case (s_axil_araddr)
                8'h00:   s_axil_rdata <= source;
                8'h04:   s_axil_rdata <= destination;
                8'h08:   s_axil_rdata <= left;
                8'h10:   s_axil_rdata <= {24'b0, write_response, read_response, 2'b0, done, state != IDLE};
                8'h14:   s_axil_rdata <= 32'hc0b1e500 + 32'(BYTES);
                default: s_axil_rdata <= 32'h0;
            endcase
        end
        if (writes) begin
            s_axil_bvalid <= 1'b1;
            s_axil_bresp  <= (s_axil_awaddr == 8'h14) ? 2'b10 : 2'b00;
            if (s_axil_awaddr == 8'h10) done <= 1'b0;
        end
        if (writes && &s_axil_wstrb) begin
            case (s_axil_awaddr)
                8'h00:   source <= s_axil_wdata;
                8'h04:   destination <= s_axil_wdata;
                8'h08:   left <= s_axil_wdata;
                8'h1c:   mistake <= s_axil_wdata[7:0];
                default: ;
            endcase
        end

        // ---- Copying ----
        age <= age + 1;
        case (state)
            IDLE: if (start) begin
                read_response  <= 2'b00;
                write_response <= 2'b00;
                age            <= '0;
                if (left == 0) done <= 1'b1;
                else state <= AR;
            end
            AR: if (m_axi_arvalid && m_axi_arready) begin
                state <= R;
                at    <= '0;
                beat  <= '0;
            end
            R: if (m_axi_rvalid) begin
                for (int i = 0; i < BYTES; ++i)
                    if (13'(i) >= 13'(read_lane) && 13'(i) < 13'(read_lane) + read_room)
                        buffer[$clog2(CHUNK)'(at + 13'(i) - 13'(read_lane))] <= m_axi_rdata[8*i+:8];
                at   <= at + read_room;
                beat <= beat + 1;
                if (m_axi_rresp > read_response) read_response <= m_axi_rresp;
                if (m_axi_rlast) begin
                    state <= AW;
                    age   <= '0;
                end
            end
            AW: if (m_axi_awvalid && m_axi_awready) begin
                state <= W;
                at    <= '0;
                beat  <= '0;
                age   <= '0;
            end
            W: if (m_axi_wvalid && m_axi_wready) begin
                at   <= at + write_room;
                beat <= beat + 1;
                if (last_beat) state <= B;
            end
            B: if (m_axi_bvalid) begin
                source      <= source + 32'(chunk);
                destination <= destination + 32'(chunk);
                left        <= left - 32'(chunk);
                age         <= '0;
                if (m_axi_bresp > write_response) write_response <= m_axi_bresp;
                if (left == 32'(chunk) || m_axi_bresp != 0 || read_response != 0) begin
                    state <= IDLE;
                    done  <= 1'b1;
                end else begin
                    state <= AR;
                end
            end
            default: state <= IDLE;
        endcase
        if (mistake == 11 && state == AW) $fatal(1, "a planted end");
        if (mistake == 12 && state == AW) $finish;

        if (!rst_n) begin
            state         <= IDLE;
            done          <= 1'b0;
            source        <= '0;
            destination   <= '0;
            left          <= '0;
            mistake       <= '0;
            s_axil_rvalid <= 1'b0;
            s_axil_bvalid <= 1'b0;
        end
    end

    always_ff @(posedge clk)
        if (rst_n && mistake == 20) assert (state != W) else $error("a planted assertion");
endmodule
