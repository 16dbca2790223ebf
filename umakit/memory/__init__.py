# SPDX-License-Identifier: Apache-2.0
"""The memory stage: each intermediate and scratch tensor gets a memory pool and an offset in it.

Tensors that are alive at the same time do not overlap, except that an element-wise kernel's output
may reuse the memory of an input whose last use is that kernel.
"""
