# SPDX-License-Identifier: Apache-2.0
"""`uma report`: figures, drawings and HTML page about a network on an accelerator.

::

    figures.py   Page           the figures, as printed by `uma report --json`
    collect.py   make_page      compiles and runs a network, and collects the figures
    bounds.py                   bounds of the network, and losses of layers
    timeline.py, roofline.py    layout of the drawings
    writing.py   html           the page and memory panels, from `templates/report`
"""

from umakit.tools.page.collect import make_page
from umakit.tools.page.figures import Page
from umakit.tools.page.writing import html

__all__ = ["Page", "html", "make_page"]
