# SPDX-License-Identifier: Apache-2.0
"""Compile a small network, run it on the vanilla_accelerator, compare with TVM's own CPU build.

python run.py [OUTPUT_FOLDER]
"""

import sys
import tempfile
from pathlib import Path

from umakit.errors import UmakitError
from umakit.harness import compile_and_run, conv2d_model
from umakit.registry import load_backend_folder


def main() -> int:
    """Returns the exit code."""
    backend = load_backend_folder(Path(__file__).parent)
    if len(sys.argv) > 1:
        output = Path(sys.argv[1])
    else:
        output = Path(tempfile.mkdtemp(prefix="vanilla_accelerator_"))
    model = conv2d_model(channels=3, height=16, width=12, filters=8, kernel=3)
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
