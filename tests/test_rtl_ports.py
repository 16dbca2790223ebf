# SPDX-License-Identifier: Apache-2.0
"""Which port of a design is which signal: names are drawn, and each fault of a port is named.

The ports of each bus are written out here as the specifications list them.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umakit.errors import AcceleratorConfigError
from umakit.machine.rtl_config import RtlSection
from umakit.machine.rtl_ports import Port, wiring_of

# Inputs and outputs of the design, `name:bits`; those with a ? may be missing. AxLEN has 8 bits,
# AxSIZE 3, AxBURST and responses 2 (IHI 0022); a strobe has a bit for each byte.
REGISTERS = {
    "axi4-lite": "awaddr:12 awvalid:1 ?awprot:3 wdata:32 ?wstrb:4 wvalid:1 bready:1 araddr:12 "
    "arvalid:1 ?arprot:3 rready:1 > awready:1 wready:1 ?bresp:2 bvalid:1 arready:1 rdata:32 "
    "?rresp:2 rvalid:1",
    "apb": "paddr:12 psel:1 penable:1 pwrite:1 pwdata:32 ?pstrb:4 ?pprot:3 > prdata:32 ?pready:1 "
    "?pslverr:1",
    "plain": "valid:1 write:1 address:12 wdata:32 ?strobe:4 > ?ready:1 rdata:32",
}
MEMORY = {
    "axi4": "awready:1 wready:1 ?bid:4 ?bresp:2 bvalid:1 arready:1 ?rid:4 rdata:DATA ?rresp:2 "
    "rlast:1 rvalid:1 > awaddr:32 awlen:8 ?awsize:3 ?awburst:2 ?awid:4 ?awlock:1 ?awcache:4 "
    "?awprot:3 ?awqos:4 awvalid:1 wdata:DATA wstrb:STROBE wlast:1 wvalid:1 bready:1 araddr:32 "
    "arlen:8 ?arsize:3 ?arburst:2 ?arid:4 ?arlock:1 ?arcache:4 ?arprot:3 ?arqos:4 arvalid:1 "
    "rready:1",
    "plain": "read_ready:1 read_data:DATA read_data_valid:1 ?read_error:1 write_ready:1 "
    "?write_error:1 > read_valid:1 read_address:32 write_valid:1 write_address:32 write_data:DATA "
    "?write_strobe:STROBE",
    "none": ">",
}

BUSES = [(registers, memory) for registers in REGISTERS for memory in MEMORY]


def bus_ports(text: str, data: int) -> dict[str, tuple[Port, bool]]:
    """Return the ports of a bus by signal, and whether each may be missing."""
    text = text.replace("STROBE", str(data // 8)).replace("DATA", str(data))
    found = {}
    for direction, part in zip(("input", "output"), text.split(">"), strict=True):
        for word in part.split():
            name, bits = word.lstrip("?").split(":")
            port = Port(name, direction, int(bits))  # type: ignore[arg-type]
            found[name] = (port, word.startswith("?"))
    return found


LINES = [Port("clk", "input", 1), Port("rst_n", "input", 1), Port("irq", "output", 1)]


def section(register_bus: str, memory_bus: str, **values: object) -> RtlSection:
    given = {
        "top": "npu", "sources": ["npu.sv"], "clock": "clk", "reset": "rst_n", "interrupt": "irq",
        "registers": {"bus": register_bus, "prefix": "s_"},
        "memory": {"bus": memory_bus, "prefix": "m_"},
    }  # fmt: skip
    return RtlSection.model_validate({**given, **values})


def design(registers: str, memory: str, data: int = 64) -> list[Port]:
    """Return the ports of a top with all signals, under the prefixes of `section`."""
    slave = bus_ports(REGISTERS[registers], 32).values()
    master = bus_ports(MEMORY[memory], data).values()
    return [
        *LINES,
        *(replace(port, name=f"s_{port.name}") for port, _ in slave),
        *(replace(port, name=f"m_{port.name}") for port, _ in master),
    ]


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}_?", fullmatch=True)


@st.composite
def named_buses(
    draw: st.DrawFn, buses: dict[str, str], first: str, data: int
) -> tuple[dict[str, object], dict[str, str], list[Port]]:
    """Draw a bus, a prefix with this first letter, and names of its ports; some are missing."""
    bus = draw(st.sampled_from(sorted(buses)))
    prefix = first + draw(NAMES)
    names: dict[str, str] = {}
    given_names: dict[str, str] = {}
    ports: list[Port] = []
    for role, (port, may_lack) in bus_ports(buses[bus], data).items():
        if may_lack and draw(st.booleans()):
            continue
        ending = draw(st.sampled_from(["", "_i" if port.direction == "input" else "_o"]))
        name = f"{prefix}{role}{ending}"
        name = draw(st.sampled_from([name, name.upper(), name.title()]))
        if draw(st.integers(0, 9)) == 0:
            name = given_names[role] = f"other_{prefix}{role}"
        names[role] = name
        ports.append(replace(port, name=name))
    spelt = draw(st.sampled_from([prefix, prefix.upper()]))
    return {"bus": bus, "prefix": spelt, "ports": given_names}, names, ports


@given(st.data(), st.sampled_from([8, 16, 32, 64, 128, 512, 1024]))
def test_ports_are_found_by_prefix_in_any_capitals_and_endings(
    data: st.DataObject, width: int
) -> None:
    slave, slave_names, slave_ports = data.draw(named_buses(REGISTERS, "s", 32))
    master, master_names, master_ports = data.draw(named_buses(MEMORY, "m", width))
    lines = [Port("core_clock", "input", 1), Port("por", "input", 1), Port("done", "output", 1)]
    unused = [Port("debug", "output", 7)]
    ports = data.draw(st.permutations([*slave_ports, *master_ports, *lines, *unused]))
    wiring = wiring_of(
        section("apb", "none", clock="core_clock", reset="por", interrupt="done",
                registers=slave, memory=master),
        ports,
    )  # fmt: skip
    assert wiring.registers == slave_names
    assert wiring.memory == master_names
    assert wiring.memory_bits == (0 if master["bus"] == "none" else width)
    assert wiring.widths == {port.name: port.bits for port in ports}


def refusal(given_section: RtlSection, ports: list[Port]) -> str:
    with pytest.raises(AcceleratorConfigError) as caught:
        wiring_of(given_section, ports)
    return str(caught.value)


@pytest.mark.parametrize(("registers", "memory"), BUSES)
def test_each_missing_port_is_named_unless_it_may_be_missing(registers: str, memory: str) -> None:
    ports = design(registers, memory)
    assert wiring_of(section(registers, memory), ports).memory_bits == (memory != "none") * 64
    for prefix, key, text in [
        ("s_", "registers", REGISTERS[registers]),
        ("m_", "memory", MEMORY[memory]),
    ]:
        bus = registers if key == "registers" else memory
        for role, (port, may_lack) in bus_ports(text, 64).items():
            left = [each for each in ports if each.name != prefix + role]
            if may_lack:
                wiring = wiring_of(section(registers, memory), left)
                assert role not in getattr(wiring, key)
                continue
            said = refusal(section(registers, memory), left)
            assert said.startswith(
                f"rtl.{key}: the top has no {port.direction} {prefix}{role}, which {bus} needs"
            ), said
            assert f"set {role} in [rtl.{key}.ports]" in said


NAMES_OF_BUSES = {"axi4-lite": "AXI4-Lite's", "apb": "APB's", "axi4": "AXI4's",
                  "plain": "the plain bus's"}  # fmt: skip


@pytest.mark.parametrize(("registers", "memory"), BUSES)
def test_another_bus_or_prefix_is_told_and_the_advice_fits(registers: str, memory: str) -> None:
    ports = design(registers, memory)
    mistakes = [("registers", bus, prefix) for bus in REGISTERS for prefix in ("s_", "other_")]
    mistakes += [("memory", bus, prefix) for bus in MEMORY for prefix in ("m_", "")]
    for key, bus, prefix in mistakes:
        real, usual = (registers, "s_") if key == "registers" else (memory, "m_")
        if (bus, prefix) == (real, usual) or "none" in (bus, real):
            continue
        said = refusal(section(registers, memory, **{key: {"bus": bus, "prefix": prefix}}), ports)
        assert (f"; the ports are {NAMES_OF_BUSES[real]};" in said) == (bus != real), said
        advice, _, where = said.rpartition("; ")[2].removeprefix("set ").partition(" in [rtl.")
        assert where == f"{key}]", said
        given = tomllib.loads(advice.replace(" and ", "\n"))
        corrected = {key: {"bus": bus, "prefix": prefix, **given}}
        wiring_of(section(registers, memory, **corrected), ports)


@pytest.mark.parametrize(("registers", "memory"), BUSES)
def test_each_port_of_the_wrong_direction_is_named(registers: str, memory: str) -> None:
    ports = design(registers, memory)
    for number, port in enumerate(ports):
        turned = replace(port, direction="output" if port.direction == "input" else "input")
        said = refusal(section(registers, memory), [*ports[:number], turned, *ports[number + 1 :]])
        assert f"{port.name} is an {turned.direction}" in said, said
        assert said.startswith("rtl.")


ANY_WIDTH = re.compile(r"[sm]_(paddr|address|(aw|ar|read_|write_)addr(ess)?|[abr][wr]?id)")


@pytest.mark.parametrize(("registers", "memory"), BUSES)
def test_each_port_of_the_wrong_width_is_named(registers: str, memory: str) -> None:
    """Addresses and identifiers have any width."""
    ports = design(registers, memory)
    for number, port in enumerate(ports):
        wide = replace(port, bits=port.bits + 1)
        changed = [*ports[:number], wide, *ports[number + 1 :]]
        if ANY_WIDTH.fullmatch(port.name):
            assert wiring_of(section(registers, memory), changed).widths[port.name] == wide.bits
        elif port.name in ("m_awlock", "m_arlock"):
            wiring_of(section(registers, memory), changed)  # two bits in AXI3
        else:
            said = refusal(section(registers, memory), changed)
            # Of two ports of data that differ, either may be the wrong one.
            assert port.name in said and re.search(rf"{wide.bits}( |;)", said), said


@pytest.mark.parametrize(("bits", "is_right"), [(8, True), (24, False), (1024, True),
                                                (2048, False), (4, False)])  # fmt: skip
def test_widths_of_memory(bits: int, is_right: bool) -> None:
    ports = [port for port in design("apb", "plain", bits) if port.name != "m_write_strobe"]
    if is_right:
        assert wiring_of(section("apb", "plain"), ports).memory_bits == bits
    else:
        said = refusal(section("apb", "plain"), ports)
        assert f"the data of the bus has {bits} bits; it has to be a power of two from 8" in said


def test_registers_have_32_bits() -> None:
    ports = [
        replace(port, bits=64) if port.name in ("s_pwdata", "s_prdata") else port
        for port in design("apb", "none")
        if port.name != "s_pstrb"
    ]
    said = refusal(section("apb", "none"), ports)
    assert said.startswith("rtl.registers: the data of the bus has 64 bits, and registers have 32")


@pytest.mark.parametrize(
    ("extra", "values", "sentence"),
    [
        (Port("bus_clk", "input", 1), {}, "rtl.clock: npu has a second clock, bus_clk"),
        (Port("CLOCK2", "input", 1), {}, "rtl.clock: npu has a second clock, CLOCK2"),
        (Port("mode", "input", 3), {}, "rtl: nothing drives the input mode of npu, 3 bits; "
         "set mode in [rtl.ties]"),
        (Port("mode", "input", 3), {"ties": {"mode": 8}}, "rtl.ties: 8 does not fit the 3 bits"),
        (Port("mode", "output", 3), {"ties": {"mode": 1}}, "rtl.ties: mode is an output"),
        (Port("mode", "input", 3), {"ties": {"mod": 1}}, "rtl.ties: the top has no port mod; write "
         "mode"),
        (Port("pad", "inout", 1), {}, "rtl: the port pad of npu is an inout; write a top around "
         "it"),
        (None, {"clock": "clok"}, "rtl.clock: the top has no port clok; write clk"),
        (None, {"reset": "rst"}, "rtl.reset: the top has no port rst; write rst_n"),
        (None, {"interrupt": "irqs"}, "rtl.interrupt: the top has no port irqs; write irq"),
        (None, {"clock": "irq"}, "rtl.clock: irq is an output of 1 bit, and has to be an input"),
        (None, {"clock": "s_paddr"}, "rtl.clock: s_paddr is an input of 12 bits"),
        (None, {"reset": "clk"}, "rtl.reset: the port clk is rtl.clock already"),
        (None, {"interrupt": "s_pready"}, "rtl.registers.pready: the port s_pready is "
         "rtl.interrupt already"),
        (None, {"ties": {"s_pwdata": 0}}, "rtl.ties: the port s_pwdata is rtl.registers.pwdata"),
        (None, {"registers": {"bus": "apb", "prefix": "s_", "ports": {"padr": "s_paddr"}}},
         "rtl.registers.ports: apb has no signal padr; write paddr"),
        (None, {"registers": {"bus": "apb", "prefix": "s_", "ports": {"paddr": "s_padr"}}},
         "rtl.registers.ports: the top has no port s_padr; write s_paddr"),
        (None, {"registers": {"bus": "apb", "prefix": "r_"}},
         "rtl.registers: the top has no input r_paddr, which apb needs; set prefix = \"s_\" in "
         "[rtl.registers]"),
    ],
)  # fmt: skip
def test_faults_of_lines_and_names(
    extra: Port | None, values: dict[str, object], sentence: str
) -> None:
    ports = [*design("apb", "plain"), *([extra] if extra else [])]
    assert sentence in refusal(section("apb", "plain", **values), ports)


def test_inputs_may_be_tied() -> None:
    ports = [*design("apb", "plain"), Port("mode", "input", 3), Port("test_clk", "input", 1)]
    wiring_of(section("apb", "plain", ties={"mode": 7, "test_clk": 0}), ports)
