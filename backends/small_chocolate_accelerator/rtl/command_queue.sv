// SPDX-License-Identifier: Apache-2.0
//
// Commands that have not ended, and which of them may start.
//
// Loads, jobs and stores are three streams, each in order. A command starts as soon as its engine
// is free and no older command that has not ended conflicts with it: by a bank that one of the
// array and one of the DMA engine uses, by a bank that one reads and the other writes, or, a load
// and a store, by addresses on the bus. That is found out once, when a command comes: for each slot
// it keeps which others have to end, and which have to start, before it may start.
//
// A command that comes is started in the next cycle at the earliest; one that waits for another in
// the cycle in which that ends. Its engine sees `start` a cycle later, and its command stays there
// until it ends. There are slots for DEPTH commands and for one of a START for each engine.

module command_queue
    import chocolate_pkg::*;
#(
    parameter int DEPTH = 4,
    parameter int BANKS = 8
) (
    input logic clk,
    input logic rst_n,

    // A valid command comes.
    input logic             append,
    input logic             is_transfer,
    input logic             is_enqueued,  // else it is one of a START
    input transfer_t        transfer,
    input job_t             job,
    input logic [BANKS-1:0] reads,
    input logic [BANKS-1:0] writes,
    input logic [     31:0] bus_last,
    input logic [     31:0] bytes,

    input logic clear,  // all commands are dropped
    input logic drop,   // an error: those that were enqueued are dropped

    output logic [ 5:0] commands_left,
    output logic        dma_busy,
    output logic        array_busy,
    output logic        dma_has_commands,
    output logic        array_has_commands,
    output logic [31:0] bytes_left,
    output logic [31:0] cycles_left,

    // Pulses: what ended without an error.
    output logic dma_start_ended,
    output logic array_start_ended,
    output logic command_ended,
    output logic queue_ended,

    output logic             dma_start,
    output logic             dma_stop,
    output transfer_t        dma_transfer,
    output logic             dma_runs,  // a command
    input  logic             dma_engine_busy,
    input  logic             dma_done,
    input  logic             dma_failed,
    input  logic      [11:0] moved_bytes,

    output logic array_start,
    output logic array_stop,
    output job_t array_job,
    output logic array_runs,
    input  logic array_done,
    input  logic array_failed  // with array_done
);
    localparam int Slots = DEPTH + 2;
    typedef logic [Slots-1:0] slots_t;
    typedef logic [$clog2(Slots)-1:0] slot_t;
    typedef logic [$bits(job_t)-1:0] payload_t;

    // ---- Slots: a bit for each ----

    slots_t valid;
    slots_t enqueued;
    slots_t waiting;  // has not started
    slots_t of_array;
    slots_t of_store;
    slots_t after_end[Slots];  // those that have to end before this one starts
    slots_t after_start[Slots];
    slots_t older[Slots];
    logic [BANKS-1:0] slot_reads[Slots];
    logic [BANKS-1:0] slot_writes[Slots];
    logic [31:0] bus_first_byte[Slots];
    logic [31:0] bus_last_byte[Slots];
    logic [31:0] amount[Slots];  // bytes of a transfer, cycles of a job
    payload_t payload[Slots];

    slot_t dma_slot;  // what an engine runs
    slot_t array_slot;
    slots_t on_dma;
    slots_t on_array;

    function automatic slots_t bit_of(slot_t slot);
        return slots_t'(1) << slot;
    endfunction

    assign on_dma = dma_runs ? bit_of(dma_slot) : '0;
    assign on_array = array_runs ? bit_of(array_slot) : '0;

    // ---- What leaves ----

    logic dma_ends;
    logic array_ends;
    slots_t removed;
    slots_t ended;  // without an error

    assign dma_ends = dma_runs && (dma_done || dma_failed);
    assign array_ends = array_runs && array_done;
    assign removed = clear
        ? valid
        : (dma_ends ? on_dma : '0) | (array_ends ? on_array : '0) | (drop ? enqueued : '0);
    assign ended = clear
        ? '0
        : (dma_ends && dma_done ? on_dma : '0) | (array_ends && !array_failed ? on_array : '0);

    assign dma_start_ended = |(ended & on_dma & ~enqueued);
    assign array_start_ended = |(ended & on_array & ~enqueued);
    assign command_ended = |(ended & enqueued);
    assign queue_ended = command_ended && !drop && (enqueued & ~removed) == '0;

    // An engine that runs what is dropped stops.
    assign dma_stop = |(removed & on_dma) && !dma_ends;
    assign array_stop = |(removed & on_array) && !array_ends;

    // ---- What starts ----

    slots_t ready;
    slots_t ready_of_dma;
    slots_t next_of_dma;  // one at most
    slots_t next_of_array;

    always_comb begin
        ready = '0;
        next_of_dma = '0;
        for (int i = 0; i < Slots; ++i) begin
            ready[i] = waiting[i] && !removed[i] &&
                ((after_end[i] | after_start[i]) & ~removed) == '0;
        end
        ready_of_dma = ready & ~of_array;
        for (int i = 0; i < Slots; ++i) begin
            next_of_dma[i] = ready_of_dma[i] && (ready_of_dma & older[i]) == '0;
        end
        next_of_array = ready & of_array;
        if (dma_engine_busy || (dma_runs && !dma_ends)) begin
            next_of_dma = '0;
        end
        if (array_runs && !array_ends) begin
            next_of_array = '0;
        end
    end

    slots_t starting;
    assign starting = next_of_dma | next_of_array;

    function automatic slot_t number_of(slots_t one);
        number_of = '0;
        for (int i = 0; i < Slots; ++i) begin
            if (one[i]) begin
                number_of |= slot_t'(i);
            end
        end
    endfunction

    slot_t dma_number;
    slot_t array_number;
    assign dma_number = number_of(next_of_dma);
    assign array_number = number_of(next_of_array);

    always_ff @(posedge clk) begin
        dma_start <= |next_of_dma && rst_n;
        array_start <= |next_of_array && rst_n;
        if (|next_of_dma) begin
            dma_slot <= dma_number;
            dma_transfer <= transfer_t'(payload[dma_number][$bits(transfer_t)-1:0]);
        end
        if (|next_of_array) begin
            array_slot <= array_number;
            array_job <= job_t'(payload[array_number]);
        end
        dma_runs <= rst_n && (|next_of_dma || (dma_runs && (removed & on_dma) == '0));
        array_runs <= rst_n && (|next_of_array || (array_runs && (removed & on_array) == '0));
    end

    // ---- What comes ----

    slots_t free;
    slot_t free_number;  // the first one
    logic is_store;
    slots_t conflicts;

    assign free = ~valid & (valid + 1'b1);
    assign free_number = number_of(free);
    assign is_store = is_transfer && transfer.direction[0];

    always_comb begin
        conflicts = '0;
        if (append) begin
            for (int i = 0; i < Slots; ++i) begin
                if (of_array[i] == is_transfer) begin
                    conflicts[i] =
                        ((slot_reads[i] | slot_writes[i]) & (reads | writes)) != '0;
                end else begin
                    conflicts[i] = ((slot_reads[i] & writes) | (slot_writes[i] & reads)) != '0 ||
                        (is_transfer && of_store[i] != is_store &&
                         bus_first_byte[i] <= bus_last && transfer.bus_address <= bus_last_byte[i]);
                end
            end
        end
    end

    always_ff @(posedge clk) begin
        if ((removed | starting) != '0) begin
            valid <= valid & ~removed;
            enqueued <= enqueued & ~removed;
            waiting <= waiting & ~removed & ~starting;
            for (int i = 0; i < Slots; ++i) begin
                after_end[i] <= after_end[i] & ~removed;
                after_start[i] <= after_start[i] & ~removed & ~starting;
                older[i] <= older[i] & ~removed;
            end
        end
        if (append && !drop) begin
            valid <= (valid & ~removed) | free;
            enqueued <= (enqueued & ~removed) | (is_enqueued ? free : '0);
            waiting <= (waiting & ~removed & ~starting) | free;
            of_array <= is_transfer ? of_array & ~free : of_array | free;
            of_store <= is_store ? of_store | free : of_store & ~free;
            for (int i = 0; i < Slots; ++i) begin
                if (free[i]) begin
                    after_end[i] <= valid & ~removed & conflicts;
                    after_start[i] <= waiting & ~removed & ~starting &
                        (is_transfer ? ~of_array & (is_store ? of_store : ~of_store) : of_array);
                    older[i] <= valid & ~removed;
                end
            end
            slot_reads[free_number] <= reads;
            slot_writes[free_number] <= writes;
            bus_first_byte[free_number] <= transfer.bus_address;
            bus_last_byte[free_number] <= bus_last;
            amount[free_number] <= is_transfer ? bytes : job.cycles;
            payload[free_number] <= is_transfer ? payload_t'(transfer) : payload_t'(job);
        end
        if (!rst_n) begin
            valid <= '0;
            enqueued <= '0;
            waiting <= '0;
        end
    end

    // ---- State ----

    assign commands_left = 6'($countones(enqueued));
    assign dma_busy = dma_runs || dma_engine_busy || |(valid & ~enqueued & ~of_array);
    assign array_busy = array_runs || |(valid & ~enqueued & of_array);
    assign dma_has_commands = |(valid & ~of_array);
    assign array_has_commands = |(valid & of_array);

    // ---- Progress: of what runs, and of a START that waits for its banks ----

    logic [31:0] dma_left;
    logic [31:0] left_behind;  // bytes of transfers that stopped
    logic [31:0] array_left;
    slots_t waiting_start_of_dma;
    slots_t waiting_start_of_array;

    function automatic logic [31:0] saturating_sum(logic [31:0] a, logic [31:0] b);
        logic [32:0] sum;
        sum = 33'(a) + 33'(b);
        return sum[32] ? '1 : sum[31:0];
    endfunction

    assign waiting_start_of_dma = waiting & ~enqueued & ~of_array;
    assign waiting_start_of_array = waiting & ~enqueued & of_array;

    assign bytes_left = saturating_sum(left_behind,
        dma_runs ? dma_left
                 : |waiting_start_of_dma ? amount[number_of(waiting_start_of_dma)] : 32'd0);
    assign cycles_left = array_runs
        ? array_left
        : |waiting_start_of_array ? amount[number_of(waiting_start_of_array)] : 32'd0;

    always_ff @(posedge clk) begin
        if (|next_of_dma) begin
            dma_left <= amount[dma_number];
        end else if (dma_runs) begin
            dma_left <= dma_left - 32'(moved_bytes);
        end
        if (|next_of_array) begin
            array_left <= amount[array_number];
        end else if (array_left > 32'd1) begin
            array_left <= array_left - 32'd1;
        end
        if (!rst_n || clear || (append && is_transfer && !is_enqueued)) begin
            left_behind <= '0;
        end else if ((removed & on_dma & ~ended) != '0) begin
            left_behind <= saturating_sum(left_behind, dma_left - 32'(moved_bytes));
        end
    end

endmodule
