# SPDX-License-Identifier: Apache-2.0
"""The exceptions of umakit.

::

    UmakitError                  what went wrong, where, and what to do (exit code 2)
    |-- ModelError               a network that cannot be read or imported
    |-- InputError               inputs of a run: wrong name, shape or dtype
    |-- BackendError             a backend that cannot be found, loaded or registered
    |   |-- AcceleratorConfigError   accel.toml is missing or wrong
    |   `-- TargetAttributeError     a target attribute of a wrong type, or a name taken
    |-- ScaffoldError            `uma new` cannot write what was asked for
    |   `-- RegisterMapError     a register map that is not sound
    |-- OffloadError             no operator runs on an accelerator, despite --require-offload
    |-- LoweringError            an operator or a TIR construct that cannot become C
    |-- MemoryPlanError          a memory plan that breaks its own promises
    |-- RecordsError             tuning records, saved reports and budgets that cannot be read
    |-- LibraryError             an exported folder that is missing, damaged or cannot be written
    |   `-- OutputError          a file or folder that a command must not or cannot write
    |-- StorageError             no room, no permission, or no folder for temporary files
    |-- BuildError               a compiler or emulator is missing, or refused the sources
    |   `-- MissingProgramError      a program that a device needs is not installed
    `-- DeviceError              the run itself failed: a driver's status, a crash (exit code 1)

Every message is one sentence. Exceptions hold its parts as attributes for tools.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = [
    "AcceleratorConfigError",
    "BackendError",
    "BuildError",
    "DeviceError",
    "InputError",
    "LibraryError",
    "LoweringError",
    "MemoryPlanError",
    "MissingProgramError",
    "ModelError",
    "OffloadError",
    "OutputError",
    "RecordsError",
    "RegisterMapError",
    "ScaffoldError",
    "StorageError",
    "TargetAttributeError",
    "UmakitError",
]


class UmakitError(Exception):
    """Base class of umakit's errors, which the user can act on.

    Args:
        what: the problem, one sentence without a full stop.
        where: operator, shape, file and line; may be empty.
        fix: advice for the user; may be empty.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what = one_line(what)
        self.where = one_line(where)
        self.fix = one_line(fix)
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.fix}" if self.fix else text


class ModelError(UmakitError):
    """A network that cannot be read or imported.

    Attributes:
        page: section of the documentation that lists the error; empty if there is none.
    """

    page = ""

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.page})" if self.page else super().__str__()


class InputError(UmakitError):
    """Inputs of a run that do not fit the network: name, shape or dtype."""


class BackendError(UmakitError):
    """A backend that cannot be found, loaded or registered."""


class AcceleratorConfigError(BackendError):
    """An `accel.toml` that is missing or does not describe an accelerator."""


class TargetAttributeError(BackendError, ValueError, TypeError):
    """A target attribute or target name that UMA refuses.

    Also a `ValueError` and a `TypeError`, the exceptions of UMA v1.
    """


class ScaffoldError(UmakitError):
    """`uma new` cannot write the requested backend."""


class RegisterMapError(ScaffoldError):
    """A register map that cannot be read or is not sound."""


NOTHING_RUNS = "nothing runs on "
"""Begin of the sentence about an accelerator that a network does not use."""


class OffloadError(UmakitError):
    """No operator of a network runs on an accelerator, and the user required offload."""

    exit_code = 1


class LoweringError(UmakitError):
    """An operator or a TIR construct that cannot become C."""


class MemoryPlanError(UmakitError):
    """A memory plan that overlaps, overflows or is misaligned."""


class RecordsError(UmakitError):
    """Tuning records, saved reports or budgets that cannot be read or do not belong to the
    network."""


class LibraryError(UmakitError):
    """An exported library that is missing, damaged or cannot be written."""


class OutputError(LibraryError):
    """A file or folder that a command must not write, or cannot."""


class StorageError(UmakitError):
    """A storage problem of this machine: no space, no permission, no folder for temporary files or
    caches."""


class BuildError(UmakitError):
    """A compiler or emulator is missing, or the compiler refused the sources."""


class MissingProgramError(BuildError):
    """A program that a device needs is not installed: a compiler, an emulator or Verilator."""


class TooLargeError(BuildError):
    """A program does not fit the memory of its device, or the address range of its compiler."""


class DeviceError(UmakitError):
    """The run itself failed: a driver reported an error, or the program died.

    Args:
        what, where, fix: as in `UmakitError`.
        status: status of the driver; 0 if it returned nothing.
        inference: number of the inference; None if unknown.
        layer: number of the layer; None if unknown.
    """

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        fix: str = "",
        status: int = 0,
        inference: int | None = None,
        layer: int | None = None,
    ) -> None:
        self.status = status
        self.inference = inference
        self.layer = layer
        super().__init__(what, where=where, fix=fix)


def one_line(text: str) -> str:
    """Return a text with line breaks and control characters escaped.

    Messages quote names of files, models and keys, which may contain any character.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def all_errors(root: type[UmakitError] = UmakitError) -> list[type[UmakitError]]:
    """Return `UmakitError` and all its subclasses."""
    return [root, *(error for child in root.__subclasses__() for error in all_errors(child))]


def short_path(path: str | Path) -> str:
    """Return a path for a message: relative if it is below the working directory."""
    absolute = Path(os.path.realpath(path))
    try:
        working = Path.cwd()
    except OSError:  # the working directory was deleted
        return str(absolute)
    return str(absolute.relative_to(working) if absolute.is_relative_to(working) else absolute)
