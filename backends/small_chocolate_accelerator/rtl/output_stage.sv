// SPDX-License-Identifier: Apache-2.0
//
// What follows the sums of the array: bias or accumulator, scale, limits, the fused addition, and
// the place of the result. A sum enters in each cycle of `drain`, those of a row of cells one after
// the other; sums of cells that are not used are dropped.
//
//     cycle 0    the sum leaves its cell; bias, multiplier and shift are read
//     cycle 1    bias added; it stays in the accumulator, or enters the requantizer
//     cycle 5    result, written; with an addition its addend is read
//     cycle 6    result and addend enter a requantizer each
//     cycle 10   their sum enters the last requantizer
//     cycle 14   written

module output_stage
    import chocolate_pkg::*;
    import fixed_point_pkg::add_and_clamp;
#(
    parameter int ROWS = 4,
    parameter int COLUMNS = 4
) (
    input  logic clk,
    input  logic rst_n,
    input  logic stop,
    input  logic start,
    /* verilator lint_off UNUSEDSIGNAL */
    input  job_t job,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic drain,
    input  logic [31:0] sums[ROWS][COLUMNS],
    output logic idle,            // no result is on its way
    output logic bad_shift,       // since the start
    output address_t bad_address, // of the first one

    // Reading ports of the scratchpad: bias and multiplier, shift and addend.
    output logic            word_enable,
    output address_t        word_address  [2],
    input  logic     [31:0] word_data     [2],
    output logic            shift_enable,
    output address_t        shift_address,
    input  logic     [ 7:0] shift_data,
    output logic            addend_enable,
    output address_t        addend_address,
    input  logic     [ 7:0] addend_data,

    output logic            accumulator_read,
    output logic            accumulator_write,
    output address_t        accumulator_read_index,
    output address_t        accumulator_write_index,
    input  logic     [31:0] accumulator_data,
    output logic     [31:0] total,

    output logic            write,
    output address_t        write_address,
    output logic     [ 7:0] write_data
);
    localparam int RowBits = ROWS > 1 ? $clog2(ROWS) : 1;
    localparam int ColumnBits = COLUMNS > 1 ? $clog2(COLUMNS) : 1;

    // ---- Which sum it is, and the place of its result ----

    logic [RowBits-1:0] row;
    logic [ColumnBits-1:0] column;
    count_t position;
    count_t first_channel;  // of the block
    count_t channel;
    logic [15:0] output_column;
    address_t row_address;  // of the row of the result, from its start
    address_t position_address;
    address_t block_address;  // of the first channel, from the position
    address_t channel_address;
    address_t position_sum;  // in the accumulator, of channel 0
    logic last_column;
    logic last_row;
    logic ends_positions;
    logic used;

    assign last_column = column == ColumnBits'(COLUMNS - 1);
    assign last_row = row == RowBits'(ROWS - 1);
    // After the last row of cells of a fold that has the last position.
    assign ends_positions = position + 1'b1 >= job.positions;
    assign used = drain && position < job.positions && channel < job.output_channels;

    always_ff @(posedge clk) begin
        if (start) begin
            row <= '0;
            column <= '0;
            position <= '0;
            first_channel <= '0;
            channel <= '0;
            output_column <= '0;
            row_address <= '0;
            position_address <= '0;
            block_address <= '0;
            channel_address <= '0;
            position_sum <= '0;
        end else if (drain && !last_column) begin
            column <= column + 1'b1;
            channel <= channel + 1'b1;
            channel_address <= channel_address + job.ofmap_channel_stride;
        end else if (drain) begin
            column <= '0;
            row <= last_row ? '0 : row + 1'b1;
            if (last_row && ends_positions) begin
                position <= '0;
                output_column <= '0;
                row_address <= '0;
                position_address <= '0;
                position_sum <= '0;
                first_channel <= channel + 1'b1;
                channel <= channel + 1'b1;
                block_address <= channel_address + job.ofmap_channel_stride;
                channel_address <= channel_address + job.ofmap_channel_stride;
            end else begin
                position <= position + 1'b1;
                position_sum <= position_sum + address_t'(job.output_channels);
                channel <= first_channel;
                channel_address <= block_address;
                if (output_column + 1'b1 == job.output_width) begin
                    output_column <= '0;
                    row_address <= row_address + job.ofmap_row_stride;
                    position_address <= row_address + job.ofmap_row_stride;
                end else begin
                    output_column <= output_column + 1'b1;
                    position_address <= position_address + job.ofmap_column_stride;
                end
            end
        end
    end

    // ---- Cycle 0 ----

    address_t scale;  // index of multiplier and shift

    assign scale = job.scales_differ ? address_t'(channel) : '0;
    assign word_enable = used;
    assign word_address[0] = job.bias + address_t'(channel << 2);
    assign word_address[1] = job.multipliers + (scale << 2);
    assign shift_enable = used;
    assign shift_address = job.shifts + scale;
    assign accumulator_read = used && job.continues;
    assign accumulator_read_index = job.accumulator + position_sum + address_t'(channel);

    logic valid;  // in cycle 1
    logic [31:0] sum;
    address_t read_shift_address;

    always_ff @(posedge clk) begin
        valid <= used && rst_n && !stop;
        if (used) begin
            sum <= sums[row][column];
            read_shift_address <= shift_address;
            accumulator_write_index <= accumulator_read_index;
        end
    end

    // ---- Cycle 1 ----

    logic scales;
    logic signed [7:0] shift;
    logic shift_is_bad;

    assign total = sum + (job.continues ? accumulator_data : word_data[0]);
    assign accumulator_write = valid && job.keeps;
    assign scales = valid && !job.keeps;
    assign shift = shift_data;
    assign shift_is_bad = scales && (shift < -8'sd31 || shift > 8'sd30);

    always_ff @(posedge clk) begin
        if (start) begin
            bad_shift <= 1'b0;
        end else if (shift_is_bad && !bad_shift) begin
            bad_shift <= 1'b1;
            bad_address <= read_shift_address;
        end
    end

    // ---- Places of results that are on their way, in order ----

    localparam int Places = 32;  // more than there are cycles from the first to the last
    typedef logic [$clog2(Places)-1:0] place_t;
    address_t place[Places];
    place_t entered;
    place_t scaled_count;
    place_t written;

    logic scaled_valid;

    assign idle = entered == written && !valid;

    always_ff @(posedge clk) begin
        if (!rst_n || stop || start) begin
            entered <= '0;
            scaled_count <= '0;
            written <= '0;
        end else begin
            if (used && !job.keeps) begin
                entered <= entered + 1'b1;
                place[entered] <= position_address + channel_address;
            end
            if (scaled_valid) begin
                scaled_count <= scaled_count + 1'b1;
            end
            if (write) begin
                written <= written + 1'b1;
            end
        end
    end

    // ---- Cycle 5: the result ----

    logic signed [31:0] scaled;
    logic signed [7:0] result;

    requantizer of_result (
        .clk,
        .rst_n(rst_n && !stop),
        .ort(job.is_ort),
        .in_valid(scales),
        .value(total),
        .multiplier(word_data[1]),
        .shift,
        .out_valid(scaled_valid),
        .scaled
    );

    assign result = add_and_clamp(scaled, job.output_zero_point, job.lowest, job.highest);
    assign addend_enable = scaled_valid && job.add.is_used;
    assign addend_address = job.addend + place[scaled_count];

    // ---- Cycle 6: both summands, cycle 10: their sum, cycle 14: the result of the addition ----

    logic adds;
    logic signed [7:0] summand;
    logic signed [31:0] shifted_result;
    logic signed [31:0] shifted_addend;
    logic summands_valid;
    logic signed [31:0] scaled_result;
    logic signed [31:0] scaled_addend;
    logic signed [31:0] scaled_sum;
    logic sum_valid;
    logic addend_valid;

    always_ff @(posedge clk) begin
        adds <= addend_enable && rst_n && !stop;
        if (addend_enable) begin
            summand <= result;
        end
    end

    assign shifted_result = (32'(summand) - 32'(job.output_zero_point)) <<< job.add.left_shift;
    assign shifted_addend =
        (32'(signed'(addend_data)) - 32'(job.add.addend_zero_point)) <<< job.add.left_shift;

    requantizer of_summand (
        .clk,
        .rst_n(rst_n && !stop),
        .ort(job.is_ort),
        .in_valid(adds),
        .value(shifted_result),
        .multiplier(job.add.result.multiplier),
        .shift(job.add.result.shift),
        .out_valid(summands_valid),
        .scaled(scaled_result)
    );

    requantizer of_addend (
        .clk,
        .rst_n(rst_n && !stop),
        .ort(job.is_ort),
        .in_valid(adds),
        .value(shifted_addend),
        .multiplier(job.add.addend.multiplier),
        .shift(job.add.addend.shift),
        .out_valid(addend_valid),
        .scaled(scaled_addend)
    );

    requantizer of_sum (
        .clk,
        .rst_n(rst_n && !stop),
        .ort(job.is_ort),
        .in_valid(summands_valid && addend_valid),
        .value(scaled_result + scaled_addend),
        .multiplier(job.add.sum.multiplier),
        .shift(job.add.sum.shift),
        .out_valid(sum_valid),
        .scaled(scaled_sum)
    );

    assign write = job.add.is_used ? sum_valid : scaled_valid;
    assign write_address = job.ofmap + place[written];
    assign write_data = job.add.is_used
        ? add_and_clamp(scaled_sum, job.add.zero_point, job.add.lowest, job.add.highest)
        : result;

endmodule
