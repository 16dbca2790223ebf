# SPDX-License-Identifier: Apache-2.0
"""Several consecutive inferences: cost of the first, and of each later inference.

::

    figures.py        SeveralInferences        the figures, as printed by `--json`
                      measured_inferences      figures of a run, without TVM
                      predicted_inferences     figures of cost models
    accelerators.py   accelerator_inferences   bounds, and weights that could stay
"""
