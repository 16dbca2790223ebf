# SPDX-License-Identifier: Apache-2.0
"""Everything umakit has to know about the lane_npu, registered in one place."""

from umakit.backend import PassPhase, UMABackend
from umakit.machine import TilePlanner

from .codegen import gen_includes
from .passes import LaneNpuPass
from .patterns import layers


class LaneNpuBackend(UMABackend):
    """The lane_npu."""

    def __init__(self) -> None:
        super().__init__()
        planner = TilePlanner.of(self.configuration)
        self._register_tiling(planner)
        for layer in layers(planner):
            self._register_pattern(*layer)
        self._register_tir_pass(PassPhase.TIR_PHASE_0, LaneNpuPass(planner))
        self._register_completion("lane_npu_finish")
        self._register_codegen(fmt="c", includes=gen_includes)
        headers = ["lane_npu.h", "isa/lane_npu_isa.h"]
        self._register_driver(sources=["lane_npu.c"], headers=headers)

    @property
    def target_name(self) -> str:
        """The name that users give to --backend."""
        return "lane_npu"
