# SPDX-License-Identifier: Apache-2.0
"""Forms in which other projects take in a library: CMake, Zephyr, Arduino, tar."""
