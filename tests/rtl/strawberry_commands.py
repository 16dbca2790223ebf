# SPDX-License-Identifier: Apache-2.0
"""Jobs and transfers of Strawberry as registers: valid ones, drawn at random."""

from __future__ import annotations

import random

from verilated_strawberry import CONFIG

SIZE = CONFIG.scratchpad_bytes
BUFFER = 1 << 16
"""Bytes of the buffer on the bus."""

Registers = dict[str, int]


def draw_sizes(random: random.Random, is_depthwise: bool) -> Registers:
    """Sizes of a window and of what it slides over."""
    kernel = [random.choice([1, 1, 2, 3, 3, 4]) for _ in "yx"]
    height, width = random.randint(1, 9), random.randint(1, 9)
    inputs = random.choice([1, 2, 3, 4, 7, 8, 9, 16, 24])
    outputs = inputs * random.choice([1, 1, 1, 2, 3]) if is_depthwise else random.randint(1, 20)
    sizes = {
        "INPUT_HEIGHT": height, "INPUT_WIDTH": width, "INPUT_CHANNELS": inputs,
        "OUTPUT_HEIGHT": random.randint(1, 7), "OUTPUT_WIDTH": random.randint(1, 7),
        "OUTPUT_CHANNELS": outputs, "KERNEL_HEIGHT": kernel[0], "KERNEL_WIDTH": kernel[1],
        "STRIDE_HEIGHT": random.choice([1, 1, 2, 3]), "STRIDE_WIDTH": random.choice([1, 1, 2, 3]),
        "DILATION_HEIGHT": random.choice([1, 1, 2]), "DILATION_WIDTH": random.choice([1, 1, 3]),
        "PAD_TOP": random.choice([0, 0, 1, 2]), "PAD_LEFT": random.choice([0, 0, 1, 3]),
    }  # fmt: skip
    if random.random() < 0.15:
        sizes.update(OUTPUT_HEIGHT=1, OUTPUT_WIDTH=1, KERNEL_HEIGHT=1, KERNEL_WIDTH=1)
    return sizes


def draw_strides(random: random.Random, sizes: Registers, name: str, size: str) -> Registers:
    """Strides of NHWC or NCHW, now and then with gaps."""
    height, width, channels = (sizes[f"{size}_{axis}"] for axis in ("HEIGHT", "WIDTH", "CHANNELS"))
    order = random.choice(["yxc", "yxc", "cyx", "xcy"])
    counts = dict(zip("yxc", (height, width, channels), strict=True))
    strides, stride = {}, 1
    for axis in reversed(order):
        strides[axis] = stride
        stride *= counts[axis]
        stride += random.choice([0, 0, 0, 1, 5])
    return {f"{name}_ROW_STRIDE": strides["y"], f"{name}_COLUMN_STRIDE": strides["x"],
            f"{name}_CHANNEL_STRIDE": strides["c"]}  # fmt: skip


def extent(registers: Registers, name: str, size: str) -> int:
    """Bytes from the first to the last one of a tensor."""
    return 1 + sum(
        (registers[f"{size}_{axis}"] - 1) * registers[f"{name}_{stride}_STRIDE"]
        for axis, stride in (("HEIGHT", "ROW"), ("WIDTH", "COLUMN"), ("CHANNELS", "CHANNEL"))
    )


