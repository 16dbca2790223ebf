# SPDX-License-Identifier: Apache-2.0
"""Drawn programs through the registers of the simulated systolic array: the clock predicts them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from systolic_commands import (
    BANK_BYTES,
    CHANNELS,
    Machine,
    configurations,
    jobs,
    programs,
    sum_of_bits,
    transfers,
)
from systolic_commands import Command as Programmed
from systolic_device import VALUES, Config, Device
from systolic_layers import Job, Layer, draw_weights

from umakit.machine.clock import Span, run
from umakit.machine.costs import Cost
from umakit.machine.description import Command
from umakit.machine.hardware import Hardware
from umakit.machine.systolic import Dataflow, Product

FLOWS = {VALUES["DATAFLOW"][flow.name]: flow for flow in Dataflow}


def hardware_of(config: Config, completion: str) -> Hardware:
    """What the configuration of the simulator says."""
    return Hardware(
        rows=config.array_rows,
        columns=config.array_columns,
        scratchpad_bytes=config.scratchpad_bytes,
        scratchpad_banks=config.scratchpad_banks,
        dataflows=tuple(Dataflow),
        drain_cycles=config.drain_cycles_per_fold,
        preload=config.preload,
        preload_rows=max(config.preload_rows, 1),
        pack_columns=config.pack_columns,
        array_setup_cycles=config.array_setup_cycles,
        dma_setup_cycles=config.dma_setup_cycles,
        depthwise=config.depthwise,
        pooling_lanes=config.pooling_lanes,
        bytes_per_cycle=config.dma_bytes_per_cycle,
        latency_cycles=config.dma_latency_cycles,
        burst_bytes=config.dma_burst_bytes,
        outstanding=config.dma_outstanding,
        command_queue=config.command_queue_depth,
        completion=completion,  # type: ignore[arg-type]
    )


def cost_of(hardware: Hardware, command: Programmed) -> Cost:
    value = command.registers
    if not command.is_array:
        return hardware.transfer_cost(
            value["DMA_PLANES"], value["DMA_ROWS"], value["DMA_ROW_BYTES"]
        )
    positions = value["OUTPUT_HEIGHT"] * value["OUTPUT_WIDTH"]
    window = value["KERNEL_HEIGHT"] * value["KERNEL_WIDTH"]
    if value["OPERATION"] != VALUES["OPERATION"]["CONVOLUTION"]:
        return hardware.pool_cost(positions, window, CHANNELS)
    product = Product(positions, CHANNELS, window * CHANNELS)
    return hardware.array_cost(FLOWS[value["DATAFLOW"]], product)


@st.composite
def dense_programs(draw: st.DrawFn) -> tuple[Config, list[Programmed]]:
    """Jobs of one size with operands and results in any banks: few registers change."""
    config = replace(draw(configurations()), scratchpad_banks=6, scratchpad_bytes=6 * BANK_BYTES)
    base = draw(jobs(config)).registers | {"ACCUMULATE": 0, "ADD": 0}
    moves = draw(st.lists(transfers(6), min_size=1, max_size=6))
    random = Random(draw(st.integers(0, 2**32 - 1)))

    def job() -> Programmed:
        operand, weights, result = random.sample(range(5), 3)
        is_pool = random.random() < 0.4
        registers = base | {
            "OPERATION": VALUES["OPERATION"]["MAX_POOL" if is_pool else "CONVOLUTION"],
            "DATAFLOW": random.randrange(3),
            "IFMAP_START": operand * BANK_BYTES, "OFMAP_START": result * BANK_BYTES,
            "WEIGHTS_START": weights * BANK_BYTES, "BIAS_START": weights * BANK_BYTES + 128,
            "MULTIPLIERS_START": weights * BANK_BYTES + 140,
        }  # fmt: skip
        reads = {operand} if is_pool else {operand, weights, 5}
        return Programmed("array", registers, frozenset(reads), frozenset({result}))

    count = draw(st.integers(5, 25))
    return config, [job() if random.random() < 0.6 else random.choice(moves) for _ in range(count)]


@dataclass(frozen=True)
class Written:
    """A command, and what the driver writes for it: registers that hold something else."""

    programmed: Programmed
    registers: dict[str, int]


def written(commands: list[Programmed]) -> list[Written]:
    previous: dict[str, int] = {}
    result = []
    for each in commands:
        changed = {name: v for name, v in each.registers.items() if previous.get(name) != v}
        result.append(Written(each, changed))
        previous |= each.registers
    return result


def command_of(hardware: Hardware, command: Written) -> Command:
    programmed = command.programmed
    cost = cost_of(hardware, programmed)
    return Command(
        stream=programmed.stream,  # type: ignore[arg-type]
        busy=cost.busy,
        tail=cost.tail,
        reads=sum(1 << bank for bank in programmed.reads),
        writes=sum(1 << bank for bank in programmed.writes),
        issue=len(command.registers) + 1,
        bus=None if programmed.is_array else programmed.bus,
    )


def drive(machine: Machine, commands: list[Written], polls: bool) -> int:
    """What a driver does; the cycles until the last command has ended."""
    device = machine.device
    machine.enable("ERROR", "COMMAND_DONE")
    free = device.read("QUEUE_DEPTH")
    device.control("RESET_COUNTERS")
    for command in commands:
        machine.program(replace(command.programmed, registers=command.registers))
        while free == 0:
            if not polls:
                device.write("INTERRUPT_PENDING", sum_of_bits(["COMMAND_DONE"]))
            free = device.read("QUEUE_FREE")
            if free == 0 and not polls:
                assert device.wait(10**6) == 0
        device.control("ENQUEUE_ARRAY" if command.programmed.is_array else "ENQUEUE_DMA")
        free -= 1
    machine.enable("ERROR", "QUEUE_DONE")
    assert device.wait(10**6) == 0
    cycles = device.counter("CLOCK") - 1
    assert device.error() == "OK" and device.read("COMMANDS_LEFT") == 0
    return cycles


@examples(200)
@given(
    program=programs() | dense_programs(), drain=st.sampled_from([0, 3, 90]),
    seed=st.integers(0, 2**32 - 1), polls=st.booleans(),
)  # fmt: skip
def test_the_clock_predicts_every_cycle_of_the_simulator(
    program: tuple[Config, list[Programmed]], drain: int, seed: int, polls: bool
) -> None:
    config, commands = program[0], written(program[1])
    config = replace(config, drain_cycles_per_fold=drain)
    hardware = hardware_of(config, "polling" if polls else "interrupt")
    found = run([command_of(hardware, each) for each in commands], hardware.machine)
    spans = found.timeline
    machine = Machine(config, seed)
    entries = machine.device.record_timeline(len(commands))
    cycles = drive(machine, commands, polls)
    # The driver enables QUEUE_DONE after the last command, which may end meanwhile.
    assert cycles == max(found.cycles, spans[-1].enqueued + 1)
    entries.sort(order="command")
    begin = int(entries["issued"][0]) - spans[0].enqueued
    times = ("issued", "start", "end_of_busy", "completion")
    assert [Span(*(int(entry[name]) - begin for name in times)) for entry in entries] == spans
    counters = machine.device.counters()
    held = found.breakdown
    assert counters["COMPUTE_CYCLES"] + counters["DRAIN_CYCLES"] == held.compute + held.drain
    if config.preload:
        assert counters["COMPUTE_CYCLES"] == held.compute


@examples(100)
@given(
    sizes=st.tuples(st.integers(1, 12), st.integers(1, 20), st.integers(1, 40)),
    kernel=st.integers(1, 3), depthwise=st.booleans(), flow=st.sampled_from(list(Dataflow)),
    array=st.sampled_from([(16, 16), (8, 8), (4, 12), (1, 5)]), drain=st.integers(0, 16),
    preload=st.booleans(), pack=st.booleans(),
)  # fmt: skip
def test_costs_of_layers_are_those_of_the_simulator(
    sizes: tuple[int, int, int], kernel: int, depthwise: bool, flow: Dataflow,
    array: tuple[int, int], drain: int, preload: bool, pack: bool,
) -> None:  # fmt: skip
    if depthwise and flow is Dataflow.INPUT_STATIONARY:
        flow = Dataflow.WEIGHT_STATIONARY
    side, inputs, outputs = sizes
    if depthwise:
        outputs = inputs
    config = Config(array_rows=array[0], array_columns=array[1], drain_cycles_per_fold=drain,
                    preload=preload, pack_columns=pack)  # fmt: skip
    layer = Layer(
        (side, side), (inputs, outputs), (kernel, kernel), (1, 1), (1, 1), (0, 0), (side, side),
        (False, False), 0, (0, 0), (-128, 127), False, 0, 7,
    )  # fmt: skip
    device = Device(config)
    job = Job(device, layer, "DEPTHWISE" if depthwise else "CONVOLUTION")
    device.write("DATAFLOW", VALUES["DATAFLOW"][flow.name])
    job.put("IFMAP_START", np.zeros((side, side, inputs), np.int8))
    job.put_weights(draw_weights(layer, depthwise, np.random.default_rng(1)), depthwise)
    product = Product(side * side, outputs, kernel * kernel * (1 if depthwise else inputs))
    cost = hardware_of(config, "interrupt").array_cost(flow, product, depthwise=depthwise)
    assert job.run()[1] == cost.cycles
    assert device.counter("USEFUL_MACS") == cost.macs
    if preload:
        assert device.counter("DRAIN_CYCLES") == cost.tail
