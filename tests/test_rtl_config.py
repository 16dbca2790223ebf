# SPDX-License-Identifier: Apache-2.0
"""The section `[rtl]` of `accel.toml`: what each key means, and what is refused with which line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from umakit.devices.designs import design_of
from umakit.errors import AcceleratorConfigError
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.machine.rtl_config import RtlSection, design_sources, included_files
from umakit.tools.scaffold import new_backend

ACCEL = """\
[accelerator]
name = "npu"

[array]
rows = 4
columns = 8

[dma]
bytes_per_cycle = 16
latency_cycles = 30
alignment = 64

[device]
simulator = "rtl"

[rtl]
top = "npu"
sources = ["rtl/*.sv", "more/adder.v"]
include = ["rtl/include"]
parameters = { ROWS = "{array.rows}", DEPTH = 16, RESET_VALUE = "8'hff" }
defines = { FAST = true, SLOW = false, WAYS = 2 }
clock = "aclk"
reset = "areset"
reset_level = "high"
reset_cycles = 7
interrupt = "done_n"
interrupt_level = "low"
ties = { scan_enable = 0, mode = 3 }

[rtl.registers]
bus = "apb"
prefix = "s_"
ports = { paddr = "address" }
volatile = [8, 12]

[rtl.memory]
bus = "axi4"
prefix = "m_axi_"
latency = 5
alignment = 8
"""
FILES = {
    "rtl/npu.sv": "module npu import sizes::*; (); // other::\nendmodule\n",
    "rtl/other.sv": "package other; endpackage\n",
    "rtl/sizes.sv": "package sizes; localparam N = base::N; endpackage\n",
    "more/adder.v": "/* package */ module adder; endmodule\n",
    "more/unused.v": "",
    "rtl/units.sv": "package base; endpackage\n",
    "rtl/include/widths.svh": "",
    "rtl/start.hex": "",
    "more/notes.txt": "",
}


def written(folder: Path, old: str = "", new: str = "") -> Path:
    """Write the file above with a replacement, and the files that it names."""
    assert not old or ACCEL.count(old) == 1
    (folder / "accel.toml").write_text(ACCEL.replace(old, new) if old else ACCEL, encoding="utf-8")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def section_of(folder: Path) -> RtlSection:
    section = load_accelerator_config(folder / "accel.toml").filled_rtl
    assert section is not None
    return section


def test_every_key(tmp_path: Path) -> None:
    design = design_of(written(tmp_path))
    section = design.section
    assert section.parameters == {"ROWS": 4, "DEPTH": 16, "RESET_VALUE": "8'hff"}
    assert section.resets_high and section.reset_cycles == 7
    assert (section.clock, section.reset, section.interrupt) == ("aclk", "areset", "done_n")
    assert section.interrupt_level == "low" and section.ties == {"scan_enable": 0, "mode": 3}
    assert section.registers.model_dump() == {
        "bus": "apb", "prefix": "s_", "ports": {"paddr": "address"}, "volatile": [8, 12],
    }  # fmt: skip
    assert (design.latency, design.alignment, design.bytes_per_cycle) == (5, 8, 16)
    files = design.files
    assert files.defines == ("FAST", "WAYS=2")
    shown = [str(path.relative_to(tmp_path)) for path in (*files.sources, *files.included)]
    assert shown == [
        "rtl/units.sv", "rtl/sizes.sv", "rtl/npu.sv", "rtl/other.sv", "more/adder.v",
        "rtl/start.hex", "rtl/include/widths.svh",
    ]  # fmt: skip  # packages before those who use them, the rest in order
    arguments = files.arguments()
    assert {"-GROWS=4", "-GDEPTH=16", "-GRESET_VALUE=8'hff", "-DFAST", "-DWAYS=2"} <= {*arguments}
    assert f"-I{tmp_path / 'rtl' / 'include'}" in arguments


def test_what_is_left_out(tmp_path: Path) -> None:
    """Defaults, and latency and alignment of `[dma]`."""
    begin = ACCEL.index("include =")
    design = design_of(written(tmp_path, ACCEL[begin:], ""))
    section = design.section
    assert (section.clock, section.reset, section.interrupt) == ("clk", "", "")
    assert (section.registers.bus, section.memory.bus) == ("axi4-lite", "axi4")
    assert (section.reset_cycles, section.interrupt_level) == (4, "high")
    assert (design.latency, design.alignment, design.bytes_per_cycle) == (30, 64, 16)


@pytest.mark.parametrize(
    ("name", "is_high"),
    [("reset", True), ("rst", True), ("rst_n", False), ("aresetn", False), ("RST_NI", False),
     ("reset_in", True), ("rst_n_in", False), ("rst_n_i", False), ("RESETN", False),
     ("rst_b", False)],
)  # fmt: skip
def test_the_level_of_a_reset_follows_its_name(name: str, is_high: bool, tmp_path: Path) -> None:
    old = 'reset = "areset"\nreset_level = "high"\n'
    assert section_of(written(tmp_path, old, f'reset = "{name}"\n')).resets_high == is_high


def test_digests_change_with_what_is_compiled(tmp_path: Path) -> None:
    """And with nothing else: a design is compiled once for each version of its files."""
    before = design_of(written(tmp_path)).digest()
    (tmp_path / "more" / "unused.v").write_text("module unused; endmodule\n")
    (tmp_path / "more" / "notes.txt").write_text("none\n")
    assert design_of(tmp_path).digest() == before
    seen = {before}
    for name in ("rtl/npu.sv", "rtl/include/widths.svh", "rtl/start.hex"):
        (tmp_path / name).write_text("// changed\n")
        seen.add(design_of(tmp_path).digest())
    for old, new in [("DEPTH = 16", "DEPTH = 17"), ("FAST = true", "FAST = 1"),
                     ("latency = 5", "latency = 6"), ("rows = 4", "rows = 5"),
                     ("bytes_per_cycle = 16", "bytes_per_cycle = 8")]:  # fmt: skip
        seen.add(design_of(written(tmp_path, old, new)).digest())
    assert len(seen) == 9


REFUSED = [
    ('top = "npu"', "", "rtl.top: is missing; set top", "[rtl]"),
    ('top = "npu"', 'top = "npu top"', "'npu top' is not the name of a module", None),
    ('"rtl/*.sv", "more/adder.v"', "", "rtl.sources: List should have at least 1 item",
     "sources = []"),
    ('"more/adder.v"', '"/more/adder.v"', "is not a path or glob below the backend's folder", None),
    ('"more/adder.v"', '"../adder.v"', "is not a path or glob below the backend's folder", None),
    ('"more/adder.v"', '"more/adder.vhd"', "more/adder.vhd is VHDL, which Verilator does not read; "
     "convert it to Verilog, for example with ghdl synth --out=verilog", None),
    ('"more/adder.v"', '"more/adder.c"', "neither SystemVerilog (.sv) nor Verilog (.v)", None),
    ('"more/adder.v"', '"more/add.v"', "rtl.sources: there is no file more/add.v in the backend's "
     "folder; add it, or correct its path in [rtl]", None),
    ('"rtl/*.sv"', '"src/*.sv"', "there is no file src/*.sv", None),
    ('["rtl/include"]', '["rtl/inc"]', "rtl.include: there is no folder rtl/inc", None),
    ('"{array.rows}"', '"{array.row}"', "rtl.parameters: there is no figure array.row; figures are "
     "array.accumulator_bytes, array.columns", None),
    ('"{array.rows}"', '"four"', "'four' is neither a number, such as 8 or 16'h40, nor a figure",
     None),
    ('clock = "aclk"', 'clok = "aclk"', "rtl.clok: there is no such key; remove it, or write clock",
     None),
    ('reset_level = "high"', 'reset_level = "hi"', "rtl.reset_level: Input should be 'high' or "
     "'low'", None),
    ("reset_cycles = 7", "reset_cycles = 0", "rtl.reset_cycles: Input should be greater", None),
    ("mode = 3", "mode = -3", "rtl.ties.mode: Input should be greater", "ties = {"),
    ('bus = "apb"', 'bus = "ahb"', "rtl.registers.bus: Input should be 'axi4-lite', 'apb' or "
     "'plain'", None),
    ('prefix = "s_"', 'prefix = "s-"', "'s-' cannot be what names of ports begin with", None),
    ("volatile = [8, 12]", "volatile = [8, 13]", "rtl.registers.volatile.1: Input should be a "
     "multiple of 4", None),
    ('bus = "axi4"', 'bus = "axi3"', "rtl.memory.bus: Input should be 'axi4', 'plain' or 'none'; "
     "write \"axi4\" instead of \"axi3\"", None),
    ("latency = 5", "latency = -5", "rtl.memory.latency: Input should be greater", None),
    ("alignment = 8", "alignment = 24", "rtl.memory.alignment: 24 is not a power of two", None),
    ("alignment = 8", "alignement = 8", "rtl.memory.alignement: there is no such key; remove it, "
     "or write alignment", None),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "sentence", "line"), REFUSED)
def test_refusals_name_the_line(
    old: str, new: str, sentence: str, line: str | None, tmp_path: Path
) -> None:
    folder = written(tmp_path, old, new)
    with pytest.raises(AcceleratorConfigError) as caught:
        _ = design_of(folder).files
    assert sentence in str(caught.value)
    lines = (folder / "accel.toml").read_text().splitlines()
    path, _, number = caught.value.where.rpartition(":")
    assert path == str(folder / "accel.toml")
    assert (line or new or old.split()[0]) in lines[int(number) - 1], lines[int(number) - 1]


def test_a_design_without_a_section_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, ACCEL[ACCEL.index("[rtl]") :], "")
    with pytest.raises(AcceleratorConfigError, match='"rtl" needs a section'):
        load_accelerator_config(folder / "accel.toml")
    path = folder / "accel.toml"
    path.write_text(path.read_text().replace('"rtl"', '"none"'))
    with pytest.raises(AcceleratorConfigError, match=r"npu has no section \[rtl\]; describe"):
        design_of(folder)


def test_a_glob_that_finds_vhdl_is_refused(tmp_path: Path) -> None:
    """A folder may have the suffix of a source."""
    folder = written(tmp_path)
    (folder / "rtl" / "kept.sv").mkdir()
    section = section_of(folder)
    assert [path.name for path in design_sources(section, folder)][-2:] == ["other.sv", "adder.v"]
    assert [path.name for path in included_files(section, folder)] == ["start.hex", "widths.svh"]
    with pytest.raises(AcceleratorConfigError, match="VHDL"):
        load_accelerator_config(written(tmp_path, "rtl/*.sv", "rtl/*.vhdl") / "accel.toml")


def test_libraries_of_kernels_have_no_design(tmp_path: Path) -> None:
    folder = written(tmp_path)
    path = folder / "accel.toml"
    text = path.read_text()
    path.write_text(
        '[accelerator]\nname = "npu"\nkind = "library"\n\n' + text[text.index("[rtl]") :]
    )
    with pytest.raises(AcceleratorConfigError, match=r"runs on the CPU and has no section \[rtl\]"):
        load_accelerator_config(path)


def test_the_lines_that_uma_new_writes_describe_a_design(tmp_path: Path) -> None:
    """Without the # and a blank in front of them."""
    folder = new_backend("my_npu", tmp_path, kind="layer", flags={"operators": "dense"}).folder
    path = folder / "accel.toml"
    before, begin, lines = path.read_text().partition("# [rtl]\n")
    assert load_accelerator_config(path).rtl is None and begin
    lines = lines.partition("# Picojoules")[0]  # the next commented section
    path.write_text(before + re.sub(r"^# ", "", begin + lines, flags=re.MULTILINE))
    section = load_accelerator_config(path).rtl
    assert section is not None and (section.top, section.interrupt) == ("my_npu", "irq")
    assert (section.registers.bus, section.registers.prefix) == ("axi4-lite", "s_axil_")
    assert (section.memory.bus, section.memory.latency) == ("axi4", 16)
    assert not section.resets_high
