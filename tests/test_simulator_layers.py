# SPDX-License-Identifier: Apache-2.0
"""The C files of the simulator call and include each other in one direction."""

from __future__ import annotations

import graphlib
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).parents[1]
SIM = ROOT / "sim"
HEADERS = sorted((SIM / "include" / "umakit").glob("*.h"))
SOURCES = sorted((SIM / "src").glob("*.c"))
DEVICES = [*sorted((SIM / "board").glob("*.c")), *sorted((SIM / "mock").glob("*.c"))]
"""What takes the place of the simulator behind `device.h`."""

SEAM = "own_simulator.h"
"""The one header with function pointers: every simulator fills a table of them."""

PRIVATE = "Private to the simulator"
"""How the comment of a header begins that only the simulator's own files include."""

FLAGS = ("-std=c99", "-O0", "-fno-jump-tables", "-DUMAKIT_DEVICE_BASE=0x40010000u")
"""No call is optimised away, and the only code pointers in data are those of the sources."""


@dataclass(frozen=True)
class Object:
    """Symbols of an object file, and whether its data holds addresses of functions."""

    defined: frozenset[str]
    undefined: frozenset[str]
    has_function_pointers: bool


def text_of(path: Path) -> str:
    """A C file without its comments."""
    return re.sub(r"/\*.*?\*/", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def included(path: Path) -> set[str]:
    """Names of the headers of ours that a file includes itself."""
    return set(re.findall(r'^#include "(?:umakit/)?(\w+\.h)"', text_of(path), re.MULTILINE))


def read_object(path: Path) -> Object:
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
        code = {
            number for number, section in enumerate(elf.iter_sections()) if section["sh_flags"] & 4
        }
        has_pointers = False
        for table in elf.iter_sections():
            if table["sh_type"] not in ("SHT_REL", "SHT_RELA"):
                continue
            target = elf.get_section(table["sh_info"])
            if target["sh_flags"] & 2 and not target["sh_flags"] & 4 and target.name != ".eh_frame":
                has_pointers |= any(
                    symbols[relocation["r_info_sym"]]["st_shndx"] in code
                    for relocation in table.iter_relocations()
                )
    shared = [item for item in symbols if item["st_info"]["bind"] == "STB_GLOBAL" and item.name]
    defined = {item.name for item in shared if item["st_shndx"] != "SHN_UNDEF"}
    return Object(frozenset(defined), frozenset({i.name for i in shared} - defined), has_pointers)


def compile_all(sources: list[Path], include: Path, folder: Path) -> dict[str, Object]:
    command = ["cc", *FLAGS, f"-I{include}", "-c", *map(str, sources)]
    subprocess.run(command, check=True, cwd=folder)
    return {path.name: read_object(folder / f"{path.stem}.o") for path in sources}


def calls_of(objects: Mapping[str, Object]) -> dict[str, set[str]]:
    """Files that define what a file refers to, by the file's name."""
    owners = {name: file for file, item in objects.items() for name in item.defined}
    return {
        file: {owners[name] for name in item.undefined if name in owners}
        for file, item in objects.items()
    }


def through_the_seam(sources: list[Path]) -> dict[str, set[str]]:
    """Calls through the table of a kind of device: from who calls to who fills one."""
    fills = {
        path.name
        for path in sources
        if re.search(r"struct umakit_own_simulator \w+ =", text_of(path))
    }
    uses = {path.name for path in sources if re.search(r"operations->\w+\(", text_of(path))}
    return {path.name: fills if path.name in uses else set() for path in sources}


def order(graph: Mapping[str, set[str]]) -> list[str]:
    """Callers before what they call; `graphlib.CycleError` if there is a circle."""
    return [*graphlib.TopologicalSorter(graph).static_order()][::-1]


def functions_in(path: Path) -> set[str]:
    return set(re.findall(r"\b(umakit_\w+)\s*\(", text_of(path)))


def owners_of(header: Path, objects: Mapping[str, Object]) -> set[str]:
    """The files that define what a header declares."""
    declared = functions_in(header)
    return {file for file, item in objects.items() if item.defined & declared}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Object]:
    return compile_all(SOURCES, SIM / "include", tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="module")
def calls(objects: dict[str, Object]) -> dict[str, set[str]]:
    """The calls of each object, by name and through the seam."""
    seam = through_the_seam(SOURCES)
    assert seam["umakit_simulator.c"] == {"umakit_mac_array.c", "umakit_systolic_array.c"}
    return {file: names | seam[file] for file, names in calls_of(objects).items()}


def test_no_file_is_called_by_what_it_calls(calls: dict[str, set[str]]) -> None:
    assert len(order(calls)) == len(SOURCES)
    assert not any(file in names for file, names in calls.items())


def test_no_file_is_included_by_what_it_includes() -> None:
    files = {path.name: included(path) for path in [*HEADERS, *SOURCES, *DEVICES]}
    assert set().union(*files.values()) <= set(files)
    order(files)


def test_functions_are_called_through_pointers_at_one_seam(objects: dict[str, Object]) -> None:
    """No other header or source declares a pointer to a function, in whatever way it is filled."""
    pointer = re.compile(
        r"\(\s*\*\s*(?:const\s*)?\w*\s*(?:\[\w*\]\s*)?\)\s*\(|\btypedef\b[^;{[]*\("
    )
    assert {p.name for p in [*HEADERS, *SOURCES] if pointer.search(text_of(p))} == {SEAM}
    tables = {name for name, item in objects.items() if item.has_function_pointers}
    assert tables == through_the_seam(SOURCES)["umakit_simulator.c"]


