# SPDX-License-Identifier: Apache-2.0
"""What is written from a register map: SystemVerilog package, table, and a mock that answers so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from umakit import find_backend
from umakit.errors import RegisterMapError
from umakit.machine.registers.__main__ import generated_files, main
from umakit.machine.registers.register_map import read_register_map
from umakit.machine.registers.texts import register_package, register_table
from umakit.testing.check import check_only_registers
from umakit.tools.scaffold import new_backend
from umakit.tools.scaffold.update import update_backend

ROOT = Path(__file__).parents[1]
MAP = ROOT / "sim" / "registers" / "systolic_array.toml"
PACKAGES = [
    ROOT / "backends" / name / "rtl" / "systolic_array_registers_pkg.sv"
    for name in ("strawberry_accelerator", "small_chocolate_accelerator")
]


def lint(folder: Path, *files: Path) -> str:
    """Return what Verilator says about files, all warnings on."""
    if shutil.which("verilator") is None:
        assert "UMAKIT_CI" not in os.environ, "CI has Verilator"
        pytest.skip("verilator is not installed")
    top = folder / "top.sv"
    top.write_text("module top;\nendmodule\n")
    command = ["verilator", "--lint-only", "-Wall", "--top-module", "top", *map(str, files)]
    result = subprocess.run([*command, str(top)], capture_output=True, text=True, check=False)
    return result.stderr if result.returncode or result.stderr else ""


def parameters(text: str) -> dict[str, int]:
    """Return names and values of a package, read without any of its generator."""
    form = re.compile(r"^ *localparam [\w: \[\]]+? (\w+) = (?:32'h([0-9A-F_]+)|(\d+));$", re.M)
    found = {
        name: int(digits.replace("_", ""), 16) if digits else int(decimal)
        for name, digits, decimal in form.findall(text)
    }
    assert len(found) == text.count("localparam")
    return found


# ---- The kit's maps ----


def test_all_files_are_up_to_date() -> None:
    assert main(["--check"]) == 0
    assert set(PACKAGES) < set(generated_files()), "both designs have the package"
    assert PACKAGES[0].read_bytes() == PACKAGES[1].read_bytes()


def test_the_package_has_every_number_of_the_map() -> None:
    found = parameters(PACKAGES[0].read_text())
    expected = {"REGISTER_BYTES": 0x1D4}
    for register in tomllib.loads(MAP.read_text())["register"]:
        name = register["name"]
        fields = register.get("field", [])
        bits = {each["name"]: range(each["lowest_bit"], each["lowest_bit"] + each["width"])
                for each in fields}  # fmt: skip
        writable = register.get("writable", sum(1 << b for each in bits.values() for b in each))
        writable = writable or 0xFFFFFFFF
        expected[f"{name}_OFFSET"] = register["offset"]
        expected[f"{name}_RESET"] = register.get("reset", 0)
        expected[f"{name}_WRITABLE_MASK"] = 0 if register["access"] == "ro" else writable
        for field, places in bits.items():
            expected[f"{name}_{field}_BIT"] = places[0]
            expected[f"{name}_{field}_WIDTH"] = len(places)
            expected[f"{name}_{field}_MASK"] = sum(1 << bit for bit in places)
        for value in register.get("value", []):
            expected[f"{name}_{value['name']}"] = value["value"]
    assert found == expected


def test_verilator_has_no_remark_about_the_package(tmp_path: Path) -> None:
    assert lint(tmp_path, PACKAGES[0]) == ""


def test_a_file_that_is_out_of_date_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old = tmp_path / "old.sv"
    old.write_text("package old; endpackage\n")
    monkeypatch.setattr(
        "umakit.machine.registers.__main__.generated_files", lambda: {old: "package new;"}
    )
    assert main(["--check"]) == 1
    assert "old.sv does not match its register map" in capsys.readouterr().err


# ---- Other maps ----

ODD = """
name = "odd"
systemverilog = "hw/rtl"
description = "Ends with a verilator lint_off WIDTH"

[[register]]
name = "A"
offset = 0
access = "rw"
description = '''Ends in a backslash \\'''

[[register.field]]
name = "LOW"
lowest_bit = 0
width = 4
description = "A | pipe, a *star*, a <tag>, a `define of é."

