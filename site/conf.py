# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the pages that `stage.py` writes."""

from __future__ import annotations

project = "umakit"
author = "The umakit authors"
copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

html_theme = "furo"
html_title = "umakit"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

# Anchors of headings as in the repository's own view of the pages.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_use_rtype = False
napoleon_use_ivar = True  # a property that `Attributes` names is described once
nitpicky = False
