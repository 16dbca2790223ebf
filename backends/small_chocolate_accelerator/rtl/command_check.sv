// SPDX-License-Identifier: Apache-2.0
//
// Whether a transfer or a job is valid, which banks it uses, and what follows from its registers.
//
// With `start` the registers are copied, so that a driver may write the next command while this one
// is checked; `transfer` is the copy. Three multipliers work step by step: 3
// cycles for a transfer and 9 for a job, 24 more for a depthwise one with several output channels
// for an input channel. With `done` the verdict says what is wrong first, if anything is.

module command_check
    import chocolate_pkg::*;
    import command_rules_pkg::*;
    import systolic_array_registers_pkg::*;
#(
    parameter int ROWS = 4,
    parameter int COLUMNS = 4,
    parameter int BANKS = 8,
    parameter int BANK_BYTES = 2048,
    parameter int ACCUMULATOR_BYTES = 4096
) (
    input logic           clk,
    input logic           rst_n,
    input logic           start,
    input logic           is_transfer,
    input transfer_t      transfer_registers,
    input job_registers_t job_registers,

    output logic             done,
    output verdict_t         verdict,
    output logic [BANKS-1:0] reads,
    output logic [BANKS-1:0] writes,
    output logic [     31:0] bus_last,  // of a transfer: the last byte between its first and last
    output logic [     31:0] bytes,     // of a transfer
    output transfer_t        transfer,
    output job_t             job
);
    localparam logic [31:0] ScratchpadBytes = 32'(BANKS * BANK_BYTES);
    localparam logic [31:0] AccumulatorBytes = 32'(ACCUMULATOR_BYTES);
    localparam int unsigned FoldOverhead = ROWS + COLUMNS - 2 + ROWS * COLUMNS;
    localparam int LastTransferStep = 2;
    localparam int LastJobStep = 8;

    typedef enum logic [1:0] {
        IDLE,
        DIVIDE,
        MULTIPLY
    } state_t;

    state_t state;
    logic [3:0] step;
    job_registers_t registers;
    layer_registers_t layer;
    logic needs_division;
    add_registers_t addition;

    assign layer = registers.layer;
    assign needs_division = job_registers.layer.operation == OPERATION_DEPTHWISE &&
        job_registers.layer.input_channels != job_registers.layer.output_channels;
    assign addition = registers.add;

    logic is_depthwise;
    logic keeps;
    logic continues;
    logic adds;

    assign is_depthwise = layer.operation == OPERATION_DEPTHWISE;
    assign continues = registers.sum.accumulate[ACCUMULATE_CONTINUE_BIT];
    assign keeps = registers.sum.accumulate[ACCUMULATE_KEEP_BIT];
    assign adds = addition.add != 32'd0 && !keeps;

    // ---- Output channels of an input channel: a division, bit by bit ----

    logic [4:0] bits_left;
    logic [23:0] remainder;
    logic [23:0] quotient;
    logic [24:0] shifted;

    assign shifted = {remainder, quotient[23]};

    always_ff @(posedge clk) begin
        if (start) begin
            bits_left <= 5'd24;
            remainder <= '0;
            quotient <= needs_division ? job_registers.layer.output_channels[23:0] : 24'd1;
        end else if (state == DIVIDE) begin
            bits_left <= bits_left - 1'b1;
            if (shifted >= {1'b0, layer.input_channels[23:0]}) begin
                remainder <= 24'(shifted - {1'b0, layer.input_channels[23:0]});
                quotient <= {quotient[22:0], 1'b1};
            end else begin
                remainder <= shifted[23:0];
                quotient <= {quotient[22:0], 1'b0};
            end
        end
    end

    // ---- Products ----

    logic [31:0] left[3];
    logic [31:0] right[3];
    logic [63:0] product[3];
    logic [63:0] depth;
    logic [63:0] inputs;
    logic [63:0] outputs;
    logic [63:0] rows;  // of a transfer
    extent_t partial;
    extent_t ifmap_extent;
    extent_t weights_extent;
    extent_t ofmap_extent;
    logic [31:0] positions;
    logic [31:0] padded_channels;  // whole blocks

    assign padded_channels = is_depthwise
        ? layer.output_channels
        : (layer.output_channels + 32'(COLUMNS - 1)) / 32'(COLUMNS) * 32'(COLUMNS);

    task automatic multiply(logic [1:0] number, logic [31:0] a, logic [31:0] b);
        left[number] = a;
        right[number] = b;
    endtask

    always_comb begin
        for (int i = 0; i < 3; ++i) begin
            left[i] = '0;
            right[i] = '0;
        end
        if (state == MULTIPLY && is_transfer) begin
            case (step)
                4'd0: begin
                    multiply(2'd0, transfer.planes - 32'd1, transfer.scratchpad_plane_stride);
                    multiply(2'd1, transfer.rows - 32'd1, transfer.scratchpad_row_stride);
                    multiply(2'd2, transfer.planes, transfer.rows);
                end
                4'd1: begin
                    multiply(2'd0, transfer.planes - 32'd1, transfer.bus_plane_stride);
                    multiply(2'd1, transfer.rows - 32'd1, transfer.bus_row_stride);
                    multiply(2'd2, product[2][31:0], transfer.row_bytes);
                end
                default: ;
            endcase
        end else if (state == MULTIPLY) begin
            case (step)
                4'd0: begin
                    multiply(2'd0, layer.kernel_height, layer.kernel_width);
                    multiply(2'd1, layer.output_height, layer.output_width);
                    multiply(2'd2, layer.input_height, layer.input_width);
                end
                4'd1: begin
                    multiply(2'd0, product[0][31:0], is_depthwise ? 32'd1 : layer.input_channels);
                    multiply(2'd1, product[1][31:0], layer.output_channels);
                    multiply(2'd2, product[2][31:0], layer.input_channels);
                end
                4'd2: begin
                    multiply(2'd0, product[0][31:0], padded_channels);
                    multiply(2'd1, layer.input_height - 32'd1, layer.ifmap_row_stride);
                    multiply(2'd2, layer.input_width - 32'd1, layer.ifmap_column_stride);
                end
                4'd3: begin
                    multiply(2'd0, layer.input_channels - 32'd1, layer.ifmap_channel_stride);
                    multiply(2'd1, layer.output_height - 32'd1, layer.ofmap_row_stride);
                    multiply(2'd2, layer.output_width - 32'd1, layer.ofmap_column_stride);
                end
                4'd4: begin
                    multiply(2'd0, layer.output_channels - 32'd1, layer.ofmap_channel_stride);
                    multiply(2'd1, layer.stride_height, layer.ifmap_row_stride);
                    multiply(2'd2, layer.stride_width, layer.ifmap_column_stride);
                end
                4'd5: begin
                    multiply(2'd0, layer.pad_top, layer.ifmap_row_stride);
                    multiply(2'd1, layer.pad_left, layer.ifmap_column_stride);
                    multiply(2'd2, layer.dilation_height, layer.ifmap_row_stride);
                end
                4'd6: begin
                    multiply(2'd0, layer.dilation_width, layer.ifmap_column_stride);
                    multiply(2'd1, (positions + 32'(ROWS - 1)) / 32'(ROWS),
                             (layer.output_channels + 32'(COLUMNS - 1)) / 32'(COLUMNS));
                end
                4'd7: multiply(2'd0, product[1][31:0], depth[31:0] + 32'(FoldOverhead));
                default: ;
            endcase
        end
    end

    always_ff @(posedge clk) begin
        if (state == MULTIPLY) begin
            for (int i = 0; i < 3; ++i) begin
                product[i] <= 64'(left[i]) * 64'(right[i]);
            end
            case (step)
                4'd0: job <= job_of(registers);
                4'd1: begin
                    positions <= product[1][31:0];
                    rows <= product[2];
                    partial <= extent_t'(product[0]) + extent_t'(product[1]) + extent_t'(transfer.row_bytes);
                end
                4'd2: begin
                    depth <= product[0];
                    job.depth <= product[0][ADDRESS_BITS:0];
                    job.positions <= positions[ADDRESS_BITS:0];
                    job.repetitions <= quotient[ADDRESS_BITS:0];
                    outputs <= product[1];
                    inputs <= product[2];
                end
                4'd3: begin
                    weights_extent <= depth[63:32] == '0 ? extent_t'(product[0]) : '1;
                    partial <= extent_t'(product[1]) + extent_t'(product[2]) + 66'd1;
                end
                4'd4: begin
                    ifmap_extent <= partial + extent_t'(product[0]);
                    partial <= extent_t'(product[1]) + extent_t'(product[2]) + 66'd1;
                end
                4'd5: begin
                    ofmap_extent <= partial + extent_t'(product[0]);
                    job.row_step <= product[1][ADDRESS_BITS-1:0];
                    job.column_step <= product[2][ADDRESS_BITS-1:0];
                end
                4'd6: begin
                    job.corner <= layer.ifmap_start[ADDRESS_BITS-1:0] -
                        product[0][ADDRESS_BITS-1:0] - product[1][ADDRESS_BITS-1:0];
                    job.tap_row_step <= product[2][ADDRESS_BITS-1:0];
                end
                4'd7: job.tap_column_step <= product[0][ADDRESS_BITS-1:0];
                4'd8: job.cycles <= product[0][63:32] == '0 ? product[0][31:0] : '1;
                default: ;
            endcase
        end
    end

    // ---- Verdict ----

    // What a job reads, and last what it writes.
    localparam int Operands = 7;
    localparam int Bias = 2;
    localparam int Multipliers = 3;
    localparam int Addend = 5;
    localparam int Ofmap = 6;

    logic used[Operands];
    logic [31:0] first[Operands];
    extent_t extent[Operands];

    always_comb begin
        used = '{1'b1, 1'b1, !continues, !keeps, !keeps, adds, !keeps};
        first = '{layer.ifmap_start, layer.weights_start, layer.bias_start,
                  layer.multipliers_start, layer.shifts_start, addition.addend_start,
                  layer.ofmap_start};
        extent = '{ifmap_extent, weights_extent, extent_t'(layer.output_channels) << 2,
                   extent_t'(layer.scale_count) << 2, extent_t'(layer.scale_count), ofmap_extent,
                   ofmap_extent};
    end

    // Banks between the first and the last byte of what fits.
    function automatic logic [BANKS-1:0] banks(logic [31:0] begins, extent_t size);
        logic [31:0] last;
        last = 32'(extent_t'(begins) + size - extent_t'(1));
        for (int i = 0; i < BANKS; ++i) begin
            banks[i] = 32'(i) >= begins / 32'(BANK_BYTES) && 32'(i) <= last / 32'(BANK_BYTES);
        end
    endfunction

    function automatic verdict_t verdict_of_registers();
        if (layer.operation > OPERATION_AVERAGE_POOL) begin
            return '{INVALID_ARGUMENT, OPERATION_OFFSET};
        end
        if (layer.operation <= OPERATION_DEPTHWISE && layer.dataflow > DATAFLOW_INPUT_STATIONARY)
        begin
            return '{INVALID_ARGUMENT, DATAFLOW_OFFSET};
        end
        if (layer.operation > OPERATION_DEPTHWISE || layer.dataflow != DATAFLOW_OUTPUT_STATIONARY)
        begin
            return '{UNSUPPORTED, OPERATION_OFFSET};
        end
        if (!sizes_are_valid(layer) || (is_depthwise && remainder != '0)) begin
            return '{INVALID_ARGUMENT, INPUT_HEIGHT_OFFSET};
        end
        if (!values_are_valid(layer)) begin
            return '{INVALID_ARGUMENT, CLIP_LOWEST_OFFSET};
        end
        if (adds && !addition_is_valid(addition)) begin
            return '{INVALID_ARGUMENT, ADD_OFFSET};
        end
        if (registers.sum.accumulate > 32'd3) begin
            return '{INVALID_ARGUMENT, ACCUMULATE_OFFSET};
        end
        if (registers.sum.accumulate != 32'd0) begin
            if (registers.sum.accumulator_start[1:0] != 2'd0) begin
                return '{MISALIGNED, ACCUMULATOR_START_OFFSET};
            end
            if (extent_t'(registers.sum.accumulator_start) + (extent_t'(outputs) << 2) >
                extent_t'(AccumulatorBytes)) begin
                return '{OUT_OF_RANGE, ACCUMULATOR_START_OFFSET};
            end
        end
        return '{STATUS_OK, 32'd0};
    endfunction

    function automatic verdict_t verdict_of_operands();
        for (int i = 0; i < Operands; ++i) begin
            if (used[i] && (i == Bias || i == Multipliers) && first[i][1:0] != 2'd0) begin
                return '{MISALIGNED, first[i]};
            end
            if (used[i] && !fits(first[i], extent[i], ScratchpadBytes)) begin
                return '{OUT_OF_RANGE, first[i]};
            end
        end
        if (inputs > 64'(ScratchpadBytes) || (used[Ofmap] && outputs > 64'(ScratchpadBytes)))
        begin
            return '{OUT_OF_RANGE, INPUT_HEIGHT_OFFSET};
        end
        for (int i = 0; i < Ofmap; ++i) begin
            if (used[Ofmap] && used[i] && !(i == Addend && first[i] == first[Ofmap]) &&
                overlap(first[i], extent[i], first[Ofmap], extent[Ofmap])) begin
                return '{INVALID_ARGUMENT, first[Ofmap]};
            end
        end
        return '{STATUS_OK, 32'd0};
    endfunction

    function automatic verdict_t verdict_of_transfer();
        extent_t bus_extent;
        bus_extent = extent_t'(product[0]) + extent_t'(product[1]) + extent_t'(transfer.row_bytes);
        if (rows == 64'd0 || transfer.row_bytes == 32'd0) begin
            return '{INVALID_ARGUMENT, DMA_ROW_BYTES_OFFSET};
        end
        if (rows[63:32] != '0 || product[2][63:32] != '0) begin
            return '{OUT_OF_RANGE, DMA_ROW_BYTES_OFFSET};
        end
        if (transfer.direction > DMA_DIRECTION_OUT) begin
            return '{INVALID_ARGUMENT, DMA_DIRECTION_OFFSET};
        end
        if (!fits(transfer.scratchpad_start, partial, ScratchpadBytes)) begin
            return '{OUT_OF_RANGE, transfer.scratchpad_start};
        end
        if (extent_t'(transfer.bus_address) + bus_extent > 66'h1_0000_0000) begin
            return '{OUT_OF_RANGE, transfer.bus_address};
        end
        return '{STATUS_OK, 32'd0};
    endfunction

    function automatic verdict_t verdict_of_job();
        verdict_of_job = verdict_of_registers();
        if (verdict_of_job.status == STATUS_OK) begin
            verdict_of_job = verdict_of_operands();
        end
    endfunction

    function automatic logic [BANKS-1:0] banks_of_operands();
        banks_of_operands = '0;
        for (int i = 0; i < Ofmap; ++i) begin
            if (used[i]) begin
                banks_of_operands |= banks(first[i], extent[i]);
            end
        end
    endfunction

    always_ff @(posedge clk) begin
        done <= 1'b0;
        if (state == MULTIPLY && is_transfer && step == 4'(LastTransferStep)) begin
            done <= 1'b1;
            verdict <= verdict_of_transfer();
            bus_last <= transfer.bus_address + product[0][31:0] + product[1][31:0] +
                transfer.row_bytes - 32'd1;
            bytes <= product[2][31:0];
            reads <= transfer.direction[0] ? banks(transfer.scratchpad_start, partial) : '0;
            writes <= transfer.direction[0] ? '0 : banks(transfer.scratchpad_start, partial);
        end
        if (state == MULTIPLY && !is_transfer && step == 4'(LastJobStep)) begin
            done <= 1'b1;
            verdict <= verdict_of_job();
            reads <= banks_of_operands();
            writes <= used[Ofmap] ? banks(first[Ofmap], extent[Ofmap]) : '0;
        end
        if (!rst_n) begin
            done <= 1'b0;
        end
    end

    always_ff @(posedge clk) begin
        case (state)
            IDLE: begin
                step <= '0;
                if (start) begin
                    if (is_transfer) begin
                        transfer <= transfer_registers;
                        state <= MULTIPLY;
                    end else begin
                        registers <= job_registers;
                        state <= needs_division ? DIVIDE : MULTIPLY;
                    end
                end
            end
            DIVIDE: begin
                if (bits_left == 5'd1) begin
                    state <= MULTIPLY;
                end
            end
            default: begin
                step <= step + 1'b1;
                if (step == (is_transfer ? 4'(LastTransferStep) : 4'(LastJobStep))) begin
                    state <= IDLE;
                end
            end
        endcase
        if (!rst_n) begin
            state <= IDLE;
        end
    end

endmodule