[[register.value]]
name = "FIVE"
value = 5
"""


def test_descriptions_are_neither_instructions_to_tools_nor_marks(tmp_path: Path) -> None:
    long = "x " * 47 + "verilator lint_off WIDTH and synopsys translate_off"
    text = ODD.replace("Ends with a verilator lint_off WIDTH", long)
    registers = read_register_map(text, "odd.toml")
    package = register_package(registers, package="odd_registers_pkg", notice=[], where="odd.toml")
    path = tmp_path / "odd_registers_pkg.sv"
    path.write_text(package)
    assert not re.search(r"^ *// *(verilator lint_off WIDTH|synopsys)", package, re.M)
    assert lint(tmp_path, path) == ""
    assert parameters(package)["A_LOW_MASK"] == 15
    (row,) = [line for line in register_table(registers).splitlines() if "A.LOW" in line]
    assert r"A \| pipe, a \*star\*, a \<tag\>, a \`define of é." in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 7


def test_two_equal_names_are_refused() -> None:
    text = ODD.replace('name = "FIVE"', 'name = "OFFSET"')
    with pytest.raises(RegisterMapError, match=r"odd\.toml: two parts of the map are called A_OFF"):
        register_package(
            read_register_map(text, "odd.toml"), package="p", notice=[], where="odd.toml"
        )


@pytest.mark.parametrize("folder", ["/rtl", "../rtl", "rtl/../..", "a b", "rtl/"])
def test_the_package_stays_in_the_folder_of_the_backend(folder: str) -> None:
    with pytest.raises(RegisterMapError, match="is no folder in that of the backend"):
        read_register_map(ODD.replace("hw/rtl", folder), "odd.toml")


# ---- A backend of a team ----

ANSWERS = '[access]\nholes = "{0}"\nwrong = "{0}"\nreserved = "{1}"\n\n[job]'


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registers")
    return new_backend("acme_npu", folder, kind="layer", flags={"operators": "dense"}).folder


def edit(project: Path, tmp_path: Path, old: str, new: str) -> Path:
    """Return a copy of the project with another map, brought up to date."""
    folder = tmp_path / "acme_npu"
    shutil.copytree(project, folder)
    path = folder / "registers.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    update_backend(folder, merge=False)
    return folder


def test_an_update_writes_header_table_and_package(project: Path, tmp_path: Path) -> None:
    assert "WEIGHTS_ADDRESS" in (project / "registers.md").read_text()
    assert not list(project.rglob("*.sv"))
    folder = edit(project, tmp_path, "[job]", 'systemverilog = "hw/rtl"\n\n[job]')
    package = folder / "hw" / "rtl" / "acme_npu_registers_pkg.sv"
    found = parameters(package.read_text())
    assert lint(tmp_path, package) == ""
    map_text = (folder / "registers.toml").read_text()
    (folder / "registers.toml").write_text(map_text.replace('"SHIFTS_ADDRESS"', '"SHIFTS_AT"'))
    update = update_backend(folder, merge=False)
    names = {"acme_npu_registers.h", "registers.md", "hw/rtl/acme_npu_registers_pkg.sv"}
    assert names < set(update.replaced) and update.is_complete
    again = parameters(package.read_text())
    assert again["SHIFTS_AT_OFFSET"] == found["SHIFTS_ADDRESS_OFFSET"]
    assert "SHIFTS_AT`" in (folder / "registers.md").read_text()


@pytest.mark.parametrize("answer", ["error", "zero", "ignored"])
def test_the_mock_answers_as_the_map_says(project: Path, tmp_path: Path, answer: str) -> None:
    reserved = answer.replace("zero", "ignored")
    folder = edit(project, tmp_path, "[job]", ANSWERS.format(answer, reserved))
    report = check_only_registers(find_backend(str(folder)))
    assert report.passed, report.failures
    assert report.registers is not None and report.registers.unknown == []


def test_the_mock_of_a_map_that_says_nothing_passes(project: Path) -> None:
    report = check_only_registers(find_backend(str(project)))
    assert report.passed and report.registers is not None
    assert report.registers.unknown == ["holes", "wrong", "reserved"]
