# SPDX-License-Identifier: Apache-2.0
"""`uma new --kind layer`: any register map gives a driver and a simulator that are right."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from comparisons import examples
from hypothesis import Phase, given
from hypothesis import strategies as st

from umakit import compile_model, sim
from umakit.backend import load_backend_folder
from umakit.errors import RegisterMapError, ScaffoldError
from umakit.testing import QuantizedNetwork, compile_and_run
from umakit.tools.scaffold import new_backend

STRICT = "-std=c99 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only".split()

SIZES = {  # argument of a convolution, and of a fully connected layer where it has one
    "height": "$rows", "width": "1", "input_channels": "$inputs", "output_height": "$rows",
    "output_width": "1", "output_channels": "$outputs", "kernel_height": "1", "kernel_width": "1",
    "input_zero_point": "$input_zero_point", "output_zero_point": "$output_zero_point",
    "lowest": "$lowest", "highest": "$highest",
}  # fmt: skip
OPTIONAL = {
    "batch": "1", "stride_y": "1", "stride_x": "1", "pad_top": "0", "pad_left": "0",
    "dilation_y": "1", "dilation_x": "1", "groups": "1", "scales": "$scales",
    "rounding": "$rounding", "channels_first": "0",
}  # fmt: skip
TENSORS = ("data", "weights", "bias", "multipliers", "shifts", "result")
WIDTHS = {"kernel": 4, "stride": 3, "pad": 3, "dilation": 2, "low": 9, "high": 9}

CONTROL = """\
name = "drawn"
[job]
start = "GO.RUN"
error = "ENDED"
{more}
[[register]]
name = "GO"
offset = 0x0
access = "wo"
[[register.field]]
name = "RUN"
lowest_bit = 5
width = 1
[[register]]
name = "ENDED"
offset = 0x4
access = "ro"
[[register]]
name = "RUNS"
offset = 0x8
access = "ro"
"""


@st.composite
def register_maps(draw: Any) -> str:
    """A map with registers or a descriptor, in any order, with gaps, fields and sums."""
    has_descriptor = draw(st.booleans())
    kept = [name for name in OPTIONAL if draw(st.booleans())]
    for pair in (("stride_y", "stride_x"), ("pad_top", "pad_left"), ("dilation_y", "dilation_x")):
        if len(set(pair) & set(kept)) == 1:
            kept = [name for name in kept if name not in pair]
    tells = draw(st.booleans())
    if not tells:  # what else would tell a depthwise convolution from another one?
        kept = [*(name for name in kept if name != "groups"), "groups"]
    names = draw(st.permutations([*TENSORS, *SIZES, *kept]))
    more = 'busy = "RUNS"\n' if draw(st.booleans()) else ""
    more += 'stop = "GO"\n' if draw(st.booleans()) else ""
    entries, fields, offset = [], [], 0x10
    if tells:
        entries.append(("KIND", 'operand = { conv2d = "7", depthwise = "9", dense = "3" }\n'))
    for name in names:
        convolution, dense = _texts(draw, name)
        wide = f'operand = {{ any = "{convolution}", dense = "{dense}" }}\n'
        width = next((bits for key, bits in WIDTHS.items() if name.startswith(key)), 0)
        if width and draw(st.booleans()):
            fields.append((name.upper(), width, wide))
        else:
            entries.append((name.upper(), wide))
    for start in range(0, len(fields), 3):
        bit, text = 0, ""
        key = "descriptor.word" if has_descriptor else "register"
        for name, width, operand in fields[start : start + 3]:
            text += f'[[{key}.field]]\nname = "{name}"\nlowest_bit = {bit}\nwidth = {width}\n'
            text += operand
            bit += width + draw(st.integers(0, 2))
        entries.append((f"FIELDS_{start}", text))
    text = CONTROL.format(more=more)
    if has_descriptor:
        text += '[[register]]\nname = "JOB"\noffset = 0x20\naccess = "rw"\n[descriptor]\n'
        alignment = draw(st.sampled_from([4, 16, 64]))
        text += f'register = "JOB"\nalignment = {alignment}\n'
    for name, entry in entries:
        if has_descriptor:
            text += f'[[descriptor.word]]\nname = "{name}"\n{entry}'
        else:
            access = draw(st.sampled_from(["rw", "wo"]))
            text += f'[[register]]\nname = "{name}"\noffset = {offset}\naccess = "{access}"\n'
            text += entry
            offset += 4 * draw(st.integers(1, 3))
    return text


def _texts(draw: Any, name: str) -> tuple[str, str]:
    """C texts of an argument in a convolution and in a fully connected layer."""
    if name in TENSORS:
        return f"${name}", f"${name}"
    added = draw(st.integers(-1, 1)) if name in SIZES else 0
    dense = (SIZES | OPTIONAL)[name]
    if not added:
        return draw(st.sampled_from([f"${name}", f"( ${name} )", f"${name} - 0"])), dense
    end = f" {'+' if added > 0 else '-'} {abs(added)}"
    return f"${name}{end}", f"{dense}{end}" if dense.startswith("$") else str(int(dense) + added)


def network(rounding: str = "tflm", layout: str = "NHWC") -> Any:
    image = QuantizedNetwork(7, 6, 4, rounding=rounding, layout=layout)
    return image.conv2d(5).conv2d(5, depthwise=True).conv2d(3, (2, 1)).dense(4).model()


def placed(backend: Any, model: Any, folder: Path) -> dict[str, str]:
    """Where layers run, by operator and name, of a network whose results are right."""
    report = compile_and_run(model, backend, test_dir=folder)
    return {
        f"{row.operator} {row.name}": row.where
        for row in report.offload.placements
        if row.operator.startswith("quantized.")
    }


def check_strictly(folder: Path, name: str) -> None:
    include = ["-I", str(sim.source_directory() / "include"), "-I", str(folder)]
    figures = ["-DMACS_PER_CYCLE=4", "-DBYTES_PER_CYCLE=8"]
    for source in (folder / f"{name}.c", folder / "simulator" / f"{name}_simulator.c"):
        subprocess.run(["cc", *STRICT, *include, *figures, str(source)], check=True)


@examples(4, phases=[Phase.explicit, Phase.generate])  # shrinking would compile for minutes
@given(text=register_maps())
def test_any_register_map_gives_a_driver_that_is_right(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("map")
    written = new_backend("drawn_npu", folder, kind="layer", registers=text)
    check_strictly(written.folder, "drawn_npu")
    backend = load_backend_folder(written.folder)
    places = placed(backend, network(), folder / "out")
    # What a map does not say, the accelerator does not do: such layers stay on the CPU.
    convolutions = [where for layer, where in places.items() if "dense" not in layer]
    expected = {"drawn_npu"} if "$pad_top" in text else {"cpu", "drawn_npu"}
    assert set(convolutions) <= expected
    assert [where for layer, where in places.items() if "dense" in layer] == ["drawn_npu"]


BROKEN = {
    "a bit twice": (
        'name = "WIDTH"\nlowest_bit = 16', 'name = "WIDTH"\nlowest_bit = 7',
        r"registers\.toml:\d+: .*WIDTH overlaps another field",
    ),
    "a misspelt argument": (
        '"$batch"', '"$bach"', r"registers\.toml:\d+: BATCH: .*\$bach; write \$batch"
    ),
    "a misspelt operator": (
        "dense =", "dens =", r"registers\.toml:\d+: .*no operator 'dens'; write dense"
    ),
    "not C": ('"$scales"', '"$scales +"', r"registers\.toml:\d+: .*SCALES is not one expression"),
    "a misspelt key": ("access = ", "acess = ", r"registers\.toml:\d+: .*acess.*write access"),
    "no such register": ('busy = "STATUS.BUSY"', 'busy = "STATE"', r"there is no STATE in the map"),
    "a size that no register says": (
        'operand = { any = "$height"', 'operand = { any = "$height / 2"',
        r"no register says \$height of conv2d as it is; give one operand",
    ),
    "an address that is computed": ('"$bias"', '"$bias + 4"', r"\$bias is a tensor"),
    "operators that look the same": (
        'operand = { conv2d = "0", depthwise = "1", add = "2", dense = "3" }',
        'operand = "0"', r"no register tells add from conv2d",
    ),
    "read only": (
        'access = "rw"\ndescription = "Images."', 'access = "ro"\ndescription = "Images."',
        r"registers\.toml:\d+: .*BATCH is read only",
    ),
    "two registers at one place": ("offset = 0x34", "offset = 0x38", "offset 0x38 is used twice"),

    "no TOML": ("[job]", "[job", r"is not valid TOML: .*line \d+"),
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A map that `uma new` writes."""
    folder = tmp_path_factory.mktemp("sound")
    flags = {"operators": "conv2d,depthwise,add,dense"}
    written = new_backend("my_npu", folder, kind="layer", flags=flags)
    return (written.folder / "registers.toml").read_text()


