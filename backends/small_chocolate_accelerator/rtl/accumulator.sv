// SPDX-License-Identifier: Apache-2.0
//
// The memory of sums that a later job goes on from: a reading and a writing port. What is read in
// a cycle is there in the next one.

module accumulator
    import chocolate_pkg::address_t;
#(
    parameter int WORDS = 1024
) (
    input  logic            clk,
    input  logic            read,
    input  address_t        read_index,
    output logic     [31:0] read_data,
    input  logic            write,
    input  address_t        write_index,
    input  logic     [31:0] write_data
);
    localparam int IndexBits = $clog2(WORDS);

    logic [31:0] memory[WORDS];

    always_ff @(posedge clk) begin
        if (read) begin
            read_data <= memory[read_index[IndexBits-1:0]];
        end
        if (write) begin
            memory[write_index[IndexBits-1:0]] <= write_data;
        end
    end

    logic unused;
    assign unused = &{1'b0, read_index, write_index};  // jobs that lie outside were refused

endmodule
