// SPDX-License-Identifier: Apache-2.0
//
// Where the operands of the cells lie. Each row of the array has an output position; a tap that
// moves through the array meets its input there, or padding, which counts as the zero point.
//
// Taps move on by a row or a column a cycle. What is read in a cycle enters the array in the next
// one: `step` and `first` say so to the cells.

module operand_reader
    import chocolate_pkg::*;
#(
    parameter int ROWS = 4,
    parameter int COLUMNS = 4
) (
    input logic clk,
    input logic rst_n,
    input logic stop,
    input logic start,
    /* verilator lint_off UNUSEDSIGNAL */
    input job_t job,
    /* verilator lint_on UNUSEDSIGNAL */
    input logic restart_positions,
    input logic load_row,
    input logic load_lane,
    input logic [$clog2(ROWS + COLUMNS)-1:0] slot,
    input tap_t tap,

    // Reading ports of the scratchpad: an input for each cell, weights for each column.
    output logic           input_enable   [ROWS * COLUMNS],
    output address_t       input_address  [ROWS * COLUMNS],
    input  logic     [7:0] input_data     [ROWS * COLUMNS],
    output logic           weights_enable [COLUMNS],
    output address_t       weights_address[COLUMNS],

    output logic              step  [ROWS + COLUMNS - 1],
    output logic              first [ROWS + COLUMNS - 1],
    output logic signed [8:0] inputs[ROWS][COLUMNS]
);
    // ---- Output positions, one after the other ----

    typedef struct packed {
        logic valid;
        coordinate_t y; // of the input that the kernel's first position meets
        coordinate_t x;
        address_t address; // of its channel 0
    } position_t;

    position_t next;
    position_t row[ROWS];
    address_t next_row_address;  // of the input that the row of the result begins with
    logic [15:0] next_column;
    count_t position;

    always_ff @(posedge clk) begin
        if (start || restart_positions) begin
            next.y <= -coordinate_t'({1'b0, job.pad_top});
            next.x <= -coordinate_t'({1'b0, job.pad_left});
            next.address <= job.corner;
            next.valid <= 1'b1;
            next_row_address <= job.corner;
            next_column <= '0;
            position <= count_t'(1);
        end else if (load_row) begin
            position <= position + 1'b1;
            next.valid <= next.valid && position != job.positions;
            if (next_column + 1'b1 == job.output_width) begin
                next_column <= '0;
                next.y <= next.y + coordinate_t'({1'b0, job.stride_height});
                next.x <= -coordinate_t'({1'b0, job.pad_left});
                next.address <= next_row_address + job.row_step;
                next_row_address <= next_row_address + job.row_step;
            end else begin
                next_column <= next_column + 1'b1;
                next.x <= next.x + coordinate_t'({1'b0, job.stride_width});
                next.address <= next.address + job.column_step;
            end
        end
    end

    for (genvar r = 0; r < ROWS; ++r) begin : g_row
        always_ff @(posedge clk) begin
            if (load_row && int'(slot) == r) begin
                row[r] <= next;
            end
        end
    end

    // ---- Depthwise: input channels of the columns, one after the other ----

    address_t next_lane;
    count_t repetition;
    address_t lane[COLUMNS];

    always_ff @(posedge clk) begin
        if (start) begin
            next_lane <= '0;
            repetition <= count_t'(1);
        end else if (load_lane && job.is_depthwise) begin
            if (repetition == job.repetitions) begin
                repetition <= count_t'(1);
                next_lane <= next_lane + job.ifmap_channel_stride;
            end else begin
                repetition <= repetition + 1'b1;
            end
        end
    end

    for (genvar c = 0; c < COLUMNS; ++c) begin : g_lane
        always_ff @(posedge clk) begin
            if (load_lane && int'(slot) == c) begin
                lane[c] <= job.is_depthwise ? next_lane : '0;
            end
        end
    end

    // ---- Taps on their way through rows and columns ----

    tap_t moving[ROWS + COLUMNS];

    assign moving[0] = tap;
    for (genvar i = 0; i < ROWS + COLUMNS - 1; ++i) begin : g_step
        always_ff @(posedge clk) begin
            if (!rst_n || stop) begin
                moving[i+1].valid <= 1'b0;
            end else if (moving[i].valid || moving[i+1].valid) begin
                moving[i+1] <= moving[i];
            end
        end
        assign step[i] = moving[i+1].valid;
        assign first[i] = moving[i+1].first;
    end

    for (genvar c = 0; c < COLUMNS; ++c) begin : g_weights
        assign weights_enable[c] = moving[c].valid;
        assign weights_address[c] = moving[c].weights + address_t'(c);
    end

    for (genvar r = 0; r < ROWS; ++r) begin : g_input_row
        for (genvar c = 0; c < COLUMNS; ++c) begin : g_input
            localparam int Cell = r * COLUMNS + c;
            coordinate_t y;
            coordinate_t x;
            logic is_input;
            logic was_input;

            always_comb begin
                y = '0;
                x = '0;
                is_input = 1'b0;
                input_address[Cell] = '0;
                if (moving[r+c].valid && (c == 0 || job.is_depthwise)) begin
                    y = row[r].y + moving[r+c].y;
                    x = row[r].x + moving[r+c].x;
                    // Negative ones are large without a sign.
                    is_input = row[r].valid && $unsigned(y) < 34'(job.input_height) &&
                        $unsigned(x) < 34'(job.input_width);
                    input_address[Cell] = row[r].address + moving[r+c].offset + lane[c];
                end
            end

            assign input_enable[Cell] = is_input;
            always_ff @(posedge clk) begin
                was_input <= is_input;
            end
            assign inputs[r][c] = was_input
                ? 9'(signed'(input_data[Cell])) - 9'(job.input_zero_point)
                : 9'sd0;
        end
    end

endmodule
