# SPDX-License-Identifier: Apache-2.0
"""What the README of a library says about the small_chocolate_accelerator of a board, in Markdown."""

from umakit.backend import AcceleratorConfig, ArraySection, BoardNotes, DeviceUse
from umakit.machine import Kind

DEVICE = """\
The library was compiled for a device whose constant registers contain

| register | contents | status of a run if not | compared by |
|---|---|---|---|
{rows}

The driver compares its rows in each layer, before the array computes. It
does not read the others, each of which would cost a bus access in every layer: a device that \
follows
`umakit/systolic_array_registers.h` refuses a command that it cannot do, and the run ends with the
status in the middle of a layer, without a result. A device that does not refuse would compute
something else. Compare them once at start-up, for example

```c
umakit_device_read32(small_chocolate_accelerator_device(), UMAKIT_SYSTOLIC_ARRAY_SCRATCHPAD_BYTES_OFFSET)
```

Rows, banks, the depth of the queue and the width of the bus change times, not results."""

TIME_LIMIT = """\
`-DSMALL_CHOCOLATE_ACCELERATOR_TIMEOUT_CYCLES=...` for its driver, in cycles of the device; \
{default} by default, which is {seconds:g} seconds at 100 MHz. It holds for each wait, which may \
last up to twice as long if the processor wakes meanwhile. Below a watchdog's period, choose less \
than half of it in cycles, but more than the {longest}"""

POOLS = {Kind.MAX_POOL, Kind.AVERAGE_POOL}


def board_notes(configuration: AcceleratorConfig, use: DeviceUse) -> BoardNotes:
    """What registers of the device have to contain, and how long the driver waits.

    Args:
        configuration: what `accel.toml` says.
        use: what the library uses of the device.
    """
    array, alignment = configuration.array, configuration.dma.alignment
    version = "the driver's major version"
    if "SUPPORTED_MAJOR_VERSION" in use.macros:
        version = f"major {use.macros['SUPPORTED_MAJOR_VERSION']}"
    if "LEAST_MINOR_VERSION" in use.macros:
        version += f", minor at least {use.macros['LEAST_MINOR_VERSION']}"
    rows = [
        ("ID", "the device's letters", "`UMAKIT_NO_DEVICE`", "driver"),
        ("VERSION", version, "`UMAKIT_NO_DEVICE`", "driver"),
        ("ARRAY_COLUMNS", array.columns, "`UMAKIT_UNSUPPORTED`", "driver"),
        ("SCRATCHPAD_BYTES", f"at least {use.scratchpad_bytes}", "`UMAKIT_OUT_OF_RANGE`", "device"),
    ]
    sums = array.accumulator_bytes if use.sum_bytes is None else use.sum_bytes
    if sums:
        status = "`UMAKIT_OUT_OF_RANGE`, or `UMAKIT_UNSUPPORTED` if 0"
        rows.append(("ACCUMULATOR_BYTES", f"at least {sums}", status, "device"))
    divisor = " or a divisor of it" if alignment > 1 else ""
    rows.append(("DMA_ALIGNMENT", f"{alignment}{divisor}", "`UMAKIT_MISALIGNED`", "device"))
    rows.append(("FEATURES", features(array, use), "`UMAKIT_UNSUPPORTED`", "device"))
    lines = [f"| `{name}` | {value} | {status} | the {by} |" for name, value, status, by in rows]
    return BoardNotes(DEVICE.format(rows="\n".join(lines)), time_limit(use))


def time_limit(use: DeviceUse) -> str:
    """How long the driver waits; empty if its sources do not say that."""
    default = use.macros.get("SMALL_CHOCOLATE_ACCELERATOR_TIMEOUT_CYCLES")
    if default is None:
        return ""
    longest = "longest layer takes: `uma run --profile` prints the cycles"
    if use.cycles:
        longest = (
            f"{use.cycles} cycles that the longest layer takes on the simulated device: no wait is "
            "longer there"
        )
    return TIME_LIMIT.format(default=default, seconds=default / 100_000_000, longest=longest)


def features(array: ArraySection, use: DeviceUse) -> str:
    """The fields of FEATURES that layers use; all if a layer is of an unknown kind.

    A layer that is cut into tiles has a dataflow of its own, others have the default one. Pools do
    not use the array.
    """
    is_unknown = None in use.layers
    kinds = {layer.kind for layer in use.layers if layer is not None}
    flows = {tiles.tiling.dataflow.value for tiles in use.tiles if not tiles.layer.is_pool}
    if not flows and kinds - POOLS:
        flows = {array.dataflow}
    names = [flow.upper() for flow in array.allowed_dataflows if is_unknown or flow in flows]
    if array.depthwise and (is_unknown or Kind.DEPTHWISE in kinds):
        names.append("DEPTHWISE")
    if array.pooling_lanes and (is_unknown or kinds & POOLS):
        names.append("POOLING")
    return ("those that layers use of " if is_unknown else "") + (", ".join(names) or "none")
