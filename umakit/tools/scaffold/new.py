# SPDX-License-Identifier: Apache-2.0
"""Rendering of a new backend's files, and writing of them into a new folder."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from umakit import sim
from umakit.errors import OutputError, ScaffoldError
from umakit.files.outputs import status_of
from umakit.files.staging import write_new_folder
from umakit.text.rendering import Code, render, template_folder
from umakit.text.spelling import closest
from umakit.tools.scaffold.answers import DEFAULTS, OPERATORS, Answers, Kind, answers_of
from umakit.tools.scaffold.layer.values import layer_files, layer_values
from umakit.tools.scaffold.record import check_name, names_of, recorded
from umakit.version import __version__

MOST_BANKS = 16
LEAST_BANKS = 6
"""With fewer banks, not every tensor of a layer has one; 1 is a scratchpad without banks."""

ALIGNMENT = 16
"""Tiles begin at multiples of so many bytes, unless accel.toml says otherwise: banks do, too."""

LEAST_SUMS = 4096


def tiles_values(answers: Answers, name: str) -> Mapping[str, object]:
    """Return the further values of a backend of the kind `tiles`.

    `banks` of the scratchpad; `sum_bytes` of the array; `identity`, hexadecimal digits of the ID
    register; `has_images`, whether an operator has a layout.
    """
    banks = [
        count
        for count in range(LEAST_BANKS, MOST_BANKS + 1)
        if answers.scratchpad % (count * ALIGNMENT) == 0
    ]
    return {
        "banks": max(banks, default=1),
        "sum_bytes": max(LEAST_SUMS, answers.scratchpad // 16 * 4),
        "identity": f"{zlib.crc32(name.encode()):08X}",
        "has_images": answers.operators != ("dense",),
    }


HEADERS = ("include/umakit/reference.h", sim.ARITHMETIC_HEADER)


def library_files(answers: Answers, name: str) -> dict[str, str]:
    """Return headers that complete the stand-in library, as in a vendor's library."""
    folder = sim.source_directory()
    return {f"kernels/{path}": (folder / path).read_text(encoding="utf-8") for path in HEADERS}


def flags(*names: str, **defaults: str) -> dict[str, str]:
    """Return flags with their usual defaults, or with the given ones."""
    return {name: defaults.get(name, DEFAULTS[name]) for name in names}


ALL_BUT_FUSED = tuple(name for name in OPERATORS if name != "conv2d_add")

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            name="library",
            summary="C functions that a vendor wrote for the CPU or for a core with its own driver",
            operators=ALL_BUT_FUSED,
            flags=flags("operators", "layout", "rounding"),
            page="docs/kernel-library.md",
            files=library_files,
        ),
        Kind(
            name="layer",
            summary="an engine that computes a whole layer, told by registers or a descriptor",
            operators=ALL_BUT_FUSED,
            flags=flags("operators", "layout", "rounding", "array", "simulator", "registers"),
            page="docs/new-layer.md",
            values=layer_values,
            files=layer_files,
        ),
        Kind(
            name="tiles",
            summary="an array with a scratchpad, for which layers are cut into tiles",
            operators=("conv2d", "depthwise", "conv2d_add", "dense"),
            flags=flags("operators", "layout", "rounding", "array", "scratchpad", "simulator"),
            page="docs/new-tiles.md",
            values=tiles_values,
        ),
    )
}


TUTORIALS = ("vanilla", "strawberry", "chocolate", "small_chocolate")

LIKE = {"small_chocolate": "chocolate"}
"""Tutorials that are another tutorial with other figures."""
SHARED, SHARED_DESIGN = "project", "design"
"""Folders of templates that all kinds share, and all tutorials with a design."""


@dataclass(frozen=True)
class NewBackend:
    """A new backend that was written.

    Attributes:
        kind: name of one of `KINDS`; empty for a tutorial.
    """

    name: str
    folder: Path
    files: tuple[str, ...]
    kind: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)


def kind_of(name: str) -> Kind:
    if name not in KINDS:
        close = closest(name, KINDS)
        fix = f"write {close}" if close else f"choose from {', '.join(KINDS)}"
        raise ScaffoldError(f"there is no kind {name!r}", fix=fix)
    return KINDS[name]


def project_files(name: str, answers: Answers) -> dict[str, str]:
    """Return the text of every file of a new backend of a kind, by path in its folder."""
    kind = KINDS[answers.kind]
    values = template_values(name, answers, kind)
    own = _rendered(f"kind_{kind.name}", name, values) | dict(kind.files(answers, name))
    folders = sorted({path.split("/")[0] for path in own if "/" in path})
    texts = _rendered(SHARED, name, values | {"folders": folders}) | own
    return {path: re.sub(r" +$", "", text, flags=re.MULTILINE) for path, text in texts.items()}


