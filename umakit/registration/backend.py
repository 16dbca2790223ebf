# SPDX-License-Identifier: Apache-2.0
"""UMA's registration interface on Relax.

The vocabulary is that of TVM's UMA (RFC 0060, "Universal Modular Accelerator interface"), which
left TVM together with Relay. Stages take a `Backend`. Hardware teams subclass
`umakit.backend.UMABackend`, which adds methods that call stages.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from umakit import tvm_api
from umakit.errors import AcceleratorConfigError, BackendError, short_path
from umakit.files.compiled_files import is_compiled
from umakit.machine.accelerator_config import AcceleratorConfig, load_accelerator_config
from umakit.machine.calibration import (
    AGAIN,
    FILE_NAME,
    changed_figure,
    figures_of,
    read_calibration,
)
from umakit.machine.simulator_config import (
    C_SUFFIXES,
    CXX_SUFFIXES,
    HEADER_SUFFIXES,
    program_files,
    simulator_files,
)
from umakit.operators.drawing import Drawing
from umakit.operators.offload.constraints import check_function
from umakit.registration.registered import (
    LAYOUTS,
    RELAX_PHASES,
    CodegenHooks,
    Driver,
    PassPhase,
    Pattern,
    Predicate,
    RegisteredStrategy,
    ReplaceCallExtern,
    Transfers,
    layouts_of,
)
from umakit.registration.target import AttributeValue, check_attribute

if TYPE_CHECKING:
    from umakit.machine import TilePlanner
    from umakit.registration.kernels import RegisteredKernel
    from umakit.registration.registered import BoardNotes, DeviceUse


class Backend(ABC):
    """The registrations of a backend, for the stages.

    Args:
        merge_compiler_regions: merge neighbouring composite functions into one accelerator
            region (`MergeCompositeFunctions`), as TVM's other BYOC backends do.
    """

    def __init__(self, merge_compiler_regions: bool = True) -> None:
        self.merge_compiler_regions = merge_compiler_regions
        self.target_attributes: dict[str, AttributeValue] = {}
        self.patterns: list[Pattern] = []
        self.kernels: dict[str, RegisteredKernel] = {}
        self.strategies: dict[str, RegisteredStrategy] = {}
        self.passes: dict[PassPhase, list[Any]] = {phase: [] for phase in PassPhase}
        self.codegen = CodegenHooks()
        self.driver = Driver()
        self.transfers: Transfers | None = None
        self.tiling: TilePlanner | None = None
        self.notices: tuple[str, ...] = ()
        self.completion: str | None = None
        self.board_notes: Callable[[DeviceUse], BoardNotes] | None = None
        self._configuration: AcceleratorConfig | None = None

    @property
    @abstractmethod
    def target_name(self) -> str:
        """Name of the hardware target: a valid C identifier."""

    @property
    def folder(self) -> Path:
        """The folder with the backend's sources and `accel.toml`."""
        return Path(inspect.getfile(type(self))).resolve().parent

    @property
    def configuration(self) -> AcceleratorConfig:
        """`accel.toml` of the backend's folder.

        Raises:
            AcceleratorConfigError: the file is missing or invalid, or describes another
                accelerator.
        """
        if self._configuration is None:
            path = self.folder / "accel.toml"
            configuration = load_accelerator_config(path)
            if configuration.accelerator.name != self.target_name:
                raise AcceleratorConfigError(
                    f"describes {configuration.accelerator.name}, the backend is "
                    f"{self.target_name}",
                    where=str(path),
                    fix="set accelerator.name",
                )
            self._configuration = configuration
        return self._configuration

    @property
    def is_reentrant(self) -> bool:
        """Whether several runs may call the backend's functions at the same time, without a lock.

        The driver declares this, or the library of a backend without a driver.
        """
        section = self.configuration.sources
        has_driver = bool(self.driver.sources or self.driver.compiled)
        says_so = section is not None and section.reentrant
        return self.driver.reentrant or (says_so and not has_driver)

    # --- registration -----------------------------------------------------------------------

    def _register_target_attr(self, name: str, default: AttributeValue = "") -> None:
        """Register an attribute of the target, of type str, int or bool, with its default.

        Raises:
            TargetAttributeError: the default is None, a float or of another type, or TVM's target
                or an earlier registration has the name.
        """
        check_attribute(self.target_name, name, default, taken=self.target_attributes)
        self.target_attributes[name] = default

    def _register_relax_pass(self, phase: PassPhase, relax_pass: object) -> None:
        """Run a Relax pass in a Relax phase, after earlier registered passes."""
        self._add_pass(phase, relax_pass, is_relax=True)

    def _register_tir_pass(self, phase: PassPhase, tir_pass: object) -> None:
        """Run a TIR pass in a TIR phase, after earlier registered passes."""
        self._add_pass(phase, tir_pass, is_relax=False)

    def _add_pass(self, phase: object, registered: object, *, is_relax: bool) -> None:
        if not isinstance(phase, PassPhase):
            raise BackendError(
                f"{phase!r} is no phase of passes",
                where=self.target_name,
                fix=f"choose one of {', '.join(f'PassPhase.{each.name}' for each in PassPhase)}",
            )
        if (phase in RELAX_PHASES) != is_relax:
            kind, other = ("TIR", "tir") if is_relax else ("Relax", "relax")
            raise BackendError(
                f"{phase.name} is a {kind} phase",
                where=self.target_name,
                fix=f"register the pass with _register_{other}_pass",
            )
        self.passes[phase].append(registered)

    def _register_pattern(
        self,
        name: str,
        pattern: object,
        predicate: Predicate | None = None,
        annotations: Mapping[str, Any] | None = None,
        *,
        layouts: str | Sequence[str] = (),
        drawing: Drawing | None = None,
    ) -> None:
        """Offer a composite function; patterns registered first are matched first.

        Args:
            name: name of the composite, without the target's name as prefix.
            pattern: a `tvm.relax.dpl` pattern, or several patterns, tried in order.
            predicate: receives TVM's `PatternCheckContext`. True accepts; False, or better a
                sentence, refuses. The offload table shows the sentence to the user.
            annotations: sub-patterns by name, for the predicate.
            layouts: required layout of the data of convolutions and pools, `"NHWC"` or `"NCHW"`:
                regions of a network in the other layout are then transposed if the change pays. The
                predicate refuses the other layout. Patterns of `umakit.patterns` have their own
                layouts. Without layouts, networks keep their layout.
            drawing: layers for `uma check` to draw, see `umakit.patterns.drawn`; needed for
                operators that `uma check` does not draw itself.

        Raises:
            BackendError: the name is taken, the layout is unknown, or an argument has another type.
        """
        check_pattern(name, pattern)
        check_function(predicate, f"predicate of pattern {name}", 1)
        if any(registered.name == name for registered in self.patterns):
            raise BackendError(f"pattern {name!r} is registered twice", where=self.target_name)
        if drawing is not None and not isinstance(drawing, Drawing):
            raise BackendError(
                f"drawing of pattern {name} is {type(drawing).__name__}",
                where=self.target_name,
                fix="say drawing=patterns.drawn(LAYER, SETTING=(FIRST, ANOTHER))",
            )
        found = self._layouts(layouts) or layouts_of(predicate)
        caller = sys._getframe(1)
        place = getattr(predicate, "place", "")
        place = place or f"{short_path(caller.f_code.co_filename)}:{caller.f_lineno}"
        offered = dict(annotations or {})
        self.patterns.append(Pattern(name, pattern, offered, predicate, found, drawing, place))

    def _layouts(self, layouts: str | Sequence[str]) -> tuple[str, ...]:
        names = tuple(layouts) if isinstance(layouts, (tuple, list)) else (layouts,)
        for name in names:
            if name not in LAYOUTS:
                raise BackendError(
                    f"layout {name!r} is unknown",
                    where=self.target_name,
                    fix=f"say {' or '.join(LAYOUTS)}",
                )
        return names

    def _register_operator_strategy(self, op: str, strategy: object, plevel: int = 11) -> None:
        """Lower an operator inside this backend's composites in the backend's own way.

        Args:
            op: name of the operator, such as `relax.nn.conv2d` or `nn.conv2d`.
            strategy: function (attrs, inputs, out_type, target) -> `umakit.backend.OpStrategy`.
            plevel: priority; of several strategies for one operator the highest level wins, of
                equal levels the latest strategy.
        """
        name = op if op.startswith("relax.") else f"relax.{op}"
        registered = self.strategies.get(name)
        if registered is None or plevel >= registered.plevel:
            self.strategies[name] = RegisteredStrategy(strategy, plevel)

    def _register_codegen(
        self,
        fmt: str = "c",
        includes: Callable[[], str] | None = None,
        replace_call_extern: ReplaceCallExtern | None = None,
    ) -> None:
        """Add `#include`s to the generated C, and choose the text of its driver calls.

        Args:
            fmt: only `c`.
            includes: returns text for the top of each generated source, such as `#include`s.
            replace_call_extern: receives [function name, arguments...] of an external call as C
                text and returns the C expression to print instead, or None to keep the call.
        """
        if fmt != "c":
            raise BackendError(
                f"codegen format {fmt!r} is not supported", where=self.target_name, fix="use 'c'"
            )
        check_function(includes, "includes of _register_codegen", 0)
        check_function(replace_call_extern, "replace_call_extern of _register_codegen", 1)
        self.codegen = CodegenHooks(includes, replace_call_extern)

    def _register_driver(
        self, sources: Sequence[str], headers: Sequence[str] = (), *, reentrant: bool = False
    ) -> None:
        """Register C and C++ files for every library with layers on this backend.

        A run has exclusive use of the accelerator from its first driver call to its last. A
        concurrent run, in another thread, in an interrupt handler or of another network, returns
        `TVMGEN_NAME_BUSY`. So a driver may keep state between calls.

        Files keep their paths in the library, below a folder of the target's name. Functions that
        are not static need unique names: begin them with the target's name.

        Args:
            sources: C files (`.c`) and C++ files (`.cc`, `.cpp`, `.cxx`) relative to the backend's
                folder. Functions for generated C are `extern "C"`. Objects (`.o`), static (`.a`)
                and shared libraries (`.so`) are linked in this order, after all objects of C files;
                they are for one kind of processor, shared libraries for the host only.
            headers: headers of the sources, relative to the backend's folder.
            reentrant: whether the functions keep no state in memory or in hardware, so that runs
                need not exclude each other, such as C functions of a library for the CPU.

        Raises:
            BackendError: an argument is a name instead of a list of names, or headers are given as
                sources.
        """
        for argument, names in (("sources", sources), ("headers", headers)):
            if isinstance(names, (str, os.PathLike)):
                raise BackendError(
                    f"_register_driver got one name as {argument}, it takes a list of names",
                    where=self.target_name,
                    fix=f"write {argument}=[{os.fspath(names)!r}]",
                )
        check_driver_names(sources, headers)
        compiled = tuple(name for name in sources if is_compiled(name))
        texts = tuple(name for name in sources if not is_compiled(name))
        self.driver = Driver(texts, tuple(headers), reentrant, compiled)

    def _register_transfers(self, load: str, store: str) -> None:
        """Name the driver calls that copy whole tensors between shared memory and a scratchpad.

        A result for a later layer of this backend then stays in the scratchpad if it fits, and the
        copies out and in are omitted. No other driver call may change loaded buffers.

        Args:
            load: name of `int load(const void *source, uint32_t offset, int32_t bytes)`.
            store: name of `int store(uint32_t offset, void *destination, int32_t bytes)`.
        """
        self.transfers = Transfers(load, store)

    def _register_completion(self, function: str) -> None:
        """Name the driver call that waits until the accelerator is done.

        TIR passes put this call at the end of every kernel. The call moves behind following steps
        on the CPU that do not depend on the layer. All other driver calls must then be able to
        return before their work is done.

        Args:
            function: name of `int finish(void)`.
        """
        self.completion = function

    def _register_tiling(self, planner: TilePlanner) -> None:
        """Register the planner that cuts layers into tiles, for tuning and cycle predictions.

        The backend's TIR pass must use the same planner. Costs measured by `uma calibrate` replace
        the costs of the planner's machine, unless figures have changed since; a change becomes one
        of the backend's `notices`.

        Raises:
            AcceleratorConfigError: `calibration.json` beside `accel.toml` cannot be read.
        """
        self.tiling = planner
        path = self.folder / FILE_NAME
        if not path.exists():
            return
        calibration = read_calibration(path)
        changed = changed_figure(calibration, self.figures())
        if calibration.backend != self.target_name:
            changed = f"it is of {calibration.backend}"
        if changed:
            self.notices += (f"{short_path(path)} is not used: {changed}; {AGAIN}",)
        else:
            planner.calibrate(calibration)

    def figures(self) -> dict[str, str]:
        """Return the figures that identify the planner's machine, by dotted name; empty without a
        planner."""
        if self.tiling is None:
            return {}
        figures = figures_of(self.tiling.described, self.configuration.model_dump())
        section = self.configuration.filled_simulator
        if section is not None:
            files = simulator_files(section, self.folder)
            files |= program_files(section.program, self.folder)
            digest = hashlib.sha256(b"".join(files[name].read_bytes() for name in sorted(files)))
            figures["[simulator]: digest of the files"] = digest.hexdigest()[:16]
        return figures

    def _register_board_notes(self, notes: Callable[[DeviceUse], BoardNotes]) -> None:
        """Describe the device of a board for a library, in the library's README.

        Args:
            notes: function from the library's use of the accelerator to the requirements of the
                device.
        """
        self.board_notes = notes