FAMILIES = {
    "mac_array.h": {"mac_array", "mac_array_convolution"},
    "systolic_engines.h": {
        "systolic_accesses",
        "systolic_engines",
        "systolic_queue",
        "systolic_read",
        "systolic_timeline",
        "systolic_write",
    },
    "systolic_jobs.h": {
        "systolic_compute",
        "systolic_costs",
        "systolic_dma",
        "systolic_job",
        "systolic_operands",
        "systolic_output",
        "systolic_pooling",
        "systolic_run",
    },
}
"""Private headers of several files, by the files without `umakit_` and `.c`."""


def test_a_header_declares_the_functions_of_one_file_or_family(objects: dict[str, Object]) -> None:
    assert {
        path.name: {owner[len("umakit_") : -len(".c")] for owner in owners}
        for path in HEADERS
        if len(owners := owners_of(path, objects)) > 1
    } == FAMILIES
    declared = {name for path in HEADERS for name in functions_in(path)}
    assert {name for item in objects.values() for name in item.defined} <= declared


def test_a_file_includes_private_headers_of_what_it_calls(
    objects: dict[str, Object], calls: dict[str, set[str]]
) -> None:
    """Its own among them, and no other."""
    private = {path for path in HEADERS if PRIVATE in path.read_text(encoding="utf-8")}
    owners = {path.name: of for path in private if (of := owners_of(path, objects))}
    assert sum(map(len, owners.values())) == len(set().union(*owners.values()))
    users = {file for file in objects if SEAM in included(SIM / "src" / file)}
    tables = {"umakit_simulator.c", "umakit_mac_array.c", "umakit_systolic_array.c"}
    assert users == tables | {"umakit_host.c"} | {
        file for file in objects if "umakit_host.c" in calls[file]
    }
    for file, names in calls.items():
        own = {name for name, of in owners.items() if file in of}
        called = {name for name, of in owners.items() if of & names}
        assert included(SIM / "src" / file) & set(owners) - own == called - own, file


def test_nobody_else_includes_private_headers() -> None:
    private = {path.name for path in HEADERS if PRIVATE in path.read_text(encoding="utf-8")}
    folders = [SIM / "tests", SIM / "board", SIM / "mock", ROOT / "backends", ROOT / "bench"]
    folders += [ROOT / "templates", ROOT / "umakit", ROOT / "tests", ROOT / "examples"]
    files = [p for f in folders for p in f.rglob("*") if re.search(r"\.[ch](\.j2)?$", p.name)]
    assert len(files) > 40
    assert {path.name: used for path in files if (used := included(path) & private)} == {}


APART = {"umakit_status.c", "umakit_systolic_stepped.c"}
"""Files that call nobody and are called by nobody of the simulator."""


def test_the_drawing_shows_every_file_and_call(calls: dict[str, set[str]]) -> None:
    """docs/simulator.md: calls go down or to the right; a table says what each file calls."""
    text = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    section = text.split("## C of the simulator")[1]
    layers = re.findall(r"^[a-z]+ +(\w.*)$", section.split("```")[1], re.MULTILINE)
    assert len(layers) == 11
    drawing = re.findall(r"(?<!\S)\w+\b(?!\.h)", section.split("```")[1])
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (.*) \|$", section, re.MULTILINE)
    table = {f"umakit_{file}.c": re.findall(r"`(\w+)`", names) for file, names in rows}
    assert {file: {f"umakit_{name}.c" for name in names} for file, names in table.items()} == {
        file: names for file, names in calls.items() if file not in APART
    }
    places = {f"umakit_{name}.c": place for place, name in enumerate(drawing)}
    for file, names in calls.items():
        assert drawing.count(file.removeprefix("umakit_").removesuffix(".c")) == (file not in APART)
        assert all(places[file] < places[name] for name in names), file
    assert not any(calls[file] or file in names for file in APART for names in calls.values())


@pytest.mark.parametrize("is_table", [False, True])
def test_a_circle_of_calls_would_be_seen(is_table: bool, tmp_path: Path) -> None:
    upper = tmp_path / "upper.c"
    lower = tmp_path / "lower.c"
    upper.write_text(
        "struct umakit_own_simulator { int (*run)(void); };\n"
        "int lower(void);\nint upper(void);\nint call(struct umakit_own_simulator *);\n"
        "int upper(void) { return lower(); }\n"
        "int call(struct umakit_own_simulator *operations) { return operations->run(); }\n",
        encoding="utf-8",
    )
    called = "upper()" if not is_table else "operations.run != 0"
    lower.write_text(
        "struct umakit_own_simulator { int (*run)(void); };\n"
        "int lower(void);\nint upper(void);\nstatic int run(void) { return 0; }\n"
        "static const struct umakit_own_simulator operations = {run};\n"
        f"int lower(void) {{ return {called}; }}\n",
        encoding="utf-8",
    )
    objects = compile_all([upper, lower], SIM / "include", tmp_path)
    assert objects["lower.c"].has_function_pointers and not objects["upper.c"].has_function_pointers
    calls = calls_of(objects)
    assert calls == {"upper.c": {"lower.c"}, "lower.c": set() if is_table else {"upper.c"}}
    seam = through_the_seam([upper, lower])
    assert seam == {"upper.c": {"lower.c"}, "lower.c": set()}
    graph = {file: names | seam[file] for file, names in calls.items()}
    if is_table:
        assert order(graph) == ["upper.c", "lower.c"]
    else:
        with pytest.raises(graphlib.CycleError):
            order(graph)
