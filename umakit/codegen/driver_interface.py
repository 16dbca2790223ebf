# SPDX-License-Identifier: Apache-2.0
"""Comparison of driver calls with the declarations of the functions, before any C is written.

Only calls that no compiler would accept, or that would pass the wrong bytes, are refused. Functions
that the text of headers does not show, such as functions made by macros, are left to the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from umakit import tir, tvm_api
from umakit.codegen.driver_headers import DeclaredParameter, read_headers
from umakit.errors import BackendError, short_path
from umakit.lower import Kernel
from umakit.lower.driver_calls import Parameter
from umakit.operators.offload.pattern import OperatorPattern
from umakit.patterns.driver import declared
from umakit.registration.backend import Backend
from umakit.registration.code import included_text, place_of
from umakit.registration.sources.needed import known_functions
from umakit.registration.sources.tree import source_tree
from umakit.text.names import header_of
from umakit.text.spelling import closest

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)?', re.MULTILINE)

STANDARD = frozenset(
    "assert complex ctype errno fenv float inttypes limits locale math setjmp signal stdalign "
    "stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time "
    "uchar wchar wctype unistd pthread".split()
)
"""Headers, without `.h`, that declare no driver."""

WIDTHS: Mapping[str, int] = {
    "char": 8, "signed char": 8, "unsigned char": 8, "bool": 8, "_Bool": 8,
    "short": 16, "unsigned short": 16, "int": 32, "unsigned int": 32, "unsigned": 32,
    "float": 32, "double": 64,
    **{f"{sign}int{bits}_t": bits for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Bits of C's types on every processor that umakit compiles for."""

NUMBERS = frozenset((*WIDTHS, "size_t", "long", "unsigned long", "ptrdiff_t"))
FLOATS = frozenset(("float", "double", "float32", "float64"))
SIMPLE = re.compile(r"\$(\w+)")
"""Form of an argument of C text that is a plain operand."""

MAY_BE_MACRO = re.compile(r"[A-Za-z_]")
"""Form of an argument that may be a macro for several arguments."""


@dataclass(frozen=True)
class Given:
    """An argument of a call.

    Attributes:
        kind: `pointer`, `offset` (of a scratchpad), `number`, or empty if unknown.
        text: C text of an argument of a text call; empty for others.
    """

    kind: str = ""
    dtype: str = ""
    pool: str = ""
    text: str = ""

    @property
    def words(self) -> str:
        """Description of the argument, for messages."""
        if self.kind == "pointer":
            return f"a pointer to {self.dtype}" if self.dtype else "a pointer"
        return f"an offset in {self.pool} (uint32_t)" if self.kind == "offset" else "a number"


@dataclass(frozen=True)
class Call:
    """A call of a driver's function in a kernel.

    Attributes:
        caller: calling kernel or pattern, for messages.
        place: file and line of the Python code of the call; may be empty.
    """

    function: str
    arguments: tuple[Given, ...]
    caller: str
    place: str
    takes_result: bool = True


@dataclass
class Declared:
    """The known declarations and texts of a backend's C.

    Attributes:
        functions: parameters by name of the function, for functions declared once.
        texts: C texts by file; headers that generated C includes come first.
        is_whole: whether no other file can declare or define a function of the backend.
        defined: functions that a library defines.
    """

    functions: Mapping[str, tuple[DeclaredParameter, ...]]
    texts: Mapping[Path, str]
    words: frozenset[str]
    is_whole: bool
    returns_nothing: frozenset[str] = frozenset()
    defined: frozenset[str] = field(default_factory=frozenset)

    def line_of(self, name: str) -> str:
        """Return file and line of the first mention of a function; empty without one."""
        form = re.compile(rf"\b{re.escape(name)}\s*\(")
        for path, text in self.texts.items():
            found = form.search(text)
            if found:
                return f"{short_path(path)}:{text.count(chr(10), 0, found.start()) + 1}"
        return ""


def check_driver_calls(kernels: Mapping[str, Kernel], backends: Mapping[str, Backend]) -> None:
    """Refuse calls of functions that are missing in a backend's C, or that have other parameters.

    Args:
        backends: backends by target name. Backends that replace the text of their calls are not
            checked.
    """
    for target, backend in backends.items():
        if backend.codegen.replace_call_extern is not None:
            continue
        calls = [
            call
            for kernel in kernels.values()
            if kernel.target == target
            for call in calls_of(kernel)
        ]
        calls += registered_calls(backend)
        calls = [call for call in calls if is_of_backend(call.function, backend)]
        if calls:
            declared = declared_by(backend)
            for call in calls:
                check_call(call, declared, backend)


def is_of_backend(function: str, backend: Backend) -> bool:
    """Whether a function belongs to a backend, and not to C's library or umakit."""
    own = ("umakit_", "tvmgen_", f"{backend.target_name}_device")
    return header_of(function) is None and not function.startswith(own)


