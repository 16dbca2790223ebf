# SPDX-License-Identifier: Apache-2.0
"""Machines that are reached through TVM's RPC server, and what may go wrong with one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from arm_tvm import arm_python
from networks import Graph, save
from remote_tests import X, as_new_process, negative_library
from rpc_server import RpcServer, rpc_server
from ssh_server import free_port
from strict import WARNINGS
from test_remote_ssh import fails, is_running, small_folder, wait_for, work
from umakit.cli.main import run_command

import umakit
from umakit.devices import Device, execute, find_device, rpc_run
from umakit.devices.build import compile_c
from umakit.devices.device import SUPPORT
from umakit.devices.run import run_library
from umakit.errors import BuildError, DeviceError, InputError, MissingProgramError
from umakit.library.layout import RUNTIME
from umakit.tvm_api import ffi_headers


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return negative_library(tmp_path_factory.mktemp("negative"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RpcServer]:
    with rpc_server(tmp_path_factory.mktemp("rpc")) as running:
        yield running


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    as_new_process(monkeypatch)


def shared_object(device: Device, folder: Path, body: str) -> Path:
    """A program of C as TVM's server loads it."""
    source, built = folder / "main.c", folder / "main"
    text = f"#include <stdio.h>\n#include <unistd.h>\nint main(void)\n{{ {body} }}\n"
    source.write_text(text, encoding="utf-8")
    sources = [source, *device.platform_sources(RUNTIME)]
    compile_c(sources, built, device.program_flags(), device)
    return built


def test_a_network_runs_there_and_nothing_is_left(
    library: Path, server: RpcServer, capfd: pytest.CaptureFixture[str]
) -> None:
    inputs = str(library.parent / "in.npz")
    words = ["run", str(library), "--inputs", inputs, "--device", server.address, "--profile"]
    assert run_command([*words, "--json"]) == 0
    printed = capfd.readouterr()
    report = json.loads(printed.out)
    assert report["mean_seconds"] >= 0 and report["layers"][0]["seconds"] >= 0
    calls, compiles = printed.err.splitlines()
    assert calls == f"calls: TVM's RPC server at {server.address}"
    assert compiles.startswith("compiles with: ")
    result = run_library(library, {"x": np.stack([X, 2 * X])}, device=server.address, repeat=3)
    np.testing.assert_array_equal(result.outputs["y"], [-X, -2 * X])
    assert len(result.times) == 6
    assert server.left() == []


def test_a_larger_network_gives_what_it_gives_here(server: RpcServer, tmp_path: Path) -> None:
    """With weights in a blob, an accelerator that is simulated, and more data than a pipe holds."""
    graph = Graph("scaled")
    random = np.random.default_rng(1)
    weights = graph.constant(random.standard_normal((3, 3, 3, 3)).astype("float32"))
    x = graph.input("x", 1, 3, 64, 64)
    graph.output(graph.node("Conv", x, weights, pads=[1, 1, 1, 1], name="y"))
    model = save(graph.model(), tmp_path)
    options = umakit.ExportOptions(weights="blob")
    vanilla = umakit.find_backend("vanilla_accelerator")
    library = umakit.compile_model(model, [vanilla], tmp_path / "library", options=options).path
    images = random.standard_normal((3, 1, 3, 64, 64)).astype("float32")
    here = run_library(library, {"x": images}, profile=True)
    there = run_library(library, {"x": images}, profile=True, device=server.address)
    np.testing.assert_array_equal(there.outputs["y"], here.outputs["y"])
    assert there.layers[0].clock_cycles == here.layers[0].clock_cycles


