# SPDX-License-Identifier: Apache-2.0
"""Faults of a backend are refused with file, line and mend, before C is written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from umakit.cli.main import run_command

from umakit import tvm_api
from umakit.devices import execution
from umakit.testing import QuantizedNetwork, conv2d_model

ROOT = Path(__file__).parents[1]
VANILLA, LANES, NOVA = "vanilla_accelerator", "lane_npu", "nova_nn"
CHOCOLATE = "chocolate_accelerator"
RUN = f"{VANILLA}_conv2dnchw"

CASES = {
    "a function that is nowhere": (
        VANILLA, "passes.py", f'"{RUN}"', f'"{RUN}s"',
        rf"passes\.py:11: kernel \w+ calls {RUN}s, which conv2dnchw\.h and conv2dnchw\.c neither "
        rf"declare nor define; write {RUN} \(\S+/conv2dnchw\.h:29\), or declare it",
    ),
    "an argument less": (
        VANILLA, "passes.py", "*pointers, oc, ", "*pointers, ",
        rf"passes\.py:36: kernel \w+ calls {RUN} with 8 arguments, and \S+/conv2dnchw\.h:29 "
        "declares it with 9: ifmap, weights, result, oc, iw, ih, ic, kh, kw; give it",
    ),
    "a parameter less": (
        VANILLA, "conv2dnchw.h", "int iw, ", "",
        r"passes\.py:36: .* with 9 arguments, and \S+/conv2dnchw\.h:29 declares it with 8",
    ),
    "a pointer for a number": (
        VANILLA, "conv2dnchw.h", "const float *ifmap", "int ifmap",
        rf"passes\.py:36: .* gives {RUN} a pointer to float32 as argument 1 \(ifmap\), and "
        r"\S+/conv2dnchw\.h:29 declares it as int; declare it as a pointer",
    ),
    "a number for a pointer": (
        VANILLA, "passes.py", "[*pointers, oc", "[oc, *pointers",
        r"passes\.py:36: .* a number as argument 1 \(ifmap\), .* as float \*; give it tir.pointer",
    ),
    "elements of another type": (
        VANILLA, "conv2dnchw.h", "const float *weights", "const int8_t *weights",
        r"passes\.py:36: .* a pointer to float32 as argument 2 \(weights\), .* as int8_t \*",
    ),
    "no status": (
        LANES, "lane_npu.h", "int lane_npu_finish", "void lane_npu_finish",
        r"passes\.py:22: .* takes the status of lane_npu_finish, .* as void; let it return",
    ),
    "a pointer for an offset": (
        LANES, "lane_npu.h", "uint32_t data_buffer", "const int8_t *data_buffer",
        r"passes\.py:22: .* an offset in data \(uint32_t\) as argument 1 \(data_buffer\), "
        r"and \S+/lane_npu\.h:55 declares it as int8_t \*; declare it as uint32_t",
    ),
    "a function that the library lacks": (
        NOVA, "backend.py", "nova_fully_connected_s8(", "nova_fully_connect_s8(",
        r"backend\.py:49: pattern qdense calls nova_fully_connect_s8, which the library of "
        r"\[sources\] in accel\.toml neither declares nor defines; write nova_fully_connected_s8 "
        r"\(\S+/nova_nn_functions\.h:53\)",
    ),
    "a function for a layer that the network has not": (
        NOVA, "backend.py", "nova_softmax_s8(", "nova_softmaxes_s8(",
        r"backend\.py:71: pattern qsoftmax calls nova_softmaxes_s8, .* write nova_softmax_s8",
    ),
    "a size that the library does not compute": (
        NOVA, "backend.py", "nova_avgpool_s8_get_buffer_size(", "nova_avgpool_get_buffer_size(",
        r"backend\.py:61: the scratch of pattern qavg_pool2d calls nova_avgpool_get_buffer_size, "
        "which no file of the library defines; write nova_avgpool_s8_get_buffer_size",
    ),
    "an argument less in C text": (
        NOVA, "backend.py", "$length, ", "",
        r"backend\.py:71: pattern qsoftmax calls nova_softmax_s8 with 6 arguments, and \S+:71 "
        "declares it with 7: input, num_rows, row_size, mult, shift, diff_min, output",
    ),
    "pointers in another order": (
        NOVA, "backend.py", "nova_softmax_s8($data, $rows", "nova_softmax_s8($rows, $data",
        r"backend\.py:71: pattern qsoftmax gives nova_softmax_s8 a pointer to int8 as argument 2 "
        r"\(num_rows\), .* as int32_t",
    ),
    "loops that no pass replaced": (
        VANILLA, "passes.py", f'!= "{VANILLA}.conv2d"', f'!= "{VANILLA}.conv2"',
        rf"passes\.py:\d+: no TIR pass replaced the loops of composite {VANILLA}\.conv2d by a "
        rf'driver call; there are VanillaConv2DPass; write "{VANILLA}\.conv2d" instead of "',
    ),
    "a pass that returns nothing": (
        VANILLA, "passes.py", "    return tir.with_body(", "    tir.with_body(",
        r"passes\.py:\d+: the pass VanillaConv2DPass returned NoneType, which is no prim func; "
        "return the function itself",
    ),
    "a header of umakit's devices without a simulator": (
        VANILLA, "accel.toml", 'simulator = "mac_array"', 'simulator = "none"',
        r"conv2dnchw\.h:5: includes umakit/device\.h, which needs a simulator; \[device\] in "
        'accel.toml has simulator = "none"; choose a simulator there, or remove the include',
    ),
    "a header that umakit has not": (
        VANILLA, "conv2dnchw.h", "umakit/device.h", "umakit/devise.h",
        r"conv2dnchw\.h:5: includes umakit/devise\.h, which umakit has not; write umakit/device\.h",
    ),
    "an #error": (
        VANILLA, "conv2dnchw.c", f"int {RUN}(", f'/*\n#error "a"\n*/\n#error "b"\nint {RUN}(',
        r'conv2dnchw\.c:\d+: the driver still holds #error "b"; do what the line says, then',
    ),
    "a parameter of a layer misspelt": (
        CHOCOLATE, "passes.py", "composite.output_zero_point", "composite.output_zeropoint",
        r"no attribute 'output_zeropoint'\", .* mean output_zero_point\? \(\S+/passes\.py:\d+\)",
    ),
    "an option of a pattern misspelt": (
        LANES, "patterns.py", "weight_layout=blocks", "weightlayout=blocks",
        r"unexpected keyword argument 'weightlayout', did you mean weight_layout\? "
        r"\(\S+/patterns\.py:19\)",
    ),
    "a pattern misspelt": (
        LANES, "patterns.py", "patterns.qdepthwise", "patterns.qdepthwse",
        r"'qdepthwse', did you mean qdepthwise\? \(\S+/patterns\.py:21\)",
    ),
    "a registration misspelt": (
        LANES, "backend.py", "_register_completion", "_register_complete",
        r"'_register_complete', did you mean _register_completion\? \(\S+/backend\.py:22\)",
    ),
    "an operator misspelt": (
        VANILLA, "patterns.py", "relax.nn.conv2d", "relax.nn.conv2",
        r"relax\.nn\.conv2 is not registered, did you mean relax\.nn\.conv2d\? "
        r"\(\S+/patterns\.py:11\)",
    ),
    "a key misspelt": (
        VANILLA, "accel.toml", "columns", "colums",
        r"accel\.toml:9: array\.columns: is missing; write columns instead of colums",
    ),
    "a layout that there is not": (
        LANES, "patterns.py", '"NCHW")', '"NHCW")',
        r"patterns\.py:19: layout 'NHCW' is unknown; say NHWC or NCHW",
    ),
    "a rounding that there is not": (
        LANES, "patterns.py", '"ort")', '"orrt")',
        r"patterns\.py:19: rounding 'orrt' is unknown; say tflm, ort or even",
    ),
    "a predicate that is no function": (
        LANES, "patterns.py", "planner.accepts", "3",
        r"patterns\.py:19: predicate of pattern qconv2d_add is 3, which is no function",
    ),
    "a predicate of other arguments": (
        LANES, "patterns.py", "planner.accepts", "lambda layer, more: True",
        r"patterns\.py:19: predicate of pattern qconv2d_add takes \(layer, more\), and is called "
        "with 1 argument; let",
    ),
    "a pattern of another type": (
        VANILLA, "backend.py", "self._register_codegen(",
        "self._register_pattern('a', 3); self._register_codegen(",
        r"backend\.py:\d+: pattern a is 3, which is no pattern of tvm\.relax\.dpl",
    ),
    "text in the place of the function of includes": (
        VANILLA, "backend.py", "includes=gen_includes", "includes='a.h'",
        r"backend\.py:\d+: includes of _register_codegen is 'a\.h', which is no function",
    ),
    "an attribute of the target that there is not": (
        VANILLA, "backend.py", "self._register_codegen(",
        "type(self).target_name = 'other_npu'; self._register_target_attr('size', 3); "
        "self.target(sise=4); self._register_codegen(",
        r"backend\.py:\d+: target .*there is no attribute 'sise'; write size",
    ),
    "sources and headers of the driver swapped": (
        LANES, "backend.py", 'sources=["lane_npu.c"], headers=headers',
        'sources=headers, headers=["lane_npu.c"]',
        r"backend\.py:\d+: _register_driver got headers as sources .* write "
        r"sources=\['lane_npu\.c'\]",
    ),
    "a planner that is none": (
        LANES, "passes.py", "planner,\n", "3,\n",
        r"passes\.py:22: tiled_layer_pass got 3 as planner, which is no TilePlanner",
    ),
    "an argument of configure misspelt": (
        LANES, "passes.py", '"rounding",', '"roundin",',
        r"passes\.py:22: .* configure has no argument 'roundin'; write rounding, or choose from",
    ),
    "text in the place of a list of arguments": (
        LANES, "passes.py", "configure=CONFIGURE", "configure='rounding'",
        r"passes\.py:22: .* configure is 'rounding', which is no list of names",
    ),
    "an argument of configure less": (
        LANES, "passes.py", '"operation", ', "",
        r"passes\.py:22: kernel \w+ calls lane_npu_configure with 11 arguments, and "
        r"\S+/lane_npu\.h:36 declares it with 12",
    ),
    "an argument of begin of another type": (
        LANES, "passes.py", "begin=[machine.block_channels", "begin=['a'",
        r"passes\.py:22: .* begin is \['a', 16\], which is no list of integers",
    ),
    "a name of the layer misspelt": (
        NOVA, "backend.py", "$diff_min", "$diffmin",
        r"backend\.py:71: .* has \$diffmin, which is no name of the layer; write \$diff_min; there",
    ),
}  # fmt: skip
"""Backend, file, a text, its replacement, and what is said."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A network in a file for each backend."""
    folder = tmp_path_factory.mktemp("models")
    quantized = QuantizedNetwork(8, 8, 4).conv2d(8).pool2d("average").dense(5).model("quantized")
    one = conv2d_model(channels=3, height=8, width=8, filters=4, kernel=3)
    for model in (quantized, one):
        text = tvm_api.tvm.ir.save_json(model.module)
        (folder / f"{model.name}.json").write_text(text)
    paths = dict.fromkeys((LANES, NOVA, CHOCOLATE), folder / "quantized.json")
    return {**paths, VANILLA: folder / f"{one.name}.json"}


