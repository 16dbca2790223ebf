# SPDX-License-Identifier: Apache-2.0
"""A backend whose driver and model the kit writes from `rtl/square/registers.toml`.

Its design is written by hand: `square.sv` beside the map.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path

from umakit.cli.main import run_command

SOURCES = Path(__file__).with_name("rtl") / "square"
DESIGN = "rtl/square.sv"

RTL = """
[rtl]
top = "square"
sources = ["rtl/square.sv"]
reset = "rst_n"
interrupt = "irq"

[rtl.registers]
bus = "axi4-lite"
prefix = "s_axil_"

[rtl.memory]
bus = "axi4"
prefix = "m_axi_"
latency = 4
"""


def write_square(folder: Path) -> Path:
    """Write the backend, as `uma new` does from its register map, with the design.

    Args:
        folder: in which the backend's folder is made.

    Returns:
        The backend's folder.
    """
    words = ["new", "square", "--kind", "layer", "--operators", "conv2d", "--rounding", "tflm"]
    words += ["--registers", str(SOURCES / "registers.toml")]
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        assert run_command(words) == 0
    backend = folder / "square"
    (backend / "rtl").mkdir()
    shutil.copy(SOURCES / "square.sv", backend / DESIGN)
    text = (backend / "accel.toml").read_text(encoding="utf-8")
    # One product and one byte a cycle: jobs of the model take as long as those of the design.
    text = text.replace("MACS_PER_CYCLE=256", "MACS_PER_CYCLE=1")
    text = text.replace("BYTES_PER_CYCLE=8", "BYTES_PER_CYCLE=1")
    (backend / "accel.toml").write_text(text + RTL, encoding="utf-8")
    return backend
