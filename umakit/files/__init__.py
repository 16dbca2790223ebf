# SPDX-License-Identifier: Apache-2.0
"""Files that are given and files that are written."""
