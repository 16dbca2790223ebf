# SPDX-License-Identifier: Apache-2.0
"""Everything umakit has to know about the vanilla_accelerator, registered in one place."""

from umakit.backend import PassPhase, UMABackend

from .codegen import gen_includes
from .passes import VanillaConv2DPass
from .patterns import conv2d_pattern, conv2d_predicate
from .strategies import conv2d_strategy


class VanillaAcceleratorBackend(UMABackend):
    """A MAC array without memory of its own, which shares the CPU's memory."""

    def __init__(self) -> None:
        super().__init__()

        # Which operators it takes; the predicate says why not, if not.
        self._register_pattern("conv2d", conv2d_pattern(), conv2d_predicate, layouts="NCHW")

        # How the operator becomes loops ...
        self._register_operator_strategy("nn.conv2d", conv2d_strategy)

        # ... and how the loops become a call of the driver.
        self._register_tir_pass(PassPhase.TIR_PHASE_0, VanillaConv2DPass())

        # What the generated C includes, and the driver it is linked with.
        self._register_codegen(fmt="c", includes=gen_includes)
        self._register_driver(sources=["conv2dnchw.c"], headers=["conv2dnchw.h"])

    @property
    def target_name(self) -> str:
        """The name that users give to --backend."""
        return "vanilla_accelerator"