def calls_of(kernel: Kernel) -> Iterator[Call]:
    """Yield the calls of C functions in a kernel, except text calls."""
    for node in kernel.driver_calls:
        if node.text is not None:
            continue  # all texts are checked, also of layers that the network lacks
        given = tuple(map(_given, node.operands))
        place = tir.place_of_call(node.function, len(given))
        yield Call(node.function, given, f"kernel {kernel.name}", place)
    for call in tvm_api.collect([*kernel.statements], tvm_api.Call):
        if tvm_api.is_external_call(call) or tir.is_driver_call(call):
            name, *arguments = call.args
            given = tuple(map(_given, arguments))
            place = tir.place_of_call(str(name.value), len(given))
            takes_result = tir.is_driver_call(call)
            yield Call(str(name.value), given, f"kernel {kernel.name}", place, takes_result)


def registered_calls(backend: Backend) -> Iterator[Call]:
    """Yield the text calls that a backend registered."""
    patterns = {each.name: each.predicate for each in backend.patterns}
    for name, kernel in backend.kernels.items():
        if name not in patterns:
            continue
        pointers = _pointers_of(patterns[name])
        given = []
        for text in kernel.call.arguments:
            simple = SIMPLE.fullmatch(text.strip())
            dtype = pointers.get(simple[1], "") if simple else ""
            given.append(Given("pointer" if dtype else "", dtype, text=text))
        takes_result = kernel.call.returns_status
        function, place = kernel.call.function, kernel.place
        yield Call(function, tuple(given), f"pattern {name}", place, takes_result)


def _pointers_of(pattern: object) -> Mapping[str, str]:
    """Return the dtypes of a pattern's pointers by name; empty for patterns of several dtypes."""
    if not isinstance(pattern, OperatorPattern) or not isinstance(pattern.dtypes, str):
        return {}
    return declared(pattern)[0]


def _given(operand: Parameter | tvm_api.PrimExpr) -> Given:
    if isinstance(operand, Parameter):
        kind = "offset" if operand.pool else "pointer"
        return Given(kind, operand.dtype, operand.pool)
    buffer = tvm_api.pointed_buffer(operand)
    if buffer is not None:
        pool = tvm_api.buffer_scope(buffer).partition(".")[2]
        return Given("offset" if pool else "pointer", tvm_api.buffer_dtype(buffer), pool)
    if tvm_api.integer_value(operand) == 0:  # a null pointer as well
        return Given()
    if not hasattr(operand.ty, "dtype"):  # the address of an element
        return Given("pointer")
    dtype = tvm_api.dtype_of_expression(operand)
    return Given("number", dtype) if dtype.startswith(("int", "uint", "float")) else Given()


def declared_by(backend: Backend) -> Declared:
    """Read the declarations in a backend's headers, its text for generated C, and its C files."""
    driver, folder, hook = backend.driver, backend.folder, backend.codegen.includes
    headers = {folder / name: _read(folder / name) for name in driver.headers}
    own = "" if hook is None else included_text(backend, hook)
    tree, known = source_tree(backend), known_functions(backend)
    if tree is not None and known is not None:
        headers |= {tree.root / name: _read(tree.root / name) for name in known.headers}
    sources = {folder / name: _read(folder / name) for name in driver.sources}
    found = read_headers([own.encode(), *(text.encode() for text in headers.values())])
    every = [own, *headers.values(), *sources.values()]
    macros = set(re.findall(r"#[ \t]*define[ \t]+(\w+)", "\n".join(every)))
    functions = {name: each for name, each in found.functions.items() if name not in macros}
    texts = {**headers, **sources}
    nothing = re.findall(r"\bvoid\s+(\w+)\s*\(", "\n".join([own, *headers.values()]))
    is_whole = not driver.compiled and bool(texts) and _is_whole(own, headers, sources, backend)
    is_whole &= known is None or known.is_whole
    words = frozenset(re.findall(r"[A-Za-z_]\w*", "\n".join(every)))
    defined = known.functions if known is not None else frozenset[str]()
    return Declared(functions, texts, words, is_whole, frozenset(nothing) - macros, defined)


def _is_whole(
    own: str, headers: Mapping[Path, str], sources: Mapping[Path, str], backend: Backend
) -> bool:
    """Whether texts include only each other, headers of C, and headers of umakit."""
    if not own and backend.configuration.sources is None:
        return False  # a user of the library may have a header
    ends = [f"/{path.as_posix()}" for path in (*headers, *sources)]
    for text in (own, *headers.values(), *sources.values()):
        if "##" in text and backend.configuration.sources is None:
            return False  # names pasted together by macros
        for quoted, angled in INCLUDE.findall(text):
            name = quoted or angled
            is_kit = name.startswith("umakit/") or name == f"{backend.target_name}_device.h"
            is_there = any(end.endswith(f"/{name.lstrip('./')}") for end in ends)
            if not (is_kit or is_there or name.removesuffix(".h") in STANDARD):
                return False
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the export of the file reports it
        return ""


