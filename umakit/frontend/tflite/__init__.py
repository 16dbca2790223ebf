# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files as input: read, checked, and converted one operator at a time."""