def tutorial_files(name: str, tutorial: str) -> dict[str, str]:
    """Return the text of every file of a finished backend of a tutorial, by file name."""
    names = names_of(name)
    prefix = names["class_prefix"].removesuffix("Accelerator")
    values = names | {"class_prefix": prefix, "tutorial": tutorial}
    design = _own_design(tutorial)
    if design:
        design |= _rendered(SHARED_DESIGN, name, values)
    return _rendered(LIKE.get(tutorial, tutorial), name, values) | design


def _own_design(tutorial: str) -> dict[str, str]:
    """Return the texts of a tutorial's design by path, from the reference backend."""
    folder = Path(str(files("umakit.backends"))) / f"{tutorial}_accelerator"
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((folder / "rtl").glob("*"))
        if path.is_file()
    }


def _rendered(folder: str, name: str, values: Mapping[str, object]) -> dict[str, str]:
    place = template_folder() / folder
    found = {}
    for template in sorted(place.rglob("*.j2")):
        if template.name.startswith("_") and not template.name.startswith("__"):
            continue
        path = template.relative_to(place).as_posix()
        text = render(f"{folder}/{path}", **values)
        if text.strip() or template.name.startswith("__"):
            found[_target_path(path, name)] = text
    return found


def _target_path(template: str, name: str) -> str:
    path = re.sub(r"(^|/)dot\.", r"\1.", template.removesuffix(".j2"))
    return path.replace("BACKEND", name)


def new_backend(
    name: str,
    folder: Path,
    tutorial: str | None = None,
    *,
    kind: str = "",
    flags: Mapping[str, str] | None = None,
    registers: str = "",
) -> NewBackend:
    """Write a new backend of a kind, or of a tutorial, into `folder/name`."""
    check_name(name)
    if tutorial is not None and tutorial not in TUTORIALS:
        raise ScaffoldError(
            f"there is no tutorial {tutorial!r}", fix=f"choose from {', '.join(TUTORIALS)}"
        )
    answers = None if tutorial else answers_of(kind_of(kind), flags or {}, registers)
    target = folder / name
    if status_of(target, follow=False) is not None:
        raise ScaffoldError(
            "exists already and is yours to edit",
            where=str(target),
            fix="choose another name, or move it away to start again",
        )
    if answers is None:
        files = tutorial_files(name, tutorial or "")
    else:
        files = recorded(name, answers, project_files(name, answers))
    try:
        write_new_folder(target, files)
    except OutputError as error:
        raise ScaffoldError(error.what, where=error.where, fix=error.fix) from None
    of_kind = () if answers is None else (answers.kind, answers.flags)
    return NewBackend(name, target, tuple(sorted(files)), *of_kind)


HEIGHT, WIDTH, CHANNELS = 12, 10, 8
"""Size of the input of the networks of tests."""


def template_values(name: str, answers: Answers, kind: Kind) -> dict[str, object]:
    """Return the values of the templates of a kind.

    `name`, `upper` (`MY_NPU`), `class_prefix` (`MyNpu`), `class_name` (`MyNpuBackend`); `kind`, its
    `page`; `operators` (names in `OPERATORS`); `layouts`, `roundings` (lists), `layout`, `rounding`
    (their first), `layout_argument`, `rounding_argument` (Python text of a pattern's argument);
    `rows`, `columns`, `scratchpad` (bytes), `simulator` (`own` or `none`); `network_size`,
    `network` (Python text of a `QuantizedNetwork` and its layers), `networks` (layers by operator);
    `version` of umakit; and the kind's own values.
    """
    layers = {operator: Code(OPERATORS[operator].layers) for operator in answers.operators}
    return {
        **names_of(name),
        "kind": kind.name,
        "page": kind.page,
        "operators": list(answers.operators),
        "layouts": list(answers.layouts),
        "roundings": list(answers.roundings),
        "layout": answers.layouts[0],
        "rounding": answers.roundings[0],
        "layout_argument": _python_names(answers.layouts),
        "rounding_argument": _python_names(answers.roundings),
        "rows": answers.rows,
        "columns": answers.columns,
        "scratchpad": answers.scratchpad,
        "simulator": answers.simulator,
        "flags": dict(answers.flags),
        "network_size": f"{HEIGHT}, {WIDTH}, {CHANNELS}",
        "network": Code("".join(layers.values())),
        "networks": layers,
        "version": __version__,
        **kind.values(answers, name),
    }


def _python_names(names: tuple[str, ...]) -> Code:
    return Code(json.dumps(names[0] if len(names) == 1 else names))