@pytest.mark.parametrize("case", BROKEN)
def test_a_map_that_is_not_sound_is_refused_with_its_line(
    case: str, sound: str, tmp_path: Path
) -> None:
    old, new, message = BROKEN[case]
    assert old in sound
    flags = {"operators": "conv2d,depthwise,add,dense"}
    with pytest.raises(RegisterMapError, match=message):
        text = sound.replace(old, new, 1)
        new_backend("my_npu", tmp_path, kind="layer", flags=flags, registers=text)
    assert list(tmp_path.iterdir()) == []


def test_a_map_without_simulator_is_refused(sound: str, tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="nothing would answer the driver"):
        flags = {"simulator": "none"}
        new_backend("my_npu", tmp_path, kind="layer", flags=flags, registers=sound)


def test_a_number_that_does_not_fit_its_field_keeps_a_layer_on_the_cpu(
    sound: str, tmp_path: Path
) -> None:
    flags = {"operators": "conv2d,depthwise,add,dense"}
    text = re.sub(r'(name = "X"\nlowest_bit = 16\nwidth = )8\n(operand = \{ any = "\$stride)',
                  r"\g<1>1\n\2", sound)  # fmt: skip
    written = new_backend("my_npu", tmp_path, kind="layer", flags=flags, registers=text)
    model = QuantizedNetwork(8, 8, 4).conv2d(4).conv2d(4, stride=2).model()
    report = compile_and_run(model, load_backend_folder(written.folder))
    found = [(row.where, row.reason) for row in report.offload.placements]
    assert found == [("my_npu", ""), ("cpu", "stride_x 2: its register holds 0 to 1")]


