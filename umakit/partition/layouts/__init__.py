# SPDX-License-Identifier: Apache-2.0
"""Regions of a network get the layout of an accelerator's patterns, where that pays.

::

    flip.py       Flip        the other layout: orders of axes, shapes, constants
    rules.py      rule_of     how one operator computes in the other layout, or that it cannot
    windows.py, elementwise.py, movement.py   the rules of kinds of operators
    graph.py      Graph       operators that can change their layout, and the tensors between them
    cut.py        cheapest_side   the layouts with the least cost, as a minimum cut
    rewriting.py  rewrite     the network with these layouts, and transposes at their borders
    predictions.py Predictions  cycles of what accelerators with a cost model would take
    choose.py     fit_layouts from a network and backends to a network
"""
