# SPDX-License-Identifier: Apache-2.0
"""Calls of library functions as C text: `_register_kernel`, its scratch and its statuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import misra
import numpy as np
import pytest
from comparisons import SANITIZED, examples
from hypothesis import Phase, given
from hypothesis import strategies as st
from kernel_library import CONVOLVE, CONVOLVE_BYTES, Library, VendorLibrary, write_sources

from umakit import UMABackend, compile_model, patterns, run_library, tir, tvm_api
from umakit.codegen.kernel_source import print_kernel
from umakit.devices import build
from umakit.devices.unpacked import run_unpacked
from umakit.errors import BackendError, DeviceError
from umakit.lower.kernels import make_kernel
from umakit.lower.phases import lower_prim_func
from umakit.patterns.driver import example
from umakit.registration.kernel_pass import scratch_bytes
from umakit.registration.sources.declarations import read_declarations, read_lines
from umakit.testing import AOTModel
from umakit.testing.example_networks import QuantizedNetwork
from umakit.text.c_text import read_expression

STRICT = "-std=c99 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only".split()


def residual_network() -> AOTModel:
    """Two equal layers around a sum, a pool and a layer without scratch."""
    network = QuantizedNetwork(8, 8, 4).conv2d(4, 3).conv2d(4, 3).residual().pool2d("max")
    return network.conv2d(6, 1, 3, padding="valid").model("network")


def outputs_of(model: AOTModel, folder: Path, *backends: UMABackend) -> Any:
    library = compile_model(model.module, backends, folder, name="network")
    (output,) = run_library(folder, model.inputs).outputs.values()
    return library, output


@pytest.fixture(scope="module")
def model() -> AOTModel:
    return residual_network()


@pytest.fixture(scope="module")
def exported(model: AOTModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernel_calls")
    compile_model(model.module, [Library(folder)], folder / "library", name="network")
    return folder / "library"


@pytest.fixture(scope="module")
def wanted(model: AOTModel, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the CPU computes."""
    return outputs_of(model, tmp_path_factory.mktemp("cpu") / "library")[1]


def source(library: Path) -> str:
    return (library / "codegen/host/src/tvmgen_network.c").read_text(encoding="utf-8")


# --- what is exported ---------------------------------------------------------------------------


def test_results_are_exact_and_no_access_leaves_its_memory(
    exported: Path, model: AOTModel, wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "FLAGS", SANITIZED)
    (output,) = run_library(exported, model.inputs).outputs.values()
    np.testing.assert_array_equal(output, wanted)


def test_the_calls_are_the_texts_with_named_numbers(exported: Path) -> None:
    text = " ".join(source(exported).split())
    plain = re.sub(r"\$result", "output", CONVOLVE).replace("$", "")
    assert re.search(rf"return status_of_kernels\d+\(\(int32_t\){re.escape(plain)}\);", text)
    assert f"if ((int64_t){CONVOLVE_BYTES.replace('$', '')} > (int64_t)scratch_bytes)" in text
    assert "NULL, (int32_t)scratch_bytes}" in text.replace("(void *)NULL", "NULL")
    assert "lib_context){scratch, scratch_bytes}, (int8_t *)(uintptr_t)data" in text
    assert "enum { scratch_bytes = 259, input_zero_point = 3," in text


def test_the_readme_of_the_library_lists_its_statuses(exported: Path) -> None:
    text = (exported / "README.md").read_text(encoding="utf-8")
    assert "| -65537 | -1 | `an argument does not fit (LIB_ARGUMENT_ERROR)` |" in text
    assert "| -65529 | 7 | `the unit is asleep` |" in text
    assert "a run ends with -9, `TVMGEN_NETWORK_SCRATCH_TOO_SMALL`" in " ".join(text.split())


def test_layers_of_equal_calls_share_one_function(model: AOTModel, tmp_path: Path) -> None:
    network = QuantizedNetwork(6, 6, 4).conv2d(4).conv2d(4).conv2d(4).model("network")
    library, _ = outputs_of(network, tmp_path / "library", Library(tmp_path))
    functions = [layer["function"] for layer in library.metadata["umakit"]["layers"]]
    assert functions[1] == functions[2] != functions[0]
    assert source(tmp_path / "library").count("= status_of_") == 0


def test_strict_compilers_have_nothing_to_say(exported: Path) -> None:
    for compiler in filter(shutil.which, ("gcc", "clang")):
        path = exported / "codegen/host/src/tvmgen_network.c"
        subprocess.run([compiler, *STRICT, str(path)], check=True)


@pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="make soak")
def test_misra_finds_nothing_that_is_not_listed(exported: Path, tmp_path: Path) -> None:
    if shutil.which("cppcheck") is None:
        assert not os.environ.get("UMAKIT_CI"), "CI lacks cppcheck: see .ci/run"
        pytest.skip("cppcheck is not installed")
    shutil.copytree(exported / "codegen/host", tmp_path / "host")
    for path in (tmp_path / "host/src").glob("kernels*/*.c"):
        path.unlink()  # a vendor's own matter
    assert set(misra.findings([tmp_path / "host"])) <= misra.listed()


def test_functions_without_results_need_no_statuses(tmp_path: Path) -> None:
    backend = Library(tmp_path)
    del backend.patterns[0]
    model = QuantizedNetwork(6, 6, 2).pool2d("max").model("network")
    library, output = outputs_of(model, tmp_path / "library", backend)
    np.testing.assert_array_equal(output, outputs_of(model, tmp_path / "cpu")[1])
    assert "status_of_kernels" not in source(library.path)
    test_strict_compilers_have_nothing_to_say(library.path)


def test_scratch_is_a_tensor_of_the_plan_and_lives_in_its_call(exported: Path) -> None:
    metadata = json.loads((exported / "metadata.json").read_text())["umakit"]
    (pool,) = metadata["memory"]["pools"]
    scratch = {t["name"]: t for t in pool["tensors"] if t["role"] == "scratch"}
    assert {name: each["size_bytes"] for name, each in scratch.items()} == {
        "conv1 scratch": 8 * 8 * 4 + 3,
        "conv2 scratch": 8 * 8 * 4 + 3,
        "max_pool4 scratch": 8 * 8 * 4,
    }
    assert all(each["first_layer"] == each["last_layer"] for each in scratch.values())
    assert [layer["scratch_bytes"] for layer in metadata["layers"]] == [259, 259, 0, 256, 0]
    assert pool["used_bytes"] == -(-pool["live_set_bound_bytes"] // 16) * 16


def test_constants_that_a_function_has_no_use_for_are_not_exported(tmp_path: Path) -> None:
    backend = Library(tmp_path)
    backend.patterns.clear()
    header = backend.folder / "kernel_library.h"
    header.write_text(
        header.read_text() + "int lib_sum(const int8_t *, const int8_t *, int8_t *, int);\n"
    )
    backend._register_kernel(patterns.qconv2d(), "lib_sum($data, $weights, $result, 1 + $batch)")
    network = QuantizedNetwork(4, 4, 4).conv2d(4).conv2d(5).model("network")
    library = compile_model(network.module, [backend], tmp_path / "library", name="network")
    assert library.program is not None
    assert set(library.program.constants) == {"conv1_weights", "conv2_weights"}
    called = "return status_of_K((int32_t)lib_sum(data, weights, output, 1 + batch));"
    assert called in re.sub(r"of_kernels\d+", "of_K", source(library.path))


def test_numbers_of_64_bits_stand_in_the_text_with_their_sign() -> None:
    x, y = (tvm_api.tirx.decl_buffer([4], "int8", name) for name in "xy")
    operands = {"result": tir.pointer(y), "factor": -(2**40), "shift": -3}
    call = tir.text_call("f(-$factor, 2 * -$shift, $result)", "", operands)
    function = lower_prim_func("kernel", tvm_api.PrimFunc([x, y], call), None)
    text = print_kernel(make_kernel("kernel", "npu", function, 1, None)).body
    assert "enum { shift = -3 };" in text
    assert "f(-(INT64_C(-1099511627776)), 2 * -shift, output)" in text


LAYERS = st.lists(
    st.sampled_from(["conv", "residual", "pool", "point", "steps"]), min_size=1, max_size=5
)


@given(
    LAYERS, st.integers(3, 9), st.integers(3, 9), st.integers(1, 5), st.sampled_from([0, 1, 16, 99])
)
@examples(2, phases=[Phase.explicit, Phase.generate])
def test_random_networks_are_exact_whatever_scratch_is_overwritten(
    tmp_path_factory: pytest.TempPathFactory,
    layers: list[str],
    height: int,
    width: int,
    channels: int,
    extra: int,
) -> None:
    folder = tmp_path_factory.mktemp("random")
    network = QuantizedNetwork(height, width, channels).conv2d(channels)
    for layer in layers:
        if layer == "conv":
            network.conv2d(channels)
        elif layer == "residual":
            network.conv2d(channels).residual()
        elif layer == "pool":
            network.pool2d("max", 2, 1, padding="same")
        elif layer == "point":
            network.conv2d(channels + 1, 1)
            channels += 1
        elif layer == "steps":
            network.conv2d(channels, 3, 1)
    model = network.model("network")
    backend = Library(folder, f"LIB_EXTRA {extra}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "FLAGS", SANITIZED)
        library, output = outputs_of(model, folder / "library", backend)
    taken = {row.operator for row in library.report.offloaded}
    assert "quantized.conv2d" in taken
    np.testing.assert_array_equal(output, outputs_of(model, folder / "cpu")[1])


# --- statuses -----------------------------------------------------------------------------------


@pytest.fixture
def changed(exported: Path, tmp_path: Path) -> Any:
    """A function that returns the library with other macros in its C file, as of another core."""

    def change(*defines: str) -> Path:
        copy = tmp_path / "copy"
        shutil.copytree(exported, copy, ignore=shutil.ignore_patterns("build"))
        (folder,) = (copy / "codegen/host/src").glob("kernels*")
        write_sources(folder, *defines)
        return copy

    return change


@pytest.mark.parametrize(
    ("defines", "status", "words"),
    [
        (["LIB_STATUS -1"], -1, r"status -1 of kernels\d+: an argument does not fit \(LIB_ARGUM"),
        (["LIB_STATUS 7"], 7, r"status 7 of kernels\d+: the unit is asleep"),
        (["LIB_STATUS -2"], -2, r"status -2 of kernels\d+: a driver reported an error"),
        (["LIB_STATUS -40000"], 0, r"a status of kernels\d+ that is out of range"),
        (["LIB_EXTRA 4"], -9, "built for another core and needs more scratch than was planned"),
    ],
)
def test_statuses_are_told_in_the_librarys_words(
    defines: list[str], status: int, words: str, changed: Any, model: AOTModel
) -> None:
    library = changed(*defines)
    for run in (run_library, run_unpacked) if "LIB_STATUS -1" in defines else (run_library,):
        with pytest.raises(DeviceError, match=words) as raised:
            run(library, model.inputs)
        assert raised.value.status == status


def test_a_core_that_needs_less_gets_what_was_planned(
    changed: Any, model: AOTModel, wanted: Any
) -> None:
    (output,) = run_library(changed("LIB_EXTRA 2"), model.inputs).outputs.values()
    np.testing.assert_array_equal(output, wanted)


def test_the_core_that_needs_most_is_planned_for(
    model: AOTModel, wanted: Any, tmp_path: Path
) -> None:
    library, output = outputs_of(model, tmp_path / "library", VendorLibrary(tmp_path))
    np.testing.assert_array_equal(output, wanted)
    layers = library.metadata["umakit"]["layers"]
    assert [layer["scratch_bytes"] for layer in layers] == [296, 296, 0, 256, 0]
    (source,) = library.path.glob("codegen/host/src/*/src/kernel_library.c")
    text = source.read_text(encoding="utf-8")
    source.write_text(f"#undef LIB_EXTRA\n#define LIB_EXTRA 82\n{text}", encoding="utf-8")
    with pytest.raises(DeviceError, match="more scratch than was planned"):
        run_library(library.path, model.inputs)


def test_extern_c_is_no_scope_in_a_header_with_assembler() -> None:
    text = b"""
#ifdef __cplusplus
extern "C" {
#endif
static inline void lib_wait(void) { __asm volatile("nop"); }
#include "other.h"
#ifdef __cplusplus
}
#endif
"""
    read = read_declarations(read_lines(text))
    assert [include.inside for include in read.includes] == [False]
    assert read.is_clear and ["lib_wait" in each.head for each in read.found] == [True]


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argument",
    [
        "(q7_t *)$data", "&(const context){.buffer = $scratch}", "(int32_t[2]){$height, -$width}",
        "$height > 0 ? ~$height : !$width", "&(struct a){{1}, {$height}}", 'f("f((", $height)',
        "(void (*)(int))$data", "&table[$height]->member", "(T)($height), int, sizeof(T)",
        "$data\n + INT32_C(3) * $height", "(*select($height))($data)", "((')', $height))",
    ],
)  # fmt: skip
def test_arguments_may_be_any_expressions(argument: str) -> None:
    text = read_expression(f"call({argument}, $result)")
    assert text.function == "call" and "$result" in text.arguments
    assert {*text.names} == {*re.findall(r"\$(\w+)", argument), "result"}
    assert "call" in text.identifiers and not {"height", "_height"} & text.identifiers


def test_no_bracket_may_be_missing() -> None:
    for text in (CONVOLVE, CONVOLVE_BYTES):
        for place, letter in enumerate(text):
            if letter in "()[]{}":
                with pytest.raises(BackendError, match="is not one expression of C: near"):
                    read_expression(text[:place] + text[place + 1 :])


def test_a_call_with_fewer_arguments_than_declared_is_refused(
    model: AOTModel, tmp_path: Path
) -> None:
    backend = Library(tmp_path)
    backend.patterns.clear()
    backend._register_kernel(patterns.qconv2d(), "lib_convolve($data, $weights, $result)")
    with pytest.raises(BackendError, match=r"with 3 arguments, and .* declares it with 10: "):
        compile_model(model.module, [backend], tmp_path / "library")
    assert not (tmp_path / "library").exists()


class Empty(UMABackend):
    """A backend that registers what a test says."""

    @property
    def target_name(self) -> str:
        return "empty"


POOL = patterns.qmax_pool2d()
ADD = patterns.qadd()


@pytest.mark.parametrize(
    ("pattern", "call", "scratch", "words"),
    [
        (POOL, "f($data, $result", None, "is not one expression of C: near"),
        (POOL, "f($data, $result));", None, "is not one expression of C"),
        (POOL, "f($data, $result); g()", None, r"one expression of C: near 'f\(\$data, \$result"),
        (POOL, "f($data,, $result)", None, "is not one expression of C"),
        (POOL, "1; } int g(void) { return 0", None, "is not one expression of C"),
        (POOL, "f($data, $result) // more\n", None, "has a comment"),
        (POOL, "", None, "it is empty"),
        (POOL, "f(${data}, $result)", None, r"a \$ that begins no name"),
        (POOL, 'f("$data", $data, $result)', None, r"has \$data where no operand can stand"),
        (POOL, "f($data, x.$result)", None, r"has \$result where no operand can stand"),
        (POOL, "nova_$data($data, $result)", None, r"has \$data where no operand can stand"),
        (POOL, "$data($result)", None, "calls no function by its name"),
        (POOL, "f($data, $result) + 1", None, "calls no function by its name"),
        (POOL, "f($data, $result, $heigth)", None, r"has \$heigth, which is no name of the layer"),
        (POOL, "f($left, $result)", None, r"there are \$data, \$result, \$batch, \$height"),
        (POOL, "f($data, $height)", None, r"has no \$result"),
        (ADD, "f($left, $result)", None, r"has no \$right"),
        (POOL, "f($data, $scratch, $result)", None, "give it as scratch="),
        (POOL, "f($data, $result)", "64", r"has no \$scratch"),
        (POOL, "f($data, $scratch, $result)", "g($data)", r"the scratch of .* has \$data"),
        (POOL, "f($data, $scratch, $result)", "g(", "the scratch of .* is not one expression"),
        (POOL, "f($data, $scratch, $result)", "(void)g()", "has no value"),
        (POOL, "f($data, $scratch, $result)", 64, "64, which is neither C nor a function"),
        (POOL, lambda: 1, None, "the call of pattern qmax_pool2d is no text"),
        ("qmax_pool2d", "f($data, $result)", None, "got no pattern of umakit.patterns"),
    ],
)
def test_texts_that_are_no_calls_are_refused_with_file_and_line(
    pattern: Any, call: Any, scratch: Any, words: str
) -> None:
    backend = Empty()
    with pytest.raises(BackendError, match=words) as raised:
        backend._register_kernel(pattern, call, scratch=scratch)
    assert re.fullmatch(r".*test_kernel_calls\.py:\d+", raised.value.where)
    assert backend.patterns == [] and backend.kernels == {}


@pytest.mark.parametrize(
    ("scratch", "words"),
    [
        ("lib_convolve_bytes($batch)", "cannot be evaluated: .*too few arguments"),
        ("lib_unknown_bytes($batch)", "cannot be evaluated: .*lib_unknown_bytes"),
        ("$batch - 2", "the scratch of pattern qconv2d is -1 bytes"),
        ("1 / ($batch - 1)", "cannot be evaluated: the library's function ended"),
        ("(int64_t)1 << 31", "is 2147483648 bytes"),
        (lambda layer: 1.5, "is 1.5, which is no number of bytes"),
        (lambda layer: layer.nothing, "raised AttributeError"),
    ],
)
def test_sizes_that_cannot_be_had_are_refused_with_file_and_line(
    scratch: Any, words: str, tmp_path: Path
) -> None:
    backend = Library(tmp_path)
    backend.patterns.clear()
    backend._register_kernel(patterns.qconv2d(), CONVOLVE, scratch=scratch)
    layer = example(patterns.QConv2d, "int8", False, False)
    with pytest.raises(BackendError, match=words) as raised:
        scratch_bytes(backend, backend.kernels["qconv2d"], layer)
    if isinstance(scratch, str):
        assert re.fullmatch(r".*test_kernel_calls\.py:\d+", raised.value.where)


def test_nothing_is_written_if_a_size_cannot_be_had(model: AOTModel, tmp_path: Path) -> None:
    backend = Library(tmp_path)
    backend.patterns.clear()
    backend._register_kernel(patterns.qconv2d(), CONVOLVE, scratch="$batch - 2")
    with pytest.raises(BackendError, match=r"test_kernel_calls\.py:\d+: the scratch of .* is -1"):
        compile_model(model.module, [backend], tmp_path / "library")
    assert not (tmp_path / "library").exists()