def test_other_commands_take_an_address(
    library: Path, server: RpcServer, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(library.parent / "network.onnx")
    device = ["--device", server.address]
    assert run_command(["diff", model, "--library", str(library), *device]) == 0
    assert run_command(["size", str(library), *device, "--json"]) == 0
    assert run_command(["doctor", *device]) == 0
    assert server.left() == []


@pytest.mark.parametrize("compiler", ["gcc", "clang", "aarch64-linux-gnu-gcc"])
def test_the_platform_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        raise MissingProgramError(f"there is no {compiler}")
    headers = [*ffi_headers(), f"-I{RUNTIME}"]
    words = [compiler, "-std=c99", "-O2", "-fPIC", *WARNINGS, *headers, "-c"]
    source = SUPPORT / "platform_rpc.c"
    subprocess.run([*words, source, "-o", tmp_path / "platform.o"], check=True)


# --- faults -------------------------------------------------------------------------------------


def test_no_connection(library: Path) -> None:
    wanted = r"no connection: connection refused; start it there with .* pip install cloudpickle"
    fails(f"rpc://127.0.0.1:{free_port()}", library, DeviceError, wanted)
    fails("rpc://no-such-host.invalid:9090", library, InputError, "there is no host of this name")


def test_a_hang_and_a_crash_leave_a_server_that_serves(
    library: Path, server: RpcServer, tmp_path: Path
) -> None:
    device = find_device(server.address)
    hanging = shared_object(device, tmp_path, "sleep(1000); return 0;")
    with pytest.raises(DeviceError, match=r"^rpc.*: the program did not end within 0\.5 s; if it"):
        execute(device, hanging, [], work(tmp_path), 0.5)
    crashing = shared_object(
        device, tmp_path, 'fputs("about to fail\\n", stderr); *(volatile int *)8 = 1; return 0;'
    )
    with pytest.raises(DeviceError, match=r"stopped by signal 11 \(SIGSEGV\): about to fail"):
        execute(device, crashing, [], tmp_path / "files", 60)
    failing = shared_object(device, tmp_path, 'puts("so far"); return 9;')
    ended = execute(device, failing, [], tmp_path / "files", 60)
    assert (ended.returncode, ended.stdout) == (9, "so far\n")
    np.testing.assert_array_equal(
        run_library(library, {"x": X}, device=server.address).outputs["y"], -X
    )
    assert server.left() == []


def test_ctrl_c_ends_the_program_there(library: Path, server: RpcServer, tmp_path: Path) -> None:
    device = find_device(server.address)
    body = f'FILE *f = fopen("{tmp_path}/begun", "w"); fclose(f); sleep(1000); return 0;'
    hanging = shared_object(device, tmp_path, body)
    script = (
        "from pathlib import Path\nfrom umakit.devices import execute, find_device\n"
        f"device = find_device({server.address!r})\n"
        f"execute(device, Path({str(hanging)!r}), [], Path({str(work(tmp_path))!r}), 60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert wait_for((tmp_path / "begun").exists, 60)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    # The server takes one connection at a time: it would not answer before the program ends.
    outputs = run_library(library, {"x": X}, device=server.address).outputs
    np.testing.assert_array_equal(outputs["y"], -X)
    assert server.left() == []


def test_a_server_that_ends_in_the_middle(library: Path, tmp_path: Path) -> None:
    with rpc_server(tmp_path) as server:
        device = find_device(server.address)
        body = f'FILE *f = fopen("{tmp_path}/begun", "w"); fclose(f); sleep(1000); return 0;'
        hanging = shared_object(device, tmp_path, body)

        def end() -> None:
            wait_for((tmp_path / "begun").exists, 60)
            server.end()

        ending = threading.Thread(target=end)
        ending.start()
        with pytest.raises(
            DeviceError, match=r"^rpc://127.0.0.1:\d+: the connection was lost whil"
        ):
            execute(device, hanging, [], work(tmp_path), 60)
        ending.join()
    fails(server.address, library, DeviceError, "there is no connection: connection refused")


def test_no_room_there(library: Path, tmp_path: Path) -> None:
    with (
        small_folder(tmp_path / "small", "8k") as folder,
        rpc_server(tmp_path, work=folder) as server,
    ):
        fails(server.address, library, DeviceError, "no room for the program and its inputs; free")
        assert server.left() == []


def test_a_program_for_another_processor(library: Path, server: RpcServer, tmp_path: Path) -> None:
    find_device("qemu-aarch64").compiler()
    board = tmp_path / "pi.toml"
    text = f'base = "qemu-aarch64"\nremote = "{server.address}"\n'
    board.write_text(text, encoding="utf-8")
    with pytest.raises(
        BuildError, match="the server cannot load the program, which is for another"
    ):
        run_library(library, {"x": X}, device=board)
    assert server.left() == []


def test_a_server_without_cloudpickle_does_not_start(tmp_path: Path) -> None:
    """TVM needs it and does not say so; the client does without."""
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('no cloudpickle')\n")
    ended = subprocess.run(
        [sys.executable, "-m", "tvm.exec.rpc_server", "--port", str(free_port())],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert ended.returncode != 0 and "no cloudpickle" in ended.stderr
    assert "pip install cloudpickle" in rpc_run.START_HINT


def test_the_client_needs_no_cloudpickle(
    library: Path, server: RpcServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('no cloudpickle')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rpc_run._end_workers()
    outputs = run_library(library, {"x": X}, device=server.address).outputs
    np.testing.assert_array_equal(outputs["y"], -X)
    rpc_run._end_workers()
    assert not is_running(b"umakit.devices.rpc_worker")


# --- another processor --------------------------------------------------------------------------


def test_an_emulated_arm_machine(library: Path, tmp_path: Path) -> None:
    """TVM's server with TVM for 64-bit Arm, whose library loads what is compiled here."""
    find_device("qemu-aarch64").compiler()
    python, environment = arm_python(tmp_path)
    with rpc_server(tmp_path, environment, python=python) as server:
        device = find_device(server.address)
        assert (device.command, device.processors) == ("aarch64-linux-gnu-gcc", ("aarch64",))
        result = run_library(library, {"x": X}, device=server.address, profile=True)
        np.testing.assert_array_equal(result.outputs["y"], -X)
        assert result.layers[0].seconds is not None
        crashing = shared_object(device, tmp_path, "__builtin_trap();")
        with pytest.raises(DeviceError, match="stopped by signal"):
            execute(device, crashing, [], work(tmp_path), 60)
        outputs = run_library(library, {"x": X}, device=server.address).outputs
        np.testing.assert_array_equal(outputs["y"], -X)
        assert server.left() == []
