# SPDX-License-Identifier: Apache-2.0
"""Two reports side by side, and limits on their figures: `uma report --compare` and `--budget`.

::

    saved.py       Report        what a comparison needs of a report, as read from its JSON
    reading.py     read_report   saved reports; files that are none are refused
    adding_up.py   contradiction figures of a report that contradict each other
    sources.py     open_report   reports of saved files, exported libraries and models
    measured.py                  the report of an exported library
    figures.py     FIGURES       the figures that are compared, one line each
    lines.py       lines_of      layers of two reports that compute the same operators
    compare.py     compare       the differences, as `--json` prints them
    limits.py      parse_limit   texts such as `cycles > +2%`, and whether reports keep them
    budget.py      read_budget   limits in a file
    writing.py     html          the page

Reports are files with a format and a version, so that one of yesterday needs no model, backend or
compiler. Nothing here but `sources.py` imports TVM.
"""
