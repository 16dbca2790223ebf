# SPDX-License-Identifier: Apache-2.0
"""Texts of TVM's exceptions become a sentence that the author of a pass can act on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from umakit import tir, tvm_api
from umakit.errors import BackendError
from umakit.registration.code import plain_tvm_text, raised

te = tvm_api.te


def scheduled() -> Any:
    """A schedule of a matrix product with an addition behind it."""
    a = te.placeholder((16, 16), "float32", name="a")
    axis = te.reduce_axis((0, 16), "k")
    product = te.compute(
        (16, 16), lambda i, j: te.sum(a[i, axis] * a[axis, j], axis=axis), name="product"
    )
    total = te.compute((16, 16), lambda i, j: product[i, j] + 1.0, name="total")
    return tvm_api.Schedule(tvm_api.IRModule({"main": te.create_prim_func([a, total])}))


def moves_the_result(schedule: Any) -> None:
    loops = schedule.get_loops(schedule.get_sblock("product"))
    schedule.compute_at(schedule.get_sblock("total"), loops[0])


def fuses_strangers(schedule: Any) -> None:
    loops = schedule.get_loops(schedule.get_sblock("product"))
    schedule.fuse(loops[0], loops[2])


def splits_too_small(schedule: Any) -> None:
    schedule.split(schedule.get_loops(schedule.get_sblock("total"))[1], factors=[3, 5])


def names_no_block(schedule: Any) -> None:
    schedule.get_sblock("nope")


SCHEDULES: dict[str, tuple[Callable[[Any], None], str]] = {
    "moves_the_result": (moves_the_result, "The block 'total' is an output block"),
    "fuses_strangers": (
        fuses_strangers,
        "The loops can't be fused because the outer loop 'i' is not the parent of the inner loop "
        "'k'",
    ),
    "splits_too_small": (
        splits_too_small,
        "The product of factors is not larger than or equal to the extent of loop 'j'",
    ),
    "names_no_block": (names_no_block, "Cannot find a block with the name: nope"),
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_schedule_errors_name_blocks_and_loops(case: str) -> None:
    mistake, wanted = SCHEDULES[case]
    with pytest.raises(tvm_api.ScheduleError) as caught:
        mistake(scheduled())
    assert raised(caught.value, None) == f'ScheduleError: "{wanted}"'


def test_an_exception_of_a_pass_is_quoted_whole() -> None:
    def fail(function: Any) -> Any:
        raise ValueError('no "weights"\nin this layer')

    with pytest.raises(ValueError, match="weights") as caught:
        tir.prim_func_pass("fail", fail)(scheduled().mod)
    assert raised(caught.value, None) == "ValueError: \"no 'weights' in this layer\""


def test_a_pass_that_returns_no_function() -> None:
    with pytest.raises(BackendError, match="the pass fail returned int, which is no prim func"):
        tir.prim_func_pass("fail", lambda function: 3)(scheduled().mod)


TEXTS = {
    "Check failed: (a->dtype == b->dtype) is false: mismatched types. int32 vs. float32\n": (
        "mismatched types. int32 vs. float32"
    ),
    "Check failed: size > 0 (0 vs. 0) : the size is 0": "the size is 0",
    "Check failed: (func.defined()) is false: ": "func.defined() does not hold",
    "[12:00:01] /workspace/src/tirx/ir.cc:33: InternalError: Check failed: (x) is false: no x": (
        "no x"
    ),
    'Traceback (most recent call last):\n  File "/src/tirx/ir.cc", line 3, in f\nno such axis\n'
    "note: run with `TVM_BACKTRACE=1` environment variable to display a backtrace.": "no such axis",
    "Mismatched type on argument #1 when calling: `transform.RunPass(0: transform.Pass) -> int`. "
    "Expected `ir.IRModule` but got `int`": (
        "argument 1 of transform.RunPass is `int` instead of `ir.IRModule`"
    ),
    "Error message: The loop tirx.For#3 is lost.": "The loop is lost.",
    "": "",
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    assert plain_tvm_text(text) == TEXTS[text]