def copied(name: str, folder: Path) -> Path:
    """A copy of a backend in a user's folder."""
    source = next(p for p in (ROOT / "examples" / name, ROOT / "backends" / name) if p.exists())
    place = folder / name
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
    return place


@pytest.mark.parametrize("case", CASES)
def test_a_call_that_differs_from_its_declaration(
    case: str, models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend, file, old, new, wanted = CASES[case]
    folder, output = copied(backend, tmp_path), tmp_path / "out"
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    code = run_command(["compile", str(models[backend]), "-b", str(folder), "-o", str(output)])
    said = re.sub(r"^(\[|note:).*\n", "", capsys.readouterr().err, flags=re.M)
    assert code == 2 and not output.exists()
    assert said.count("\n") == 1 and re.search(wanted, said), said


def test_what_a_macro_or_a_header_of_others_may_declare_is_left_to_the_compiler(
    models: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(VANILLA, tmp_path)
    passes = folder / "passes.py"
    passes.write_text(passes.read_text().replace(f'"{RUN}"', f'"{RUN}s"'))
    header = folder / "conv2dnchw.h"
    before, model = header.read_text(), str(models[VANILLA])
    for more in (f"#define {RUN}s {RUN}\n", "#include <vendor.h>\n", "#define GLUE(a) a##s\n"):
        header.write_text(before.replace("#ifdef __cplusplus", f"{more}#ifdef __cplusplus", 1))
        assert more in header.read_text()
        assert run_command(["compile", model, "-b", str(folder), "-o", str(tmp_path / "o")]) == 0


def test_a_driver_that_polls_for_ever_ends_by_default_and_names_the_layer(
    models: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execution, "DEFAULT_TIMEOUT", 0.5)
    folder = copied(VANILLA, tmp_path)
    driver = folder / "conv2dnchw.c"
    loop = "{\n    for (volatile int turn = 0;; turn = 1) {}\n"
    begin = re.compile(rf"(int {RUN}\([^)]*\))\n\{{\n")
    driver.write_text(begin.sub(rf"\1\n{loop}", driver.read_text()))
    assert loop in driver.read_text()
    library, inputs = tmp_path / "out", tmp_path / "in.npz"
    np.savez(inputs, data=np.ones((1, 3, 8, 8), np.float32))
    command = ["compile", str(models[VANILLA]), "-b", str(folder), "-o", str(library)]
    assert run_command(command) == 0
    capsys.readouterr()
    assert run_command(["run", str(library), "-i", str(inputs)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    wanted = rf"layer 0, \S+ \({VANILLA}\): the program did not end within 0.5 s"
    assert re.search(wanted, said), said
