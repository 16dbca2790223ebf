# SPDX-License-Identifier: Apache-2.0
"""Machines that are reached by SSH: a server on 127.0.0.1, and what may go wrong with one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import warm_python
from remote_tests import X, as_new_process, negative_library
from ssh_server import SshServer, free_port, new_key, ssh_server
from umakit.cli.main import run_command

import umakit
from umakit.devices import execute, find_device
from umakit.devices.addresses import Address, parse_address
from umakit.devices.run import run_library
from umakit.devices.ssh_client import OPTIONS_VARIABLE, ssh_error
from umakit.errors import BuildError, DeviceError, InputError, UmakitError


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return negative_library(tmp_path_factory.mktemp("negative"))


@contextlib.contextmanager
def served(folder: Path, *lines: str) -> Iterator[SshServer]:
    """Run a server whose options are those of this process."""
    with ssh_server(folder, lines) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv(OPTIONS_VARIABLE, server.options)
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@pytest.fixture
def server(shared: SshServer, monkeypatch: pytest.MonkeyPatch) -> SshServer:
    monkeypatch.setenv(OPTIONS_VARIABLE, shared.options)
    return shared


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    as_new_process(monkeypatch)


def program(folder: Path, body: str) -> Path:
    """A program of C, linked statically."""
    source, built = folder / "main.c", folder / "main"
    text = f"#include <stdio.h>\n#include <unistd.h>\nint main(void) {{ {body} }}\n"
    source.write_text(text, encoding="utf-8")
    subprocess.run(["gcc", "-static", source, "-o", built], check=True)
    return built


def work(folder: Path) -> Path:
    """An empty folder for inputs and outputs."""
    made = folder / "files"
    made.mkdir()
    return made


# --- addresses ----------------------------------------------------------------------------------


ADDRESSES = {
    "ssh://board": Address("ssh", "board"),
    "ssh://pi@board:2222": Address("ssh", "board", "pi", 2222),
    "ssh://pi@[fe80::1%eth0]:22/data": Address("ssh", "fe80::1%eth0", "pi", 22, "/data"),
    "rpc://10.0.0.7:9090": Address("rpc", "10.0.0.7", port=9090),
}


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_has_parts(text: str) -> None:
    assert parse_address(text) == ADDRESSES[text] and str(ADDRESSES[text]) == text


@pytest.mark.parametrize(
    "text",
    ["ssh://", "ssh://-oProxyCommand=x", "ssh://-l@h", "ssh://a b", "ssh://h:0", "ssh://h:65536",
     "ssh://h/a\nb", "rpc://h", "rpc://u@h:1", "rpc://h:1/x", "ssh://h x", "ssh://h;ls"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"is no address of a machine; write (ssh|rpc)://"):
        find_device(text)
    assert run_command(["size", "nothing", "--device", text]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# --- runs ---------------------------------------------------------------------------------------


def test_a_network_runs_there_and_nothing_is_left(
    library: Path, server: SshServer, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = str(library.parent / "in.npz")
    words = ["run", str(library), "--inputs", inputs, "--device", server.address, "--profile"]
    assert run_command([*words, "--json"]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["mean_seconds"] >= 0 and report["layers"][0]["seconds"] >= 0
    assert report["layers"][0]["clock_cycles"] is None
    runs, compiles = printed.err.splitlines()
    assert runs.startswith(f"runs: ssh {server.options} -T -o BatchMode=yes ")
    assert compiles.startswith("compiles with: ")
    outputs = run_library(library, {"x": np.stack([X, 2 * X])}, device=server.address).outputs
    np.testing.assert_array_equal(outputs["y"], [-X, -2 * X])
    assert capsys.readouterr().err == ""
    assert server.left() == []
    assert [path.name for path in (library / "build").iterdir()] == [f"ssh-{os.uname().machine}"]


def test_other_commands_take_an_address(
    library: Path, server: SshServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(library.parent / "network.onnx")
    device = ["--device", server.address]
    assert run_command(["diff", model, "--library", str(library), *device]) == 0
    assert run_command(["report", model, *device, "--json"]) == 0
    assert run_command(["size", str(library), *device, "--json"]) == 0
    assert run_command(["doctor", *device]) == 0
    capsys.readouterr()
    tune = ["tune", model, "--cpu", "generic", *device, "--records", str(tmp_path / "r.json")]
    assert run_command(tune) == 2
    assert "does not count instructions" in capsys.readouterr().err
    assert server.left() == []


def test_an_accelerator_is_simulated_there(
    server: SshServer, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check", "vanilla_accelerator", "--draws", "1", "--jobs", "1"]
    assert run_command([*words, "--device", server.address]) == 3  # one layer is not every value
    assert "runs: ssh " in capsys.readouterr().err
    assert server.left() == []


def test_a_file_may_have_the_address(
    library: Path, server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With options of ssh and a time limit; it is asked what it is unless the file says so."""
    monkeypatch.delenv(OPTIONS_VARIABLE)
    board = tmp_path / "pi.toml"
    text = f'remote = "{server.address}"\nssh_options = ["-F", "{{here}}/client"]\n'
    shutil.copy(server.folder / "client", tmp_path / "client")
    for more in ("timeout_seconds = 50\n", 'compiler = "gcc"\nlinking = ["-static"]\n'):
        board.write_text(text + more, encoding="utf-8")
        device = find_device(board)
        assert device.name == "pi" and device.has_time
        assert device.timeout_seconds == (50 if "timeout" in more else 600)
        result = run_library(library, {"x": X}, device=board)
        np.testing.assert_array_equal(result.outputs["y"], -X)
        assert len(result.times) == 1


