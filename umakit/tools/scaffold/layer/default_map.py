# SPDX-License-Identifier: Apache-2.0
"""The register map of a new backend without a map of its own."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from umakit.machine.registers.register_map import ANY
from umakit.text.c_text import read_expression
from umakit.tools.scaffold.layer.functions import DriverFunction

Texts = Mapping[str, str]
"""C texts by operator; `any` for all operators that have these arguments."""

ROUNDINGS = ("tflm", "ort")
"""Names accepted by `uma new`, in the order of `enum umakit_rounding` (`umakit/requantize.h`). They
are not imported, because the import would need TVM."""

POOLS = ("avg_pool2d", "max_pool2d")
ELEMENTS = ("add", "multiply")


def _dense(text: str, any_text: str, **more: str) -> Texts:
    return {"any": any_text, "dense": text, **more}


def _pools(text: str) -> dict[str, str]:
    return dict.fromkeys(POOLS, text)


ADDRESSES: Sequence[tuple[str, Texts, str]] = (
    ("DATA", {"any": "$data", **dict.fromkeys(ELEMENTS, "$left")}, "the data"),
    ("WEIGHTS", {"any": "$weights"}, "the weights, output channels x rows x columns x inputs"),
    ("RIGHT", {"any": "$right"}, "the right operand of a sum or product"),
    ("BIAS", {"any": "$bias"}, "the bias, 32 bits for each output channel"),
    ("MULTIPLIERS", {"any": "$multipliers"}, "the multipliers of the scales, 32 bits each"),
    ("SHIFTS", {"any": "$shifts"}, "the shifts of the scales, 8 bits each"),
    ("RESULT", {"any": "$result"}, "the result"),
)

NUMBERS: Sequence[tuple[str, Texts, str]] = (
    ("BATCH", _dense("1", "$batch"), "Images"),
    ("INPUT_HEIGHT", _dense("$rows", "$height"), "Rows of the data"),
    ("INPUT_WIDTH", _dense("1", "$width"), "Columns of the data"),
    (
        "INPUT_CHANNELS",
        _dense("$inputs", "$input_channels", **_pools("$channels")),
        "Channels of the data",
    ),
    ("OUTPUT_HEIGHT", _dense("$rows", "$output_height"), "Rows of the result"),
    ("OUTPUT_WIDTH", _dense("1", "$output_width"), "Columns of the result"),
    (
        "OUTPUT_CHANNELS",
        _dense("$outputs", "$output_channels", **_pools("$channels")),
        "Channels of the result",
    ),
    ("GROUPS", _dense("1", "$groups"), "Groups of channels: 1, or as many as channels of the data"),
    ("ELEMENTS", {"any": "$elements"}, "Elements of a sum or product"),
    ("SCALES", {"any": "$scales"}, "Multipliers and shifts: 1, or one for each output channel"),
    (
        "INPUT_ZERO_POINT",
        {"any": "$input_zero_point", **dict.fromkeys(ELEMENTS, "$left_zero_point")},
        "Zero point of the data",
    ),
    ("RIGHT_ZERO_POINT", {"any": "$right_zero_point"}, "Zero point of the right operand"),
    ("OUTPUT_ZERO_POINT", {"any": "$output_zero_point"}, "Zero point of the result"),
    ("LEFT_SHIFT", {"any": "$left_shift"}, "Left shift of both operands of a sum, in bits"),
    ("LEFT_MULTIPLIER", {"any": "$left_multiplier"}, "Multiplier of the left operand"),
    ("LEFT_MULTIPLIER_SHIFT", {"any": "$left_multiplier_shift"}, "Shift of the left operand"),
    ("RIGHT_MULTIPLIER", {"any": "$right_multiplier"}, "Multiplier of the right operand"),
    ("RIGHT_MULTIPLIER_SHIFT", {"any": "$right_multiplier_shift"}, "Shift of the right operand"),
    ("MULTIPLIER", {"any": "$multiplier"}, "Multiplier of a sum or product"),
    ("SHIFT", {"any": "$shift"}, "Shift of a sum or product"),
    (
        "ROUNDING",
        {"any": "$rounding", **_pools("0")},
        "How products with a scale are rounded, an enum umakit_rounding",
    ),
)

FIELDS: Sequence[tuple[str, str, Sequence[tuple[str, int, Texts]]]] = (
    (
        "WINDOW",
        "Rows and columns of the kernel or window",
        (
            ("HEIGHT", 8, _dense("1", "$kernel_height", **_pools("$window_height"))),
            ("WIDTH", 8, _dense("1", "$kernel_width", **_pools("$window_width"))),
        ),
    ),
    (
        "STRIDE",
        "Rows and columns from one window to the next",
        (("Y", 8, _dense("1", "$stride_y")), ("X", 8, _dense("1", "$stride_x"))),
    ),
    (
        "PADDING",
        "Rows above and columns left of the data",
        (("TOP", 8, _dense("0", "$pad_top")), ("LEFT", 8, _dense("0", "$pad_left"))),
    ),
    (
        "DILATION",
        "Rows and columns from one element of the kernel to the next",
        (("Y", 8, _dense("1", "$dilation_y")), ("X", 8, _dense("1", "$dilation_x"))),
    ),
    (
        "LAYOUT",
        "Order of the axes of data and result",
        (("CHANNELS_FIRST", 1, _dense("0", "$channels_first")),),
    ),
    (
        "CLIP",
        "Limits of the result",
        (("LOWEST", 8, {"any": "$lowest"}), ("HIGHEST", 8, {"any": "$highest"})),
    ),
)

SIZE, ZERO_POINT = "least = 1", "least = -128\nhighest = 127"
MULTIPLIER, SCALE_SHIFT = "least = 0\nhighest = 0x7FFFFFFF", "least = -31\nhighest = 30"

LIMITS: Mapping[str, str] = {
    **dict.fromkeys(("BATCH", "INPUT_HEIGHT", "INPUT_WIDTH", "OUTPUT_HEIGHT"), SIZE),
    **dict.fromkeys(("OUTPUT_WIDTH", "GROUPS", "ELEMENTS"), SIZE),
    "INPUT_CHANNELS": SIZE,
    "OUTPUT_CHANNELS": SIZE,
    **dict.fromkeys(("INPUT_ZERO_POINT", "RIGHT_ZERO_POINT", "OUTPUT_ZERO_POINT"), ZERO_POINT),
    "LEFT_SHIFT": "least = 0\nhighest = 22",
    **dict.fromkeys(("LEFT_MULTIPLIER", "RIGHT_MULTIPLIER", "MULTIPLIER"), MULTIPLIER),
    **dict.fromkeys(("LEFT_MULTIPLIER_SHIFT", "RIGHT_MULTIPLIER_SHIFT", "SHIFT"), SCALE_SHIFT),
    "SCALES": 'one_of = ["1", "OUTPUT_CHANNELS"]',
    **dict.fromkeys(("WINDOW.HEIGHT", "WINDOW.WIDTH"), SIZE),
    **dict.fromkeys(("STRIDE.Y", "STRIDE.X", "DILATION.Y", "DILATION.X"), SIZE),
    **dict.fromkeys(("PADDING.TOP", "PADDING.LEFT"), "least = 0"),
    "LAYOUT.CHANNELS_FIRST": "highest = 1",
    "CLIP.LOWEST": 'least = -128\nnot_above = "CLIP.HIGHEST"',
    "CLIP.HIGHEST": ZERO_POINT,
}
"""Ranges of registers and fields for drivers, by name."""

GROUPED = ("INPUT_CHANNELS", "OUTPUT_CHANNELS")
"""Registers with multiples of the groups."""

CONTROL = """\
# The register map of the {name}: the one source of its header, driver and simulator.
#
# Yours to change: put in the registers of your hardware. `operand` is what the driver writes before
# a job: C text in which $name is an argument of the layer, for all operators that have it, or one
# text for each operator. `least`, `highest`, `one_of` and `not_above` are the numbers that drivers
# send there: `uma check --rtl` tries no others. `uma new --update .` then writes
# {name}_registers.h, {name}.c, simulator/{name}_simulator.c and registers.md anew, and with
# systemverilog = "rtl" a package in that folder. Offsets are in bytes; access is "ro", "wo" or
# "rw".

