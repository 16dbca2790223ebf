# SPDX-License-Identifier: Apache-2.0
"""`umakit.torch.offload`: runs parts of a module on accelerators, and the rest in PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from umakit.errors import InputError
from umakit.library.options import ExportOptions
from umakit.registration.backend import Backend
from umakit.torch.offers import Progress, exported, flat_arguments, functional
from umakit.torch.offloaded import Accelerators, OffloadedModule, offloaded_module

BackendChoice = str | os.PathLike[str] | Backend
"""A backend, its name, or the path of its folder."""


def offload(
    module: torch.nn.Module | torch.export.ExportedProgram,
    backend: BackendChoice | Sequence[BackendChoice],
    example: Any,
    *,
    keywords: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    by_layer: bool = False,
    options: ExportOptions | None = None,
    progress: Progress = lambda stage: None,
) -> OffloadedModule:
    """Offload the supported parts of a module to accelerators, and leave the rest to PyTorch.

    The parts are those that `uma partition` would offload. Each part is compiled to a library and
    loaded into this process with simulated accelerators. Operators that umakit cannot import stay
    in PyTorch, with the reason.

    Args:
        module: the module, in inference mode; or a program of `torch.export.export`; also a
            converted module of `torchao.quantization.pt2e`.
        backend: the accelerator, its name or the path of its folder; or several in order of
            priority.
        example: a tensor, or a tuple of arguments of a call.
        keywords: further arguments by name.
        dynamic_shapes: sizes that later calls may change, as for `torch.export.export`. Parts are
            compiled for each new shape on the first call.
        by_layer: make one part per layer, which `OffloadedModule.compare` then compares separately,
            instead of as few parts as possible.
        options: options of the compilation, without tuning records, which belong to whole networks.
        progress: callback with a description of each stage.

    Raises:
        InputError: an argument is of another type.
        BackendError: a backend cannot be found or loaded, or failed.
        ModelError: torch cannot export the module.
        UmakitError: the subclass names the stage that refused.
    """
    arguments = example if isinstance(example, tuple) else (example,)
    accelerators = accelerators_of(backend, options)
    if isinstance(module, torch.export.ExportedProgram):
        program = functional(module)
    elif isinstance(module, torch.nn.Module):
        progress("exporting the module")
        program = exported(module, arguments, keywords, dynamic_shapes)
    else:
        raise InputError(
            f"{type(module).__name__} is not a module of PyTorch",
            fix="pass a torch.nn.Module, or what torch.export.export returns",
        )
    flat = flat_arguments(program, arguments, keywords or {})
    return offloaded_module(program, flat, accelerators, progress, by_layer)


def accelerators_of(
    backend: BackendChoice | Sequence[BackendChoice], options: ExportOptions | None
) -> Accelerators:
    chosen = list(backend) if isinstance(backend, (list, tuple)) else [backend]
    names = []
    for each in chosen:
        if not isinstance(each, (str, os.PathLike, Backend)):
            raise InputError(
                f"{each!r} is not a backend", fix="give its name, or the path of its folder"
            )
        names.append(str(each.folder) if isinstance(each, Backend) else os.fspath(each))
    if not names:
        raise InputError("no backend is given", fix="give its name, or the path of its folder")
    options = ExportOptions() if options is None else options
    if not isinstance(options, ExportOptions):
        raise InputError(
            f"options are a {type(options).__name__}", fix="write umakit.ExportOptions(...)"
        )
    if options.records is not None:
        raise InputError(
            "records of tuning belong to whole networks, and parts are compiled here",
            fix="leave records out of the options",
        )
    return Accelerators(tuple(names), options)
