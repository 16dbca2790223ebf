# SPDX-License-Identifier: Apache-2.0
"""`uma doctor`: what a backend lacks before its first run, and what to do about each."""

from umakit.tools.doctor.checks import Check, Diagnosis, Status
from umakit.tools.doctor.examination import examine_backend, examine_machine

__all__ = ["Check", "Diagnosis", "Status", "examine_backend", "examine_machine"]
