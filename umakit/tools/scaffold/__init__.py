# SPDX-License-Identifier: Apache-2.0
"""`uma new`: the project of a new backend, written from templates.

::

    answers.py    Kind, Answers      the flags of `uma new`, checked; `OPERATORS`
    new.py        KINDS, new_backend one entry for each kind; renders templates, writes a folder
    record.py     read_record        `.umakit/` of a project: its flags, its files as written; names
    update.py     update_backend     `uma new --update`, which merges edited files

**How a kind is added.** A folder of templates and an entry:

1. `templates/kind_NAME/` has a template (`*.j2`) for each file that only this kind has, in the
   subfolders of the project. `BACKEND` in a path stands for the backend's name:
   `simulator/BACKEND_simulator.c.j2` becomes `simulator/my_npu_simulator.c`. A template whose text
   is blank for some answers writes no file. `templates/project/` has the files common to all kinds
   (pyproject.toml, run.py, test_backend.py, README.md, ...); a file of the kind with the same path
   replaces them. The shared README.md includes `kind_NAME/_steps.md.j2`, the steps of that kind in
   order. Templates whose names begin with `_` are included by others and write no file.
2. `KINDS` in new.py gets `Kind(name, summary, operators, flags, page)`: the flags of the kind
   with their defaults, and functions that compute further values for its templates (`values`) or
   whole files without a template (`files`), for example from a register map (`answers.registers` is
   its text, empty without `--registers`).

`new.template_values` lists the values common to all templates.
"""

from umakit.tools.scaffold.answers import OPERATORS, Answers, Kind, answers_of
from umakit.tools.scaffold.new import (
    KINDS,
    TUTORIALS,
    NewBackend,
    kind_of,
    new_backend,
    project_files,
    tutorial_files,
)
from umakit.tools.scaffold.record import check_name
from umakit.tools.scaffold.update import Update, update_backend

__all__ = [
    "KINDS",
    "OPERATORS",
    "TUTORIALS",
    "Answers",
    "Kind",
    "NewBackend",
    "Update",
    "answers_of",
    "check_name",
    "kind_of",
    "new_backend",
    "project_files",
    "tutorial_files",
    "update_backend",
]
