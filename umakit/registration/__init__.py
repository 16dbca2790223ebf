# SPDX-License-Identifier: Apache-2.0
"""What a backend registers, and what every stage may ask it."""
