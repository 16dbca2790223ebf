# SPDX-License-Identifier: Apache-2.0
"""Models in place of libraries: compiled into a folder that is deleted afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from umakit.cpu.description import GENERIC, cpu_file, find_cpu
from umakit.files.staging import temporary_folder
from umakit.library.metadata import load_metadata
from umakit.partition.report import UnusedBackend, check_offload

MODEL_SUFFIXES = (".onnx", ".tflite", ".pt2", ".json")
"""Ends of the names of files that are models; libraries are folders and tar files."""


@dataclass(frozen=True)
class GivenLibrary:
    """A library that was given, or compiled from a given model.

    Attributes:
        cpu: name of the CPU whose code runs; empty for the first CPU that the device supports.
        read: further input files, which must not be overwritten.
    """

    library: Path
    cpu: str
    read: tuple[Path, ...] = ()
    notices: tuple[str, ...] = ()


def is_model(path: Path) -> bool:
    """Whether a path is a model and not a library, by its name."""
    return path.suffix.lower() in MODEL_SUFFIXES and not path.is_dir()


def unused_backends(library: Path, required: bool = False) -> list[UnusedBackend]:
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
    """Yield a library, or compile a model for `cpu`, or else `default`, without accelerators."""
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
