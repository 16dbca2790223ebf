# SPDX-License-Identifier: Apache-2.0
"""What derivations of several operators share: windows, constants of layers, conversions."""