name = "{name}"
description = "Computes a layer at a time, with {operators}."

[job]
start = "CONTROL.START"
stop = "CONTROL.STOP"
busy = "STATUS.BUSY"
error = "ERROR"
identity = "ID"

[[register]]
name = "ID"
offset = 0x00
access = "ro"
reset = 0x{identity:08X}
description = "Constant: the driver compares it before it writes anything."

[[register]]
name = "CONTROL"
offset = 0x04
access = "wo"
description = "Commands."

[[register.field]]
name = "START"
lowest_bit = 0
width = 1
description = "Start the job that the registers describe."

[[register.field]]
name = "STOP"
lowest_bit = 1
width = 1
description = "Stop a running job and clear ERROR."

[[register]]
name = "STATUS"
offset = 0x08
access = "ro"
description = "State of the device. The interrupt is raised when a job has ended."

[[register.field]]
name = "BUSY"
lowest_bit = 0
width = 1
description = "A job is running."

[[register]]
name = "ERROR"
offset = 0x0C
access = "ro"
description = "How the last job ended: 0, or an enum umakit_status."
"""


def default_map(name: str, functions: Sequence[DriverFunction], roundings: Sequence[str]) -> str:
    """Return the TOML text of a register map for the operators of a driver."""
    operators = list(dict.fromkeys(each.operator for each in functions))
    parts = [
        CONTROL.format(
            name=name, operators=", ".join(operators), identity=zlib.crc32(name.encode())
        )
    ]
    offset = 0x10
    if len(operators) > 1:
        numbers = {operator: str(number) for number, operator in enumerate(operators)}
        parts.append(_register("OPERATION", offset, "What to compute.", numbers))
        parts += [
            f'\n[[register.value]]\nname = "{operator.upper()}"\nvalue = {number}\n'
            for operator, number in numbers.items()
        ]
        offset += 4
    rows = [(f"{key}_ADDRESS", texts, f"Bus address of {what}.") for key, texts, what in ADDRESSES]
    rows += [(key, texts, f"{what}.") for key, texts, what in NUMBERS]
    for key, texts, what in rows:
        chosen = _chosen(texts, functions)
        if chosen:
            limits = _limits(key, functions)
            if key == "ROUNDING":  # pools are told 0
                limits = f"highest = {max(map(ROUNDINGS.index, roundings))}\n"
            parts.append(_register(key, offset, what, chosen) + limits)
            offset += 4
    for key, what, fields in FIELDS:
        chosen_fields = [
            (field, width, _chosen(texts, functions)) for field, width, texts in fields
        ]
        if any(texts for _, _, texts in chosen_fields):
            parts.append(_register(key, offset, f"{what}.", {}))
            for number, (field, width, texts) in enumerate(chosen_fields):
                place = f"lowest_bit = {number * 16}\nwidth = {width}\n{_operand(texts)}"
                place += _limits(f"{key}.{field}", functions)
                parts.append(f'\n[[register.field]]\nname = "{field}"\n{place}')
            offset += 4
    return "".join(parts)


def _chosen(texts: Texts, functions: Sequence[DriverFunction]) -> dict[str, str]:
    """Return the texts that some function needs; `any` only if a function has these arguments."""
    found = {}
    for key, text in texts.items():
        names = set(read_expression(text).names)
        fitting = [
            each for each in functions
            if (key == each.operator or (key == "any" and each.operator not in texts))
            and names <= set(each.operands)
        ]  # fmt: skip
        if fitting:
            found[key] = text
    return found if any(text.startswith("$") for text in found.values()) else {}


def _register(name: str, offset: int, description: str, texts: Texts) -> str:
    lines = ["", "[[register]]", f'name = "{name}"', f"offset = 0x{offset:02X}", 'access = "rw"']
    return "\n".join([*lines, f'description = "{description}"', ""]) + _operand(texts)


def _limits(key: str, functions: Sequence[DriverFunction]) -> str:
    """Return lines with the range of a register or field for drivers; empty without limits."""
    lines = LIMITS.get(key, "")
    if key in GROUPED and any("groups" in each.operands for each in functions):
        lines += f'\none_of = ["{key} / GROUPS * GROUPS"]'
    return f"{lines}\n" if lines else ""


def _operand(texts: Texts) -> str:
    if not texts:
        return ""
    if list(texts) == [ANY]:
        return f'operand = "{texts[ANY]}"\n'
    pairs = ", ".join(f'{key} = "{text}"' for key, text in texts.items())
    return f"operand = {{ {pairs} }}\n"