def operand_bytes(registers: Registers) -> dict[str, int]:
    """Bytes of each operand and of the result."""
    outputs, window = registers["OUTPUT_CHANNELS"], registers["KERNEL_HEIGHT"]
    window *= registers["KERNEL_WIDTH"]
    weights = window * outputs
    if registers["OPERATION"] == 0:
        columns = CONFIG.array_columns
        weights = -(-outputs // columns) * columns * window * registers["INPUT_CHANNELS"]
    return {
        "IFMAP": extent(registers, "IFMAP", "INPUT"), "WEIGHTS": weights, "BIAS": 4 * outputs,
        "MULTIPLIERS": 4 * registers["SCALE_COUNT"], "SHIFTS": registers["SCALE_COUNT"],
        "OFMAP": extent(registers, "OFMAP", "OUTPUT"),
    }  # fmt: skip


def draw_job(random: random.Random) -> Registers:
    """A valid job, its operands one after the other anywhere in the scratchpad."""
    operation = random.choice([0, 0, 1])
    registers = {"OPERATION": operation, "DATAFLOW": 0, "ADD": 0, "ACCUMULATE": 0}
    registers |= draw_sizes(random, operation == 1)
    registers |= draw_strides(random, registers, "IFMAP", "INPUT")
    registers |= draw_strides(random, registers, "OFMAP", "OUTPUT")
    clips = sorted(random.choice([-128, 127, random.randint(-128, 127)]) for _ in "ab")
    registers |= {
        "INPUT_ZERO_POINT": random.randint(-128, 127),
        "OUTPUT_ZERO_POINT": random.randint(-128, 127),
        "CLIP_LOWEST": clips[0], "CLIP_HIGHEST": clips[1], "ROUNDING": random.randint(0, 1),
        "SCALE_COUNT": random.choice([1, registers["OUTPUT_CHANNELS"]]),
    }  # fmt: skip
    if random.random() < 0.5:
        registers |= {"CLIP_LOWEST": -128, "CLIP_HIGHEST": 127}
    sizes = operand_bytes(registers)
    names = list(sizes)
    random.shuffle(names)
    used = sum(sizes.values()) + 4 * len(sizes)
    gap = (SIZE - used) // len(sizes)
    place = 0
    for name in names:
        place += random.choice([0, 1, random.randint(0, gap)])
        if name in ("BIAS", "MULTIPLIERS"):
            place = -(-place // 4) * 4
        registers[f"{name}_START"] = place
        place += sizes[name]
    if random.random() < 0.1:
        registers[f"{names[-1]}_START"] = SIZE - -(-sizes[names[-1]] // 4) * 4
    return registers


def model_cycles(registers: Registers) -> int:
    """Cycles of a job."""
    channels = 1 if registers["OPERATION"] else registers["INPUT_CHANNELS"]
    taps = registers["KERNEL_HEIGHT"] * registers["KERNEL_WIDTH"] * channels
    positions = registers["OUTPUT_HEIGHT"] * registers["OUTPUT_WIDTH"]
    rows, columns = CONFIG.array_rows, CONFIG.array_columns
    folds = -(-positions // rows) * -(-registers["OUTPUT_CHANNELS"] // columns)
    return folds * (taps + rows + columns - 2 + CONFIG.drain_cycles_per_fold)


def transfer_cycles(registers: Registers) -> int:
    """Cycles of a transfer."""
    row = registers["DMA_ROW_BYTES"]
    rows = registers["DMA_ROWS"] * registers["DMA_PLANES"]
    return rows * (-(-row // 256) * CONFIG.dma_latency_cycles + -(-row // 8))


def is_aligned(registers: Registers) -> bool:
    """Whether each row begins at a word of the bus, and no burst crosses 4 KiB for its sake."""
    used = {"DMA_BUS_ADDRESS": 2, "DMA_BUS_ROW_STRIDE": registers["DMA_ROWS"],
            "DMA_BUS_PLANE_STRIDE": registers["DMA_PLANES"]}  # fmt: skip
    step = 8 if registers["DMA_ROW_BYTES"] <= 8 else 256
    return all(count == 1 or registers[name] % step == 0 for name, count in used.items())


def size_class(kind: str, cycles: int) -> str:
    """A name for what takes about as long."""
    for most in (100, 300, 1000, 3000, 10000):
        if cycles < most:
            return f"{kind} below {most:5}"
    return f"{kind} of    {10000:5} or more"


def draw_transfer(random: random.Random, bus: int) -> Registers:
    """A valid transfer; rows of a plane do not overlap where it matters."""
    direction = random.randint(0, 1)
    row = random.choice([random.randint(1, 20), random.randint(1, 600), 32, 256])
    rows, planes = random.choice([1, 1, 2, 5]), random.choice([1, 1, 2, 3])
    strides = {}
    for side in ("BUS", "SCRATCHPAD"):
        row_stride = row + random.choice([0, -row % 8, -row % 256, 1, 3, 8])
        plane_stride = row_stride * rows + random.choice([0, 0, 2, 16])
        if random.random() < 0.1:
            row_stride, plane_stride = plane_stride, row_stride + plane_stride * rows
        strides |= {f"DMA_{side}_ROW_STRIDE": row_stride, f"DMA_{side}_PLANE_STRIDE": plane_stride}

    def reach(side: str) -> int:
        return ((rows - 1) * strides[f"DMA_{side}_ROW_STRIDE"]
                + (planes - 1) * strides[f"DMA_{side}_PLANE_STRIDE"] + row)  # fmt: skip

    start = random.randint(0, SIZE - reach("SCRATCHPAD"))
    at = random.choice([0, 8, random.randint(0, BUFFER - reach("BUS"))])
    if random.random() < 0.2:
        start, at = SIZE - reach("SCRATCHPAD"), BUFFER - reach("BUS")
    return dict(
        DMA_BUS_ADDRESS=bus + at, DMA_SCRATCHPAD_START=start, DMA_DIRECTION=direction,
        DMA_ROW_BYTES=row, DMA_ROWS=rows, DMA_PLANES=planes, **strides,
    )  # fmt: skip
