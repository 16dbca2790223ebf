# SPDX-License-Identifier: Apache-2.0
"""Everything umakit has to know about the strawberry_accelerator, registered in one place."""

from functools import partial

from umakit.backend import PassPhase, UMABackend

from .board import board_notes
from .codegen import gen_includes
from .passes import DMA_IN, DMA_OUT, StrawberryLayerPass
from .patterns import layers


class StrawberryAcceleratorBackend(UMABackend):
    """A systolic array that computes on a scratchpad, which a DMA engine fills and empties."""

    def __init__(self) -> None:
        super().__init__()

        # Which operators it takes; what does not fit into the scratchpad stays on the CPU.
        for layer in layers(self.configuration):
            self._register_pattern(*layer)

        # How an operator becomes four steps: operands in, calculate, result out.
        layer_pass = StrawberryLayerPass(self.configuration.array)
        self._register_tir_pass(PassPhase.TIR_PHASE_0, layer_pass)

        # Which of these steps are copies: between two layers that follow each other, they are
        # omitted where the tensor can stay in the scratchpad.
        self._register_transfers(load=DMA_IN, store=DMA_OUT)

        # What the generated C includes, and the driver it is linked with.
        self._register_codegen(fmt="c", includes=gen_includes)
        driver = self.target_name
        self._register_driver(sources=[f"{driver}.c"], headers=[f"{driver}.h"])

        # What the README of a library says about the device of a board.
        self._register_board_notes(partial(board_notes, self.configuration))

    @property
    def target_name(self) -> str:
        """The name that users give to --backend."""
        return "strawberry_accelerator"
