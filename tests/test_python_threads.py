# SPDX-License-Identifier: Apache-2.0
"""Public functions called from several threads of a process give what they give alone.

TVM is not safe in threads: without a lock the process may end with a signal, so that the threads
run in a process of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
THREADS, ROUNDS = 4, 4 if "UMAKIT_EXAMPLES" in os.environ else 2

PROGRAM = """
import json, sys, threading
from collections import Counter
from pathlib import Path

import numpy as np
import umakit
from umakit import testing, tvm_api
from umakit.backend import load_backend_folder

onnx, integers, good, broken = map(Path, sys.argv[1:5])
threads, rounds = int(sys.argv[5]), int(sys.argv[6])
network = umakit.import_model(onnx)
vanilla = umakit.find_backend("vanilla_accelerator")
convolution = testing.conv2d_model(channels=2, height=5, width=5, filters=3, kernel=3)
small = umakit.import_model(convolution.module)


def fresh(backend):
    # Registers again: the class is another one.
    class Fresh(type(backend)):
        target_name = f"fresh_{threading.get_ident()}_{len(made)}"
    made.append(Fresh)
    return [str(key) for key in Fresh().target().keys if not str(key).startswith("fresh")]


made = []
CASES = {
    "import_model, ONNX": lambda: umakit.import_model(onnx).module,
    "import_model, integers": lambda: umakit.import_model(integers).module,
    "conv2d_model": lambda: testing.conv2d_model(
        channels=2, height=5, width=5, filters=3, kernel=3
    ).module,
    "QuantizedNetwork": lambda: testing.QuantizedNetwork(8, 7, 5).conv2d(10).model().module,
    "partition": lambda: vanilla.partition(network.module),
    "register and target": lambda: fresh(vanilla),
    "create_target": lambda: str(umakit.create_target("vanilla_accelerator")),
    "find_backend": lambda: type(umakit.find_backend("strawberry_accelerator")).__name__,
    "load_backend_folder": lambda: load_backend_folder(good).target_name,
    "load_backend_folder, broken": lambda: load_backend_folder(broken),
    "llvm_runner": lambda: testing.llvm_runner(small)(convolution.inputs)["output"].tobytes(),
}


def result(case):
    try:
        return case()
    except umakit.UmakitError as error:
        return str(error)


def same(one, other):
    if isinstance(one, tvm_api.IRModule):
        return tvm_api.tvm_ffi.structural_equal(one, other)
    return one == other


vanilla.register()
expected = {}
for name, case in CASES.items():
    if not name.startswith("load"):  # these have to be the first of their folder
        expected[name] = result(case)
sys.setswitchinterval(1e-6)
for name, case in CASES.items():
    results, start = [], threading.Barrier(threads)

    def work():
        start.wait()
        for _ in range(rounds):
            try:
                results.append(result(case))
            except Exception as error:
                results.append(error)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    wanted = expected[name] if name in expected else result(case)
    seen = Counter(
        "same" if same(each, wanted) else f"{type(each).__name__}: {each}"[:200]
        for each in results
    )
    text = wanted if isinstance(wanted, str) else ""
    print(json.dumps([name, dict(seen), text]), flush=True)
"""

BACKEND = """
from umakit.backend import UMABackend
from . import names

class Npu(UMABackend):
    target_name = names.NAME
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, int], str]]:
    """How many calls in threads gave what one call alone gives, by function; texts of results."""
    folder = tmp_path_factory.mktemp("threads")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    for name, text in (("good", "NAME = 'threads_npu'\n"), ("broken", "NAME = nothing\n")):
        (folder / name).mkdir()
        (folder / name / "backend.py").write_text(BACKEND)
        (folder / name / "names.py").write_text(text)
    digits = ROOT / "examples" / "digits"
    arguments = [digits / "digits.onnx", digits / "digits_int8.onnx", folder / "good",
                 folder / "broken", THREADS, ROUNDS]  # fmt: skip
    ended = subprocess.run(
        [sys.executable, program, *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    printed = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0, (printed, ended.stderr[-2000:])
    return {name: (counts, text) for name, counts, text in printed}


def test_functions_in_threads_give_what_they_give_alone(
    seen: dict[str, tuple[dict[str, int], str]],
) -> None:
    counts = {name: found for name, (found, _) in seen.items()}
    assert len(counts) == 11
    assert counts == {name: {"same": THREADS * ROUNDS} for name in counts}


def test_backends_loaded_in_threads_are_whole_or_refused_by_name(
    seen: dict[str, tuple[dict[str, int], str]],
) -> None:
    assert seen["load_backend_folder"][1] == "threads_npu"
    assert "name 'nothing' is not defined" in seen["load_backend_folder, broken"][1]
