# SPDX-License-Identifier: Apache-2.0
"""Files on which version 0.2.0 failed. They lie beside the folder of trained models."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tflite_networks import MODELS_VARIABLE

MODELS = Path(os.environ.get(MODELS_VARIABLE) or Path(__file__).parents[2] / "shared/models")
FOLDER = MODELS.parent / "reproductions" / "0.2.0"


def reproduction(name: str) -> Path:
    """Return a file; skips the test if there is none."""
    if not (FOLDER / name).is_file():
        pytest.skip(f"there is no {FOLDER / name}; {MODELS_VARIABLE} names the folder beside it")
    return FOLDER / name
