# SPDX-License-Identifier: Apache-2.0
"""The program stage: a straight-line list of kernel and driver calls over named tensors."""
