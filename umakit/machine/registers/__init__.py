# SPDX-License-Identifier: Apache-2.0
"""Register maps in TOML: reading, checks, and C headers.

`sim/registers/*.toml` are the maps of the kit's devices. `registers.toml` in the folder of a
backend of the kind `layer` is the team's map.
"""
