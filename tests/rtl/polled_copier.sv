// SPDX-License-Identifier: Apache-2.0
// byte_copier with plain registers, which answer reads at once and take writes while it is not busy, and
// without an interrupt and a reset:
//
//   0x0 SOURCE  0x4 DESTINATION  0x8 BYTES  0xc START (write)  0x10 STATUS: busy, failed
module polled_copier (
    input  logic        clock,

    input  logic        valid,
    output logic        ready,
    input  logic        write,
    input  logic [4:0]  address,
    input  logic [31:0] wdata,
    output logic [31:0] rdata,

    output logic        read_valid,
    input  logic        read_ready,
    output logic [31:0] read_address,
    input  logic [63:0] read_data,
    input  logic        read_data_valid,
    output logic        write_valid,
    input  logic        write_ready,
    output logic [31:0] write_address,
    output logic [63:0] write_data,
    output logic [7:0]  write_strobe
);
    logic [31:0] source, destination, bytes;
    logic        start, busy, done, failed;

    initial begin
        source      = 32'h10000000;
        destination = '0;
        bytes       = '0;
    end

    assign ready = !write || !busy;
    assign start = valid && ready && write && address == 5'hc;

    always_ff @(posedge clock) begin
        if (valid && ready && write) begin
            case (address)
                5'h00:   source <= wdata;
                5'h04:   destination <= wdata;
                5'h08:   bytes <= wdata;
                default: ;
            endcase
        end
    end

    always_comb begin
        case (address)
            5'h00:   rdata = source;
            5'h04:   rdata = destination;
            5'h08:   rdata = bytes;
            5'h10:   rdata = {30'b0, failed, busy};
            default: rdata = '0;
        endcase
    end

    byte_copier #(.DATA(64)) copier (
        .clk(clock), .rst(1'b0), .read_error(1'b0), .write_error(1'b0), .done(done), .*);
endmodule
