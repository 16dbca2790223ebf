# SPDX-License-Identifier: Apache-2.0
"""Boards on a serial line: QEMU's UART on a pseudo terminal, with a line that is not perfect."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from console import TYPED
from hypothesis import given
from hypothesis import strategies as st
from networks import Graph, save
from strict import WARNINGS
from umakit.cli.main import run_command

import umakit
from umakit.devices import find_device
from umakit.devices.device import SUPPORT
from umakit.devices.run import run_library
from umakit.devices.serial_run import (
    MARK,
    Frame,
    FrameReader,
    LineEndedError,
    SerialLine,
    SerialRun,
    open_line,
)
from umakit.errors import DeviceError, InputError
from umakit.library.layout import RUNTIME

PAGE = Path(__file__).parents[1] / "docs" / "boards.md"

X = np.linspace(-3, 3, 100, dtype="float32")
"""More than fits into one frame."""


# --- frames -------------------------------------------------------------------------------------


def split(data: bytes, sizes: list[int]) -> list[bytes]:
    parts, start = [], 0
    for size in sizes:
        parts.append(data[start : start + size])
        start += size
    return [*parts, data[start:]]


NOISE = st.binary(max_size=9).filter(lambda data: MARK not in data) | st.sampled_from(
    [MARK[:1], MARK[:3], b"boot\r\n" + MARK[:2]]
)


@given(
    frames=st.lists(st.tuples(st.sampled_from("SWPX"), NOISE, st.binary(max_size=300)), max_size=5),
    sizes=st.lists(st.integers(0, 40), max_size=30),
)
def test_frames_are_found_between_noise_however_they_arrive(
    frames: list[tuple[str, bytes, bytes]], sizes: list[int]
) -> None:
    sent = [Frame(kind, number, payload) for number, (kind, _, payload) in enumerate(frames)]
    pairs = zip(frames, sent, strict=True)
    line = b"".join(noise + frame.encoded() for (_, noise, _), frame in pairs)
    reader = FrameReader()
    found = [frame for part in split(line, sizes) for frame in reader.add(part)]
    assert found == sent and reader.begun == 0
    assert reader.skipped == sum(len(noise) for _, noise, _ in frames)


@given(payload=st.binary(max_size=40), place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_damaged_frame_is_none_and_the_next_one_is_found(
    payload: bytes, place: int, bit: int
) -> None:
    damaged, after = bytearray(Frame("W", 3, payload).encoded()), Frame("X", 4, b"\0\0\0\0")
    damaged[place % len(damaged)] ^= 1 << bit
    reader = FrameReader()
    found = reader.add(
        bytes(damaged) + after.encoded() + bytes(5000)
    )  # of which it may seem a part
    assert found == [after]


def test_a_frame_is_the_one_of_the_page_of_the_protocol() -> None:
    """Bytes written down by hand; the checksum is that of `crc32` of zlib's command line."""
    assert Frame("S", 0, b"\1").encoded().hex() == "a5756d6b5300010001a71854cf"


# --- the board's side ---------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_boards_files_are_clean(compiler: str, tmp_path: Path) -> None:
    (tmp_path / "uart.c").write_text(files_of_page()["uart.c"], encoding="utf-8")
    sources = [SUPPORT / "platform_serial.c", tmp_path / "uart.c"]
    words = [compiler, "-std=c99", "-O2", *WARNINGS, "-Wmissing-prototypes", "-c"]
    folders = [f"-I{RUNTIME}", f"-I{SUPPORT}"]
    flags = ["-Wno-int-to-pointer-cast"]  # a register of a machine with 32 bits
    subprocess.run([*words, *folders, *flags, *sources], cwd=tmp_path, check=True)


def files_of_page() -> dict[str, str]:
    found = TYPED.finditer(PAGE.read_text(encoding="utf-8"))
    return {match["file"]: match["text"] for match in found if match["file"]}


