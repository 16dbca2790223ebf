# SPDX-License-Identifier: Apache-2.0
"""Everything umakit has to know about the small_chocolate_accelerator, registered in one place."""

from functools import partial

from umakit.backend import PassPhase, UMABackend
from umakit.machine import Hardware, TilePlanner

from .board import board_notes
from .codegen import gen_includes
from .passes import DRIVER_COSTS, FINISH, SmallChocolateLayerPass
from .patterns import layers


class SmallChocolateAcceleratorBackend(UMABackend):
    """A systolic array whose layers are cut into tiles that flow through a banked scratchpad."""

    def __init__(self) -> None:
        super().__init__()

        # How a layer is cut into tiles: the hardware's figures, and what the driver costs.
        planner = TilePlanner(Hardware.of(self.configuration), DRIVER_COSTS)
        self._register_tiling(planner)

        # Which operators it takes; what cannot be cut to fit stays on the CPU.
        for layer in layers(planner):
            self._register_pattern(*layer)

        # How an operator becomes loops over tiles, and these driver calls.
        layer_pass = SmallChocolateLayerPass(planner, self.configuration.device)
        self._register_tir_pass(PassPhase.TIR_PHASE_0, layer_pass)

        # Which of them waits for the device: it moves behind what the CPU can do meanwhile.
        self._register_completion(FINISH)

        # What the generated C includes, and the driver it is linked with.
        self._register_codegen(fmt="c", includes=gen_includes)
        driver = self.target_name
        self._register_driver(sources=[f"{driver}.c"], headers=[f"{driver}.h"])

        # What the README of a library says about the device of a board.
        self._register_board_notes(partial(board_notes, self.configuration))

    @property
    def target_name(self) -> str:
        """The name that users give to --backend."""
        return "small_chocolate_accelerator"
