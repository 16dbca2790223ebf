# SPDX-License-Identifier: Apache-2.0
"""`uma new`: writes the project of a new backend, or updates a project."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli.console import print_json, say
from umakit.cli.options import JsonOption

from umakit.errors import InputError, ScaffoldError, UmakitError
from umakit.text.escaping import shell_word

if TYPE_CHECKING:
    from umakit.tools.scaffold import Kind, NewBackend, Update

HELP = """Write the project of a new backend: patterns, driver, tests, pyproject.toml.

It works from the first minute: a small int8 network is computed by reference loops that your \
hardware or library then replaces. On a terminal, questions are asked about what no flag says; \
elsewhere, what is not said has defaults.

`uma new --update FOLDER` brings a project to the templates of this version, or to other flags: \
files that you did not edit are replaced; where both you and the template changed a file, the \
difference is shown, and --merge merges it.

Exit code: 1 if an update left something to merge."""

EPILOG = """Examples:  uma new my_npu --kind layer --array 16x16 --operators conv2d,dense

uma new my_kernels --kind library --rounding tflm

uma new vanilla_accelerator --tutorial vanilla

uma new --update my_npu --array 32x16"""

DEFAULT_KIND = "layer"

QUESTIONS = {
    "operators": "Operators, separated by commas",
    "layout": "Layout of images: NHWC, NCHW or both",
    "rounding": "Rounding of products: tflm (TensorFlow Lite Micro), ort (ONNX Runtime) or both",
    "array": "Rows x columns of the MAC array",
    "scratchpad": "Bytes of the scratchpad",
    "simulator": "Simulator on the host: own (one is written) or none (the driver computes itself)",
    "registers": "Register map, a TOML file (empty: one is written)",
}


LEFT_TO_MERGE = 1


def _flag(description: str) -> Any:
    return typer.Option(help=description, show_default=False)


NameArgument = Annotated[
    str | None, typer.Argument(help="Name of the accelerator, such as my_npu.", show_default=False)
]
KindOption = Annotated[
    str | None,
    _flag(
        "library (C functions of a vendor), layer (an accelerator that computes a layer at a "
        "time) or tiles (one with a scratchpad and DMA, for which layers are cut)."
    ),
]
TutorialOption = Annotated[
    str | None,
    _flag(
        "Instead: a finished mock accelerator: vanilla (float32, the CPU's memory), "
        "strawberry (int8, scratchpad, DMA, RTL), chocolate (int8, tiles, DMA during compute) "
        "or small_chocolate (the same with an array of 4x4, and RTL)."
    ),
]
OperatorsOption = Annotated[str | None, _flag("Operators that it computes, such as conv2d,dense.")]
LayoutOption = Annotated[str | None, _flag("Layout of images: NHWC, NCHW or both.")]
ProductsOption = Annotated[
    str | None, _flag("Rounding of products: tflm, ort or both (see `uma partition --help`).")
]
ArrayOption = Annotated[str | None, _flag("Rows x columns of the MAC array, such as 16x16.")]
ScratchpadOption = Annotated[str | None, _flag("Bytes of the scratchpad, such as 128K.")]
SimulatorOption = Annotated[
    str | None,
    _flag("own: a simulator in C is written; none: the driver computes with reference loops."),
]
MapOption = Annotated[
    Path | None, _flag("Your register map, a TOML file; default: one is written.")
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        help="Where the backend's folder is made; default: the working folder.",
        show_default=False,
    ),
]
UpdateOption = Annotated[
    Path | None,
    _flag("A folder that `uma new --kind` wrote, to bring up to date or to other flags."),
]
MergeOption = Annotated[
    bool,
    typer.Option(
        "--merge", help="With --update: merge files that you edited and templates changed."
    ),
]


def new(
    name: NameArgument = None,
    kind: KindOption = None,
    tutorial: TutorialOption = None,
    operators: OperatorsOption = None,
    layout: LayoutOption = None,
    rounding: ProductsOption = None,
    array: ArrayOption = None,
    scratchpad: ScratchpadOption = None,
    simulator: SimulatorOption = None,
    registers: MapOption = None,
    directory: DirectoryOption = None,
    update: UpdateOption = None,
    merge: MergeOption = False,
    as_json: JsonOption = False,
) -> int:
    given = {
        "operators": operators,
        "layout": layout,
        "rounding": rounding,
        "array": array,
        "scratchpad": scratchpad,
        "simulator": simulator,
        "registers": None if registers is None else str(registers),
    }
    flags = {flag: text for flag, text in given.items() if text is not None}
    if update is not None:
        others = {"kind": kind, "tutorial": tutorial, "directory": directory, "name": name}
        return bring_up_to_date(update, flags, others, merge=merge, as_json=as_json)
    if merge:
        raise InputError("--merge is for --update", fix="leave it out, or give --update FOLDER")
    if name is None:
        raise InputError("the accelerator has no name", fix="write uma new NAME --kind KIND")
    write(name, kind, tutorial, flags, directory or Path(), as_json=as_json)
    return 0


def write(
    name: str,
    kind: str | None,
    tutorial: str | None,
    flags: dict[str, str],
    directory: Path,
    *,
    as_json: bool,
) -> None:
    from umakit.tools.scaffold import check_name, new_backend

    check_name(name)
    if tutorial is not None:
        refuse_flags_of_kinds(flags | ({"kind": kind} if kind else {}))
        show(new_backend(name, directory, tutorial), tutorial, as_json)
        return
    chosen, defaults = ask(kind, flags)
    flags |= defaults
    registers = read_map(flags.get("registers"))
    written = new_backend(name, directory, kind=chosen.name, flags=flags, registers=registers)
    if defaults and not as_json and not on_terminal():
        taken = ({} if kind else {"kind": chosen.name}) | defaults
        text = " ".join(f"--{flag} {value}" for flag, value in taken.items() if value)
        if registers and "array" in defaults:  # unused with a register map
            text += "; --array is the multiply-accumulates in a cycle, which no register map says"
        say(f"note: not given, so these are the defaults: {text}", error=True)
    show(written, tutorial, as_json)


def bring_up_to_date(
    folder: Path, flags: dict[str, str], others: dict[str, Any], *, merge: bool, as_json: bool
) -> int:
    """Update a project and print the changes; return 1 if files are left to merge."""
    from umakit.tools.scaffold import update_backend

    for name, value in others.items():
        if value is not None:
            shown = f"the name {value}" if name == "name" else f"--{name} {value}"
            raise InputError(f"{shown}: an update does not change it", fix="leave it out")
    update = update_backend(folder, flags, read_map(flags.get("registers")), merge=merge)
    if as_json:
        print_json(asdict(update))
        return 0 if update.is_complete else LEFT_TO_MERGE
    show_update(update)
    return 0 if update.is_complete else LEFT_TO_MERGE


def on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def show_update(update: Update) -> None:
    for label, paths in (
        ("added", update.added),
        ("replaced", update.replaced),
        ("removed", update.removed),
        ("merged", update.merged),
        ("kept, though it is not written any more", update.kept),
    ):
        for path in paths:
            say(f"{label}: {path}")
    for path in update.to_merge:
        say(f"to merge: {path}")
        for line in update.differences[path].splitlines():
            say(f"  {line}".rstrip())
    for path in update.conflicts:
        say(f"to solve: {path} has conflicts between <<<<<<< and >>>>>>>")
    if update.to_merge:
        say(f"Next: uma new --update {shell_word(update.folder)} --merge")
    elif update.is_complete:
        say(f"{update.folder} is up to date")


def refuse_flags_of_kinds(flags: dict[str, str]) -> None:
    for flag, text in flags.items():
        raise ScaffoldError(
            f"--{flag} {text}: a tutorial has none, its accelerator is finished",
            fix="leave out --tutorial or the flag",
        )


def ask(kind_name: str | None, flags: dict[str, str]) -> tuple[Kind, dict[str, str]]:
    """Return the kind and the values of omitted flags; on a terminal, from the user's answers."""
    from umakit.tools.scaffold import KINDS, answers_of, kind_of

    if kind_name is None and on_terminal():
        for each in KINDS.values():
            typer.echo(f"  {each.name:8} {each.summary}")
        kind_name = prompt("Kind", DEFAULT_KIND, kind_of)
    kind = kind_of(kind_name or DEFAULT_KIND)
    answers_of(kind, flags)
    missing = {name: text for name, text in kind.flags.items() if name not in flags}
    if on_terminal():
        for name, default in missing.items():

            def check(text: str, name: str = name) -> None:
                answers_of(kind, {name: text})
                read_map(text if name == "registers" else "")

            missing[name] = prompt(QUESTIONS[name], default, check)
    return kind, missing


def prompt(question: str, default: str, check: Any) -> str:
    while True:
        answer = str(typer.prompt(question, default=default))
        try:
            check(answer)
        except UmakitError as error:
            typer.echo(f"  {error}")
        else:
            return answer


def read_map(path: str | None) -> str:
    """Return the text of a register map."""
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
        raise InputError(
            f"the register map cannot be read: {reason}", where=path, fix="give a TOML file"
        ) from None


def show(written: NewBackend, tutorial: str | None, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "name": written.name,
                "folder": str(written.folder),
                "files": list(written.files),
                "tutorial": tutorial,
                "kind": written.kind or None,
                "flags": dict(written.flags),
            }
        )
        return
    say(f"Wrote {written.folder}:")
    for file_name in written.files:
        if not file_name.startswith(".umakit/"):
            say(f"  {file_name}")
    say(f"Next: python {shell_word(str(written.folder / 'run.py'))}")
