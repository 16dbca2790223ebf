# SPDX-License-Identifier: Apache-2.0
"""Python and TVM for 64-bit Arm, which run in qemu-aarch64: Debian's packages and PyPI's wheels.

They take 450 MB in the cache, and are fetched once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from umakit.library.layout import cache_folder

DEBIAN = (
    "python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libexpat1 zlib1g libssl3 "
    "libffi8 libstdc++6 libgcc-s1 libbz2-1.0 liblzma5 libuuid1 libsqlite3-0".split()
)
WHEELS = (
    "apache-tvm apache-tvm-ffi numpy cloudpickle typing-extensions psutil ml-dtypes".split()
)  # fmt: skip
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")

SETTINGS = """\
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "FOLDER/apt";
Dir::State::status "FOLDER/apt/status";
Dir::Cache "FOLDER/apt/cache";
"""


def arm_python(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return a program that runs Python with TVM in an emulator, and what its environment needs.

    Args:
        folder: folder for the program.

    Skips the test where it cannot be had.
    """
    root = cache_folder("arm-tvm", version("apache-tvm")) / "root"
    if not (root / "complete").exists():
        for name in ("apt-get", "dpkg-deb", "qemu-aarch64"):
            if shutil.which(name) is None:
                pytest.skip(f"there is no {name}")
        try:
            _fetch(root)
        except subprocess.CalledProcessError as error:
            shutil.rmtree(root, ignore_errors=True)
            pytest.skip(f"cannot be fetched: {str(error.stderr)[-200:]}")
    program = folder / "python"
    started = f'exec qemu-aarch64 -L {root} {root}/usr/bin/python3.11 "$@"'
    program.write_text(f"#!/bin/sh\n{started}\n", encoding="utf-8")
    program.chmod(0o755)
    return program, {"PYTHONHOME": f"{root}/usr", "PYTHONPATH": f"{root}/site"}


def _fetch(root: Path) -> None:
    """Fetch and unpack all packages.

    Raises:
        subprocess.CalledProcessError: one cannot be had.
    """
    shutil.rmtree(root, ignore_errors=True)
    fetched = root.parent / "fetched"
    for folder in (root / "site", fetched / "apt/lists/partial", fetched / "apt/cache/archives"):
        folder.mkdir(parents=True, exist_ok=True)
    (fetched / "apt/status").touch()
    settings = fetched / "apt.conf"
    settings.write_text(SETTINGS.replace("FOLDER", str(fetched)), encoding="utf-8")
    run(["apt-get", "-qq", "-c", str(settings), "update"], fetched)
    run(["apt-get", "-qq", "-c", str(settings), "download", *DEBIAN], fetched)
    for package in fetched.glob("*.deb"):
        run(["dpkg-deb", "-x", str(package), str(root)], fetched)
    wanted = [f"{name}=={version(name)}" for name in WHEELS if name != "ml-dtypes"]
    platforms = [word for each in PLATFORMS for word in ("--platform", each)]
    pip = [
        sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
        *platforms, "--python-version", "3.11", "-d", str(fetched), *wanted, "ml-dtypes",
    ]  # fmt: skip
    run(pip, fetched)
    for wheel in fetched.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root / "site")
    shutil.rmtree(fetched)
    (root / "complete").touch()


def run(command: list[str], folder: Path) -> None:
    subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )  # fmt: skip
