# SPDX-License-Identifier: Apache-2.0
"""The library stage: exported C sources as a folder or tar file, with metadata and build files."""
