# SPDX-License-Identifier: Apache-2.0
"""The waveform of a case that runs on a design."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from umakit.devices import Device
from umakit.devices.designs import designs_for
from umakit.devices.probe import Probe
from umakit.devices.waveforms import Wave, WaveFile, written_wave
from umakit.errors import DeviceError, UmakitError
from umakit.files.staging import temporary_folder
from umakit.pipeline import ExportOptions, compile_model
from umakit.registration.backend import Backend
from umakit.testing.check.batch import member_of, network_of
from umakit.testing.check.cases import Case
from umakit.testing.check.claims import Claim
from umakit.testing.check.rounds import LAYER_SECONDS, RTL_FACTOR


def write_wave(
    backend: Backend, case: Case, claims: Mapping[str, Claim], device: Device, file: WaveFile
) -> None:
    """Run a case once more, with its own data and without faults, and write the waveform.

    No waveform is written of a case that does not compile, or has no layer on the design.

    Args:
        claims: claims by name of the pattern.
        device: the device with designs.
        file: file for the waveform.

    Raises:
        OutputError: the file cannot be written.
        BuildError: Verilator or a compiler refused the design with waveforms.
    """
    member = member_of(case, 0, dict(claims), accepted=True)
    with temporary_folder("umakit-wave-") as folder:
        try:
            library = compile_model(
                network_of([member]),
                [backend],
                folder / "library",
                name="check",
                options=ExportOptions(keep_layout=True),
            )
        except UmakitError:  # the failure of the case
            return
        description = library.metadata["umakit"]
        if backend.target_name not in {layer["where"] for layer in description["layers"]}:
            return
        probe = Probe(
            description, library.path, folder / "probe", device,
            designs=designs_for([backend], device), is_traced=True,
        )  # fmt: skip
        wave = Wave(backend.target_name)
        with (
            written_wave(file, wave, folder) as environment,
            contextlib.suppress(DeviceError),  # the failure of the case
        ):
            # Give up a silent design at the end of its waveform.
            limit = {"UMAKIT_RTL_CYCLES": str(wave.most_cycles)}
            probe.run(member.inputs, {}, RTL_FACTOR * LAYER_SECONDS, {**environment, **limit})
