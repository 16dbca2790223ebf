# SPDX-License-Identifier: Apache-2.0
"""Compile a small network, run it on the vanilla_accelerator, compare with TVM's own CPU build.

python run.py [OUTPUT_FOLDER]
"""

import sys
import tempfile
from pathlib import Path

from umakit.backend import load_backend_folder
from umakit.errors import UmakitError
from umakit.testing import compile_and_run, conv2d_model


def main() -> int:
    """Returns the exit code."""
    backend = load_backend_folder(Path(__file__).parent)
    if len(sys.argv) > 1:
        output = Path(sys.argv[1])
    else:
        output = Path(tempfile.mkdtemp(prefix="vanilla_accelerator_"))
    # float32. A backend of int8 layers needs an int8 network instead, for example
    # model = QuantizedNetwork(16, 12, 3).conv2d(16).model(), of umakit.testing as well.
    model = conv2d_model(channels=3, height=16, width=12, filters=8, kernel=3)
    report = compile_and_run(model, backend, test_dir=output)
    print(report)
    print(f"Generated files are in {output / model.name}")
    if all(row.where == "cpu" for row in report.offload.placements):
        print(f"Nothing ran on the {backend.target_name}, all on the CPU.", file=sys.stderr)
        print("Give `model` in run.py a layer of your patterns.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UmakitError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