def test_what_the_hardware_computes_itself_is_a_constraint(sound: str, tmp_path: Path) -> None:
    fields = r'\[\[register.field\]\]\nname = "(X|WIDTH)"\n[^[]*\$(stride_x|kernel_width)[^[]*'
    text, count = re.subn(fields, "", sound)
    assert count == 2
    text += '[mock]\nkernel_width = "$kernel_height"\nstride_x = "$stride_y"\n'
    text += 'output_width = "($INPUT_WIDTH + 2 * $pad_left - $kernel_width) / $stride_x + 1"\n'
    flags = {"operators": "conv2d"}
    written = new_backend("my_npu", tmp_path, kind="layer", flags=flags, registers=text)
    check_strictly(written.folder, "my_npu")
    network = QuantizedNetwork(8, 9, 2).conv2d(4, 3).conv2d(4, (3, 1)).conv2d(4, 3, stride=(1, 2))
    model = network.conv2d(3, 2).model()  # with a column of padding on the right
    report = compile_and_run(model, load_backend_folder(written.folder))
    assert [(row.where, row.reason) for row in report.offload.placements] == [
        ("my_npu", ""),
        ("cpu", "kernel_width 1: the accelerator computes it as 3"),
        ("cpu", "stride_x 2: the accelerator computes it as 1"),
        ("cpu", "output_width 5: the accelerator computes it as 4"),
    ]
    other = text.replace(
        'kernel_width = "$kernel_height"', 'kernel_width = "$stride_y > 3 ? 3 : 1"'
    )
    with pytest.raises(RegisterMapError, match=r"mock\.kernel_width: layers cannot be compared"):
        new_backend("other", tmp_path, kind="layer", flags=flags, registers=other)


