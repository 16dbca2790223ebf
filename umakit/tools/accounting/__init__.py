# SPDX-License-Identifier: Apache-2.0
"""Every cycle of an inference has one owner: `uma run --profile` and `uma report` show the same.

::

    rows.py      Row, Parts     the figures of an owner, as `--json` prints them
    owners.py    Accounting     the figures of all owners
    host.py      Host           processor time: of drivers, of their devices, of steps on the CPU
    columns.py   owner_table    the same as a table of texts
    waits.py     waits_of       what the engines that compute wait for, by commands
    account.py   account        collects them of a run
"""

from umakit.tools.accounting.account import account
from umakit.tools.accounting.owners import Accounting
from umakit.tools.accounting.rows import Parts, Row

__all__ = ["Accounting", "Parts", "Row", "account"]
