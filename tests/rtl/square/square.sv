// SPDX-License-Identifier: Apache-2.0
// A convolution of int8 in NHWC: square kernels, and a padding of its own on each side. Registers are
// an AXI4-Lite slave (registers.toml), memory is an AXI4 master of 32 bits. A byte lies anywhere.
//
// For each output channel the engine loads a filter, a bias and a factor. For each pixel of the
// result it loads the channels of each pixel in the window, multiplies four bytes of a beat at a
// time, rounds the sum as TensorFlow Lite Micro does, and stores a byte. Padding is the zero point,
// which adds nothing: such pixels are not loaded.
module square (
    input logic clk,
    input logic rst_n,

    input  logic [ 7:0] s_axil_awaddr,
    input  logic        s_axil_awvalid,
    output logic        s_axil_awready,
    input  logic [31:0] s_axil_wdata,
    input  logic        s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [ 1:0] s_axil_bresp,
    output logic        s_axil_bvalid,
    input  logic        s_axil_bready,
    input  logic [ 7:0] s_axil_araddr,
    input  logic        s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [ 1:0] s_axil_rresp,
    output logic        s_axil_rvalid,
    input  logic        s_axil_rready,

    output logic [31:0] m_axi_araddr,
    output logic [ 7:0] m_axi_arlen,
    output logic        m_axi_arvalid,
    input  logic        m_axi_arready,
    input  logic [31:0] m_axi_rdata,
    input  logic [ 1:0] m_axi_rresp,
    input  logic        m_axi_rlast,
    input  logic        m_axi_rvalid,
    output logic        m_axi_rready,
    output logic [31:0] m_axi_awaddr,
    output logic [ 7:0] m_axi_awlen,
    output logic        m_axi_awvalid,
    input  logic        m_axi_awready,
    output logic [31:0] m_axi_wdata,
    output logic [ 3:0] m_axi_wstrb,
    output logic        m_axi_wlast,
    output logic        m_axi_wvalid,
    input  logic        m_axi_wready,
    input  logic [ 1:0] m_axi_bresp,
    input  logic        m_axi_bvalid,
    output logic        m_axi_bready,

    output logic irq
);
  localparam logic [7:0] OUT_OF_RANGE = 8'd3, BUS_ERROR = 8'd8;  // of enum umakit_status
  localparam int FIRST = 4, LAST = 17;  // registers that keep what is written, as words

  typedef enum logic [3:0] {
    IDLE, FILTER, BIAS, MULTIPLIER, SHIFT, PIXEL, TAP, ROUND, STORE, ANSWER, FINISH
  } state_t;
  state_t state;

  // ---- Registers: AXI4-Lite ----

  logic [31:0] kept[FIRST:LAST];
  logic address_held, data_held;
  logic [7:0] held_address, code;
  logic [31:0] held_data;
  logic [5:0] word, read_word;
  wire writes = address_held && data_held && !s_axil_bvalid;
  wire start = writes && word == 6'd1 && held_data[0] && (state == IDLE);
  wire stop = writes && word == 6'd1 && held_data[1];

  assign word = held_address[7:2];
  assign read_word = s_axil_araddr[7:2];
  wire unused = &{1'b0, held_address[1:0], s_axil_araddr[1:0]};  // a register has four bytes
  assign s_axil_awready = !address_held;
  assign s_axil_wready = !data_held;
  assign s_axil_arready = !s_axil_rvalid;
  assign s_axil_bresp = 2'b00;
  assign s_axil_rresp = 2'b00;

  function automatic logic [31:0] writable(input logic [5:0] number);
    case (number)
      6'd10: return 32'h0000_ffff;
      6'd11: return 32'h0000_ff3f;
      6'd12: return 32'h0000_0037;
      6'd13: return 32'h0000_0707;
      6'd14, 6'd15: return 32'h0000_ffff;
      6'd16, 6'd17: return 32'h0000_0007;
      default: return 32'hffff_ffff;
    endcase
  endfunction

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      {address_held, data_held, s_axil_bvalid, s_axil_rvalid} <= '0;
      for (int i = FIRST; i <= LAST; i++) kept[i] <= '0;
    end else begin
      if (s_axil_awvalid && s_axil_awready) begin
        address_held <= 1'b1;
        held_address <= s_axil_awaddr;
      end
      if (s_axil_wvalid && s_axil_wready) begin
        data_held <= 1'b1;
        held_data <= s_axil_wdata;
      end
      if (writes) begin
        {address_held, data_held} <= '0;
        if (word >= 6'(FIRST) && word <= 6'(LAST)) kept[5'(word)] <= held_data & writable(word);
      end
      s_axil_bvalid <= writes || (s_axil_bvalid && !s_axil_bready);
      s_axil_rvalid <= (s_axil_arvalid && s_axil_arready) || (s_axil_rvalid && !s_axil_rready);
    end
    if (s_axil_arvalid && s_axil_arready) begin
      if (read_word == 6'd0) s_axil_rdata <= 32'h5351_5231;
      else if (read_word == 6'd2) s_axil_rdata <= {16'd0, code, 7'd0, state != IDLE};
      else if (read_word >= 6'(FIRST) && read_word <= 6'(LAST)) s_axil_rdata <= kept[5'(read_word)];
      else s_axil_rdata <= '0;
    end
  end

  // ---- Numbers of a job ----

  wire [31:0] rows = {24'd0, kept[10][7:0]}, columns = {24'd0, kept[10][15:8]};
  wire [31:0] inputs = {26'd0, kept[11][5:0]}, outputs = {24'd0, kept[11][15:8]};
  wire [31:0] edge_size = {29'd0, kept[12][2:0]}, stride = {30'd0, kept[12][5:4]};
  wire [31:0] top = {29'd0, kept[13][2:0]}, left = {29'd0, kept[13][10:8]};
  wire [31:0] bottom = kept[16], right = kept[17];
  wire signed [31:0] input_zero = 32'(signed'(kept[14][7:0]));
  wire signed [32:0] output_zero = 33'(signed'(kept[14][15:8]));
  wire signed [32:0] lowest = 33'(signed'(kept[15][7:0])), highest = 33'(signed'(kept[15][15:8]));
  wire [31:0] filter_bytes = edge_size * edge_size * inputs;
  wire is_refused = rows == 0 || columns == 0 || inputs == 0 || outputs == 0 || edge_size == 0 ||
                    stride == 0 || edge_size > rows + top + bottom ||
                    edge_size > columns + left + right || lowest > highest;

  // ---- Where the engine is ----

  logic [31:0] channel, y, x, tap_y, tap_x;  // y and x of the window's corner in the padded input
  logic [31:0] filter, pixel, result;        // addresses; `result` of the next byte of the channel
  logic aborted;
  wire [31:0] row = y + tap_y - top, column = x + tap_x - left;  // negative ones are large
  wire is_inside = row < rows && column < columns;
  wire is_last_tap = tap_x == edge_size - 32'd1 && tap_y == edge_size - 32'd1;
  wire is_last_column = x + stride + edge_size > columns + left + right;
  wire is_last_row = y + stride + edge_size > rows + top + bottom;

  assign pixel = kept[4] + (row * columns + column) * inputs;

  // ---- Loads: bursts of at most 16 beats, none beyond 4 KiB ----

  logic [31:0] next, beats_left, first_byte, load_bytes;
  logic signed [31:0] position;  // of the next beat's first byte among those that are loaded
  logic loads, is_requesting;
  logic [4:0] burst;
  wire is_loading = beats_left != 0;
  wire [31:0] to_boundary = 32'd1024 - {22'd0, next[11:2]};

  always_comb begin
    loads = 1'b0;
    {first_byte, load_bytes} = '0;
    if (!is_loading && !aborted && code == 0) begin
      case (state)
        FILTER: {loads, first_byte, load_bytes} = {1'b1, filter, filter_bytes};
        BIAS: {loads, first_byte, load_bytes} = {1'b1, kept[6] + 4 * channel, 32'd4};
        MULTIPLIER: {loads, first_byte, load_bytes} = {1'b1, kept[7] + 4 * channel, 32'd4};
        SHIFT: {loads, first_byte, load_bytes} = {1'b1, kept[8] + channel, 32'd1};
        TAP: {loads, first_byte, load_bytes} = {is_inside, pixel, inputs};
        default: ;
      endcase
      if (is_loaded) loads = 1'b0;
    end
    burst = 5'd16;
    if (beats_left < 32'd16) burst = beats_left[4:0];
    if (to_boundary < {27'd0, burst}) burst = to_boundary[4:0];
  end

  logic is_loaded;  // the load of this state has ended
  logic [4:0] burst_left;

  assign m_axi_araddr = next;
  assign m_axi_arvalid = is_requesting;
  assign m_axi_arlen = {3'd0, burst - 5'd1};
  assign m_axi_rready = burst_left != 0;
  wire takes = m_axi_rvalid && m_axi_rready;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      {is_requesting, is_loaded, beats_left, burst_left} <= '0;
    end else if (loads) begin
      next <= {first_byte[31:2], 2'b00};
      beats_left <= (32'(first_byte[1:0]) + load_bytes + 32'd3) >> 2;
      position <= -signed'(32'(first_byte[1:0]));
      is_requesting <= 1'b1;
    end else begin
      if (is_requesting && m_axi_arready) begin
        is_requesting <= 1'b0;
        burst_left <= burst;
      end
      if (takes) begin
        next <= next + 32'd4;
        position <= position + 32'sd4;
        beats_left <= beats_left - 32'd1;
        burst_left <= burst_left - 5'd1;
        if (m_axi_rlast && beats_left != 32'd1) is_requesting <= 1'b1;
      end
      is_loaded <= takes && beats_left == 32'd1;
    end
  end

  // ---- Bytes of a beat: filters and factors are kept, pixels are multiplied ----

  logic signed [7:0] weights[4096];
  logic signed [31:0] sum, products;
  logic [31:0] bias, multiplier;
  logic signed [7:0] shift;
  logic [11:0] tap;  // of the filter: its first byte

  always_comb begin
    products = '0;
    for (int i = 0; i < 4; i++) begin
      if (position + i >= 0 && position + i < signed'(inputs)) begin
        products += (32'(signed'(m_axi_rdata[8*i+:8])) - input_zero) *
                    32'(weights[tap+12'(position+i)]);
      end
    end
  end

  always_ff @(posedge clk) begin
    for (int i = 0; i < 4; i++) begin
      if (takes && state == FILTER && position + i >= 0 && position + i < signed'(filter_bytes)) begin
        weights[12'(position+i)] <= m_axi_rdata[8*i+:8];
      end
      if (takes && position + i >= 0 && position + i < 4) begin
        if (state == BIAS) bias[8*2'(position+i)+:8] <= m_axi_rdata[8*i+:8];
        if (state == MULTIPLIER) multiplier[8*2'(position+i)+:8] <= m_axi_rdata[8*i+:8];
      end
      if (takes && state == SHIFT && position + i == 0) shift <= m_axi_rdata[8*i+:8];
    end
  end

  // ---- Rounding: twice, as MultiplyByQuantizedMultiplier of TensorFlow Lite ----

  logic signed [31:0] shifted, high, twice, scaled;
  logic signed [63:0] product;
  logic signed [32:0] moved;
  logic [4:0] exponent;  // of the right shift, less 1

  always_comb begin
    shifted = shift >= 0 ? sum << shift[4:0] : sum;
    product = 64'(shifted) * 64'(signed'(multiplier)) + 64'sh4000_0000;
    high = 32'(product >>> 31);
    exponent = 5'(-shift - 8'sd1);
    twice = signed'(high - 32'(high < 0)) >>> exponent;
    scaled = shift >= 0 ? high : (twice >>> 1) + (twice & 32'sd1);
    moved = 33'(scaled) + output_zero;
    if (moved < lowest) moved = lowest;
    if (moved > highest) moved = highest;
  end

  // ---- The job ----

  logic [7:0] byte_out;
  logic address_sent, data_sent;

  assign m_axi_awaddr = {result[31:2], 2'b00};
  assign m_axi_awlen = 8'd0;
  assign m_axi_awvalid = state == STORE && !address_sent;
  assign m_axi_wvalid = state == STORE && !data_sent;
  assign m_axi_wdata = {4{byte_out}};
  assign m_axi_wstrb = 4'd1 << result[1:0];
  assign m_axi_wlast = 1'b1;
  assign m_axi_bready = state == ANSWER;

  wire has_failed = aborted || code != 0;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      state <= IDLE;
      {code, aborted, irq, address_sent, data_sent} <= '0;
    end else begin
      if (stop) begin
        code <= '0;
        irq <= 1'b0;
        aborted <= state != IDLE;
      end
      case (state)
        IDLE: if (start) begin
          state <= is_refused ? FINISH : FILTER;
          code <= is_refused ? OUT_OF_RANGE : '0;
          irq <= 1'b0;
          aborted <= 1'b0;
          channel <= '0;
          filter <= kept[5];
        end
        FILTER, BIAS, MULTIPLIER, SHIFT: if (is_loaded) begin
          if (has_failed) state <= FINISH;
          else state <= state_t'(state + 4'd1);
          y <= '0;
          x <= '0;
          result <= kept[9] + channel;
        end else if (has_failed && !is_loading) state <= FINISH;
        PIXEL: begin
          state <= has_failed ? FINISH : TAP;
          sum <= bias;
          {tap_y, tap_x, tap} <= '0;
        end
        TAP: if (has_failed) begin
          if (!is_loading) state <= FINISH;
        end else if (is_loaded || !is_inside) begin
          tap <= tap + 12'(inputs);
          tap_x <= tap_x == edge_size - 32'd1 ? '0 : tap_x + 32'd1;
          if (tap_x == edge_size - 32'd1) tap_y <= tap_y + 32'd1;
          if (is_last_tap) state <= ROUND;
        end else if (takes) sum <= sum + products;
        ROUND: begin
          state <= STORE;
          byte_out <= moved[7:0];
          {address_sent, data_sent} <= '0;
        end
        STORE: begin
          if (m_axi_awready) address_sent <= 1'b1;
          if (m_axi_wready) data_sent <= 1'b1;
          if ((address_sent || m_axi_awready) && (data_sent || m_axi_wready)) state <= ANSWER;
        end
        ANSWER: if (m_axi_bvalid) begin
          state <= PIXEL;
          result <= result + outputs;
          x <= is_last_column ? '0 : x + stride;
          if (is_last_column) y <= y + stride;
          if (is_last_column && is_last_row) begin
            state <= channel == outputs - 32'd1 ? FINISH : FILTER;
            channel <= channel + 32'd1;
            filter <= filter + filter_bytes;
          end
          if (m_axi_bresp[1] && !aborted) begin
            state <= FINISH;
            code <= m_axi_bresp[0] ? OUT_OF_RANGE : BUS_ERROR;
          end
        end
        default: begin
          state <= IDLE;
          irq <= !aborted;
        end
      endcase
      if (takes && m_axi_rresp[1] && !aborted) begin
        code <= m_axi_rresp[0] ? OUT_OF_RANGE : BUS_ERROR;
      end
    end
  end
endmodule