def test_the_mock_says_what_a_driver_does_wrong(tmp_path: Path) -> None:
    folder = new_backend("my_npu", tmp_path, kind="layer").folder
    driver = folder / "my_npu.c"
    text = driver.read_text()
    model = QuantizedNetwork(4, 4, 2).conv2d(2).model()
    for old, new, sentence in (
        ("{MY_NPU_BATCH_OFFSET,", "{MY_NPU_ERROR_OFFSET,", "writes ERROR, which it may not"),
        ("{MY_NPU_BATCH_OFFSET,", "{0x7FCu,", "writes offset 0x7fc, where there is no register"),
    ):
        driver.write_text(text.replace(old, new, 1))
        with pytest.raises(Exception, match=sentence):
            compile_and_run(model, load_backend_folder(folder), test_dir=tmp_path / "out")


def test_a_library_has_no_file_of_the_record_of_uma_new(tmp_path: Path) -> None:
    backend = load_backend_folder(new_backend("my_npu", tmp_path, kind="layer").folder)
    model = QuantizedNetwork(4, 4, 2).conv2d(2).model()
    library = compile_model(model.module, [backend], tmp_path / "library", name="network").path
    assert (backend.folder / ".umakit").is_dir()
    assert [path for path in library.rglob("*") if ".umakit" in path.parts] == []


def test_a_fully_connected_layer_may_be_a_convolution_of_one_column(tmp_path: Path) -> None:
    flags = {"operators": "conv2d,dense"}
    first = new_backend("my_npu", tmp_path / "first", kind="layer", flags=flags)
    text = (first.folder / "registers.toml").read_text()
    one = text.replace('{ conv2d = "0", dense = "1" }', '"0"')
    written = new_backend("my_npu", tmp_path / "one", kind="layer", flags=flags, registers=one)
    places = placed(load_backend_folder(written.folder), network(), tmp_path / "out")
    assert places["quantized.dense dense4"] == "my_npu"
    other = one.replace('any = "$height", dense = "$rows"', 'any = "$height + 1", dense = "$rows"')
    with pytest.raises(RegisterMapError, match=r'INPUT_HEIGHT: .*write dense = "\$rows \+ 1"'):
        new_backend("my_npu", tmp_path / "two", kind="layer", flags=flags, registers=other)


def test_a_computed_number_that_does_not_fit_keeps_a_layer_on_the_cpu(
    sound: str, tmp_path: Path
) -> None:
    """The map is of hardware with more operators than are asked for."""
    line = '[[register]]\nname = "LINE"\noffset = 0x400\naccess = "wo"\n'
    line += '[[register.field]]\nname = "BYTES"\nlowest_bit = 0\nwidth = 5\n'
    line += 'operand = { conv2d = "($width * $input_channels + 7u) / 8" }\n'
    line += '[[register]]\nname = "PLANE"\noffset = 0x404\naccess = "wo"\n'
    line += 'operand = { conv2d = "$height * $width" }\n'
    flags = {"operators": "conv2d"}
    written = new_backend("my_npu", tmp_path, kind="layer", flags=flags, registers=sound + line)
    check_strictly(written.folder, "my_npu")
    model = QuantizedNetwork(8, 31, 8).conv2d(16, 3, 2).conv2d(17).conv2d(4).model()
    report = compile_and_run(model, load_backend_folder(written.folder))
    found = [(row.where, row.reason) for row in report.offload.placements]
    too_long = "(width * input_channels + 7u) / 8 34: its register holds 0 to 31"
    assert found == [("my_npu", ""), ("cpu", too_long.replace("34", "32")), ("cpu", too_long)]
