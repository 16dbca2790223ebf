// SPDX-License-Identifier: Apache-2.0
// What Strawberry's modules have in common.
package strawberry_pkg;

  localparam int unsigned REGISTER_WORDS = systolic_array_registers_pkg::REGISTER_BYTES / 4;

  // Registers by their offset / 4. Only those that keep what is written are used.
  typedef logic [31:0] registers_t[REGISTER_WORDS];

  // Codes of the register ERROR: enum umakit_status of umakit/status.h.
  typedef enum logic [4:0] {
    OK = 5'd0,
    INVALID_ARGUMENT = 5'd1,
    INVALID_REGISTER = 5'd2,
    OUT_OF_RANGE = 5'd3,
    MISALIGNED = 5'd4,
    BUSY = 5'd6,
    BUS_ERROR = 5'd8,
    UNSUPPORTED = 5'd16
  } status_t;

endpackage
