# SPDX-License-Identifier: Apache-2.0
"""Commands that a server of the tests runs end as those of new processes do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import warm_python


def shell(command: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    path = f"{warm_python.programs()}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail\n{command}"], cwd=folder, capture_output=True, text=True,
        env=os.environ | {"PATH": path} | environment, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr


def test_a_command_is_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "neighbour.py").write_text("import umakit.version; umakit.version.seen = 1\n")
    program = "import neighbour, os, sys; print(sys.argv, os.environ['NAME'], os.getcwd())"
    (tmp_path / "a" / "program.py").write_text(program)
    printed = f"['a/program.py', '-x', 'y z'] one {tmp_path}\n"
    assert shell("python a/program.py -x 'y z'", tmp_path, NAME="one") == (0, printed, "")

    seen = "python -c 'import umakit.version as v; print(hasattr(v, \"seen\"))'"
    assert shell(seen, tmp_path) == (0, "False\n", "")
    cat = "python -c 'import sys; sys.stderr.write(sys.stdin.read()); sys.exit(3)'"
    assert shell(f"echo text | {cat}", tmp_path) == (3, "", "text\n")
    assert shell(f"echo text | {cat} | {cat}", tmp_path) == (3, "", "text\n")
    # The shell shows a signal as 128 and its number.
    assert shell("python -c 'import os; os.kill(os.getpid(), 15)'; echo $?", tmp_path)[1] == "143\n"
    assert (
        shell("uma sim", tmp_path)[0] == shell("python -m umakit.cli.start sim", tmp_path)[0] == 2
    )


def test_other_settings_of_python_start_python_itself(tmp_path: Path) -> None:
    is_warm = "import sys; print('umakit.pipeline' in sys.modules)"
    assert shell(f'python -c "{is_warm}"', tmp_path) == (0, "True\n", "")
    assert shell(f'python -W error -c "{is_warm}"', tmp_path) == (0, "False\n", "")
    assert shell(f'python -c "{is_warm}"', tmp_path, PYTHONHASHSEED="7") == (0, "False\n", "")
    assert shell(f'echo "{is_warm}" | python -', tmp_path) == (0, "False\n", "")
