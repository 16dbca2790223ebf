// SPDX-License-Identifier: Apache-2.0
//
// The registers that a driver sees: what it writes is kept here, commands are checked and appended
// to the queue, and errors, interrupts and the state of the engines are shown.
//
// A request is answered in the cycle after it. While commands of a write to CONTROL are checked, the
// registers of the next command may be written. Another write waits here until the check has ended,
// and no request may come while `hold_writes` or `hold_reads` is 1: so each finds what became of the
// commands.

module register_file
    import chocolate_pkg::*;
    import command_rules_pkg::verdict_t;
    import systolic_array_registers_pkg::*;
#(
    parameter int ROWS = 4,
    parameter int COLUMNS = 4,
    parameter int BANKS = 8,
    parameter int BANK_BYTES = 2048,
    parameter int ACCUMULATOR_BYTES = 4096,
    parameter int QUEUE_DEPTH = 4
) (
    input  logic clk,
    input  logic rst_n,
    output logic irq,
    output logic hold_reads,
    output logic hold_writes,

    input  logic        request_valid,
    input  logic        request_write,
    input  logic [11:0] request_offset,
    input  logic [31:0] request_data,
    input  logic [ 3:0] request_strobe,
    output logic [31:0] response_data,

    // Commands: `check_start` begins the check of the registers, `append` ends one that found
    // nothing wrong.
    output logic           check_start,
    output logic           check_is_transfer,
    output logic           is_enqueued,
    output transfer_t      transfer,
    output job_registers_t job,
    input  logic           check_done,
    input  verdict_t       verdict,
    output logic           append,
    output logic           clear,
    output logic           drop,

    input logic [ 5:0] commands_left,
    input logic        dma_busy,
    input logic        array_busy,
    input logic        dma_has_commands,
    input logic        array_has_commands,
    input logic [31:0] bytes_left,
    input logic [31:0] cycles_left,

    // Pulses.
    input logic        dma_start_ended,
    input logic        array_start_ended,
    input logic        command_ended,
    input logic        queue_ended,
    input logic        transfer_failed,
    input verdict_t    transfer_verdict,
    input logic        job_failed,
    input verdict_t    job_verdict,

    output logic        reset_counters,
    output logic        counter_read,
    output logic [ 4:0] counter_number,
    input  logic [31:0] counter_value
);
    localparam logic [31:0] Interrupts = INTERRUPT_ENABLE_WRITABLE_MASK;
    localparam logic [31:0] Commands = CONTROL_WRITABLE_MASK;

    logic [TRANSFER_WORDS-1:0][31:0] transfer_words;
    logic [LAYER_WORDS-1:0][31:0] layer_words;
    logic [SUM_WORDS-1:0][31:0] sum_words;
    logic [ADD_WORDS-1:0][31:0] add_words;
    logic [31:0] interrupt_enable;
    logic [31:0] interrupt_pending;
    verdict_t error;
    logic dma_is_done;
    logic array_is_done;

    assign transfer = transfer_t'(transfer_words);
    assign job = '{
        add: add_registers_t'(add_words),
        sum: sum_registers_t'(sum_words),
        layer: layer_registers_t'(layer_words)
    };
    assign irq = |(interrupt_enable & interrupt_pending);

    // ---- Requests ----

    logic [31:0] offset;
    logic writes;
    logic reads;
    logic is_aligned;
    logic [31:0] mask;  // of the bytes that are written
    logic [31:0] data;  // others are 0

    logic has_waiting;  // a write that waits
    logic waits;        // one that will
    logic is_busy;
    logic [11:0] waiting_offset;
    logic [31:0] waiting_data;
    logic [3:0] waiting_strobe;
    logic [3:0] strobe;

    logic [3:0] commands;  // ENQUEUE_ARRAY, ENQUEUE_DMA, ARRAY_START, DMA_START: the first comes last
    logic is_checking;
    logic has_appended;  // the command starts in this cycle if nothing keeps it
    logic [31:0] kept;  // what a register that is written holds
    logic is_kept;

    assign is_busy = commands != '0 || is_checking || has_appended;
    assign waits = request_valid && request_write && is_busy && !(is_kept && commands == '0);
    assign hold_writes = has_waiting;
    assign hold_reads = has_waiting || is_busy;

    always_ff @(posedge clk) begin
        has_waiting <= rst_n && (waits || (has_waiting && is_busy));
        if (waits) begin
            waiting_offset <= request_offset;
            waiting_data <= request_data;
            waiting_strobe <= request_strobe;
        end
    end

    assign writes = has_waiting ? !is_busy : request_valid && request_write && !waits;
    assign reads = request_valid && !request_write;
    assign offset = has_waiting ? 32'(waiting_offset) : 32'(request_offset);
    assign strobe = has_waiting ? waiting_strobe : request_strobe;
    assign mask = {{8{strobe[3]}}, {8{strobe[2]}}, {8{strobe[1]}}, {8{strobe[0]}}};
    assign data = (has_waiting ? waiting_data : request_data) & mask;
    assign is_aligned = offset[1:0] == 2'd0;

    function automatic logic is_between(logic [31:0] value, logic [31:0] low, logic [31:0] high);
        return value[1:0] == 2'd0 && value >= low && value <= high;
    endfunction

    function automatic logic [5:0] word_from(logic [31:0] value, logic [31:0] low);
        return 6'((value - low) >> 2);
    endfunction

    logic is_transfer_word;
    logic is_layer_word;
    logic is_sum_word;
    logic is_add_word;
    logic is_interrupt_word;
    logic is_counter;

    logic [3:0] transfer_word;  // numbers in their groups
    logic [5:0] layer_word;
    logic sum_word;
    logic [3:0] add_word;

    assign transfer_word = 4'(word_from(offset, DMA_BUS_ADDRESS_OFFSET));
    assign layer_word = word_from(offset, OPERATION_OFFSET);
    assign sum_word = 1'(word_from(offset, ACCUMULATE_OFFSET));
    assign add_word = 4'(word_from(offset, ADD_OFFSET));
    assign is_transfer_word =
        is_between(offset, DMA_BUS_ADDRESS_OFFSET, DMA_SCRATCHPAD_PLANE_STRIDE_OFFSET);
    assign is_layer_word = is_between(offset, OPERATION_OFFSET, SCALE_COUNT_OFFSET);
    assign is_sum_word = is_between(offset, ACCUMULATE_OFFSET, ACCUMULATOR_START_OFFSET);
    assign is_add_word = is_between(offset, ADD_OFFSET, SUM_CLIP_HIGHEST_OFFSET);
    assign is_interrupt_word = offset == INTERRUPT_ENABLE_OFFSET ||
        offset == INTERRUPT_PENDING_OFFSET;
    assign is_counter = is_between(offset, CLOCK_LOW_OFFSET, BYTES_OUT_HIGH_OFFSET);

    // ---- Commands of CONTROL ----

    logic writes_control;
    logic [3:0] command;  // the one that is next
    logic accepts;
    logic refuses;

    assign writes_control = writes && offset == CONTROL_OFFSET && (data & ~Commands) == '0;
    assign clear = writes_control && data[CONTROL_CLEAR_BIT];
    assign reset_counters = writes_control && data[CONTROL_RESET_COUNTERS_BIT];

    assign command = is_checking ? '0 : commands & -commands;
    assign refuses = (command[0] && (dma_busy || dma_has_commands)) ||
        (command[1] && (array_busy || array_has_commands)) ||
        (|command[3:2] && commands_left == 6'(QUEUE_DEPTH));
    assign accepts = command != '0 && !refuses && error.status == STATUS_OK;
    assign append = is_checking && check_done && verdict.status == STATUS_OK;

    always_ff @(posedge clk) begin
        check_start <= accepts;
        has_appended <= append && rst_n;
        if (command != '0) begin
            commands <= commands & ~command;
            check_is_transfer <= command[0] || command[2];
            is_enqueued <= |command[3:2];
        end
        if (accepts) begin
            is_checking <= 1'b1;
        end else if (check_done) begin
            is_checking <= 1'b0;
        end
        if (writes_control) begin
            commands <= {data[CONTROL_ENQUEUE_ARRAY_BIT], data[CONTROL_ENQUEUE_DMA_BIT],
                         data[CONTROL_ARRAY_START_BIT], data[CONTROL_DMA_START_BIT]};
        end
        if (!rst_n) begin
            commands <= '0;
            is_checking <= 1'b0;
            check_start <= 1'b0;
        end
    end

    // ---- Errors: the first one counts ----

    logic report;
    verdict_t reported;
    logic is_known;  // the offset, with this access

    assign drop = report && error.status == STATUS_OK;

    always_comb begin
        report = 1'b1;
        if (transfer_failed) begin
            reported = transfer_verdict;
        end else if (job_failed) begin
            reported = job_verdict;
        end else if (is_checking && check_done && verdict.status != STATUS_OK) begin
            reported = verdict;
        end else if (refuses) begin
            reported = '{BUSY, CONTROL_OFFSET};
        end else if ((reads || writes) && !is_known) begin
            reported = '{INVALID_REGISTER, offset};
        end else if (writes && ((offset == CONTROL_OFFSET && (data & ~Commands) != '0) ||
                                (is_interrupt_word && (data & ~Interrupts) != '0))) begin
            reported = '{INVALID_ARGUMENT, offset};
        end else begin
            report = 1'b0;
            reported = '0;
        end
    end

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            error <= '0;
        end else if (drop) begin
            error <= reported;
        end
    end

    // ---- Interrupts, and what STATUS remembers ----

    logic [31:0] raised;
    logic [31:0] lowered;

    always_comb begin
        raised = '0;
        raised[INTERRUPT_PENDING_DMA_DONE_BIT] = dma_start_ended;
        raised[INTERRUPT_PENDING_ARRAY_DONE_BIT] = array_start_ended;
        raised[INTERRUPT_PENDING_ERROR_BIT] = drop;
        raised[INTERRUPT_PENDING_QUEUE_DONE_BIT] = queue_ended;
        raised[INTERRUPT_PENDING_COMMAND_DONE_BIT] = command_ended;
        lowered = '0;
        if (accepts) begin
            lowered[INTERRUPT_PENDING_DMA_DONE_BIT] = command[0];
            lowered[INTERRUPT_PENDING_ARRAY_DONE_BIT] = command[1];
            lowered[INTERRUPT_PENDING_QUEUE_DONE_BIT] = |command[3:2];
        end
        if (writes && offset == INTERRUPT_PENDING_OFFSET && (data & ~Interrupts) == '0) begin
            lowered = lowered | data;
        end
    end

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            interrupt_pending <= '0;
            dma_is_done <= 1'b0;
            array_is_done <= 1'b0;
        end else begin
            interrupt_pending <= (interrupt_pending & ~lowered) | raised;
            dma_is_done <= dma_start_ended || (dma_is_done && !(accepts && command[0]));
            array_is_done <= array_start_ended || (array_is_done && !(accepts && command[1]));
        end
    end

    // ---- Writing ----

    always_ff @(posedge clk) begin
        if (writes) begin
            if (offset == INTERRUPT_ENABLE_OFFSET && (data & ~Interrupts) == '0) begin
                interrupt_enable <= (interrupt_enable & ~mask) | data;
            end
            if (is_transfer_word) begin
                transfer_words[transfer_word] <= (kept & ~mask) | data;
            end
            if (is_layer_word) begin
                layer_words[layer_word] <= (kept & ~mask) | data;
            end
            if (is_sum_word) begin
                sum_words[sum_word] <= (kept & ~mask) | data;
            end
            if (is_add_word) begin
                add_words[add_word] <= (kept & ~mask) | data;
            end
        end
        if (clear) begin
            add_words[0] <= '0;
            sum_words[0] <= '0;
        end
        if (!rst_n) begin
            interrupt_enable <= '0;
            transfer_words <= '0;
            layer_words <= '0;
            sum_words <= '0;
            add_words <= '0;
            transfer_words[4'(word_from(DMA_ROWS_OFFSET, DMA_BUS_ADDRESS_OFFSET))] <= DMA_ROWS_RESET;
            transfer_words[4'(word_from(DMA_PLANES_OFFSET, DMA_BUS_ADDRESS_OFFSET))] <= DMA_PLANES_RESET;
            layer_words[word_from(STRIDE_HEIGHT_OFFSET, OPERATION_OFFSET)] <= STRIDE_HEIGHT_RESET;
            layer_words[word_from(STRIDE_WIDTH_OFFSET, OPERATION_OFFSET)] <= STRIDE_WIDTH_RESET;
            layer_words[word_from(DILATION_HEIGHT_OFFSET, OPERATION_OFFSET)] <= DILATION_HEIGHT_RESET;
            layer_words[word_from(DILATION_WIDTH_OFFSET, OPERATION_OFFSET)] <= DILATION_WIDTH_RESET;
            layer_words[word_from(SCALE_COUNT_OFFSET, OPERATION_OFFSET)] <= SCALE_COUNT_RESET;
        end
    end

    // ---- Reading ----

    logic [31:0] shown;
    logic is_shown;
    logic [31:0] status;

    always_comb begin
        is_kept = 1'b1;
        if (is_transfer_word) begin
            kept = transfer_words[transfer_word];
        end else if (is_layer_word) begin
            kept = layer_words[layer_word];
        end else if (is_sum_word) begin
            kept = sum_words[sum_word];
        end else if (is_add_word) begin
            kept = add_words[add_word];
        end else begin
            kept = '0;
            is_kept = 1'b0;
        end
    end

    always_comb begin
        status = '0;
        status[STATUS_IDLE_BIT] = !dma_busy && !array_busy;
        status[STATUS_DMA_BUSY_BIT] = dma_busy;
        status[STATUS_ARRAY_BUSY_BIT] = array_busy;
        status[STATUS_DMA_DONE_BIT] = dma_is_done;
        status[STATUS_ARRAY_DONE_BIT] = array_is_done;
        status[STATUS_ERROR_BIT] = error.status != STATUS_OK;
        status[STATUS_QUEUE_FULL_BIT] = commands_left == 6'(QUEUE_DEPTH);
    end

    assign counter_read = reads && is_counter;
    assign counter_number = 5'(word_from(offset, CLOCK_LOW_OFFSET));

    always_comb begin
        is_shown = 1'b1;
        case (offset)
            ID_OFFSET: shown = ID_RESET;
            VERSION_OFFSET: shown = VERSION_RESET;
            STATUS_OFFSET: shown = status;
            INTERRUPT_ENABLE_OFFSET: shown = interrupt_enable;
            INTERRUPT_PENDING_OFFSET: shown = interrupt_pending;
            ERROR_OFFSET: shown = 32'(error.status);
            ERROR_ADDRESS_OFFSET: shown = error.address;
            QUEUE_DEPTH_OFFSET: shown = 32'(QUEUE_DEPTH);
            QUEUE_FREE_OFFSET: shown = 32'(QUEUE_DEPTH) - 32'(commands_left);
            COMMANDS_LEFT_OFFSET: shown = 32'(commands_left);
            ACCUMULATOR_BYTES_OFFSET: shown = 32'(ACCUMULATOR_BYTES);
            ARRAY_ROWS_OFFSET: shown = 32'(ROWS);
            ARRAY_COLUMNS_OFFSET: shown = 32'(COLUMNS);
            SCRATCHPAD_BYTES_OFFSET: shown = 32'(BANKS * BANK_BYTES);
            SCRATCHPAD_BANKS_OFFSET: shown = 32'(BANKS);
            DMA_BYTES_PER_CYCLE_OFFSET: shown = 32'd8;
            DMA_ALIGNMENT_OFFSET: shown = 32'd1;
            POOLING_LANES_OFFSET: shown = 32'd0;
            FEATURES_OFFSET: shown = FEATURES_OUTPUT_STATIONARY_MASK | FEATURES_DEPTHWISE_MASK;
            DMA_BYTES_LEFT_OFFSET: shown = bytes_left;
            ARRAY_CYCLES_LEFT_OFFSET: shown = cycles_left;
            default: begin
                is_shown = is_kept || is_counter;
                shown = is_counter ? counter_value : kept;
            end
        endcase
    end

    assign is_known = is_aligned && (writes
        ? is_kept || is_interrupt_word || offset == CONTROL_OFFSET
        : is_shown);

    always_ff @(posedge clk) begin
        if (reads) begin
            response_data <= shown;
        end
    end

endmodule
