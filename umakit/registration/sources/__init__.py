# SPDX-License-Identifier: Apache-2.0
"""Libraries of C files for backends: all files, and the files that calls need."""