MISTAKES = {
    'remote = "pi@board"\n': ":1: remote: is no address; write ssh://",
    'remote = "ssh://a b"\n': ":1: remote: .* is no address of a machine",
    'compiler = "gcc"\nssh_options = ["-v"]\n': ":2: ssh_options: only an address",
    'remote = "ssh://h"\nbase = "qemu-cortex-m4"\n': 'output: .* has output = "files"',
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_a_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "board.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=MISTAKES[text]):
        find_device(path)


def test_what_a_shell_says_before_is_ignored(library: Path, tmp_path: Path) -> None:
    greeting = (
        'ForceCommand echo Welcome; printf "\\numakit-0 ended 9\\n"; eval "$SSH_ORIGINAL_COMMAND"'
    )
    with served(tmp_path, greeting) as server:
        outputs = run_library(library, {"x": X}, device=server.address).outputs
    np.testing.assert_array_equal(outputs["y"], -X)


def test_a_connection_that_ssh_keeps_is_used_again(
    library: Path, server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ssh leaves behind for it keeps its standard error open."""
    kept = f"-o ControlMaster=auto -o ControlPath={tmp_path}/c -o ControlPersist=60"
    monkeypatch.setenv(OPTIONS_VARIABLE, f"{kept} {server.options}")
    try:
        for _ in range(2):
            outputs = run_library(library, {"x": X}, device=server.address).outputs
            np.testing.assert_array_equal(outputs["y"], -X)
        assert (tmp_path / "c").exists()
        hanging = program(tmp_path, "sleep(1000); return 0;")
        with pytest.raises(DeviceError, match="did not end within"):
            execute(find_device(server.address), hanging, [], work(tmp_path), 0.3)
        assert server.left() == [] and not is_running(b"./program")
    finally:
        words = ["ssh", "-F", str(server.folder / "client"), "-S", f"{tmp_path}/c", "-O", "exit"]
        subprocess.run([*words, "127.0.0.1"], capture_output=True)


def test_a_machine_may_have_no_more_than_busybox(library: Path, tmp_path: Path) -> None:
    if shutil.which("busybox") is None:
        pytest.skip("there is no busybox")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dd", "head", "tar", "mktemp", "uname", "cat", "rm", "sleep"):
        (tools / name).symlink_to(str(shutil.which("busybox")))
    forced = f'ForceCommand PATH={tools}; export PATH; eval "$SSH_ORIGINAL_COMMAND"'
    with served(tmp_path, forced) as server:
        outputs = run_library(library, {"x": X}, device=server.address).outputs
        np.testing.assert_array_equal(outputs["y"], -X)
        with pytest.raises(DeviceError, match="did not end within"):
            hanging = program(tmp_path, "sleep(1000); return 0;")
            execute(find_device(server.address), hanging, [], work(tmp_path), 0.3)
        assert server.left() == []
        assert not is_running(b"sleep", "busybox")


# --- faults -------------------------------------------------------------------------------------


def fails(address: str, library: Path, kind: type[UmakitError], wanted: str) -> None:
    """Running a library is one sentence, from Python and from the command line."""
    with pytest.raises(kind, match=wanted) as caught:
        run_library(library, {"x": X}, device=address)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(address)
    words = ["run", str(library), "--inputs", str(library.parent / "in.npz"), "--device", address]
    assert run_command(words) == (1 if kind is DeviceError else 2)


def test_a_refused_connection(library: Path, server: SshServer) -> None:
    wanted = "there is no connection: connection refused; start the SSH server there"
    fails(f"ssh://127.0.0.1:{free_port()}", library, DeviceError, wanted)


def test_an_unknown_host(library: Path, server: SshServer) -> None:
    fails("ssh://no-such-host.invalid", library, InputError, "there is no host of this name; corr")


def test_a_refused_login(library: Path, server: SshServer, tmp_path: Path, monkeypatch) -> None:
    new_key(tmp_path / "other")
    monkeypatch.setenv(
        OPTIONS_VARIABLE, f"-o IdentityFile={tmp_path}/other {other(server, tmp_path)}"
    )
    fails(server.address, library, InputError, "the login was refused; let ssh log in without")


def other(server: SshServer, folder: Path, **changed: str) -> str:
    """Options with a client's file without the user's key."""
    text = (server.folder / "client").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("IdentityFile")]
    (folder / "client").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"-F {folder}/client"


def test_an_unknown_and_a_changed_key_of_the_host(
    library: Path, server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / "known"
    known.write_text("", encoding="utf-8")
    options = f"-o UserKnownHostsFile={known} {server.options}"
    monkeypatch.setenv(OPTIONS_VARIABLE, options)
    fails(server.address, library, InputError, "the key of the host is not known; connect once")
    new_key(tmp_path / "key")
    public = (tmp_path / "key.pub").read_text().split()[:2]
    known.write_text(f"[127.0.0.1]:{server.port} {' '.join(public)}\n", encoding="utf-8")
    fails(server.address, library, InputError, "has another key than the known one")


def test_options_that_cannot_be_read(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTIONS_VARIABLE, "-o 'open")
    with pytest.raises(BuildError, match=r"UMAKIT_SSH_OPTIONS=.* cannot be read: No closing"):
        find_device("ssh://127.0.0.1")
    monkeypatch.setenv(OPTIONS_VARIABLE, "-o NoSuchOption=1")
    with pytest.raises(InputError, match=r"ssh ended with 255: .*try it by hand"):
        find_device("ssh://127.0.0.1")


def is_running(word: bytes, program: str = "") -> bool:
    """Whether a process has this as its program or an argument.

    Tests that another worker runs meanwhile are not looked at; what has lost its parents is.

    Args:
        word: the argument.
        program: end of the path of its program; empty for any.
    """
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word not in path.read_bytes().split(b"\0"):
                continue
            parents = ancestors(int(path.parent.name))
            is_other = os.getppid() in parents and os.getpid() not in parents
            if not is_other and (path.parent / "exe").readlink().name.endswith(program):
                return True
    return False


def ancestors(pid: int) -> list[int]:
    """The parents of a process."""
    found = []
    while pid > 1:
        state = Path(f"/proc/{pid}/stat").read_text()
        pid = int(state.rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def wait_for(condition, seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_a_hang_ends_there_too(server: SshServer, tmp_path: Path) -> None:
    hanging = program(tmp_path, 'puts("so far"); fflush(stdout); sleep(1000); return 0;')
    with pytest.raises(DeviceError, match=r"did not end within 0\.5 s; if it is only slow, give"):
        execute(find_device(server.address), hanging, ["here", "now"], work(tmp_path), 0.5)
    assert server.left() == []
    assert not is_running(b"./program")


def test_a_connection_that_is_lost_leaves_nothing(server: SshServer, tmp_path: Path) -> None:
    """The processes of the server for it are killed while the program runs."""
    hanging = program(tmp_path, "sleep(1000); return 0;")
    device = find_device(server.address)

    def cut() -> None:
        wait_for(lambda: is_running(b"./program"))
        for pid in server.sessions():
            os.kill(pid, signal.SIGKILL)

    cutting = threading.Thread(target=cut)
    cutting.start()
    with pytest.raises(DeviceError, match=r"^ssh://127.0.0.1:\d+: the connection was lost"):
        execute(device, hanging, [], work(tmp_path), 60)
    cutting.join()
    assert wait_for(lambda: not is_running(b"./program"))
    assert server.left() == []


def test_ctrl_c_and_a_killed_process_leave_nothing(
    library: Path, server: SshServer, tmp_path: Path
) -> None:
    hanging = program(tmp_path, "sleep(1000); return 0;")
    script = (
        "import sys\nfrom pathlib import Path\nfrom umakit.devices import execute, find_device\n"
        f"device = find_device({server.address!r})\n"
        f"execute(device, Path({str(hanging)!r}), [], Path({str(work(tmp_path))!r}), 60)\n"
    )
    for number in (signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen(
            [warm_python.sys.executable, "-c", script], stderr=subprocess.PIPE, text=True
        )
        assert wait_for(lambda: is_running(b"./program"))
        os.kill(process.pid, number)
        process.communicate(timeout=30)
        assert wait_for(lambda: not is_running(b"./program"))
        assert server.left() == []


def test_programs_that_end_at_once_end_the_conversation(server: SshServer, tmp_path: Path) -> None:
    """Also before those who watch them there have begun."""
    short = program(tmp_path, "return 3;")
    device, folder = find_device(server.address), work(tmp_path)
    for _ in range(10):
        assert execute(device, short, [], folder, 60).returncode == 3
    assert server.left() == []


def test_a_crash_is_told_with_its_signal(server: SshServer, tmp_path: Path) -> None:
    crashing = program(tmp_path, 'fputs("about to fail\\n", stderr); *(volatile int *)8 = 1;')
    with pytest.raises(DeviceError, match=r"stopped by signal 11 \(SIGSEGV\): about to fail"):
        execute(find_device(server.address), crashing, [], work(tmp_path), 60)
    assert server.left() == []


def test_a_program_for_another_processor(library: Path, server: SshServer, tmp_path: Path) -> None:
    """The machine's kernel refuses it. A library for another CPU is refused before."""
    foreign = program(tmp_path, "return 0;")
    data = bytearray(foreign.read_bytes())
    data[18:20] = (22).to_bytes(2, "little")  # z/Architecture, which nobody emulates here
    foreign.write_bytes(data)
    with pytest.raises(BuildError, match=r"program is for z/Architecture, this machine is "):
        execute(find_device(server.address), foreign, [], work(tmp_path), 60)
    assert server.left() == []
    model = str(library.parent / "network.onnx")
    for_arm = umakit.compile_model(
        model, [], tmp_path / "arm", options=umakit.ExportOptions(cpu="cortex-a76")
    )
    if os.uname().machine == "x86_64":
        with pytest.raises(BuildError, match=r"is for cortex-a76: ssh://.* runs code for x86-64;"):
            run_library(for_arm.path, {"x": X}, device=server.address)


@contextlib.contextmanager
def small_folder(place: Path, size: str) -> Iterator[Path]:
    """A file system of some bytes."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place]).returncode:
        pytest.skip("no file system can be mounted")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_no_room_there(library: Path, server: SshServer, tmp_path: Path) -> None:
    with small_folder(tmp_path / "small", "128k") as folder:
        address = f"{server.address}{folder}"
        fails(address, library, DeviceError, "there is no room for the program and its inputs; fr")
        assert list(folder.iterdir()) == []
    with small_folder(tmp_path / "larger", "2m") as folder:
        writing = program(
            tmp_path,
            'FILE *f = fopen("outputs", "wb"); char text[4096] = {1}; int n = 1000;'
            "while (n-- > 0 && fwrite(text, 1, 4096, f) == 4096) {} return fclose(f) || n > 0;",
        )
        device = find_device(f"{server.address}{folder}")
        with pytest.raises(DeviceError, match="there is no room for what the program writes"):
            execute(device, writing, ["in", "outputs"], work(tmp_path), 60)
        assert list(folder.iterdir()) == []


def test_a_folder_that_is_not_there(library: Path, server: SshServer) -> None:
    address = f"{server.address}/no/such/folder"
    fails(address, library, InputError, "no temporary folder can be made there: mktemp: ")


def test_a_login_that_runs_no_shell(library: Path, tmp_path: Path) -> None:
    with served(tmp_path, "ForceCommand echo This account is not available; exit 1") as server:
        fails(server.address, library, DeviceError, "the machine ran no script of sh: exit code 1")


SAID = {
    "ssh: connect to host h port 22: No route to host": (DeviceError, "no connection: no route to"),
    "ssh: connect to host h port 22: Connection timed out": (DeviceError, "connection timed out"),
    "kex_exchange_identification: Connection closed by remote host": (DeviceError, "was lost: kex"),
    "Timeout, server h not responding.": (DeviceError, "was lost: Timeout"),
    "client_loop: send disconnect: Broken pipe": (DeviceError, "was lost: client_loop"),
    "user@h: Permission denied (publickey,password).": (InputError, "login was refused"),
    "Received disconnect from h: Too many authentication failures": (InputError, "login was"),
    "/x: line 1: Bad configuration option: nope": (InputError, "ssh ended with 255: /x: line 1"),
}


@pytest.mark.parametrize("text", SAID)
def test_what_ssh_says_becomes_a_sentence(text: str) -> None:
    kind, wanted = SAID[text]
    error = ssh_error("ssh://h", 255, f"Warning: Permanently added 'h'\r\n{text}\r\n", False)
    assert type(error) is kind and wanted in str(error)


# --- another processor --------------------------------------------------------------------------


WRAPPER = """#!/bin/sh
# tar that makes unpacked programs start in an emulator.
/bin/tar "$@" || exit
case "$1" in
-xf) mv program .elf && printf '#!/bin/sh\\nexec qemu-aarch64 ./.elf "$@"\\n' >program
    chmod +x program ;;
esac
"""


def test_an_emulated_arm_machine(library: Path, tmp_path: Path) -> None:
    """The server's programs run in qemu-aarch64, and `uname` says so."""
    find_device("qemu-aarch64").compiler()
    find_device("qemu-aarch64").check_emulator()
    tools = tmp_path / "tools"
    tools.mkdir()
    scripts = {"tar": WRAPPER, "uname": "#!/bin/sh\necho aarch64\n"}
    for name, text in scripts.items():
        (tools / name).write_text(text, encoding="utf-8")
        (tools / name).chmod(0o755)
    forced = f'ForceCommand PATH={tools}:$PATH; export PATH; eval "$SSH_ORIGINAL_COMMAND"'
    with served(tmp_path, forced) as server:
        device = find_device(server.address)
        assert (device.command, device.processors) == ("aarch64-linux-gnu-gcc", ("aarch64",))
        result = run_library(library, {"x": X}, device=server.address, profile=True)
        np.testing.assert_array_equal(result.outputs["y"], -X)
        assert result.layers[0].seconds is not None
        crashing = tmp_path / "crash"
        (tmp_path / "crash.c").write_text("int main(void) { __builtin_trap(); }\n")
        words = [*device.compiler(), "-static", tmp_path / "crash.c", "-o", crashing]
        subprocess.run(words, check=True)
        with pytest.raises(DeviceError, match="stopped by signal"):
            execute(device, crashing, [], work(tmp_path), 60)
        assert server.left() == []
