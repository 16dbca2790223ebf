# SPDX-License-Identifier: Apache-2.0
"""Checks of the objects, static libraries and shared libraries that a backend brings along.

Formats: System V gABI, chapter 4 (ELF); `ar(5)`, with member names as GNU, LLVM and BSD write them.
Mach-O files (Apple) are accepted unread.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from umakit.errors import BuildError, LibraryError

ARCHIVE, THIN_ARCHIVE, ELF = b"!<arch>\n", b"!<thin>\n", b"\x7fELF"
MACH_O = tuple(
    bytes.fromhex(magic) for magic in ("cffaedfe", "cefaedfe", "feedfacf", "feedface", "cafebabe")
)
BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
"""Magic numbers of LLVM bitcode files, which the linker compiles."""

COMPILED = re.compile(r".+\.(a|o|so(\.\d+)*)")
SHARED = re.compile(r".+\.so(\.\d+)*")

HEADER_BYTES = 60
"""Size of the header of a member of an archive."""

MACHINES = {
    "EM_386": "x86", "EM_X86_64": "x86-64", "EM_ARM": "Arm", "EM_AARCH64": "AArch64",
    "EM_RISCV": "RISC-V", "EM_XTENSA": "Xtensa", "EM_AVR": "AVR", "EM_MIPS": "MIPS",
    "EM_PPC": "PowerPC", "EM_PPC64": "PowerPC", "EM_S390": "z/Architecture",
}  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """The target processor of machine code.

    Attributes:
        bits: 32 or 64.
        code: class, byte order and machine number of the ELF header, in hexadecimal.
    """

    name: str
    bits: int
    is_big_endian: bool
    code: str

    def __str__(self) -> str:
        order = ", big-endian" if self.is_big_endian else ""
        return f"{self.name} ({self.bits} bits{order})"


@dataclass(frozen=True)
class CompiledFile:
    """The properties of a compiled file that linking depends on.

    Attributes:
        machine: the target processor; None for a file that is not ELF.
        loaded_as: name under which programs look for a shared library; empty for other files, and
            for a shared library without a name of its own.
    """

    machine: Machine | None = None
    loaded_as: str = ""
    needs_cxx: bool = False


def is_compiled(name: str) -> bool:
    """Whether a file is an object (`.o`), a static (`.a`) or a shared library (`.so`, `.so.1`)."""
    return COMPILED.fullmatch(name) is not None


def is_shared(name: str) -> bool:
    return SHARED.fullmatch(name) is not None


def members(content: bytes, where: str) -> list[tuple[str, bytes]]:
    found, start, names = [], len(ARCHIVE), b""
    while start < len(content):
        header = content[start : start + HEADER_BYTES]
        name, size = header[:16].rstrip(), header[48:58].strip()
        start += HEADER_BYTES
        if header[58:] != b"`\n" or not size.isdigit() or start + int(size) > len(content):
            raise LibraryError("is a damaged static library", where=where, fix="make it again")
        data = content[start : start + int(size)]
        start += int(size) + int(size) % 2
        if name.startswith(b"#1/") and name[3:].isdigit():
            name, data = data[: int(name[3:])].rstrip(b"\0"), data[int(name[3:]) :]
        if name == b"//":
            names = data
        if name in (b"/", b"//", b"/SYM64/") or name.startswith(b"__.SYMDEF"):
            continue
        if name[:1] == b"/" and name[1:].isdigit():
            name = names[int(name[1:]) :].split(b"\n")[0]
        found.append((name.rstrip(b"/").decode(errors="replace"), data))
    return found


def read_compiled(name: str, content: bytes, where: str) -> CompiledFile:
    """Return the properties of a compiled file, whose suffix tells the expected format."""
    if content.startswith(THIN_ARCHIVE):
        raise LibraryError(
            "is a thin library, whose objects lie elsewhere",
            where=where,
            fix="make it with ar rcs, without T",
        )
    if name.endswith(".a"):
        if not content.startswith(ARCHIVE) and not content.startswith(MACH_O):
            raise LibraryError("is no static library", where=where, fix="make it with ar rcs")
        inside = members(content, where) if content.startswith(ARCHIVE) else []
        # Linkers skip members that are no objects, such as texts.
        objects = [data for _, data in inside if data.startswith(ELF)]
    else:
        objects = [content]
    read = [_read_object(data, is_shared(name), where) for data in objects]
    machines = sorted({str(each.machine): each.machine for each in read if each.machine}.items())
    if len(machines) > 1:
        kinds = " and for ".join(kind for kind, _ in machines)
        raise LibraryError(
            f"has code for {kinds}", where=where, fix="make one library for each processor"
        )
    return CompiledFile(
        machines[0][1] if machines else None,
        "".join(each.loaded_as for each in read),
        any(each.needs_cxx for each in read),
    )


def _read_object(content: bytes, shared: bool, where: str) -> CompiledFile:
    if content.startswith((*MACH_O, *BITCODE)):
        return CompiledFile()
    if not content.startswith(ELF):
        kind = "shared library" if shared else "object"
        fix = "name the file itself, not a linker script" if shared else "compile it with cc -c"
        raise LibraryError(f"is no {kind}", where=where, fix=fix)
    try:
        elf = ELFFile(io.BytesIO(content))
        if (elf["e_type"] == "ET_DYN") != shared:
            kind = "a shared library" if elf["e_type"] == "ET_DYN" else "no shared library"
            raise LibraryError(
                f"is {kind}, which its name does not say", where=where, fix="rename it"
            )
        if elf["e_type"] not in ("ET_DYN", "ET_REL"):
            raise LibraryError("is a program, not an object", where=where, fix="leave it out")
        kind = str(elf["e_machine"])
        name = MACHINES.get(kind, kind.removeprefix("EM_"))
        code = (content[4:6] + content[18:20]).hex()
        machine = Machine(name, elf.elfclass, not elf.little_endian, code)
        return CompiledFile(machine, _loaded_as(elf), not shared and _needs_cxx(elf))
    except (ELFError, UnicodeDecodeError, ValueError, KeyError, AttributeError, OverflowError):
        raise LibraryError("is a damaged ELF file", where=where, fix="compile it again") from None


def _loaded_as(elf: ELFFile) -> str:
    dynamic = elf.get_section_by_name(".dynamic")
    tags = dynamic.iter_tags("DT_SONAME") if dynamic is not None else ()
    return next((str(tag.soname) for tag in tags), "")


def _needs_cxx(elf: ELFFile) -> bool:
    """Whether an object refers to the C++ standard library; mangled names begin with _Z."""
    table = elf.get_section_by_name(".symtab")
    return any(
        symbol["st_shndx"] == "SHN_UNDEF" and symbol.name.startswith(("_Z", "__gxx_", "__cxa_"))
        for symbol in (table.iter_symbols() if table is not None else ())
    )


HOST_COMPILERS = ("cc", "gcc", "clang")
HOST_CXX_COMPILERS = ("c++", "g++", "clang++")


def host_compiler(
    variable: str = "CC", names: Sequence[str] = HOST_COMPILERS, language: str = "C"
) -> list[str]:
    """Return the command of this machine's compiler; an environment variable overrides it."""
    chosen = os.environ.get(variable, "")
    try:
        command = shlex.split(chosen)
    except ValueError as error:
        raise BuildError(f"{variable}={chosen!r} cannot be read: {error}") from None
    if command:
        return command
    found = next(filter(None, map(shutil.which, names)), None)
    if found:
        return [found]
    tools = "gcc or clang" if language == "C" else "g++ or clang++"
    raise BuildError(f"there is no {language} compiler", fix=f"install {tools}, or set {variable}")