FAULTY = """
void umakit_reset(void);

static unsigned place, size, frames;

/* Where in a frame a byte is, and which one. */
void umakit_serial_put(uint8_t byte)
{
    static const char noise[] = "boot \\xa5um";
    unsigned index;

    (void)noise;
    (void)index;
    BEFORE
    if (place == 6u) {
        size = byte;
    } else if (place == 7u) {
        size |= (unsigned)byte << 8;
    }
    if (!(LOST)) {
        plain_put((uint8_t)(byte ^ (DAMAGED ? 4u : 0u)));
    }
    if (++place > 8u && place == 12u + size) {
        place = 0;
        frames++;
    }
}
"""
"""A line that is not perfect. `BEFORE`, `LOST` and `DAMAGED` say how; `WAIT` takes no time of this
machine's processor."""

PLAIN = {"BEFORE": "", "LOST": "0", "DAMAGED": "0", "WAIT": '__asm__ volatile("wfi");'}
NOISY = "if (place == 0u) { for (index = 0; index < sizeof noise - 1u; index++) { "
NOISY += "plain_put((uint8_t)noise[index]); } }"


def board_in(folder: Path, faults: dict[str, str] | None = None, more: str = "") -> Path:
    """The board of the page, with what is wrong with its line."""
    for name, text in files_of_page().items():
        (folder / name).write_text(text, encoding="utf-8")
    if faults is not None:
        source, body = folder / "uart.c", FAULTY
        for name, text in {**PLAIN, **faults}.items():
            body = body.replace(name, text)
        plain = source.read_text().replace("void umakit_serial_put", "static void plain_put")
        source.write_text(plain + body, encoding="utf-8")
    board = folder / "serial.toml"
    board.write_text(board.read_text() + more, encoding="utf-8")
    return board


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = -x."""
    if not all(map(installed, ("arm-none-eabi-gcc", "qemu-system-arm"))):
        pytest.skip("arm-none-eabi-gcc or qemu-system-arm is not installed")
    folder = tmp_path_factory.mktemp("negative")
    graph = Graph("negative")
    graph.output(graph.node("Neg", graph.input("x", X.size), name="y"))
    return Path(umakit.compile_model(save(graph.model(), folder), [], folder / "library").path)


def installed(program: str) -> bool:
    return any(os.access(Path(place) / program, os.X_OK) for place in os.get_exec_path())


def processes_of(library: Path) -> list[str]:
    """Command lines of processes that run a program of the library."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{library}/build" in line:
            found.append(line)
    return found


def files_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def run_on(board: Path, library: Path) -> np.ndarray:
    before = files_open()
    try:
        result = run_library(library, {"x": np.stack([X, X + 1])}, device=board)
    finally:
        assert processes_of(library) == []
        assert files_open() == before
    assert len(result.instructions) == 2
    return result.outputs["y"]


def test_a_serial_line_gives_right_results(library: Path, tmp_path: Path) -> None:
    np.testing.assert_array_equal(run_on(board_in(tmp_path), library), -np.stack([X, X + 1]))


