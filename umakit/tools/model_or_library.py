# SPDX-License-Identifier: Apache-2.0
"""Models in the place of libraries: they are compiled into a folder that is deleted afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from umakit.files.staging import temporary_folder
from umakit.library.metadata import load_metadata
from umakit.machine.cpu import GENERIC, cpu_file, find_cpu
from umakit.partition.report import UnusedBackend, check_offload

MODEL_SUFFIXES = (".onnx", ".tflite", ".pt2", ".json")
"""Ends of the names of files that are models; libraries are folders and tar files."""


@dataclass(frozen=True)
class GivenLibrary:
    """A library that a command was given, or that was compiled from a model.

    Attributes:
        library: its folder or tar file.
        cpu: name of the CPU whose code is meant; empty for the first one that the device has.
        read: files that were read besides the library, and must not be overwritten.
        notices: what was decided for the user, one sentence each.
    """

    library: Path
    cpu: str
    read: tuple[Path, ...] = ()
    notices: tuple[str, ...] = ()


def is_model(path: Path) -> bool:
    """Whether a path is that of a model and not of a library, by its name."""
    return path.suffix.lower() in MODEL_SUFFIXES and not path.is_dir()


def unused_backends(library: Path, required: bool = False) -> list[UnusedBackend]:
    """Return the accelerators of a library on which nothing runs.

    Args:
        library: the library.
        required: whether there must be none, and an accelerator.

    Raises:
        OffloadError: the library is not as required.
        LibraryError: the library is missing or damaged.
    """
    description = load_metadata(library)["umakit"]
    unused = [UnusedBackend(**each) for each in description.get("unused_backends", [])]
    if required:
        check_offload(unused, bool(unused or description["backends"]))
    return unused


@contextmanager
def library_of(
    source: Path,
    cpu: str | None,
    default: str,
    progress: Callable[[str], None] = lambda stage: None,
) -> Iterator[GivenLibrary]:
    """Return a library, or compile a model for a CPU without accelerators.

    Args:
        source: a library, or a model.
        cpu: what names the CPU: of a library one of its own; None if nobody chose.
        default: the CPU for which a model is compiled if nobody chose.
        progress: callback with a description of each stage.

    Raises:
        InputError: there is no such CPU.
        UmakitError: the model cannot be compiled; its subclass says which stage refused and why.
    """
    own_file = None if cpu is None else cpu_file(cpu)
    read = () if own_file is None else (own_file,)
    if not is_model(source):
        yield GivenLibrary(source, "" if cpu is None else find_cpu(cpu).name, read)
        return
    chosen = find_cpu(cpu or default)
    progress("loading TVM")
    from umakit.frontend import model_files
    from umakit.library.options import ExportOptions
    from umakit.pipeline import compile_model

    files = (*read, *model_files(source))
    with temporary_folder("umakit-model-") as folder:
        options = ExportOptions(cpu=cpu or default)
        library = compile_model(source, [], folder / "library", options=options, progress=progress)
        notices = library.notices
        if chosen.name != GENERIC:
            notices.append(
                f"compiled for {chosen.name}: integers are the same as with --cpu {GENERIC}, "
                "floats may differ by rounding"
            )
        yield GivenLibrary(library.path, "", files, tuple(notices))
