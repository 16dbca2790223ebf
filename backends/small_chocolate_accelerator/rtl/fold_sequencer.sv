// SPDX-License-Identifier: Apache-2.0
//
// The order of a job: folds, and in each the taps (kernel positions and input channels) that move
// through the array, and the drain of its sums.
//
// Channels are the outer loop over folds, output positions the inner one. A fold takes
//
//     depth + ROWS + COLUMNS - 2 cycles      until the last cell has seen the last tap
//     ROWS * COLUMNS cycles                  a sum a cycle leaves the array
//
// The drain begins before the last cells are done, as sums leave in the order of their cells; what
// follows it in the output stage takes the cycles that are won. One cycle goes before the first
// fold, in which the first row gets its position; other rows get theirs when they begin.

module fold_sequencer
    import chocolate_pkg::*;
#(
    parameter int ROWS = 4,
    parameter int COLUMNS = 4
) (
    input  logic clk,
    input  logic rst_n,
    input  logic stop,         // at once
    input  logic start,
    /* verilator lint_off UNUSEDSIGNAL */
    input  job_t job,          // stable from `start` on
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic output_idle,  // no result is on its way
    output logic done,         // a pulse
    output logic computes,     // in a fold, before its drain
    output count_t rows_used,  // in this fold
    output count_t columns_used,

    output logic                        restart_positions,
    output logic                        load_row,   // row `slot` gets the next position
    output logic                        load_lane,  // column `slot` gets the next channel
    output logic [$clog2(ROWS + COLUMNS)-1:0] slot,
    output tap_t                        tap,
    output logic                        drain       // a sum leaves
);
    localparam int unsigned Edge = ROWS + COLUMNS - 2;
    localparam int unsigned Cells = ROWS * COLUMNS;

    typedef logic [ADDRESS_BITS+1:0] cycle_t;
    typedef enum logic [1:0] {
        IDLE,
        PREPARE,
        FOLD,
        FINISH
    } state_t;

    state_t state;
    cycle_t cycle;  // of the fold
    cycle_t last_cycle;
    logic tap_active;
    logic first_of_block;  // of channels
    logic last_of_block;
    count_t positions_left;
    count_t channels_left;

    assign rows_used = last_of_block ? positions_left : count_t'(ROWS);
    assign columns_used =
        channels_left < count_t'(COLUMNS) ? channels_left : count_t'(COLUMNS);
    assign last_of_block = positions_left <= count_t'(ROWS);

    logic ends_fold;
    logic ends_job;
    logic begins_fold;
    assign ends_fold = state == FOLD && cycle == last_cycle;
    assign ends_job = ends_fold && last_of_block && channels_left <= count_t'(COLUMNS);
    assign begins_fold = state == PREPARE || (ends_fold && !ends_job);

    always_ff @(posedge clk) begin
        case (state)
            IDLE: begin
                if (start) begin
                    state <= PREPARE;
                    last_cycle <= cycle_t'(job.depth) + cycle_t'(Edge + Cells - 1);
                    positions_left <= job.positions;
                    channels_left <= job.output_channels;
                    first_of_block <= 1'b1;
                end
            end
            PREPARE: state <= FOLD;
            FOLD: begin
                if (ends_job) begin
                    state <= FINISH;
                end else if (ends_fold) begin
                    first_of_block <= last_of_block;
                    if (last_of_block) begin
                        positions_left <= job.positions;
                        channels_left <= channels_left - count_t'(COLUMNS);
                    end else begin
                        positions_left <= positions_left - count_t'(ROWS);
                    end
                end
            end
            default: begin
                if (output_idle) begin
                    state <= IDLE;
                end
            end
        endcase
        cycle <= state == FOLD && !ends_fold ? cycle + 1'b1 : '0;
        if (!rst_n || stop) begin
            state <= IDLE;
        end
    end

    assign done = state == FINISH && output_idle;
    assign computes = state == FOLD && cycle < cycle_t'(job.depth) + cycle_t'(Edge);
    assign drain = state == FOLD && cycle > cycle_t'(job.depth) &&
        cycle <= cycle_t'(job.depth) + cycle_t'(Cells);

    // Row r and column c get what they work on in the cycle before they begin: the first ones in the
    // last cycle of the fold before.
    assign slot = begins_fold ? '0 : cycle[$bits(slot)-1:0] + 1'b1;
    assign load_row = begins_fold || (state == FOLD && cycle < cycle_t'(ROWS - 1));
    assign load_lane = begins_fold
        ? state == PREPARE || last_of_block
        : state == FOLD && first_of_block && cycle < cycle_t'(COLUMNS - 1);
    assign restart_positions = state == FOLD && cycle == cycle_t'(ROWS - 1) && last_of_block;

    // ---- Taps: the channel is the innermost loop, then the kernel's column and its row ----

    address_t block_weights;  // where those of the block of channels begin
    address_t next_weights;
    logic [15:0] tap_row_count;
    logic [15:0] tap_column_count;
    count_t tap_channel;
    address_t row_offset;  // of the kernel's row
    address_t column_offset;  // of the kernel's row and column
    logic last_channel;
    logic last_column;

    assign last_channel = job.is_depthwise || tap_channel + 1'b1 == job.input_channels;
    assign last_column = tap_column_count + 1'b1 == job.kernel_width;
    assign tap_active = state == FOLD && tap.valid;
    assign next_weights = tap.weights +
        (job.is_depthwise ? address_t'(job.output_channels) : address_t'(COLUMNS));

    always_ff @(posedge clk) begin
        if (begins_fold) begin
            tap.valid <= 1'b1;
            tap.first <= 1'b1;
            tap.y <= '0;
            tap.x <= '0;
            tap.offset <= '0;
            row_offset <= '0;
            column_offset <= '0;
            tap_row_count <= '0;
            tap_column_count <= '0;
            tap_channel <= '0;
            if (state == PREPARE) begin
                tap.weights <= job.weights;
                block_weights <= job.weights;
            end else if (!last_of_block) begin
                tap.weights <= block_weights;
            end else if (job.is_depthwise) begin
                tap.weights <= block_weights + address_t'(COLUMNS);
                block_weights <= block_weights + address_t'(COLUMNS);
            end else begin
                block_weights <= tap.weights;  // blocks follow each other
            end
        end else if (tap_active) begin
            tap.first <= 1'b0;
            tap.weights <= next_weights;
            if (!last_channel) begin
                tap_channel <= tap_channel + 1'b1;
                tap.offset <= tap.offset + job.ifmap_channel_stride;
            end else if (!last_column) begin
                tap_channel <= '0;
                tap_column_count <= tap_column_count + 1'b1;
                tap.x <= tap.x + coordinate_t'({1'b0, job.dilation_width});
                tap.offset <= column_offset + job.tap_column_step;
                column_offset <= column_offset + job.tap_column_step;
            end else begin
                tap_channel <= '0;
                tap_column_count <= '0;
                tap_row_count <= tap_row_count + 1'b1;
                tap.valid <= tap_row_count + 1'b1 != job.kernel_height;
                tap.y <= tap.y + coordinate_t'({1'b0, job.dilation_height});
                tap.x <= '0;
                tap.offset <= row_offset + job.tap_row_step;
                column_offset <= row_offset + job.tap_row_step;
                row_offset <= row_offset + job.tap_row_step;
            end
        end
        if (!rst_n || stop) begin
            tap.valid <= 1'b0;
        end
    end

endmodule
