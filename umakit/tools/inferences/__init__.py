# SPDX-License-Identifier: Apache-2.0
"""Several inferences, one after the other: what the first takes, and what each later one does.

::

    figures.py        SeveralInferences        the figures, as `--json` prints them
    collect.py        measured_inferences      of a run, without TVM
                      predicted_inferences     of cost models
    compiled.py       inferences_of_library    of a run of a library that was just compiled
    accelerators.py   accelerator_inferences   bounds, and weights that could stay
"""
