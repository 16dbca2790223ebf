// SPDX-License-Identifier: Apache-2.0
// START: the checks of a transfer and of a job, and which engine runs when.
//
// The scratchpad has one bank, which serves one engine at a time: of two that were started the older
// one runs first. `hold` is 1 while a START is being checked, and accesses to registers wait, so
// that the next one sees whether it was refused. A START that comes with CLEAR while the DMA
// engine ends what it began waits for that, too.
module engine_control
  import strawberry_pkg::*;
(
    input logic clk,
    input logic rst_n,
    input logic clear,
    input logic dma_start,
    input logic array_start,
    output logic hold,

    output logic           transfer_check_start,
    input  logic           transfer_check_done,
    input  status_t        transfer_check_status,
    output logic           transfer_start,
    input  logic           transfer_busy,
    input  logic           transfer_done,
    input  logic           transfer_failed,
    output logic           dma_busy,

    output logic           job_check_start,
    input  logic           job_check_done,
    input  status_t        job_check_status,
    output logic           job_start,
    input  logic           job_ready,
    input  logic           job_done,
    input  logic           job_failed,
    output logic           array_busy,
    output logic           array_runs
);
  typedef enum logic [1:0] {
    IDLE,
    CHECK,
    WAIT,  // for the other engine
    RUN
  } state_t;

  state_t dma;
  state_t array;
  logic array_is_older;
  logic transfer_passes;
  logic job_passes;

  assign dma_busy = dma != IDLE || transfer_busy;
  assign array_busy = array != IDLE;
  assign array_runs = array == RUN;
  assign hold = dma == CHECK || array == CHECK;

  // A job that was started in the same write is checked after the transfer, and forgotten if
  // that is wrong.
  logic array_waits_for_check;
  assign job_check_start = array == CHECK && array_waits_for_check && dma != CHECK;

  assign transfer_check_start = dma_start;
  assign transfer_passes = dma == CHECK && transfer_check_done && transfer_check_status == OK;
  assign job_passes = array == CHECK && !array_waits_for_check && job_check_done &&
                      job_check_status == OK;

  assign transfer_start = (dma == WAIT || transfer_passes) && !transfer_busy && array != RUN &&
                          !(array == WAIT && array_is_older) && !clear;
  assign job_start = (array == WAIT || job_passes) && job_ready && !transfer_busy &&
                     (dma == IDLE || (dma == WAIT && array == WAIT && array_is_older)) && !clear;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      dma   <= IDLE;
      array <= IDLE;
    end else begin
      case (dma)
        CHECK: if (transfer_check_done) dma <= transfer_passes ? WAIT : IDLE;
        RUN: if (transfer_done || transfer_failed) dma <= IDLE;
        default: ;
      endcase
      case (array)
        CHECK: begin
          if (array_waits_for_check && dma == CHECK && transfer_check_done &&
              transfer_check_status != OK) begin
            array <= IDLE;
          end else if (!array_waits_for_check && job_check_done) begin
            array <= job_passes ? WAIT : IDLE;
            array_is_older <= dma == IDLE;
          end
          if (dma != CHECK) array_waits_for_check <= 1'b0;
        end
        RUN: if (job_done || job_failed) array <= IDLE;
        default: ;
      endcase
      if (transfer_start) dma <= RUN;
      if (job_start) array <= RUN;
      if (clear) begin
        dma   <= IDLE;
        array <= IDLE;
      end
      if (dma_start) dma <= CHECK;
      if (array_start) begin
        array <= CHECK;
        array_waits_for_check <= 1'b1;
      end
    end
  end
endmodule
