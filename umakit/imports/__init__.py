# SPDX-License-Identifier: Apache-2.0
"""How modules of the package are imported."""
