# SPDX-License-Identifier: Apache-2.0
"""The registrations of backends, and questions of every stage to a backend."""
