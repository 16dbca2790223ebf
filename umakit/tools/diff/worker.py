# SPDX-License-Identifier: Apache-2.0
"""The program that runs ONNX Runtime or TensorFlow Lite Micro in a separate process.

The program reads pickled requests from standard input and writes pickled answers to standard
output. It imports no module of umakit, so that it starts in a fraction of a second.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class OnnxSession:
    """A session of ONNX Runtime."""

    def __init__(self, content: bytes) -> None:
        import onnxruntime

        states = onnxruntime.capi.onnxruntime_pybind11_state
        try:
            self._session = self._opened(content, "1")
        except (states.NotImplemented, states.Fail):
            self._session = self._opened(content, "0")

    def _opened(self, content: bytes, precise: str) -> Any:
        """Return a session that follows the model's definition, in integers where possible.

        On x86-64 processors with AVX2 and without VNNI, ONNX Runtime adds two products of uint8 and
        int8 in 16 bits, which saturate, unless `x64quantprecision` makes all weights uint8. In that
        mode, kernels of some operators are missing, such as QGemm of int8, which do not saturate.
        Products of real data and weights of 4 or 8 bits are computed with 8-bit data, unless
        `qdq_matmulnbits_accuracy_level` asks for float32.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Its threads would use up the processor between runs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.x64quantprecision", precise)
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(self, names: Sequence[str], inputs: Mapping[str, Any]) -> list[Any]:
        return list(self._session.run(list(names), dict(inputs)))


class MicroInterpreter:
    """An interpreter of TensorFlow Lite Micro that keeps all tensors."""

    def __init__(self, content: bytes, arena_bytes: int) -> None:
        from tflite_micro.python.tflite_micro import runtime

        self._interpreter = runtime.Interpreter.from_bytes(
            content,
            arena_size=arena_bytes,
            intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors,
        )

    def run(self, inputs: Sequence[Any]) -> None:
        """Run one inference; inputs are in the order of the file."""
        for number, array in enumerate(inputs):
            self._interpreter.set_input(array, number)
        self._interpreter.invoke()

    def outputs(self, count: int) -> list[Any]:
        return [np.array(self._interpreter.get_output(number)) for number in range(count)]

    def tensors(self, numbers: Sequence[int]) -> list[Any]:
        """Return the current values of the tensors with these numbers."""
        read = self._interpreter.GetTensor
        return [np.array(read(number, 0)["tensor_data"]) for number in numbers]

    def reset(self) -> None:
        """Reset states to their values before the first inference."""
        self._interpreter.reset()


RUNTIMES = {"onnxruntime": OnnxSession, "tflite-micro": MicroInterpreter}


def main() -> None:
    """Answer requests, (method, arguments), until the input ends; the first creates the runtime."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a runtime's own output is not an answer
    runtime: Any = None
    answer: tuple[bool, Any]
    while True:
        try:
            method, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if runtime is None:
                runtime = RUNTIMES[method](*arguments)
                answer = True, None
            else:
                answer = True, getattr(runtime, method)(*arguments)
        except ImportError as error:
            answer = False, f"a package that it needs is missing: {error}"
        except Exception as error:  # a runtime may refuse with any exception
            lines = str(error).strip().splitlines() or [type(error).__name__]
            answer = False, f"it refuses the {'model' if runtime is None else 'inputs'}: {lines[0]}"
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
