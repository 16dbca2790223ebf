# SPDX-License-Identifier: Apache-2.0
"""A backend of one-line calls of a library of kernels, `kernel_library.c`."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

from integer_backend import DECLARED, header_of

from umakit import UMABackend, patterns

TESTS = Path(__file__).parent
CONFIGURATION = """\
[accelerator]
name = "{name}"

[array]
rows = 1
columns = 1

[statuses]
"-1" = "an argument does not fit (LIB_ARGUMENT_ERROR)"
"7" = "the unit is asleep"
"""

VENDOR = """\
[accelerator]
name = "{name}"
kind = "library"

[sources]
root = "../third_party"
files = ["src/*.c"]
include = ["include"]
headers = ["include/kernel_library.h"]
defines = {{ LIB_EXTRA = 10, LIB_HALVES = true }}
reentrant = true

[sources.cores]
small = {{ LIB_EXTRA = 1 }}
large = {{ LIB_EXTRA = 40, LIB_HALVES = false, LIB_MORE = "lib_more" }}
"""

PARAMETERS = (
    "&(lib_conv_params){-$input_zero_point, $output_zero_point, $stride_y, $stride_x,"
    " {$pad_top, $pad_left}, {.highest = $highest, .lowest = $lowest}}"
)
INPUT = "&(lib_dims){$batch, $height, $width, $input_channels}"
CONVOLVE = (
    f"lib_convolve(&(lib_context){{(void *)$scratch, (int32_t)$scratch_bytes}}, {PARAMETERS},"
    f" &(lib_scales){{$multipliers, $shifts, $scales}}, {INPUT}, $data,"
    " &(lib_dims){.h = $kernel_height, .w = $kernel_width}, $weights, $bias,"
    " &(lib_dims){$batch, $output_height, $output_width, $output_channels}, $result)"
)
CONVOLVE_BYTES = f"lib_convolve_bytes({INPUT}, {PARAMETERS})"
MAX_POOL = """(void)lib_max_pool(
    &(lib_context){$scratch, $scratch_bytes}, (int8_t *)(uintptr_t)$data,
    &(lib_dims){$batch, $height, $width, $channels},
    &(lib_dims){1, $output_height, $output_width, $channels},
    &(lib_dims){1, $window_height, $window_width, 1}, $stride_y, $stride_x,
    (lib_padding){(int16_t)$pad_top, (int16_t)$pad_left}, $lowest, $highest, $result)"""

_numbers = itertools.count()


class Library(UMABackend):
    """Convolutions whose scratch the library computes, and pools with a size in Python.

    Args:
        folder: a new one becomes the backend's.
        defines: macros at the top of the library's sources.
    """

    def __init__(self, folder: Path, *defines: str) -> None:
        self._name = f"kernels{next(_numbers)}"
        self._folder = folder / self._name
        self._folder.mkdir(parents=True)
        self.write_files(*defines)
        super().__init__()
        self._register_kernel(
            patterns.qconv2d(padding=[0, "same"], strides=[1, 3]), CONVOLVE, scratch=CONVOLVE_BYTES
        )
        self._register_kernel(
            patterns.qmax_pool2d(batch=None),
            MAX_POOL,
            scratch=lambda layer: layer.batch * layer.height * layer.width * layer.input_channels,
        )
        self.register_files()

    def write_files(self, *defines: str) -> None:
        """Write the files of the backend's folder."""
        write_sources(self._folder, *defines)
        text = CONFIGURATION.format(name=self._name)
        (self._folder / "accel.toml").write_text(text, encoding="utf-8")

    def register_files(self) -> None:
        """Register the library's files."""
        self._register_codegen(includes=lambda: '#include "kernel_library.h"')
        names = ["kernel_library", "integer_driver"]
        self._register_driver(
            [f"{name}.c" for name in names], [f"{name}.h" for name in names], reentrant=True
        )

    @property
    def target_name(self) -> str:
        return self._name

    @property
    def folder(self) -> Path:
        return self._folder


class VendorLibrary(Library):
    """The same with the library's own tree outside of the backend's folder, for several cores."""

    def write_files(self, *defines: str) -> None:
        tree = self._folder.parent / "third_party"
        for name in ("include", "src"):
            (tree / name).mkdir(parents=True)
        write_sources(tree / "src", *defines)
        for path in (tree / "src").glob("*.h"):
            path.rename(tree / "include" / path.name)
        more = '#include "kernel_library.h"\nint32_t lib_more(int32_t n) { return n; }\n'
        (tree / "src" / "more.c").write_text(more, encoding="utf-8")
        text = VENDOR.format(name=self._name)
        (self._folder / "accel.toml").write_text(text, encoding="utf-8")

    def register_files(self) -> None:
        pass


def write_sources(folder: Path, *defines: str) -> None:
    """Write the library's files, with macros at the top of its C file."""
    for name in ("kernel_library.h", "integer_driver.c"):
        shutil.copy(TESTS / name, folder)
    top = "".join(f"#define {define}\n" for define in defines)
    text = (TESTS / "kernel_library.c").read_text(encoding="utf-8")
    (folder / "kernel_library.c").write_text(top + text, encoding="utf-8")
    (folder / "integer_driver.h").write_text(header_of(DECLARED), encoding="utf-8")