def check_call(call: Call, declared: Declared, backend: Backend) -> None:
    """Compare a call with the declaration."""
    parameters = declared.functions.get(call.function)
    if parameters is None:
        _check_existence(call, declared, backend)
        return
    count, given = len(parameters), len(call.arguments)
    may_be_more = any(MAY_BE_MACRO.match(each.text) for each in call.arguments)
    if count != given and not (given < count and may_be_more):
        raise BackendError(
            f"{call.caller} calls {call.function} with {_counted(given)}, and "
            f"{_declaration(call, declared)} with {count}{_names(parameters)}",
            where=_place(call, backend),
            fix="give it what the declaration says, or correct the declaration and the definition",
        )
    if call.takes_result and call.function in declared.returns_nothing:
        is_text = any(argument.text for argument in call.arguments)
        raise BackendError(
            f"{call.caller} takes the status of {call.function}, and "
            f"{_declaration(call, declared)} as void",
            where=_place(call, backend),
            fix="let it return int32_t, 0 for success"
            + (", or write (void) in front of the call" if call.place and is_text else ""),
        )
    if count == given:
        pairs = zip(parameters, call.arguments, strict=True)
        for number, (parameter, argument) in enumerate(pairs, start=1):
            if _differs(parameter, argument):
                name = f" ({parameter.name})" if parameter.name else ""
                raise BackendError(
                    f"{call.caller} gives {call.function} {argument.words} as argument "
                    f"{number}{name}, and {_declaration(call, declared)} as {parameter.c_text}",
                    where=_place(call, backend),
                    fix=_mend_of_type(parameter, argument),
                )


def _check_existence(call: Call, declared: Declared, backend: Backend) -> None:
    name = call.function
    if not declared.is_whole or name in declared.words or name in declared.defined:
        return
    section = backend.configuration.sources
    known = {*declared.functions, *declared.defined}
    # Without the common prefix of all functions of a driver, which makes any two names similar.
    prefix = f"{backend.target_name}_"
    short = {each.removeprefix(prefix): each for each in known}
    close = short.get(closest(name.removeprefix(prefix), short), "")
    line = declared.line_of(close) if close else ""
    files = [*backend.driver.headers, *backend.driver.sources]
    what = " and ".join(filter(None, (", ".join(files[:-1]), *files[-1:])))
    what = what or "the library of [sources] in accel.toml"
    verbs = "neither declare nor define" if len(files) > 1 else "neither declares nor defines"
    mend = f"write {close}" + (f" ({line})" if line else "") if close else ""
    other = (
        "name the file that has it in [sources] of accel.toml"
        if section is not None and not backend.driver.sources
        else "declare it in a header and define it in a C file that _register_driver names"
    )
    raise BackendError(
        f"{call.caller} calls {name}, which {what} {verbs}",
        where=place_of(name, backend.folder) or _place(call, backend),
        fix=f"{mend}, or {other}" if mend else other,
    )


def _declaration(call: Call, declared: Declared) -> str:
    line = declared.line_of(call.function)
    return f"{line} declares it" if line else "it is declared"


def _place(call: Call, backend: Backend) -> str:
    return call.place or place_of(call.function, backend.folder) or short_path(backend.folder)


def _counted(count: int) -> str:
    return "1 argument" if count == 1 else f"{count or 'no'} arguments"


def _names(parameters: Sequence[DeclaredParameter]) -> str:
    names = [parameter.name for parameter in parameters]
    return f": {', '.join(names)}" if names and all(names) else ""


def _differs(parameter: DeclaredParameter, argument: Given) -> bool:
    """Whether no compiler would convert an argument, or the elements differ in size or kind."""
    is_number = parameter.pointers == 0 and (
        parameter.type in NUMBERS or parameter.enumeration is not None
    )
    if argument.kind == "pointer" and is_number:
        return True
    if argument.kind in ("offset", "number") and parameter.pointers > 0:
        return True
    if parameter.pointers != 1 or parameter.type not in WIDTHS or not argument.dtype:
        return False
    if parameter.type in FLOATS or argument.dtype in FLOATS:
        return (parameter.type in FLOATS) != (argument.dtype in FLOATS) or (
            WIDTHS[parameter.type] != tvm_api.element_bytes(argument.dtype) * 8
        )
    return WIDTHS[parameter.type] != tvm_api.element_bytes(argument.dtype) * 8


def _mend_of_type(parameter: DeclaredParameter, argument: Given) -> str:
    if argument.kind == "offset":
        return "declare it as uint32_t, bytes from the start of the scratchpad"
    if argument.kind == "number":
        return "give it tir.pointer(tensor), or declare it as a number: the order may be another"
    if parameter.pointers == 0:
        return "declare it as a pointer, or give it a number: the order may be another"
    return f"declare it as a pointer to {argument.dtype}, or give it another tensor"
