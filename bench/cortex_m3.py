# SPDX-License-Identifier: Apache-2.0
"""Code size, stack and instructions on a Cortex-M3, beside those of an earlier revision.

make bench-m3 BASE=REVISION

The revision is unpacked and installed into a folder of its own, with the dependencies of this
environment; both export the same networks and run them on the same inputs.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from quantized_models import DIGITS, cases

from umakit.library.metadata import load_metadata

OUTPUT = Path("build/bench")
DEVICE = "qemu-cortex-m3"
TARGETS = {
    "cpu": [],
    "strawberry": ["--backend", "strawberry_accelerator"],
    "chocolate": ["--backend", "chocolate_accelerator"],
}
MARKED = 1.01
"""Ratios above it are printed in bold."""

START = "import sys; from umakit.cli.start import main; sys.exit(main())"


@dataclass(frozen=True)
class Figures:
    """Figures of a network: bytes of code and stack, None without a bound; instructions."""

    code: int
    stack: int | None
    instructions: int


Row = tuple[str, str, Figures, Figures]
"""A network, a target, figures of the earlier revision and of this one."""


def _run(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
        raise SystemExit(f"{shlex.join(command)} failed: {lines[-1]}")
    return result.stdout


def environment_of(revision: str, folder: Path) -> dict[str, str]:
    """Return an environment in which Python imports umakit as it was.

    Args:
        revision: of git, in the repository of the current folder.
        folder: where to install it, in a folder named after the commit; used again if it is there.
    """
    commit = _run(["git", "rev-parse", "--verify", f"{revision}^{{commit}}"]).strip()
    installed = (folder / commit).resolve()
    if not installed.exists():
        source = f"git+{Path.cwd().as_uri()}@{commit}"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        _run([*pip, "--target", str(installed), source])
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    code = "import umakit; print(umakit.__file__)"
    imported = _run([sys.executable, "-P", "-c", code], environment)
    if not Path(imported.strip()).is_relative_to(installed):
        raise SystemExit(f"{imported.strip()} is imported instead of {installed}/umakit")
    return environment


def figures(
    environment: Mapping[str, str], network: Path, options: list[str], folder: Path
) -> Figures:
    """Export a network and measure it.

    Args:
        environment: in which Python imports the umakit to use.
        network: the network's file.
        options: of `uma compile`.
        folder: where to write the export, next to which a first caller leaves `inputs.npz`.
    """
    uma = [sys.executable, "-P", "-c", START]
    library, inputs = str(folder), folder.parent / "inputs.npz"
    _run([*uma, "compile", str(network), "-o", library, "--force", *options], environment)
    size = json.loads(_run([*uma, "size", library, "--device", DEVICE, "--json"], environment))
    if not inputs.exists():
        random = np.random.default_rng(7)
        np.savez(inputs, **{
            item["name"]: random.integers(-128, 128, item["shape"]).astype(item["dtype"])
            for item in load_metadata(folder)["umakit"]["inputs"]
        })  # fmt: skip
    run = [*uma, "run", library, "--inputs", str(inputs), "--device", DEVICE, "--profile", "--json"]
    profile = json.loads(_run([*run, "-o", f"{folder}.npz", "--force"], environment))
    return Figures(size["text_bytes"], size["stack_bytes"], round(profile["mean_instructions"]))


def networks() -> dict[str, Path]:
    """Return files by name: trained networks where there are any, else of the same shapes."""
    found: dict[str, Path] = {}
    for case in cases(OUTPUT / "work/models"):
        found.setdefault(case.name.removesuffix(", trained"), case.int8)
    return {**found, "digits, float32": DIGITS / "digits.onnx"}


def markdown(rows: list[Row], revision: str) -> str:
    """Return the table and what its columns mean."""
    columns = ("code B", "stack B", "instructions")
    lines = [
        f"| network | target | {' | '.join(f'{name} | / {revision}' for name in columns)} |",
        f"|---|---|{'--:|--:|' * len(columns)}",
    ]
    for network, target, figures_base, figures_now in rows:
        cells = [network, target]
        for now, base in zip(astuple(figures_now), astuple(figures_base), strict=True):
            ratio = f"{now / base:.3f}" if now and base else ""
            cells.append("" if now is None else f"{now:,}")
            cells.append(f"**{ratio}**" if ratio and now / base > MARKED else ratio)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + (
        "\n\nCode and stack are those of the network and its drivers at `-Os`, as `uma size` gives "
        "them. Instructions of an inference are counted by QEMU and contain the simulator of an "
        f"accelerator. Ratios above {MARKED} are bold.\n"
    )


def main(revision: str) -> int:
    """Measure all networks and print the table."""
    rows: list[Row] = []
    base = environment_of(revision, OUTPUT / "revisions")
    now = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    shutil.rmtree(OUTPUT / "work/cortex_m3", ignore_errors=True)
    for name, file in networks().items():
        folder = OUTPUT / "work/cortex_m3" / name.replace(", ", "_")
        for target, options in TARGETS.items():
            new = figures(now, file, options, folder / target)
            old = figures(base, file, options, folder / f"{target}-base")
            rows.append((name, target, old, new))
            print(f"{name}: {target}", file=sys.stderr, flush=True)
    text = markdown(rows, revision)
    (OUTPUT / "cortex_m3.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1]:
        raise SystemExit("name a revision to compare with: make bench-m3 BASE=REVISION")
    sys.exit(main(sys.argv[1]))