def test_noise_before_and_between_frames_is_ignored_on_both_sides(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Frame.encoded
    monkeypatch.setattr(Frame, "encoded", lambda frame: b"noise \xa5um\xa5" + plain(frame))
    outputs = run_on(board_in(tmp_path, {"BEFORE": NOISY}), library)
    np.testing.assert_array_equal(outputs, -np.stack([X, X + 1]))


def test_the_board_stops_at_damaged_inputs(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Frame.encoded

    def damaged(frame: Frame) -> bytes:
        data = bytearray(plain(frame))
        data[20] ^= (frame.type == "D") << 6
        return bytes(data)

    monkeypatch.setattr(Frame, "encoded", damaged)
    with pytest.raises(
        DeviceError, match=r"the program failed: a frame of the host arrived damaged$"
    ):
        run_on(board_in(tmp_path), library)


FAULTS = {
    "damaged": ({"DAMAGED": "frames == 5u && place == 9u"}, "lost or damaged: 6 came in .* of 5"),
    "lost byte": ({"LOST": "frames == 5u && place == 9u"}, "lost or damaged: 6 came in .* of 5"),
    "truncated": (
        {"BEFORE": "while (frames == 5u && place == 21u) { WAIT }"},
        r"sent nothing for 6 s, in the middle of a frame, after 21 bytes of it",
    ),
    "hang": (
        {"BEFORE": "while (frames == 5u && place == 0u) { WAIT }"},
        r"sent nothing for 6 s, after frame 4 of the board; if it is only slow",
    ),
    "only noise": (
        {"BEFORE": f"{NOISY} for (;;) {{ WAIT }}"},
        r"before the board answered .*; \d+ bytes are none",
    ),
    "trap": (
        {"BEFORE": 'if (frames == 5u && place == 0u) { frames++; __asm__ volatile("udf #0"); }'},
        r"was stopped by HardFault \(at 0x",
    ),
    "restart": (
        {"BEFORE": "if (frames == 6u && place == 0u) { umakit_reset(); }"},
        "the board started again after its frame",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_line_that_fails_is_one_sentence_and_leaves_nothing(
    fault: str, library: Path, tmp_path: Path
) -> None:
    faults, wanted = FAULTS[fault]
    board = board_in(tmp_path, faults, "timeout_seconds = 6\n")
    with pytest.raises(DeviceError, match=wanted) as caught:
        run_on(board, library)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("serial: ")


def test_an_emulator_that_ends_is_one_sentence(library: Path, tmp_path: Path) -> None:
    board = board_in(tmp_path, {"BEFORE": "while (frames == 5u && place == 20u) { }"})
    board.write_text(board.read_text().replace("run = [", 'run = ["timeout", "5",'))
    with pytest.raises(
        DeviceError, match=r"timeout ended with 124: .* in the middle of a frame, after 20"
    ):
        run_on(board, library)
    board.write_text(board.read_text().replace('"timeout", "5",', "").replace("mps2-", "mps9-"))
    with pytest.raises(
        DeviceError, match=r"qemu-system-arm ended with 1: .* before the board answ"
    ):
        run_on(board, library)


def test_layers_are_compared_on_a_serial_line(library: Path, tmp_path: Path) -> None:
    model = str(library.parent / "network.onnx")
    words = ["diff", model, "--library", str(library), "--device", str(board_in(tmp_path))]
    assert run_command(words) == 0


class Scripted(SerialLine):
    """A line on which a board has sent these frames, and then sends nothing more."""

    def __init__(self, *frames: Frame) -> None:
        super().__init__(-1, "")
        self.waiting = [frame.encoded() for frame in frames]

    def read(self, seconds: float) -> bytes:
        if not self.waiting:
            raise LineEndedError
        return self.waiting.pop(0)

    def write(self, data: bytes, until: float) -> bool:
        return True


def test_outputs_of_a_run_that_fails_are_there_as_far_as_they_came(tmp_path: Path) -> None:
    """They say which layer was the last one."""
    (tmp_path / "in").write_bytes(b"input")
    opening = Frame("O", 1, b"in\0out\0")
    line = Scripted(
        Frame("S", 0, b"\1"), opening, Frame("W", 2, b"first"), Frame("W", 3, b"second")
    )
    with pytest.raises(DeviceError, match=r"^board: the line ended after frame 3 of the board$"):
        SerialRun(line, ["in", "out"], tmp_path, "board").run(9)
    assert (tmp_path / "out").read_bytes() == b"firstsecond"


WRONG = {
    "another file": ([Frame("O", 1, b"in\0/etc/passwd\0")], "asked for the files 'in' and '/etc"),
    "a missing name": ([Frame("O", 1, b"in")], "asked for the files 'in'"),
    "another version": ([Frame("S", 0, b"\2")], "another version of the protocol"),
    "another type": ([Frame("?", 1)], "a frame of the unknown type '[?]'"),
    "a short number": ([Frame("R", 1, b"\1")], "a frame of the unknown type 'R'"),
    "too much": ([Frame("W", 1, bytes(5000))], "ended before the board answered .* bytes are none"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_board_that_breaks_the_protocol_is_one_sentence(wrong: str, tmp_path: Path) -> None:
    frames, wanted = WRONG[wrong]
    (tmp_path / "in").write_bytes(b"")
    with pytest.raises(DeviceError, match=wanted):
        SerialRun(Scripted(*frames), ["in", "out"], tmp_path, "board").run(9)
    with pytest.raises(DeviceError, match="the words for main have 311 bytes"):
        SerialRun(Scripted(), ["in", "o" * 302], tmp_path, "board")


LOAD = """#!/bin/sh
cd "$(dirname "$0")"
setsid qemu-system-arm -M mps2-an386 -display none -monitor none -serial pty -kernel "$1" \\
    > qemu.log 2>&1 < /dev/null &
echo $! > pid
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    port=$(sed -n 's/.*redirected to \\([^ ]*\\).*/\\1/p' qemu.log)
    [ -n "$port" ] && ln -sf "$port" port && exit 0
    sleep 0.1
done
echo no port >&2
exit 1
"""


def test_a_port_by_its_path(library: Path, tmp_path: Path) -> None:
    """A board that is loaded and goes on by itself: QEMU with a terminal that it made."""
    board = board_in(tmp_path)
    (tmp_path / "load.sh").write_text(LOAD, encoding="utf-8")
    (tmp_path / "load.sh").chmod(0o755)
    runs = re.compile(r"run = \[.*?\n\]", re.DOTALL)
    text = runs.sub('run = []\nload = ["./load.sh", "{program}"]', board.read_text())
    board.write_text(text.replace('port = "pty"', 'port = "{here}/port"'), encoding="utf-8")
    try:
        result = run_library(library, {"x": X}, device=board)
        np.testing.assert_array_equal(result.outputs["y"], -X)
    finally:
        subprocess.run(["kill", "-KILL", (tmp_path / "pid").read_text().strip()], check=False)


def test_a_port_that_another_run_has_is_one_sentence() -> None:
    """Both are runs of umakit, which look for the lock; the port is free when the first ends."""
    own, other = os.openpty()
    port = os.ttyname(other)
    try:
        for _ in range(2):
            with (
                open_line(port, 115_200, "first"),
                pytest.raises(
                    DeviceError,
                    match=rf"^second: the port {port} cannot be opened: another program has",
                ),
                open_line(port, 115_200, "second"),
            ):
                pass
    finally:
        os.close(own)
        os.close(other)


def test_a_port_that_is_not_there_is_one_sentence(library: Path, tmp_path: Path) -> None:
    board = board_in(tmp_path)
    text = board.read_text().replace('port = "pty"', 'port = "/dev/ttyNONE0"')
    board.write_text(text.replace('"{port}"', '"none"'), encoding="utf-8")
    with pytest.raises(
        DeviceError, match=r"the port /dev/ttyNONE0 cannot be opened: No such file.*con"
    ):
        run_on(board, library)
    board.write_text(board.read_text().replace("/dev/ttyNONE0", "/dev/null"), encoding="utf-8")
    with pytest.raises(DeviceError, match="the port /dev/null cannot be opened: Inappropriate"):
        run_on(board, library)


MISTAKES = {
    "no port": ('port = ""', 'port: is missing, which output = "serial" needs'),
    "rate": ('port = "pty"\nbaud = 1234', ":\\d+: baud: 1234 is no rate of a port"),
    "other output": ('port = "pty"\noutput = "semihosting"', ':\\d+: port: only output = "serial"'),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_about_the_line_are_named(mistake: str, tmp_path: Path) -> None:
    text, wanted = MISTAKES[mistake]
    board = tmp_path / "board.toml"
    run = 'run = ["q", "{program}", "{port}", "{semihosting}"]\n'
    output = "" if "output" in text else 'output = "serial"\n'
    board.write_text(f'base = "qemu-cortex-m4"\n{output}{run}{text}\n', encoding="utf-8")
    with pytest.raises(InputError, match=wanted):
        find_device(board)
