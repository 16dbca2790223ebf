# SPDX-License-Identifier: Apache-2.0
"""Parts that the derivations of several operators share: windows, constants, conversions."""
