// SPDX-License-Identifier: Apache-2.0
// Copies bytes over a plain memory bus of DATA bits: as many reads as a chunk of 32 bytes needs follow
// each other without waiting for data, then its bytes are written.
module byte_copier #(
    parameter int DATA = 32
) (
    input  logic              clk,
    input  logic              rst,
    input  logic              start,
    input  logic [31:0]       source,
    input  logic [31:0]       destination,
    input  logic [31:0]       bytes,
    output logic              busy,
    output logic              done,        // for one cycle
    output logic              failed,      // stays until the next start

    output logic              read_valid,
    input  logic              read_ready,
    output logic [31:0]       read_address,
    input  logic [DATA-1:0]   read_data,
    input  logic              read_data_valid,
    input  logic              read_error,
    output logic              write_valid,
    input  logic              write_ready,
    output logic [31:0]       write_address,
    output logic [DATA-1:0]   write_data,
    output logic [DATA/8-1:0] write_strobe,
    input  logic              write_error
);
    localparam int BYTES = DATA / 8;
    localparam int CHUNK = 32;

    typedef enum logic [1:0] {IDLE, READ, WRITE, LAST} state_t;

    state_t      state;
    logic [31:0] from, to, left;
    logic [31:0] request, answer, store;  // addresses of beats
    logic [7:0]  buffer[CHUNK];

    logic [31:0] chunk;
    assign chunk = (left < CHUNK) ? left : CHUNK;

    function automatic logic [31:0] beat_of(logic [31:0] byte_address);
        return byte_address & ~32'(BYTES - 1);
    endfunction

    assign busy          = state != IDLE;
    assign read_valid    = state == READ && request < from + chunk;
    assign read_address  = request;
    assign write_valid   = state == WRITE;
    assign write_address = store;
    always_comb begin
        write_data   = '0;
        write_strobe = '0;
        for (int i = 0; i < BYTES; ++i) begin
            if (store + i >= to && store + i < to + chunk) begin
                write_data[8*i+:8] = buffer[5'(store + i - to)];
                write_strobe[i]    = 1'b1;
            end
        end
    end

    always_ff @(posedge clk) begin
        done <= 1'b0;
        if (read_data_valid && read_error || write_error) failed <= 1'b1;
        case (state)
            IDLE: if (start) begin
                from   <= source;
                to     <= destination;
                left   <= bytes;
                failed <= 1'b0;
                request <= beat_of(source);
                answer  <= beat_of(source);
                state  <= (bytes == 0) ? LAST : READ;
            end
            READ: begin
                if (read_valid && read_ready) request <= request + BYTES;
                if (read_data_valid) begin
                    for (int i = 0; i < BYTES; ++i)
                        if (answer + i >= from && answer + i < from + chunk)
                            buffer[5'(answer + i - from)] <= read_data[8*i+:8];
                    answer <= answer + BYTES;
                    if (answer + BYTES >= from + chunk) begin
                        state <= WRITE;
                        store <= beat_of(to);
                    end
                end
            end
            WRITE: if (write_ready) begin
                store <= store + BYTES;
                if (store + BYTES >= to + chunk) begin
                    from    <= from + chunk;
                    to      <= to + chunk;
                    left    <= left - chunk;
                    request <= beat_of(from + chunk);
                    answer  <= beat_of(from + chunk);
                    state   <= (left == chunk || failed) ? LAST : READ;
                end
            end
            LAST: begin  // a write error comes a cycle late
                state <= IDLE;
                done  <= 1'b1;
            end
        endcase
        if (rst) begin
            state  <= IDLE;
            done   <= 1'b0;
            failed <= 1'b0;
        end
    end
endmodule
