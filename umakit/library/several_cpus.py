# SPDX-License-Identifier: Apache-2.0
"""Libraries for several CPUs: files, and the part of the metadata for each CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from umakit.codegen.model_source import GeneratedCode
from umakit.codegen.several_cpus import ForCpu
from umakit.files.npz import npz_bytes
from umakit.library.cpu_sections import KEYS, KEYS_IF_ANY
from umakit.library.description import describe
from umakit.machine.cpu_choice import CpuChoice
from umakit.memory.plan import MemoryPlan, PoolPlan
from umakit.partition.report import OffloadReport
from umakit.program.program import Program
from umakit.registration.backend import Backend


@dataclass(frozen=True)
class CompiledNetwork:
    """A network after all stages.

    Attributes:
        choice: the CPU, of several; None in a library for one CPU.
        program: the program.
        plan: memory plan of the program.
        report: the offload report.
        relax_text: text of the partitioned network, for `src/`.
    """

    choice: CpuChoice | None
    program: Program
    plan: MemoryPlan
    report: OffloadReport
    relax_text: str

    @property
    def printed(self) -> ForCpu:
        """The input of code generation."""
        assert self.choice is not None  # of a library for several CPUs
        return ForCpu(self.choice, self.program, self.plan)


def with_common_pools(networks: Sequence[CompiledNetwork]) -> list[CompiledNetwork]:
    """Return networks with the same pools in all plans, some of them empty."""
    pools = {pool.pool.name: pool.pool for each in networks for pool in each.plan.supplied}
    found = []
    for each in networks:
        own = {pool.pool.name: pool for pool in each.plan.supplied}
        supplied = [own.get(name, PoolPlan(pool, {}, 0)) for name, pool in pools.items()]
        others = [pool for pool in each.plan.pools if pool.pool.by_offset]
        plan = replace(each.plan, pools=(*supplied, *others))
        found.append(replace(each, plan=plan))
    return found


def sections_of(
    networks: Sequence[CompiledNetwork],
    backends: Mapping[str, Backend],
    codes: Sequence[GeneratedCode],
) -> list[dict[str, Any]]:
    """Return the section of each CPU, for the metadata.

    Args:
        networks: the network for each CPU, in the order of the compiler's choice.
        backends: backends of the programs, by target name.
        codes: the generated code for each CPU.
    """
    sections = []
    for each, code in zip(networks, codes, strict=True):
        described = describe(each.program, each.plan, each.report, backends, code)["umakit"]
        sections.append(
            {
                "cpu": each.printed.choice.cpu.model_dump(mode="json"),
                "suffix": each.printed.choice.suffix,
                **{key: described[key] for key in (*KEYS, *KEYS_IF_ANY) if key in described},
            }
        )
    return sections


def files_of(networks: Sequence[CompiledNetwork]) -> dict[str, str | bytes]:
    """Return constants and texts of all networks but the last one, by path in the library."""
    files: dict[str, str | bytes] = {}
    for each in networks[:-1]:
        name = f"{each.program.name}_{each.printed.choice.suffix}"
        files[f"parameters/{name}.npz"] = npz_bytes(each.program.constants)
        files[f"src/{name}.relax.txt"] = each.relax_text
    return files
