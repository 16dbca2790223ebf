# SPDX-License-Identifier: Apache-2.0
"""Regions of a network get the layout of an accelerator's patterns, if the change pays.

::

    flip.py       Flip        the other layout: orders of axes, shapes, constants
    rules.py      Rule        an operator in the other layout
    windows.py, elementwise.py, movement.py   the rules of kinds of operators
    graph.py      Graph, rule_of  operators that can change their layout, and tensors between them
    rewriting.py  rewrite     the network with these layouts, and transposes at their borders
    choose.py     fit_layouts the layouts of least cost, as a minimum cut
"""
