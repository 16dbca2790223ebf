# SPDX-License-Identifier: Apache-2.0
"""Accounting of an inference's cycles by owner, for `uma run --profile` and `uma report`.

::

    report.py    RunReport      layers, totals and settings of an inference
    host.py      Host           processor time: of drivers, their devices, and CPU steps
    columns.py   owner_table    the figures as a table of texts
    account.py   account        collects the figures of a run, with waits by commands
"""

from umakit.tools.accounting.account import account
from umakit.tools.accounting.report import RunReport
from umakit.tools.record import LayerRecord, Parts

__all__ = ["LayerRecord", "Parts", "RunReport", "account"]
