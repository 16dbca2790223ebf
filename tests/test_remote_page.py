# SPDX-License-Identifier: Apache-2.0
"""The page on machines elsewhere, typed along with both servers on this machine."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from console import check_commands, run
from rpc_server import rpc_server
from ssh_server import ssh_server

from umakit.devices.ssh_client import OPTIONS_VARIABLE
from umakit.files.processes import TIME_LIMIT

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "remote.md"


@pytest.mark.optimized
@pytest.mark.page
def test_the_page_typed_along_gives_what_it_shows(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    for name in ("ssh", "rpc"):
        (tmp_path / name).mkdir()
    update = bool(request.config.getoption("--update-golden"))
    with ssh_server(tmp_path / "ssh") as ssh, rpc_server(tmp_path / "rpc") as rpc:
        client = ssh.folder / "client"
        options = client.read_text(encoding="utf-8")
        place = f"HostName 127.0.0.1\nPort {ssh.port}\nHostKeyAlias [127.0.0.1]:{ssh.port}\n"
        client.write_text(f"Host board\n{place}{options}", encoding="utf-8")
        monkeypatch.setenv(OPTIONS_VARIABLE, ssh.options)

        def execute(command: str) -> str:
            return run(command.replace("rpc://board:9090", rpc.address), tmp_path)

        assert check_commands(PAGE, execute, update=update) == 5
        assert ssh.left() == [] and rpc.left() == []


def test_the_page_names_the_sentences() -> None:
    """Each fault of the table is a text of the code."""
    text = PAGE.read_text(encoding="utf-8").partition("| the sentence says |")[2]
    rows = re.findall(r"^\| (t[^|]+?|no [^|]+?|T[^|]+?) \| [12] \|", text, re.MULTILINE)
    assert len(rows) >= 15
    folder = ROOT / "umakit" / "devices"
    code = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    plain = re.sub(r'"\s*f?"', "", code).replace("by {signal_text(number)}", "by signal")
    plain = plain.replace("{TIME_LIMIT}", TIME_LIMIT)
    for row in rows:
        start = re.split(r",|:| \d| cortex| AArch64| 11", row)[0]
        assert start in plain or start.split(" is for")[0] in plain, row
