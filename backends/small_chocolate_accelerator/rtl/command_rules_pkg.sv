// SPDX-License-Identifier: Apache-2.0
//
// What is valid in the registers of a command, without what depends on products of them.

package command_rules_pkg;
    import chocolate_pkg::*;
    import systolic_array_registers_pkg::*;

    // Bytes from the first to the last one, both included.
    typedef logic [65:0] extent_t;

    // What is wrong, and the register, scratchpad offset or bus address that it is about.
    typedef struct packed {
        logic [7:0] status;
        logic [31:0] address;
    } verdict_t;

    localparam logic [31:0] MostChannels = 32'hFF_FFFF;

    /* verilator lint_off UNUSEDSIGNAL */

    function automatic logic is_byte(logic [31:0] value);
        return value[31:7] == '0 || value[31:7] == '1;
    endfunction

    function automatic logic is_size(logic [31:0] value);
        return value != 32'd0 && value <= 32'hFFFF;
    endfunction

    function automatic logic is_scale(logic [31:0] multiplier, logic [31:0] shift);
        return !multiplier[31] && $signed(shift) >= -32'sd31 && $signed(shift) <= 32'sd30;
    endfunction

    function automatic scale_t scale(logic [31:0] multiplier, logic [31:0] shift);
        return '{multiplier: multiplier, shift: shift[7:0]};
    endfunction

    function automatic logic sizes_are_valid(layer_registers_t l);
        return is_size(l.input_height) && is_size(l.input_width) && is_size(l.output_height) &&
            is_size(l.output_width) && is_size(l.kernel_height) && is_size(l.kernel_width) &&
            is_size(l.stride_height) && is_size(l.stride_width) && is_size(l.dilation_height) &&
            is_size(l.dilation_width) && l.pad_top <= 32'hFFFF && l.pad_left <= 32'hFFFF &&
            l.input_channels != 32'd0 && l.input_channels <= MostChannels &&
            l.output_channels != 32'd0 && l.output_channels <= MostChannels;
    endfunction

    function automatic logic values_are_valid(layer_registers_t l);
        return is_byte(l.clip_lowest) && is_byte(l.clip_highest) &&
            $signed(l.clip_lowest) <= $signed(l.clip_highest) && is_byte(l.input_zero_point) &&
            is_byte(l.output_zero_point) && l.rounding <= ROUNDING_ORT &&
            (l.scale_count == 32'd1 || l.scale_count == l.output_channels);
    endfunction

    function automatic logic addition_is_valid(add_registers_t a);
        return a.add == 32'd1 && a.add_left_shift <= 32'd22 && is_byte(a.addend_zero_point) &&
            is_scale(a.add_result_multiplier, a.add_result_shift) &&
            is_scale(a.add_addend_multiplier, a.add_addend_shift) &&
            is_scale(a.add_multiplier, a.add_shift) && is_byte(a.sum_zero_point) &&
            is_byte(a.sum_clip_lowest) && is_byte(a.sum_clip_highest) &&
            $signed(a.sum_clip_lowest) <= $signed(a.sum_clip_highest);
    endfunction

    // A job with the fields that are registers; the others follow from products.
    function automatic job_t job_of(job_registers_t r);
        job_of = '0;
        job_of.is_depthwise = r.layer.operation == OPERATION_DEPTHWISE;
        job_of.is_ort = r.layer.rounding[0];
        job_of.continues = r.sum.accumulate[ACCUMULATE_CONTINUE_BIT];
        job_of.keeps = r.sum.accumulate[ACCUMULATE_KEEP_BIT];
        job_of.scales_differ = r.layer.scale_count != 32'd1;
        job_of.weights = address_t'(r.layer.weights_start);
        job_of.bias = address_t'(r.layer.bias_start);
        job_of.multipliers = address_t'(r.layer.multipliers_start);
        job_of.shifts = address_t'(r.layer.shifts_start);
        job_of.ofmap = address_t'(r.layer.ofmap_start);
        job_of.addend = address_t'(r.add.addend_start);
        job_of.accumulator = address_t'(r.sum.accumulator_start >> 2);
        job_of.input_height = r.layer.input_height[15:0];
        job_of.input_width = r.layer.input_width[15:0];
        job_of.input_channels = count_t'(r.layer.input_channels);
        job_of.output_width = r.layer.output_width[15:0];
        job_of.output_channels = count_t'(r.layer.output_channels);
        job_of.kernel_width = r.layer.kernel_width[15:0];
        job_of.kernel_height = r.layer.kernel_height[15:0];
        job_of.stride_height = r.layer.stride_height[15:0];
        job_of.stride_width = r.layer.stride_width[15:0];
        job_of.dilation_height = r.layer.dilation_height[15:0];
        job_of.dilation_width = r.layer.dilation_width[15:0];
        job_of.pad_top = r.layer.pad_top[15:0];
        job_of.pad_left = r.layer.pad_left[15:0];
        job_of.ifmap_channel_stride = address_t'(r.layer.ifmap_channel_stride);
        job_of.ofmap_row_stride = address_t'(r.layer.ofmap_row_stride);
        job_of.ofmap_column_stride = address_t'(r.layer.ofmap_column_stride);
        job_of.ofmap_channel_stride = address_t'(r.layer.ofmap_channel_stride);
        job_of.input_zero_point = r.layer.input_zero_point[7:0];
        job_of.output_zero_point = r.layer.output_zero_point[7:0];
        job_of.lowest = r.layer.clip_lowest[7:0];
        job_of.highest = r.layer.clip_highest[7:0];
        job_of.add.is_used = r.add.add != 32'd0 && !job_of.keeps;
        job_of.add.left_shift = r.add.add_left_shift[4:0];
        job_of.add.addend_zero_point = r.add.addend_zero_point[7:0];
        job_of.add.result = scale(r.add.add_result_multiplier, r.add.add_result_shift);
        job_of.add.addend = scale(r.add.add_addend_multiplier, r.add.add_addend_shift);
        job_of.add.sum = scale(r.add.add_multiplier, r.add.add_shift);
        job_of.add.zero_point = r.add.sum_zero_point[7:0];
        job_of.add.lowest = r.add.sum_clip_lowest[7:0];
        job_of.add.highest = r.add.sum_clip_highest[7:0];
    endfunction

    /* verilator lint_on UNUSEDSIGNAL */

    // ---- Bytes of the scratchpad ----

    function automatic logic fits(logic [31:0] begins, extent_t size, logic [31:0] bytes);
        return begins < bytes && size <= extent_t'(bytes) - extent_t'(begins);
    endfunction

    function automatic logic overlap(logic [31:0] a, extent_t a_size, logic [31:0] b,
                                     extent_t b_size);
        return a < b ? extent_t'(b) - extent_t'(a) < a_size : extent_t'(a) - extent_t'(b) < b_size;
    endfunction

endpackage
