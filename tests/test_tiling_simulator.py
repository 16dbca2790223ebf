# SPDX-License-Identifier: Apache-2.0
"""Drawn programs through the registers of the simulated systolic array: the clock predicts them."""

from __future__ import annotations

import numpy as np
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from systolic_commands import CHANNELS, Machine, programs, sum_of_bits
from systolic_commands import Command as Programmed
from systolic_device import VALUES, Config, Device
from systolic_layers import Job, Layer, draw_weights

from umakit.systolic import Dataflow, Product
from umakit.tiling.clock import Command, run
from umakit.tiling.costs import Cost, array_cost, pool_cost, transfer_cost
from umakit.tiling.hardware import Hardware

FLOWS = {VALUES["DATAFLOW"][flow.name]: flow for flow in Dataflow}


def hardware_of(config: Config, completion: str) -> Hardware:
    return Hardware(
        rows=config.array_rows,
        columns=config.array_columns,
        scratchpad_bytes=config.scratchpad_bytes,
        scratchpad_banks=config.scratchpad_banks,
        dataflows=tuple(Dataflow),
        drain_cycles=config.drain_cycles_per_fold,
        preload=config.preload,
        pack_columns=config.pack_columns,
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
        return transfer_cost(
            hardware, value["DMA_PLANES"], value["DMA_ROWS"], value["DMA_ROW_BYTES"]
        )
    positions = value["OUTPUT_HEIGHT"] * value["OUTPUT_WIDTH"]
    window = value["KERNEL_HEIGHT"] * value["KERNEL_WIDTH"]
    if value["OPERATION"] != VALUES["OPERATION"]["CONVOLUTION"]:
        return pool_cost(hardware, positions, window, CHANNELS)
    product = Product(positions, CHANNELS, window * CHANNELS)
    return array_cost(hardware, FLOWS[value["DATAFLOW"]], product)


def command_of(hardware: Hardware, command: Programmed) -> Command:
    cost = cost_of(hardware, command)
    return Command(
        stream=command.stream,  # type: ignore[arg-type]
        busy=cost.busy,
        tail=cost.tail,
        reads=sum(1 << bank for bank in command.reads),
        writes=sum(1 << bank for bank in command.writes),
        issue=len(command.registers) + 1,
        bus=None if command.is_array else command.bus,
    )


def drive(machine: Machine, commands: list[Programmed], polls: bool) -> int:
    """What a driver does; the cycles until the last command has ended."""
    device = machine.device
    machine.enable("ERROR", "COMMAND_DONE")
    free = device.read("QUEUE_DEPTH")
    device.control("RESET_COUNTERS")
    for command in commands:
        machine.program(command)
        while free == 0:
            if not polls:
                device.write("INTERRUPT_PENDING", sum_of_bits(["COMMAND_DONE"]))
            free = device.read("QUEUE_FREE")
            if free == 0 and not polls:
                assert device.wait(10**6) == 0
        device.control("ENQUEUE_ARRAY" if command.is_array else "ENQUEUE_DMA")
        free -= 1
    machine.enable("ERROR", "QUEUE_DONE")
    assert device.wait(10**6) == 0
    cycles = device.counter("CLOCK") - 1
    assert device.error() == "OK" and device.read("COMMANDS_LEFT") == 0
    return cycles


@examples(150)
@given(program=programs(), seed=st.integers(0, 2**32 - 1), polls=st.booleans())
def test_the_clock_predicts_every_cycle_of_the_simulator(
    program: tuple[Config, list[Programmed]], seed: int, polls: bool
) -> None:
    config, programmed = program
    hardware = hardware_of(config, "polling" if polls else "interrupt")
    found = run([command_of(hardware, each) for each in programmed], hardware)
    machine = Machine(config, seed)
    cycles = drive(machine, programmed, polls)
    # The driver enables QUEUE_DONE after the last command, which may end meanwhile.
    assert cycles == max(found.cycles, found.schedule.enqueued[len(programmed) - 1] + 1)
    counters = machine.device.counters()
    held = found.held_by
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
    cost = array_cost(hardware_of(config, "interrupt"), flow, product, depthwise=depthwise)
    assert job.run()[1] == cost.cycles
    assert device.counter("USEFUL_MACS") == cost.macs
    if preload:
        assert device.counter("DRAIN_CYCLES") == cost.tail