def check_pattern(name: object, pattern: object) -> None:
    """Refuse a pattern of another type than TVM's, or a name that is no text."""
    if not isinstance(name, str):
        raise BackendError(
            f"the name of a pattern is {name!r}, which is no text",
            fix="a pattern of umakit.patterns is registered with a star: "
            "_register_pattern(*pattern)",
        )
    several = pattern if isinstance(pattern, (tuple, list)) else [pattern]
    for each in several:
        if not isinstance(each, tvm_api.DFPattern):
            raise BackendError(
                f"pattern {name} is {each!r}, which is no pattern of tvm.relax.dpl",
                fix="give what its functions return, such as is_op(...)(...)",
            )


def check_driver_names(sources: Sequence[str], headers: Sequence[str]) -> None:
    """Refuse a driver with exchanged sources and headers."""
    are_headers = all(PurePath(name).suffix in HEADER_SUFFIXES for name in sources)
    in_c = (*C_SUFFIXES, *CXX_SUFFIXES)
    if sources and are_headers and any(PurePath(name).suffix in in_c for name in headers):
        raise BackendError(
            f"_register_driver got headers as sources ({', '.join(sources)}) and sources "
            f"as headers ({', '.join(headers)})",
            fix=f"write sources={[*headers]!r}, headers={[*sources]!r}",
        )
