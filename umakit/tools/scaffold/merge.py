# SPDX-License-Identifier: Apache-2.0
"""Three-way merges of a file: as written, as edited since, as it would be written now."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

from umakit.errors import ScaffoldError
from umakit.files.staging import temporary_folder

MOST_CONFLICTS = 127
"""`git merge-file` returns the number of conflicts, at most this; above, it failed."""

LABELS = ("yours", "as `uma new` wrote it", "as `uma new` writes it now")


def merged(yours: bytes, base: bytes, new: bytes) -> bytes:
    """Return an edited file with the changes of its template; conflicts have markers.

    Raises:
        ScaffoldError: there is no git, whose merge this is, or a file is no text.
    """
    with temporary_folder("umakit-merge-") as folder:
        paths = []
        for name, content in (("yours", yours), ("base", base), ("new", new)):
            path = Path(folder) / name
            path.write_bytes(content)
            paths.append(str(path))
        labels = [word for label in LABELS for word in ("-L", label)]
        command = ["git", "merge-file", "--stdout", "--diff3", *labels, *paths]
        try:
            result = subprocess.run(command, capture_output=True, check=False)
        except OSError as error:
            raise ScaffoldError(
                f"edited files are merged with git, which cannot be run: {error.strerror}",
                fix="install git",
            ) from None
    if not 0 <= result.returncode <= MOST_CONFLICTS:
        reason = result.stderr.decode("utf-8", "replace").strip()
        raise ScaffoldError(f"git cannot merge the file: {reason}", fix="merge it by hand")
    return result.stdout


def has_conflicts(content: bytes) -> bool:
    """Whether a file has markers of conflicts that nobody has solved yet."""
    lines = content.splitlines()
    marks = (b"<<<<<<< ", b"=======", b">>>>>>> ")
    return all(any(line.startswith(mark) for line in lines) for mark in marks)


def difference(path: str, old: bytes, new: bytes) -> str:
    """Return what changes in a file, as a unified difference."""
    before, after = (text.decode("utf-8", "replace").splitlines() for text in (old, new))
    names = f"{path} (yours)", f"{path} (merged)"
    lines = difflib.unified_diff(before, after, *names, lineterm="")
    return "\n".join(lines)
