# SPDX-License-Identifier: Apache-2.0
"""Libraries of C files that backends call: which files there are, and which of them calls need."""
