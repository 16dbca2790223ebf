# SPDX-License-Identifier: Apache-2.0
"""`uma doctor`: reports a backend's missing prerequisites before its first run, with advice."""

from umakit.tools.doctor.checks import Check, Diagnosis, Status
from umakit.tools.doctor.examination import examine_backend, examine_machine

__all__ = ["Check", "Diagnosis", "Status", "examine_backend", "examine_machine"]
