# SPDX-License-Identifier: Apache-2.0
"""Tuning records of kernels for a CPU: reading, adding to a file, and use in a compilation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from umakit.cpu.description import GENERIC, Cpu
from umakit.cpu.kernel_choices import Choice, KernelChoices, KernelKey
from umakit.errors import RecordsError, short_path
from umakit.frontend import Model
from umakit.records.kernels import KernelRecord, Origin
from umakit.records.owners import AGAIN, Owner, check_same_owner
from umakit.records.tilings import Records, read_existing, read_records, write_records


def read_choices(path: Path, model: Model, cpu: Cpu) -> Mapping[KernelKey, Choice]:
    """Read the choices of a file by kernel; empty if the file holds tilings."""
    records = read_records(path)
    if records.owner.cpu is None:
        return {}
    if cpu.name == GENERIC != records.owner.name:
        raise RecordsError(
            f"records are of {records.owner.name}, not of {GENERIC}",
            where=short_path(path),
            fix=f"give --cpu {records.owner.name}, or leave the records out",
        )
    check_same_owner(records.owner, Owner.of_cpu(model, cpu), short_path(path))
    return {record.kernel: record.choice for record in records.kernels}


def is_of_another(path: Path, cpu: Cpu, names: Sequence[str]) -> bool:
    """Whether records belong to another CPU of a library for several CPUs."""
    owner = read_records(path).owner
    return owner.cpu is not None and owner.name != cpu.name and owner.name in names


def check_choices(
    path: Path,
    recorded: Mapping[KernelKey, Choice],
    choices: KernelChoices,
    cpu: Cpu,
    has_backends: bool,
) -> None:
    """Refuse records that do not fit the kernels; accelerators may have taken some."""
    if choices.refused:
        key = choices.refused[0]
        raise RecordsError(
            f"kernel {key.text} cannot have the choice {choices.given[key].text}",
            where=short_path(path),
            fix=AGAIN,
        )
    unknown = [key for key in recorded if key not in choices.made]
    if unknown and not (has_backends and len(unknown) < len(recorded)):
        rest = "leave the records out if accelerators took its layer, else " if has_backends else ""
        raise RecordsError(
            f"the network has no kernel {unknown[0].text} for {cpu.name}",
            where=short_path(path),
            fix=f"{rest}tune with the same --input-shapes and --rounding",
        )


def existing_kernels(path: Path, owner: Owner, origin: Origin) -> Records:
    """Read the records of kernels in a file; empty if there is no file."""
    where, records = short_path(path), read_existing(path)
    if records is None:
        return Records(owner, origin=origin)
    check_same_owner(records.owner, owner, where)
    assert records.origin is not None  # as records of a CPU have
    for name in ("figures", "device", "machine", "compiler"):
        was, now = getattr(records.origin, name), getattr(origin, name)
        if was != now:
            raise RecordsError(f"its {name} is {was!r}, not {now!r}", where=where, fix=AGAIN)
    return records


def keep_kernels(
    path: Path,
    owner: Owner,
    origin: Origin,
    kernels: Sequence[KernelRecord],
    inputs: Iterable[Path] = (),
) -> None:
    """Add records of kernels to a file, under a lock against other processes that add records."""

    def content() -> bytes:
        replaced = {record.kernel for record in kernels}
        there = existing_kernels(path, owner, origin).kernels
        kept = [*(each for each in there if each.kernel not in replaced), *kernels]
        kept.sort(key=lambda each: (each.operators, each.kernel.text))
        return Records(owner, kernels=tuple(kept), origin=origin).content()

    write_records(path, content, inputs)
