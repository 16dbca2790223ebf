# SPDX-License-Identifier: Apache-2.0
"""Register maps in TOML: what is read, checked and written as a C header.

`sim/registers/*.toml` are those of the kit's devices; `registers.toml` in the folder of a backend
of the kind `layer` is that of the team's.
"""
