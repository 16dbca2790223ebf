# SPDX-License-Identifier: Apache-2.0
"""Compare the SystemVerilog of Chocolate with the C model of a systolic array.

python tests/rtl/compare_chocolate.py [PROGRAMS] [SEED] [--build FOLDER] [ROWS=8 ...]

Builds both into one program, which runs PROGRAMS random programs of register accesses on both and
prints each difference and how many cycles streams of commands take. The exit code is 1 if there was
a difference in a result. ROWS, COLUMNS and QUEUE_DEPTH may be others than by default.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from umakit.text.rendering import render

ROOT = Path(__file__).resolve().parents[2]
RTL = ROOT / "backends" / "small_chocolate_accelerator" / "rtl"
SIM = ROOT / "sim"
PROGRAM = Path(__file__).with_suffix(".cc")

LITE = (
    "awaddr awvalid awready wdata wstrb wvalid wready bresp bvalid bready "
    "araddr arvalid arready rdata rresp rvalid rready"
)
FULL = (
    "awaddr awlen awsize awburst awvalid awready wdata wstrb wlast wvalid wready bresp bvalid "
    "bready araddr arlen arsize arburst arvalid arready rdata rresp rlast rvalid rready"
)

CONTEXT = {
    "name": "chocolate",
    "top": "chocolate",
    "clock": "clk",
    "reset": "rst_n",
    "reset_level": 0,
    "reset_cycles": 4,
    "interrupt": "irq",
    "interrupt_level": 1,
    "ties": {},
    "registers": {
        "bus": "axi4-lite",
        "data_bits": 32,
        "ports": {role: f"s_axil_{role}" for role in LITE.split()},
    },
    "memory": {
        "bus": "axi4",
        "data_bits": 64,
        "latency": 16,
        "alignment": 1,
        "ports": {role: f"m_axi_{role}" for role in FULL.split()},
    },
}
"""What templates/rtl/simulator.cc.j2 is told about the top."""


def sources(folder: Path) -> list[Path]:
    """Return the files of a design, packages before what imports them."""
    files = sorted(folder.glob("*.sv"))
    packages = ("systolic_array_registers_pkg", "chocolate_pkg", "command_rules_pkg")
    first = [folder / f"{name}.sv" for name in packages]
    return [*first, *(file for file in files if file not in first)]


def run(*command: str | Path) -> str:
    """Run a command, which must succeed, and return what it printed."""
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{result.stdout}{result.stderr}")
    return result.stdout


def translate(folder: Path, parameters: Sequence[str]) -> list[Path]:
    """Translate the design with Verilator and return its objects."""
    options = ["-O3", "--x-assign", "fast", "-Wall", "--top-module", "chocolate"]
    options += [f"-G{parameter}" for parameter in parameters]
    run("verilator", "--cc", *options, "--prefix", "Vchocolate", "--Mdir", folder, *sources(RTL))
    names = ("Vchocolate__ALL.a", "verilated.o", "verilated_threads.o")
    run("make", "-s", "-C", folder, "-f", "Vchocolate.mk", "OPT_FAST=-O3", *names)
    return [folder / name for name in names]


def build(folder: Path, parameters: Sequence[str] = ()) -> Path:
    """Link the design with the model and the programs that are run on both.

    Args:
        folder: an empty one, for all that is made.
        parameters: those of the top that are not as by default, such as "ROWS=8".

    Returns:
        The program.
    """
    made = folder / "design"
    design = translate(made, parameters)
    found = re.search(r"^ *VERILATOR_ROOT *= (\S+)", run("verilator", "-V"), re.MULTILINE)
    assert found
    include = Path(found[1]) / "include"

    simulator = folder / "simulator.cc"
    simulator.write_text(render("rtl/simulator.cc.j2", **CONTEXT), encoding="utf-8")
    flags = ["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    flags += [f"-D{parameter}" for parameter in parameters]
    flags += ["-DVM_TRACE=0", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0"]
    flags += [f"-I{SIM / 'rtl' / 'include'}", f"-I{SIM / 'include'}"]
    for path in (include, include / "vltstd", made):
        flags += ["-isystem", str(path)]
    names = ("simulator", "host", "windows", "faults", "status")
    models = [SIM / "src" / f"umakit_{name}.c" for name in names]
    models += sorted(SIM.glob("src/umakit_systolic_*.c"))
    objects = []
    for source in (simulator, PROGRAM, *models):
        target = folder / f"{source.stem}.o"
        compiler = ("gcc", "-std=c99") if source.suffix == ".c" else ("g++", "-std=c++17")
        run(*compiler, *flags, "-c", source, "-o", target)
        objects.append(target)
    program = folder / "compare"
    run("g++", *objects, *design, "-o", program)
    return program


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description="Compare Chocolate's RTL with the C model.")
    parser.add_argument("programs", nargs="?", default="200")
    parser.add_argument("seed", nargs="?", default="1")
    parser.add_argument("parameters", nargs="*", metavar="NAME=VALUE", help="of the top")
    parser.add_argument("--build", type=Path, help="keep the build in this folder")
    arguments = parser.parse_args()
    if shutil.which("verilator") is None:
        sys.exit("verilator is not installed")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.build or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        program = build(folder, arguments.parameters)
        begin = time.perf_counter()
        result = subprocess.run([program, arguments.programs, arguments.seed], check=False)
        print(f"{time.perf_counter() - begin:.1f} s on {os.cpu_count()} cores")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
