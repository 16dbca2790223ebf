# SPDX-License-Identifier: Apache-2.0
"""The assignment of a design's ports to signals of buses.

Signals have the names of the specifications: AMBA AXI and ACE (Arm IHI 0022), AMBA APB (Arm IHI
0024). docs/your-rtl.md defines the plain buses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from umakit.errors import AcceleratorConfigError
from umakit.machine.rtl_config import RtlSection
from umakit.text.spelling import closest

Direction = Literal["input", "output", "inout"]

REGISTER_BITS = 32

LARGEST_DATA = 1024
"""Maximum width in bits of the data of AXI4."""


@dataclass(frozen=True)
class Port:
    """A port of a module."""

    name: str
    direction: Direction
    bits: int


@dataclass(frozen=True)
class Signal:
    """A signal of a bus.

    Attributes:
        role: name in the specification, in small letters.
        direction: direction from the design's view.
        width: width in bits; `data` and `strobe` are widths of the bus, 0 is any width.
        is_optional: whether a design may lack the signal.
    """

    role: str
    direction: Direction
    width: int | Literal["data", "strobe"] = 1
    is_optional: bool = False


def _signals(text: str) -> tuple[Signal, ...]:
    """Parse signals `[?]role direction [width]`, separated by commas."""
    found = []
    for signal in text.split(","):
        role, direction, *rest = signal.split()
        width: int | Literal["data", "strobe"] = 1
        if rest and rest[0] == "data":
            width = "data"
        elif rest and rest[0] == "strobe":
            width = "strobe"
        elif rest:
            width = int(rest[0])
        side: Direction = "input" if direction == "in" else "output"
        found.append(Signal(role.lstrip("?"), side, width, role.startswith("?")))
    return tuple(found)


AXI4_LITE = _signals("""
awaddr in 0, awvalid in, awready out, ?awprot in 3,
wdata in data, ?wstrb in strobe, wvalid in, wready out,
?bresp out 2, bvalid out, bready in,
araddr in 0, arvalid in, arready out, ?arprot in 3,
rdata out data, ?rresp out 2, rvalid out, rready in
""")

APB = _signals("""
paddr in 0, psel in, penable in, pwrite in, pwdata in data, ?pstrb in strobe, ?pprot in 3,
prdata out data, ?pready out, ?pslverr out
""")

PLAIN_REGISTERS = _signals("""
valid in, write in, address in 0, wdata in data, ?strobe in strobe, ?ready out,
rdata out data
""")

AXI4 = _signals("""
awaddr out 0, awlen out 8, ?awsize out 3, ?awburst out 2, ?awid out 0, ?awlock out 0,
?awcache out 4, ?awprot out 3, ?awqos out 4, ?awregion out 4, ?awuser out 0, awvalid out,
awready in,
wdata out data, wstrb out strobe, wlast out, ?wuser out 0, wvalid out, wready in,
?bid in 0, ?bresp in 2, ?buser in 0, bvalid in, bready out,
araddr out 0, arlen out 8, ?arsize out 3, ?arburst out 2, ?arid out 0, ?arlock out 0,
?arcache out 4, ?arprot out 3, ?arqos out 4, ?arregion out 4, ?aruser out 0, arvalid out,
arready in,
?rid in 0, rdata in data, ?rresp in 2, ?ruser in 0, rlast in, rvalid in, rready out
""")

PLAIN_MEMORY = _signals("""
read_valid out, read_ready in, read_address out 0, read_data in data, read_data_valid in,
?read_error in,
write_valid out, write_ready in, write_address out 0, write_data out data,
?write_strobe out strobe, ?write_error in
""")

REGISTER_BUSES: Mapping[str, tuple[Signal, ...]] = {
    "axi4-lite": AXI4_LITE,
    "apb": APB,
    "plain": PLAIN_REGISTERS,
}

MEMORY_BUSES: Mapping[str, tuple[Signal, ...]] = {
    "axi4": AXI4,
    "plain": PLAIN_MEMORY,
    "none": (),
}


BUS_NAMES = {"axi4-lite": "AXI4-Lite", "apb": "APB", "axi4": "AXI4", "plain": "the plain bus"}
"""Names of buses in messages."""


@dataclass(frozen=True)
class Wiring:
    """The signals of a design's ports.

    Attributes:
        registers: ports of the registers' bus by role.
        memory: ports of the memory bus by role; empty without a bus.
        memory_bits: data width of the memory bus; 0 without a bus.
        widths: width in bits of each port.
    """

    registers: Mapping[str, str]
    memory: Mapping[str, str]
    memory_bits: int
    widths: Mapping[str, int]


def wiring_of(section: RtlSection, ports: Sequence[Port]) -> Wiring:
    """Assign the ports of a design to signals."""
    by_name = {port.name: port for port in ports}
    _check_inout(section, ports)
    _check_line(by_name, section.clock, "clock", "input")
    if section.reset:
        _check_line(by_name, section.reset, "reset", "input")
    if section.interrupt:
        _check_line(by_name, section.interrupt, "interrupt", "output")
    registers, register_bits = _bus_ports(section, "registers", by_name)
    memory, memory_bits = _bus_ports(section, "memory", by_name)
    if register_bits != REGISTER_BITS:
        raise _fault(
            f"rtl.registers: the data of the bus has {register_bits} bits, and registers have 32",
            "give the design a bus of 32 bits",
        )
    if memory and (memory_bits < 8 or memory_bits > LARGEST_DATA or memory_bits & memory_bits - 1):
        raise _fault(
            f"rtl.memory: the data of the bus has {memory_bits} bits",
            f"it has to be a power of two from 8 to {LARGEST_DATA}",
        )
    wired = {section.clock, section.reset, *section.ties, *registers.values(), *memory.values()}
    for name in section.ties:
        _check_tie(by_name, name, section.ties[name])
    _check_once(section, registers, memory)
    _check_driven(section, ports, wired)
    widths = {port.name: port.bits for port in ports}
    return Wiring(registers, memory, memory_bits, widths)


def _fault(what: str, fix: str = "") -> AcceleratorConfigError:
    return AcceleratorConfigError(what, fix=fix)


def _check_inout(section: RtlSection, ports: Sequence[Port]) -> None:
    for port in ports:
        if port.direction == "inout":
            raise _fault(
                f"rtl: the port {port.name} of {section.top} is an inout",
                "write a top around it with an input and an output",
            )


def _missing(key: str, name: str, ports: Mapping[str, Port]) -> AcceleratorConfigError:
    near = closest(name, list(ports))
    fix = f"write {near}" if near else f"its ports are {', '.join(ports)}"
    return _fault(f"rtl.{key}: the top has no port {name}", fix)


def _check_line(ports: Mapping[str, Port], name: str, key: str, direction: Direction) -> None:
    port = ports.get(name)
    if port is None:
        raise _missing(key, name, ports)
    if port.direction != direction or port.bits != 1:
        raise _fault(
            f"rtl.{key}: {name} is an {port.direction} of {port.bits} "
            f"bit{'s' * (port.bits != 1)}, and has to be an {direction} of one",
            "name another port",
        )


def _check_tie(ports: Mapping[str, Port], name: str, value: int) -> None:
    port = ports.get(name)
    if port is None:
        raise _missing("ties", name, ports)
    if port.direction != "input":
        raise _fault(f"rtl.ties: {name} is an output", "leave it out: outputs need nothing")
    if value >= 1 << port.bits:
        raise _fault(f"rtl.ties: {value} does not fit the {port.bits} bits of {name}")


def _check_once(
    section: RtlSection, registers: Mapping[str, str], memory: Mapping[str, str]
) -> None:
    uses = [("clock", section.clock), ("reset", section.reset), ("interrupt", section.interrupt)]
    uses += [(f"registers.{role}", name) for role, name in registers.items()]
    uses += [(f"memory.{role}", name) for role, name in memory.items()]
    uses += [("ties", name) for name in section.ties]
    found: dict[str, str] = {}
    for use, name in uses:
        if name and found.setdefault(name, use) != use:
            raise _fault(
                f"rtl.{use}: the port {name} is rtl.{found[name]} already", "name another port"
            )


def _bus_ports(
    section: RtlSection, key: Literal["registers", "memory"], ports: Mapping[str, Port]
) -> tuple[dict[str, str], int]:
    """Return the ports of a bus by role, and the data width in bits."""
    bus = section.registers if key == "registers" else section.memory
    signals = (REGISTER_BUSES if key == "registers" else MEMORY_BUSES)[bus.bus]
    roles = {signal.role for signal in signals}
    for role in bus.ports:
        if role not in roles:
            near = closest(role, sorted(roles))
            raise _fault(
                f"rtl.{key}.ports: {bus.bus} has no signal {role}",
                f"write {near}" if near else f"its signals are {', '.join(sorted(roles))}",
            )
    lower = {name.lower(): name for name in ports}
    found: dict[str, str] = {}
    for signal in signals:
        name = bus.ports.get(signal.role) or _port_of(bus.prefix, signal, lower)
        if name is not None and name not in ports:
            raise _missing(f"{key}.ports", name, ports)
        if name is not None:
            found[signal.role] = name
        elif not signal.is_optional:
            raise _lacking(key, bus.bus, bus.prefix, signal, ports)
    data = [found[each.role] for each in signals if each.width == "data" and each.role in found]
    bits = ports[data[0]].bits if data else 0
    for signal in signals:
        if signal.role in found:
            _check_signal(f"rtl.{key}", signal, ports[found[signal.role]], data[0], bits)
    return found, bits


def _port_of(prefix: str, signal: Signal, lower: Mapping[str, str]) -> str | None:
    """Return the port of a signal: prefix and signal name, in capitals or not, also with `_i` or
    `_o` at the end."""
    name = f"{prefix}{signal.role}".lower()
    endings = ("", "_i") if signal.direction == "input" else ("", "_o")
    return next((lower[name + ending] for ending in endings if name + ending in lower), None)


def _fits(prefix: str, signals: Sequence[Signal], ports: Mapping[str, Port]) -> bool:
    """Whether the ports with a prefix include all signals that a bus requires."""
    lower = {name.lower(): name for name in ports}
    names = [(each, _port_of(prefix, each, lower)) for each in signals if not each.is_optional]
    return all(name is not None and ports[name].direction == each.direction for each, name in names)


def _other_bus(
    key: str, bus: str, prefix: str, ports: Mapping[str, Port]
) -> tuple[str, str] | None:
    """Return the bus that fits the ports, and its prefix; None for no known bus.

    Args:
        key: `registers` or `memory`.
        bus, prefix: bus and prefix of the description, which do not fit the ports.
    """
    for name, signals in (REGISTER_BUSES if key == "registers" else MEMORY_BUSES).items():
        if not signals:
            continue
        role = signals[0].role
        ends = (role, f"{role}_i", f"{role}_o")
        found = [(each, end) for each in ports for end in ends if each.lower().endswith(end)]
        prefixes = dict.fromkeys([prefix, *(each[: -len(end)] for each, end in found)])
        for other in prefixes:
            if (name, other) != (bus, prefix) and _fits(other, signals, ports):
                return name, other
    return None


def _lacking(
    key: str, bus: str, prefix: str, signal: Signal, ports: Mapping[str, Port]
) -> AcceleratorConfigError:
    wanted = prefix + signal.role
    other = _other_bus(key, bus, prefix, ports)
    if other is not None:
        changes = {"bus": (bus, other[0]), "prefix": (prefix, other[1])}
        settings = [f'{name} = "{new}"' for name, (old, new) in changes.items() if new != old]
        whose = f"; the ports are {BUS_NAMES[other[0]]}'s" if other[0] != bus else ""
        return _fault(
            f"rtl.{key}: the top has no {signal.direction} {wanted}, which {bus} needs{whose}",
            f"set {' and '.join(settings)} in [rtl.{key}]",
        )
    near = closest(wanted, list(ports))
    fix = f"set {signal.role} in [rtl.{key}.ports], or correct prefix"
    if near:
        fix += f"; the nearest is {near}"
    return _fault(f"rtl.{key}: the top has no {signal.direction} {wanted}, which {bus} needs", fix)


def _check_signal(key: str, signal: Signal, port: Port, data: str, data_bits: int) -> None:
    """Refuse a port of the wrong direction or width.

    Args:
        data: name of the first data port of the bus, with `data_bits`.
        data_bits: data width of the bus.
    """
    if port.direction != signal.direction:
        raise _fault(
            f"{key}: {port.name} is an {port.direction}, and {signal.role} is an "
            f"{signal.direction} of the design",
            "check which side of the bus is the design's",
        )
    widths = {"data": data_bits, "strobe": data_bits // 8}
    wanted = signal.width if isinstance(signal.width, int) else widths[signal.width]
    if not wanted or port.bits == wanted:
        return
    why = f"{signal.role} has {wanted}"
    if signal.width == "data":
        why = f"{data} {data_bits}"
    elif signal.width == "strobe":
        why = f"needs {wanted}, one for each byte of {data}"
    raise _fault(
        f"{key}: {port.name} has {port.bits} bits, and {why}",
        "give it that width, or name another port",
    )


def _check_driven(section: RtlSection, ports: Sequence[Port], wired: set[str]) -> None:
    for port in ports:
        if port.direction != "input" or port.name in wired:
            continue
        name = port.name.lower()
        if port.bits == 1 and ("clk" in name or "clock" in name):
            raise _fault(
                f"rtl.clock: {section.top} has a second clock, {port.name}, and the kit drives one",
                "write a top that derives it from the clock, or set it in [rtl.ties] if it is "
                "not needed",
            )
        raise _fault(
            f"rtl: nothing drives the input {port.name} of {section.top}, {port.bits} bits",
            f"set {port.name} in [rtl.ties], or name what it is",
        )
