# SPDX-License-Identifier: Apache-2.0
"""Draws the bugs of data/drawn_bugs.toml: python tests/drawn_bugs.py > tests/data/drawn_bugs.toml

The file is written once and kept: `uma check` may not choose the bugs that it has to find.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from c_mutator import Compiler, drawn
from check_projects import project_names, written_project
from rtl_mutator import Mutant

from umakit import find_backend
from umakit.text.escaping import shortened

ROOT = Path(__file__).parents[1]
EXAMPLES = ("examples/lane_npu", "examples/nova_nn")
SEED = 1
EACH = 6
"""Bugs of each backend."""

HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Mechanical bugs that `uma check` must find in copies of backends: drawn by drawn_bugs.py with seed
# {seed} before `uma check` was made to find them, and kept. Keys as in check_bugs.toml.
"""


def mutants_of(backend: str, folder: Path, number: int) -> Iterator[Mutant]:
    """Yield mutants of the driver and the simulator of a backend, or of a library of kernels.

    Args:
        backend: folder in the repository, or the name of a project.
        folder: a copy of it.
        number: of the backend, which says with which kind the mutants begin.
    """
    configuration = find_backend(str(folder)).configuration
    flags = [f"-I{ROOT / 'sim/include'}", "-I."]
    section, library = configuration.filled_simulator, configuration.sources
    if library is not None:
        root = folder / library.root
        paths = sorted(path for glob in library.files for path in root.glob(glob))
        flags += [f"-I{root / include}" for include in library.include]
        headers = sorted((root / "Include/internal").glob("*.h"))
    else:
        assert section is not None
        paths = [*folder.glob("*.c"), *(folder / source for source in section.sources)]
        flags += [f"-I{include}" for include in section.include]
        flags += [f"-D{define}" for define in section.defines]
        headers = sorted((folder / "simulator").glob("*.h"))
    sources = [str(path.relative_to(folder)) for path in paths]
    files = [*sources, *(str(path.relative_to(folder)) for path in headers)]
    texts = {file: (folder / file).read_text(encoding="utf-8") for file in files}
    return drawn(texts, SEED, number * EACH, Compiler(folder, sources, flags))


def located(text: str, mutant: Mutant) -> dict[str, str]:
    """Return the lines of a mutant without and with it, and what stands before them.

    Args:
        text: of the file.
        mutant: one of the file.
    """
    begin = text.rfind("\n", 0, mutant.begin) + 1
    end = text.find("\n", mutant.end)
    old = text[begin:end]
    changed = text[begin : mutant.begin] + mutant.new + text[mutant.end : end]
    if text.count(old) == 1:
        return {"old": old, "new": changed}
    lines = [line for line in text[:begin].splitlines() if line[:1].isalpha()]
    after = next(line for line in reversed(lines) if text.count(line) == 1)
    found = text.index(old, text.index(after))
    assert found == begin, "the same line stands twice in a function"
    return {"after": after, "old": old, "new": changed}


def main() -> int:
    """Print the data file."""
    print(HEADER.format(seed=SEED), end="")
    with tempfile.TemporaryDirectory() as temporary:
        for number, backend in enumerate((*EXAMPLES, *project_names())):
            folder = Path(temporary) / Path(backend).name
            if backend in EXAMPLES:
                shutil.copytree(ROOT / backend, folder)
            else:
                written_project(backend, Path(temporary))
            for mutant in itertools.islice(mutants_of(backend, folder, number), EACH):
                text = (folder / mutant.file).read_text(encoding="utf-8")
                kind = shortened(f"{mutant.kind} {Path(mutant.name).name}", 100)
                told = {"backend": backend, "kind": kind, "file": mutant.file}
                print("\n[[bug]]")
                for key, value in (told | located(text, mutant)).items():
                    print(f"{key} = {json.dumps(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
