# SPDX-License-Identifier: Apache-2.0
"""Package formats of a library, for other build systems."""
