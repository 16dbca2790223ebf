// SPDX-License-Identifier: Apache-2.0
//
// The scratchpad: banks of equal size, one after the other.
//
// A bank is written by the array or by the DMA engine, never by both at once: the command queue
// starts no command whose banks the other engine uses. Each bank consists of eight memories of
// bytes, so that eight bytes at any address are accessed at once. What is read in a cycle is there
// in the next one and stays until the next reading. There are as many reading ports as the array
// asks for: the memories are copied for that.
//
// Operands that are not used may lie beyond the end: what is read there is any byte.

module scratchpad
    import chocolate_pkg::address_t;
#(
    parameter int BANKS = 8,          // a power of two
    parameter int BANK_BYTES = 2048,  // a power of two, at least 16
    parameter int BYTE_READERS = 1,
    parameter int WORD_READERS = 1
) (
    input logic clk,

    // The array reads bytes, and words of 32 bits at multiples of 4 ...
    input  logic            byte_enable [BYTE_READERS],
    input  address_t        byte_address[BYTE_READERS],
    output logic     [ 7:0] byte_data   [BYTE_READERS],
    input  logic            word_enable,
    input  address_t        word_address[WORD_READERS],
    output logic     [31:0] word_data   [WORD_READERS],

    // ... and writes a byte.
    input logic           array_write,
    input address_t       array_address,
    input logic     [7:0] array_data,

    // The DMA engine reads and writes eight bytes from an address on.
    input  logic            dma_write,
    input  address_t        dma_write_address,
    input  logic     [ 7:0] dma_write_strobe,
    input  logic     [63:0] dma_write_data,
    input  logic            dma_read,
    input  address_t        dma_read_address,
    output logic     [63:0] dma_read_data
);
    localparam int WordBits = $clog2(BANKS * BANK_BYTES / 8);
    localparam int Words = BANKS * BANK_BYTES / 8;
    localparam int BankWords = BANK_BYTES / 8;
    typedef logic [WordBits-1:0] word_t;

    // The byte at an address is element address / 8 of memory address % 8. The banks are parts of
    // it that follow each other.
    logic [7:0] memory[8][Words];

    /* verilator lint_off UNUSEDSIGNAL */
    function automatic word_t word_of(address_t address);
        return address[WordBits+2:3];
    endfunction
    /* verilator lint_on UNUSEDSIGNAL */

    // ---- The array ----

    for (genvar i = 0; i < BYTE_READERS; ++i) begin : g_byte
        always_ff @(posedge clk) begin
            if (byte_enable[i]) begin
                byte_data[i] <= memory[byte_address[i][2:0]][word_of(byte_address[i])];
            end
        end
    end

    for (genvar i = 0; i < WORD_READERS; ++i) begin : g_word
        always_ff @(posedge clk) begin
            if (word_enable) begin
                for (int j = 0; j < 4; ++j) begin
                    word_data[i][8*j +: 8] <=
                        memory[{word_address[i][2], 2'(j)}][word_of(word_address[i])];
                end
            end
        end
    end

    // ---- Lanes: memory i has one byte of the eight from an address on ----

    logic [2:0] write_shift;
    logic [2:0] read_shift;
    assign write_shift = dma_write_address[2:0];
    always_ff @(posedge clk) begin
        if (dma_read) begin
            read_shift <= dma_read_address[2:0];
        end
    end

    logic [7:0] lane_data[8];
    for (genvar i = 0; i < 8; ++i) begin : g_lane
        always_ff @(posedge clk) begin
            if (dma_read) begin
                lane_data[i] <= memory[i][word_of(dma_read_address + address_t'(7 - i))];
            end
            if (dma_write && dma_write_strobe[3'(i) - write_shift]) begin
                memory[i][word_of(dma_write_address + address_t'(7 - i))] <=
                    dma_write_data[{3'(i) - write_shift, 3'b000} +: 8];
            end
            if (array_write && array_address[2:0] == 3'(i)) begin
                memory[i][word_of(array_address)] <= array_data;
            end
        end
        assign dma_read_data[8*i +: 8] = lane_data[3'(i) + read_shift];
    end

`ifndef SYNTHESIS
    // The address of the word in a bank does not matter.
    word_t dma_word;
    assign dma_word = word_of(dma_write_address);
    always_ff @(posedge clk) begin
        if (dma_write && array_write && dma_write_strobe[0] &&
            dma_word / word_t'(BankWords) == word_of(array_address) / word_t'(BankWords)) begin
            $error("the array and the DMA engine write one bank at once");
        end
    end
`endif

endmodule
