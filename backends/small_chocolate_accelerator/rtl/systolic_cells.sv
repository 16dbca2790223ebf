// SPDX-License-Identifier: Apache-2.0
//
// The cells of the array. Sums stay where they are: inputs move to the right and weights move
// down, a cell a cycle, and each cell multiplies and adds what meets there. For a depthwise
// convolution each cell has an input of its own in place of that of its left neighbour.
//
// What the cell of row r and column c meets enters r + c cycles later than that of the first
// cell: `step` of element r + c says that there is something, and `first` that a new sum begins.

module systolic_cells #(
    parameter int ROWS = 4,
    parameter int COLUMNS = 4
) (
    input logic clk,
    input logic is_depthwise,
    input logic step[ROWS + COLUMNS - 1],
    input logic first[ROWS + COLUMNS - 1],

    // Of a cell each; without a depthwise convolution only those of the first column count.
    input logic signed [8:0] inputs[ROWS][COLUMNS],
    // At the top of each column.
    input logic signed [7:0] weights[COLUMNS],

    output logic [31:0] sums[ROWS][COLUMNS]
);
    logic signed [8:0] from_left[ROWS][COLUMNS];
    logic signed [7:0] from_above[ROWS][COLUMNS];
    logic signed [8:0] passed[ROWS][COLUMNS];
    logic signed [7:0] passed_weight[ROWS][COLUMNS];
    logic signed [16:0] product[ROWS][COLUMNS];

    for (genvar r = 0; r < ROWS; ++r) begin : g_row
        for (genvar c = 0; c < COLUMNS; ++c) begin : g_column
            if (c == 0) begin : g_left
                assign from_left[r][c] = inputs[r][c];
            end else begin : g_inner
                assign from_left[r][c] = is_depthwise ? inputs[r][c] : passed[r][c-1];
            end
            if (r == 0) begin : g_top
                assign from_above[r][c] = weights[c];
            end else begin : g_below
                assign from_above[r][c] = passed_weight[r-1][c];
            end

            assign product[r][c] = from_left[r][c] * from_above[r][c];

            always_ff @(posedge clk) begin
                if (step[r+c]) begin
                    passed[r][c] <= from_left[r][c];
                    passed_weight[r][c] <= from_above[r][c];
                    sums[r][c] <= (first[r+c] ? 32'd0 : sums[r][c]) + 32'(product[r][c]);
                end
            end
        end
    end

endmodule
