# SPDX-License-Identifier: Apache-2.0
"""Commands' work: each uses the stages, no stage knows a tool."""
