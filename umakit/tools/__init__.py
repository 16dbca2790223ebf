# SPDX-License-Identifier: Apache-2.0
"""Tools behind the commands of `uma`. Tools use the stages; no stage imports a tool."""
