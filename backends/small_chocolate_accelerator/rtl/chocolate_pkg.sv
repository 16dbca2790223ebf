// SPDX-License-Identifier: Apache-2.0
//
// Types that the modules of Chocolate share: the registers of a transfer and of a job as a driver
// writes them, and a job as it is once it was found valid.

// verilator lint_off UNUSEDPARAM
package chocolate_pkg;

    // Scratchpads of up to 1 MiB. A count may be one larger than an address.
    localparam int ADDRESS_BITS = 20;
    typedef logic [ADDRESS_BITS-1:0] address_t;
    typedef logic [ADDRESS_BITS:0] count_t;

    // Rows and columns of the input, padding included: a product of two registers of 16 bits.
    typedef logic signed [33:0] coordinate_t;

    // What moves through the array in a cycle: a position of the kernel and an input channel.
    typedef struct packed {
        logic valid;
        logic first; // of a sum
        coordinate_t y; // from the kernel's first position
        coordinate_t x;
        address_t offset; // of the input, from that of the kernel's first position and channel 0
        address_t weights; // of the first column
    } tap_t;

    // Codes of the register ERROR, as in umakit/status.h.
    localparam logic [7:0] STATUS_OK = 8'd0;
    localparam logic [7:0] INVALID_ARGUMENT = 8'd1;
    localparam logic [7:0] INVALID_REGISTER = 8'd2;
    localparam logic [7:0] OUT_OF_RANGE = 8'd3;
    localparam logic [7:0] MISALIGNED = 8'd4;
    localparam logic [7:0] BUSY = 8'd6;
    localparam logic [7:0] BUS_ERROR = 8'd8;
    localparam logic [7:0] UNSUPPORTED = 8'd16;

    typedef enum logic [1:0] {
        LOAD,
        COMPUTE,
        STORE
    } stream_t;

    // The registers from DMA_BUS_ADDRESS on; the last one comes first, as its bits are the highest.
    typedef struct packed {
        logic [31:0] scratchpad_plane_stride;
        logic [31:0] scratchpad_row_stride;
        logic [31:0] bus_plane_stride;
        logic [31:0] bus_row_stride;
        logic [31:0] planes;
        logic [31:0] rows;
        logic [31:0] row_bytes;
        logic [31:0] direction;
        logic [31:0] scratchpad_start;
        logic [31:0] bus_address;
    } transfer_t;
    localparam int TRANSFER_WORDS = $bits(transfer_t) / 32;

    // The registers from OPERATION to SCALE_COUNT.
    typedef struct packed {
        logic [31:0] scale_count;
        logic [31:0] rounding;
        logic [31:0] clip_highest;
        logic [31:0] clip_lowest;
        logic [31:0] output_zero_point;
        logic [31:0] input_zero_point;
        logic [31:0] ofmap_channel_stride;
        logic [31:0] ofmap_column_stride;
        logic [31:0] ofmap_row_stride;
        logic [31:0] ifmap_channel_stride;
        logic [31:0] ifmap_column_stride;
        logic [31:0] ifmap_row_stride;
        logic [31:0] pad_left;
        logic [31:0] pad_top;
        logic [31:0] dilation_width;
        logic [31:0] dilation_height;
        logic [31:0] stride_width;
        logic [31:0] stride_height;
        logic [31:0] kernel_width;
        logic [31:0] kernel_height;
        logic [31:0] output_channels;
        logic [31:0] output_width;
        logic [31:0] output_height;
        logic [31:0] input_channels;
        logic [31:0] input_width;
        logic [31:0] input_height;
        logic [31:0] ofmap_start;
        logic [31:0] shifts_start;
        logic [31:0] multipliers_start;
        logic [31:0] bias_start;
        logic [31:0] weights_start;
        logic [31:0] ifmap_start;
        logic [31:0] dataflow;
        logic [31:0] operation;
    } layer_registers_t;
    localparam int LAYER_WORDS = $bits(layer_registers_t) / 32;

    // ACCUMULATE and ACCUMULATOR_START.
    typedef struct packed {
        logic [31:0] accumulator_start;
        logic [31:0] accumulate;
    } sum_registers_t;
    localparam int SUM_WORDS = $bits(sum_registers_t) / 32;

    // The registers from ADD to SUM_CLIP_HIGHEST.
    typedef struct packed {
        logic [31:0] sum_clip_highest;
        logic [31:0] sum_clip_lowest;
        logic [31:0] sum_zero_point;
        logic [31:0] add_shift;
        logic [31:0] add_multiplier;
        logic [31:0] add_addend_shift;
        logic [31:0] add_addend_multiplier;
        logic [31:0] add_result_shift;
        logic [31:0] add_result_multiplier;
        logic [31:0] add_left_shift;
        logic [31:0] addend_zero_point;
        logic [31:0] addend_start;
        logic [31:0] add;
    } add_registers_t;
    localparam int ADD_WORDS = $bits(add_registers_t) / 32;

    typedef struct packed {
        add_registers_t add;
        sum_registers_t sum;
        layer_registers_t layer;
    } job_registers_t;

    typedef struct packed {
        logic signed [31:0] multiplier;
        logic signed [7:0] shift;
    } scale_t;

    // The fused addition.
    typedef struct packed {
        logic is_used;
        logic [4:0] left_shift;
        logic signed [7:0] addend_zero_point;
        scale_t result;
        scale_t addend;
        scale_t sum;
        logic signed [7:0] zero_point;
        logic signed [7:0] lowest;
        logic signed [7:0] highest;
    } addition_t;

    // A valid job. Addresses and steps are modulo the scratchpad's largest size.
    typedef struct packed {
        logic is_depthwise;
        logic is_ort;
        logic continues;
        logic keeps;
        logic scales_differ; // each output channel has a multiplier and a shift of its own
        address_t weights;
        address_t bias;
        address_t multipliers;
        address_t shifts;
        address_t ofmap;
        address_t addend;
        address_t accumulator; // in sums
        logic [15:0] input_height;
        logic [15:0] input_width;
        count_t input_channels;
        logic [15:0] output_width;
        count_t output_channels;
        logic [15:0] kernel_width;
        logic [15:0] kernel_height;
        logic [15:0] stride_height;
        logic [15:0] stride_width;
        logic [15:0] dilation_height;
        logic [15:0] dilation_width;
        logic [15:0] pad_top;
        logic [15:0] pad_left;
        address_t ifmap_channel_stride;
        address_t ofmap_row_stride;
        address_t ofmap_column_stride;
        address_t ofmap_channel_stride;
        logic signed [7:0] input_zero_point;
        logic signed [7:0] output_zero_point;
        logic signed [7:0] lowest;
        logic signed [7:0] highest;
        addition_t add;
        // What follows from the registers.
        count_t depth;        // products of a sum
        count_t positions;    // of the result
        count_t repetitions;  // depthwise: output channels of an input channel
        address_t corner;     // the input of output row 0, column 0 and the kernel's first position
        address_t row_step;   // input bytes from an output row to the next
        address_t column_step;
        address_t tap_row_step; // input bytes from a kernel row to the next
        address_t tap_column_step;
        logic [31:0] cycles;
    } job_t;

endpackage
// verilator lint_on UNUSEDPARAM
