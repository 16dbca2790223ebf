# SPDX-License-Identifier: Apache-2.0
"""What backends are offered: integer operators with their layer, layouts and constraints."""
