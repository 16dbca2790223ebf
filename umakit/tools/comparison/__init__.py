# SPDX-License-Identifier: Apache-2.0
"""Two reports side by side, and limits on figures: `uma report --compare` and `--budget`.

::

    saved.py       Report        parts of a report's JSON that a comparison needs
    reading.py     read_report   reads saved reports, and refuses contradictory ones
    sources.py     open_report   reports of saved files, exported libraries and models
    figures.py     FIGURES       the compared figures, one line each
    lines.py       lines_of      layers of two reports that compute the same operators
    compare.py     Comparison    the differences, as printed by `--json`
    limits.py      parse_limit   texts such as `cycles > +2%`, and checks of them
    budget.py      read_budget   limits in a file
    text.py        html          texts and the page

Reports are files with a format and a version, so that an old report needs no model, backend or
compiler. Only `sources.py` imports TVM.
"""
