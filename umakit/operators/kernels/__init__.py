# SPDX-License-Identifier: Apache-2.0
"""Parts of CPU kernels that several integer operators share."""
