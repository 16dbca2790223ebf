// SPDX-License-Identifier: Apache-2.0
// AXI4-Lite slave that turns accesses into requests to a register file.
//
//   request_valid     one cycle for each access; the other request signals belong to it
//   request_write     1: write request_data where request_strobe has a bit for the byte
//   request_offset    byte address, as it came: it need not be a multiple of 4
//   response_data     of a read: valid in the cycle after the request, until the next read
//
// Every access is answered with OKAY: what is wrong with it, the register file says in a register
// of its own. A read takes two cycles, address and data; a write takes two, address with data and
// response. Address and data of a write may come in any order. If a read and a write come in the
// same cycle, the write is first. While `hold` is 1 no request is made and accesses wait. No output
// depends on an input of the same cycle, apart from the request.
module axi_lite_registers #(
    parameter int unsigned ADDRESS_BITS = 12
) (
    input logic clk,
    input logic rst_n,

    input  logic [ADDRESS_BITS-1:0] awaddr,
    input  logic                    awvalid,
    output logic                    awready,
    input  logic [            31:0] wdata,
    input  logic [             3:0] wstrb,
    input  logic                    wvalid,
    output logic                    wready,
    output logic [             1:0] bresp,
    output logic                    bvalid,
    input  logic                    bready,
    input  logic [ADDRESS_BITS-1:0] araddr,
    input  logic                    arvalid,
    output logic                    arready,
    output logic [            31:0] rdata,
    output logic [             1:0] rresp,
    output logic                    rvalid,
    input  logic                    rready,

    input  logic                    hold,
    output logic                    request_valid,
    output logic                    request_write,
    output logic [ADDRESS_BITS-1:0] request_offset,
    output logic [            31:0] request_data,
    output logic [             3:0] request_strobe,
    input  logic [            31:0] response_data
);
  localparam logic [1:0] OKAY = 2'b00;

  // What came and waits: a write for its other half, a read for a write.
  logic                    address_held;
  logic                    data_held;
  logic                    read_held;
  logic [ADDRESS_BITS-1:0] held_address;
  logic [            31:0] held_data;
  logic [             3:0] held_strobe;
  logic [ADDRESS_BITS-1:0] held_read_address;

  logic                    has_address;
  logic                    has_data;
  logic                    has_read;
  logic                    writes;
  logic                    reads;

  assign awready = !address_held && !bvalid;
  assign wready = !data_held && !bvalid;
  assign arready = !read_held && !rvalid;

  assign has_address = address_held || (awvalid && awready);
  assign has_data = data_held || (wvalid && wready);
  assign has_read = read_held || (arvalid && arready);
  assign writes = has_address && has_data && !hold;
  assign reads = has_read && !writes && !hold;

  assign request_valid = writes || reads;
  assign request_write = writes;
  assign request_offset = writes ? (address_held ? held_address : awaddr)
                                 : (read_held ? held_read_address : araddr);
  assign request_data = data_held ? held_data : wdata;
  assign request_strobe = data_held ? held_strobe : wstrb;

  assign bresp = OKAY;
  assign rresp = OKAY;
  assign rdata = response_data;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      address_held <= 1'b0;
      data_held <= 1'b0;
      read_held <= 1'b0;
      bvalid <= 1'b0;
      rvalid <= 1'b0;
    end else begin
      address_held <= has_address && !writes;
      data_held <= has_data && !writes;
      read_held <= has_read && !reads;
      bvalid <= writes || (bvalid && !bready);
      rvalid <= reads || (rvalid && !rready);
    end
    if (awvalid && awready) held_address <= awaddr;
    if (wvalid && wready) begin
      held_data   <= wdata;
      held_strobe <= wstrb;
    end
    if (arvalid && arready) held_read_address <= araddr;
  end
endmodule
