# SPDX-License-Identifier: Apache-2.0
"""What an exported library needs on a device, read from object files and the compiler's call graph.

Imports neither TVM nor the pipeline.
"""

from umakit.tools.size.measure import LayerSize, LibrarySize, library_size

__all__ = ["LayerSize", "LibrarySize", "library_size"]
