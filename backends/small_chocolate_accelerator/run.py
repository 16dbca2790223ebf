# SPDX-License-Identifier: Apache-2.0
"""Compile a small int8 network, run it on the small_chocolate_accelerator, compare with the CPU.

python run.py [OUTPUT_FOLDER]
"""

import sys
import tempfile
from pathlib import Path

from umakit.backend import load_backend_folder
from umakit.errors import UmakitError
from umakit.testing import QuantizedNetwork, compile_and_run


def main() -> int:
    """Returns the exit code."""
    backend = load_backend_folder(Path(__file__).parent)
    if len(sys.argv) > 1:
        output = Path(sys.argv[1])
    else:
        output = Path(tempfile.mkdtemp(prefix="small_chocolate_accelerator_"))
    network = QuantizedNetwork(16, 12, 3).conv2d(16).conv2d(16, stride=2, depthwise=True)
    model = network.conv2d(24, kernel=1).dense(10).model()
    report = compile_and_run(model, backend, test_dir=output)
    print(report)
    print(f"Generated files are in {output / model.name}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UmakitError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
