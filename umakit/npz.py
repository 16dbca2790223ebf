# SPDX-License-Identifier: Apache-2.0
"""NumPy's archive format, written so that equal arrays give equal bytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def npz_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """An npz file whose bytes depend on the arrays only: NumPy's own writer adds the time.

    It also refuses arrays called `file`; this one takes any name.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in sorted(arrays.items()):
            member = io.BytesIO()
            np.lib.format.write_array(member, array)
            information = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(information, member.getvalue())
    return buffer.getvalue()
