# SPDX-License-Identifier: Apache-2.0
"""Random convolutions, about half of which the Vanilla accelerator must refuse."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from comparisons import examples
from execution import VANILLA, execute
from hypothesis import given
from hypothesis import strategies as st
from networks import Graph, Pads, same_pads

pytestmark = pytest.mark.optimized


@dataclass(frozen=True)
class Convolution:
    """What a convolution is made of, in ONNX's terms."""

    batch: int
    group: int
    channels_per_group: int
    filters_per_group: int
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: Pads
    bias: bool

    @property
    def accepted(self) -> bool:
        """Whether it is the one convolution that the array computes."""
        result_is_as_large = self.pads[0] + self.pads[2] == self.kernel[0] - 1 and (
            self.pads[1] + self.pads[3] == self.kernel[1] - 1
        )
        larger_half_comes_last = all(
            after - before in (0, 1)
            for before, after in zip(self.pads[:2], self.pads[2:], strict=True)
        )
        one_image_ungrouped = (self.batch, self.group) == (1, 1)
        every_position = self.strides == self.dilations == (1, 1)
        return (
            result_is_as_large and larger_half_comes_last and one_image_ungrouped and every_position
        )


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    height = draw(st.integers(1, 12))
    width = draw(st.integers(1, 12).filter(lambda size: size != height))
    channels, filters = draw(st.integers(1, 5)), draw(st.integers(1, 10))
    bias = draw(st.booleans())
    if draw(st.booleans()):
        pads = same_pads(*kernel)
        return Convolution(
            1, 1, channels, filters, height, width, kernel, (1, 1), (1, 1), pads, bias
        )
    steps = st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2)])
    dilations = draw(steps)
    padding = []
    for size, extent, dilation in zip((height, width), kernel, dilations, strict=True):
        # The kernel must fit into the padded image.
        missing = max(0, (extent - 1) * dilation + 1 - size)
        before = draw(st.integers(0, 3))
        padding.append((before, draw(st.integers(max(0, missing - before), max(3, missing)))))
    (top, bottom), (left, right) = padding
    return Convolution(
        batch=draw(st.integers(1, 2)),
        group=draw(st.integers(1, 3)),
        channels_per_group=channels,
        filters_per_group=draw(st.integers(1, 4)),
        height=height,
        width=width,
        kernel=kernel,
        strides=draw(steps),
        dilations=dilations,
        pads=(top, left, bottom, right),
        bias=bias,
    )


@examples(25)
@given(conv=convolutions())
def test_any_convolution_equals_onnx_runtime_and_runs_where_it_should(conv: Convolution) -> None:
    graph = Graph()
    x = graph.input("x", conv.batch, conv.group * conv.channels_per_group, conv.height, conv.width)
    result = graph.conv(
        x,
        conv.group * conv.filters_per_group,
        conv.kernel,
        bias=conv.bias,
        group=conv.group,
        strides=conv.strides,
        dilations=conv.dilations,
        pads=conv.pads,
        name="conv",
    )
    graph.output(result)
    with tempfile.TemporaryDirectory() as folder:
        execution = execute(graph.model(), Path(folder))
    where = [(row.operator, row.where) for row in execution.placements]
    wanted = [("nn.conv2d", VANILLA if conv.accepted else "cpu")]
    if conv.bias:
        wanted.append(("add", "cpu"))
    assert where == wanted
    assert execution.accelerator_layers == int(conv.accepted)
    (row, *_) = execution.placements
    assert bool(row.reason) is not conv.accepted
