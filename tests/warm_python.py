# SPDX-License-Identifier: Apache-2.0
"""Commands in processes of their own that do not import TVM and umakit again.

Imports take most of the processor time of a short command. So a server imports once, and forks for
each command. Working folder, environment, arguments, streams and exit code are those of a new
process, and a command sees nothing that another one changed. The programs `python` and `uma` in
the folder `programs()` ask the server; for other options of Python, and other settings of it in
the environment, they start Python itself.
"""

from __future__ import annotations

import array
import atexit
import functools
import gc
import json
import os
import runpy
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import ModuleType

import compiler_flags

PRELOADED = (
    "umakit.cli.main", "umakit.pipeline", "umakit.testing.harness", "umakit.tools.scaffold",
    "umakit.devices.run",
)  # fmt: skip
NETWORK = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
"""What the server compiles before it answers."""

TIMES = "times"
"""File with the processor time of each command."""

SETTINGS = ("PYTHON", "LC_", "LANG")
"""Starts of the names of environment variables that Python reads before it runs a program."""

CLIENT = """\
#!{python} -IES
import array, json, os, socket, sys
words, settings = {words!r} + sys.argv[1:], {settings!r}
script = words[1:] and (words[1] in ("-c", "-m") and words[2:] or words[1][:1] not in ("", "-"))
if not script or settings != [v for v in sorted(os.environ.items()) if v[0].startswith({names!r})]:
    os.execv(words[0], words)
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    server.sendmsg([b"0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    server.sendall(json.dumps([os.getcwd(), dict(os.environ), words[1:]]).encode())
    server.shutdown(socket.SHUT_WR)
    status = int(server.recv(16))
if status < 0:
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@functools.cache
def programs() -> Path:
    """Return the folder with the programs `python` and `uma`, which work until this process ends.

    Returns:
        The folder, to be put in front of PATH.
    """
    folder = Path(tempfile.mkdtemp(prefix="umakit-python-"))
    settings = [item for item in sorted(os.environ.items()) if item[0].startswith(SETTINGS)]
    for name, module in (("python", []), ("uma", ["-m", "umakit.cli.start"])):
        text = CLIENT.format(
            python=sys.executable, words=[sys.executable, *module], settings=settings,
            names=SETTINGS, address=str(folder / "socket"),
        )  # fmt: skip
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(64)
        number = listener.fileno()
        command = [sys.executable, __file__, str(number), str(folder)]
        # It ends when nothing is left that could write into this pipe.
        server = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.PIPE)
    atexit.register(server.communicate)
    return folder


def python() -> str:
    """Return the path of a program that takes the place of `sys.executable`."""
    return str(programs() / "python")


def processor_time() -> float:
    """Return the processor time of all commands that have ended, in seconds."""
    if not programs.cache_info().currsize or not (programs() / TIMES).exists():
        return 0.0
    return sum(map(float, (programs() / TIMES).read_text(encoding="utf-8").split()))


def serve(listener: socket.socket, folder: Path) -> None:
    """Fork for each connection until standard input ends; returns in the forks only."""
    for name in PRELOADED:
        __import__(name)
    warm_up()
    gc.freeze()  # the forks' collections leave these pages shared
    running: set[int] = set()
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        connection, _ = listener.accept()
        child = os.fork()
        if child == 0:
            listener.close()
            return answer(connection, folder / TIMES)
        connection.close()
        running.add(child)
        running -= {number for number in running if os.waitpid(number, os.WNOHANG)[0]}


def warm_up() -> None:
    """Do once what the first command of a process spends time on and every process does alike.

    Compiling the templates, and what TVM and umakit import when a network is first compiled, would
    be half of the processor time of a command.
    """
    from umakit.pipeline import compile_model
    from umakit.text.rendering import _environment

    for escape, suffixes in ((False, (".c.j2", ".h.j2", ".md.j2", ".txt.j2")), (True, ".html.j2")):
        environment = _environment(escape=escape)
        for name in environment.list_templates():
            if name.endswith(suffixes):
                environment.get_template(name)
    with tempfile.TemporaryDirectory(prefix="umakit-warm-") as folder:
        compile_model(NETWORK, [], Path(folder) / "library")


def answer(connection: socket.socket, times: Path) -> None:
    """Run the command of a connection in a fork, and send how it ended; returns in that fork.

    Args:
        connection: names the command and takes its exit code.
        times: the file to which its processor time is added.
    """
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    streams = array.array("i", ancillary[0][2]).tolist()
    request = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    child = os.fork()
    if child != 0:
        for stream in streams:
            os.close(stream)
        _, status, used = os.wait4(child, 0)
        with times.open("a", encoding="utf-8") as file:
            file.write(f"{used.ru_utime + used.ru_stime:.3f}\n")
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # Those of the server remember what they wrote to, such as a file in which one can seek.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    folder, environment, sys.argv = json.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    compiler_flags.choose(optimized=environment.get(compiler_flags.SETTING) != "quick")
    os.chdir(folder)


def run(words: list[str]) -> None:
    """Run a program as Python does with these arguments: `-c CODE`, `-m MODULE` or a file."""
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], str(Path.cwd())
        sys.modules.pop(words[1], None)  # as in a new process, it is imported as `__main__` only
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


def end(words: list[str]) -> None:
    """Run a program and end this process as Python does, without deleting all objects first.

    Writing to the pages that this fork shares with the server is most of the time of a short
    command. Whatever ends with an exception other than a number is left to Python.
    """
    code = 0
    try:
        run(words)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        code = ended.code or 0
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        sys.exit(code)  # which tells of it
    os._exit(code & 0xFF)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
    end(sys.argv)
