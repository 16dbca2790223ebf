// SPDX-License-Identifier: Apache-2.0
//
// The array with what feeds it and what follows it: runs a job that was found valid on operands in
// the scratchpad.
//
// A job takes ceil(positions / ROWS) * ceil(channels / COLUMNS) folds of depth + ROWS + COLUMNS - 2
// + ROWS * COLUMNS cycles, and 2 cycles more from `start` to `done`; with an addition 11.

module systolic_array
    import chocolate_pkg::*;
#(
    parameter int ROWS = 4,
    parameter int COLUMNS = 4,
    parameter int ACCUMULATOR_BYTES = 4096,
    parameter int BYTE_READERS = ROWS * COLUMNS + COLUMNS + 2
) (
    input  logic clk,
    input  logic rst_n,
    input  logic start,           // a pulse
    input  logic stop,            // at once
    input  job_t job,             // stable from `start` to `done`
    output logic done,            // a pulse
    output logic failed,          // with `done`: a shift was wrong
    output address_t failed_address,
    output logic computes,        // a counter counts this cycle; else the array drains
    output logic [$clog2(ROWS * COLUMNS + 1)-1:0] slots, // multiply-accumulates of this cycle
    output logic [$clog2(ROWS * COLUMNS + 1)-1:0] useful_slots,

    output logic            byte_enable [BYTE_READERS],
    output address_t        byte_address[BYTE_READERS],
    input  logic     [ 7:0] byte_data   [BYTE_READERS],
    output logic            word_enable,
    output address_t        word_address[2],
    input  logic     [31:0] word_data   [2],
    output logic            write,
    output address_t        write_address,
    output logic     [ 7:0] write_data
);
    localparam int Cells = ROWS * COLUMNS;

    logic restart_positions;
    logic load_row;
    logic load_lane;
    logic [$clog2(ROWS + COLUMNS)-1:0] slot;
    tap_t tap;
    logic drain;
    logic output_idle;
    count_t rows_used;
    count_t columns_used;

    logic step[ROWS + COLUMNS - 1];
    logic first[ROWS + COLUMNS - 1];
    logic signed [8:0] inputs[ROWS][COLUMNS];
    logic signed [7:0] weights[COLUMNS];
    logic [31:0] sums[ROWS][COLUMNS];

    fold_sequencer #(
        .ROWS(ROWS),
        .COLUMNS(COLUMNS)
    ) sequencer (
        .clk,
        .rst_n,
        .stop,
        .start,
        .job,
        .output_idle,
        .done,
        .computes,
        .rows_used,
        .columns_used,
        .restart_positions,
        .load_row,
        .load_lane,
        .slot,
        .tap,
        .drain
    );

    operand_reader #(
        .ROWS(ROWS),
        .COLUMNS(COLUMNS)
    ) reader (
        .clk,
        .rst_n,
        .stop,
        .start,
        .job,
        .restart_positions,
        .load_row,
        .load_lane,
        .slot,
        .tap,
        .input_enable(byte_enable[0:Cells-1]),
        .input_address(byte_address[0:Cells-1]),
        .input_data(byte_data[0:Cells-1]),
        .weights_enable(byte_enable[Cells:Cells+COLUMNS-1]),
        .weights_address(byte_address[Cells:Cells+COLUMNS-1]),
        .step,
        .first,
        .inputs
    );

    for (genvar c = 0; c < COLUMNS; ++c) begin : g_weights
        assign weights[c] = byte_data[Cells+c];
    end

    systolic_cells #(
        .ROWS(ROWS),
        .COLUMNS(COLUMNS)
    ) cells (
        .clk,
        .is_depthwise(job.is_depthwise),
        .step,
        .first,
        .inputs,
        .weights,
        .sums
    );

    // ---- Counters: a tap that enters is one for all cells of the fold ----

    assign slots = tap.valid ? ($bits(slots))'(Cells) : '0;
    assign useful_slots = tap.valid ? ($bits(slots))'(rows_used * columns_used) : '0;

    // ---- Results ----

    logic accumulator_read;
    logic accumulator_write;
    address_t accumulator_read_index;
    address_t accumulator_write_index;
    logic [31:0] accumulator_data;
    logic [31:0] total;

    output_stage #(
        .ROWS(ROWS),
        .COLUMNS(COLUMNS)
    ) outputs (
        .clk,
        .rst_n,
        .stop,
        .start,
        .job,
        .drain,
        .sums,
        .idle(output_idle),
        .bad_shift(failed),
        .bad_address(failed_address),
        .word_enable,
        .word_address,
        .word_data,
        .shift_enable(byte_enable[Cells+COLUMNS]),
        .shift_address(byte_address[Cells+COLUMNS]),
        .shift_data(byte_data[Cells+COLUMNS]),
        .addend_enable(byte_enable[Cells+COLUMNS+1]),
        .addend_address(byte_address[Cells+COLUMNS+1]),
        .addend_data(byte_data[Cells+COLUMNS+1]),
        .accumulator_read,
        .accumulator_write,
        .accumulator_read_index,
        .accumulator_write_index,
        .accumulator_data,
        .total,
        .write,
        .write_address,
        .write_data
    );

    accumulator #(
        .WORDS(ACCUMULATOR_BYTES / 4)
    ) partial_sums (
        .clk,
        .read(accumulator_read),
        .read_index(accumulator_read_index),
        .read_data(accumulator_data),
        .write(accumulator_write),
        .write_index(accumulator_write_index),
        .write_data(total)
    );

endmodule
