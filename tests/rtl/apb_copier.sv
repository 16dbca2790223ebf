// SPDX-License-Identifier: Apache-2.0
// byte_copier with registers on APB, which answer after a cycle of waiting, and an interrupt that is
// active low:
//
//   0x0 SOURCE  0x4 DESTINATION  0x8 BYTES  0xc START (write), 0x10 STATUS: busy, failed; a write ends
//   the interrupt. Others answer with pslverr.
//
// The reset is asynchronous and active high. A port has a word of C++ as its name, another two underscores.
module apb_copier (
    input  logic        pclk,
    input  logic        preset,
    output logic        irq_n,
    input  logic        delete,    // is tied to 1: without it nothing starts
    input  logic [2:0]  tie__low,  // is tied to 5

    input  logic [6:0]  paddr,
    input  logic        psel,
    input  logic        penable,
    input  logic        pwrite,
    input  logic [31:0] pwdata,
    output logic [31:0] prdata,
    output logic        pready,
    output logic        pslverr,

    output logic        read_valid,
    input  logic        read_ready,
    output logic [31:0] read_address,
    input  logic [31:0] read_data,
    input  logic        read_data_valid,
    input  logic        read_error,
    output logic        write_valid,
    input  logic        write_ready,
    output logic [31:0] write_address,
    output logic [31:0] write_data,
    output logic [3:0]  write_strobe,
    input  logic        write_error
);
    logic [31:0] source, destination, bytes;
    logic        waited, start, busy, done, failed;

    assign pready  = waited;
    assign pslverr = paddr > 7'h10;
    assign start   = psel && penable && pready && pwrite && paddr == 7'h0c && delete && tie__low == 5;

    always_ff @(posedge pclk or posedge preset) begin
        if (preset) begin
            waited      <= 1'b0;
            irq_n       <= 1'b1;
            source      <= '0;
            destination <= '0;
            bytes       <= '0;
        end else begin
            waited <= psel && penable && !pready;
            if (done) irq_n <= 1'b0;
            if (psel && penable && pready && pwrite) begin
                case (paddr)
                    7'h00:   source <= pwdata;
                    7'h04:   destination <= pwdata;
                    7'h08:   bytes <= pwdata;
                    7'h10:   irq_n <= 1'b1;
                    default: ;
                endcase
            end
        end
    end

    always_comb begin
        case (paddr)
            7'h00:   prdata = source;
            7'h04:   prdata = destination;
            7'h08:   prdata = bytes;
            7'h10:   prdata = {30'b0, failed, busy};
            default: prdata = '0;
        endcase
    end

    byte_copier #(.DATA(32)) copier (.clk(pclk), .rst(preset), .*);
endmodule
