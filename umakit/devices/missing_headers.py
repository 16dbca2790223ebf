# SPDX-License-Identifier: Apache-2.0
"""What to do about a header that a C compiler does not find: whose it is decides."""

from __future__ import annotations

import re

from umakit import sim
from umakit.devices.device import Device

NOT_FOUND = re.compile(
    r"fatal error: '?([^\s:']+\.(?:h|hpp|hh))'?(?:: No such file| file not found)"
)
"""Form of the message of gcc and clang."""

OF_C = frozenset(
    f"{name}.h"
    for name in (
        "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal "
        "stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath "
        "threads time uchar wchar wctype "
        # POSIX
        "dirent dlfcn fcntl poll pthread sched semaphore strings termios ucontext unistd"
    ).split()
)
"""Headers of the C library."""

SYSTEM_FOLDERS = ("arpa/", "asm/", "bits/", "gnu/", "linux/", "net/", "netinet/", "sys/")
OF_THE_KIT = "umakit/"


def mend_of_missing_header(messages: str, device: Device) -> str:
    """Return what to do about a header that a compiler did not find; empty if it found all.

    Args:
        messages: what the compiler printed.
        device: the device that it compiles for.
    """
    found = NOT_FOUND.search(messages)
    if not found:
        return ""
    header = found[1]
    if header in OF_C or header.startswith(SYSTEM_FOLDERS):
        packages = f"on Debian: apt-get install {' '.join(device.packages)}"
        return packages if device.packages else "install the C library of the compiler"
    if header.startswith(OF_THE_KIT):
        return _of_the_kit(header)
    return (
        f"if {header} is a driver's, name it in _register_driver of the backend; if it is a "
        "library's, name its folder in include of [sources] in accel.toml"
    )


def _of_the_kit(header: str) -> str:
    if not (sim.source_directory() / "include" / header).is_file():
        return f"umakit has no {header}: correct the include"
    if f"include/{header}" in sim.INLINE_HEADERS:
        return (
            f"copy {header} into the library: umakit exports it with drivers and simulators only, "
            "which _register_driver and [simulator] name"
        )
    return (
        f"{header} is exported together with a simulator: set simulator in [device] of accel.toml, "
        "or leave the include out"
    )
