# SPDX-License-Identifier: Apache-2.0
"""ONNX files as input: checked, shaped, and imported one operator at a time."""
