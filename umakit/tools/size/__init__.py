# SPDX-License-Identifier: Apache-2.0
"""`uma size`: memory of an exported library on a device, from object files and call graphs.

Imports neither TVM nor the pipeline.
"""

from umakit.tools.size.measure import LayerSize, LibrarySize, library_size

__all__ = ["LayerSize", "LibrarySize", "library_size"]
