# SPDX-License-Identifier: Apache-2.0
"""Files with the tensors of the first difference, for the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umakit.files.npz import npz_bytes
from umakit.files.outputs import NPZ_RESULTS, check_file
from umakit.files.staging import write_file
from umakit.tools.diff.result import DiffResult

CONTENTS = {
    "inputs": "inputs of this inference",
    "library": "what the layer computed",
    "reference": "what it had to compute",
    "layer_inputs": "what the layer was fed with",
}
"""Names of the files without the suffix `.npz`, with descriptions."""


@dataclass(frozen=True)
class DifferenceFiles:
    """The tensors of the first difference, as files.

    Attributes:
        folder: folder for the files.
        given: file of the given inputs; None for random inputs.
        read: other files and folders that the command reads.
        force: whether files that umakit did not write are replaced too.
    """

    folder: Path
    given: Path | None
    read: list[Path]
    force: bool

    def check(self) -> None:
        """Check that the files can be written, before anything is compiled.

        Raises:
            OutputError: a file is an input or was not written by umakit.
        """
        for kind in CONTENTS:
            if not self._is_given(kind):
                check_file(self._path(kind), NPZ_RESULTS, self.inputs, force=self.force)

    def write(self, result: DiffResult) -> dict[str, str]:
        """Write the files and return their paths by kind.

        Raises:
            OutputError: a file cannot be written.
        """
        contents: dict[str, dict[str, Any]] = {"inputs": dict(result.inputs)}
        blame = result.blame
        if blame is not None:
            name = blame.operators[-1].name if blame.operators else blame.layer.name
            contents |= {"library": {name: blame.got}, "reference": {name: blame.wanted}}
            if blame.inputs:
                contents["layer_inputs"] = blame.inputs
        paths = {}
        for kind in CONTENTS:
            path, arrays = self._path(kind), contents.get(kind)
            if self._is_given(kind):
                paths[kind] = str(path)
            elif arrays is not None:
                named = {name.replace("/", "."): array for name, array in arrays.items()}
                content = npz_bytes(named, NPZ_RESULTS.mark)
                write_file(path, content, NPZ_RESULTS, self.inputs, force=self.force)
                paths[kind] = str(path)
            elif path.is_file() and NPZ_RESULTS.wrote(path):
                path.unlink()  # of an earlier comparison
        return paths

    def _path(self, kind: str) -> Path:
        return self.folder / f"{kind}.npz"

    @property
    def inputs(self) -> list[Path]:
        """All files and folders that the command reads."""
        return [*self.read, *([] if self.given is None else [self.given])]

    def _is_given(self, kind: str) -> bool:
        """Whether a file is the given one, as when an earlier difference is repeated.

        The inputs are then a single inference, and would be written unchanged.
        """
        path = self._path(kind)
        return (
            kind == "inputs"
            and self.given is not None
            and path.is_file()
            and path.samefile(self.given)
            and NPZ_RESULTS.wrote(path)
        )
