# SPDX-License-Identifier: Apache-2.0
"""Images read at coordinates from a tensor, NaN, infinite and far outside ones among them.

The oracles are ONNX Runtime near the image, and far from it what the specification says of its
outside: zeros, the border, or a mirror image, which has no place for what float32 cannot tell.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from comparisons import SANITIZED
from networks import Graph, save

import umakit
from umakit import tvm_api
from umakit.devices import build
from umakit.errors import DeviceError

Array = npt.NDArray[Any]
STRICT = (*SANITIZED, "-O0", "-fsanitize=float-cast-overflow")  # -O0: compiles in half the time
RANDOM = np.random.default_rng(5)
PADDINGS = ("zeros", "border", "reflection")
relax, op = tvm_api.relax, tvm_api.relax.op


def run(library: Path, inputs: dict[str, Array]) -> dict[str, Array]:
    with mock.patch.object(build, "FLAGS", STRICT):
        return umakit.run_library(library, inputs).outputs


@pytest.mark.parametrize(("rank", "methods"), [(2, ["nearest", "linear"]), (3, ["nearest"])])
def test_grid_sample(tmp_path: Path, rank: int, methods: list[str]) -> None:
    """Every method and padding."""
    extents = (4, 5) if rank == 2 else (3, 2, 4)
    kinds = list(itertools.product(methods, PADDINGS, (0,)))
    graph = Graph()
    data = graph.input("data", 1, 2, *extents)
    grid = graph.input("grid", 1, *(1,) * (rank - 1), 40, rank)
    for mode, padding, corners in kinds:
        node = graph.node("GridSample", data, grid, name=f"{mode}_{padding}_{corners}", mode=mode,
                          padding_mode=padding, align_corners=corners)  # fmt: skip
        graph.output(node)
    path = save(graph.model(opset=20), tmp_path)
    image = RANDOM.uniform(1, 2, (1, 2, *extents)).astype("float32")
    near = RANDOM.uniform(-2.6, 2.6, (1, *(1,) * (rank - 1), 40, rank)).astype("float32")
    library = umakit.compile_model(path, [], tmp_path / "library").path
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"data": image, "grid": near})
    got = run(library, {"data": image, "grid": near})
    for (name, found), expected in zip(got.items(), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4, err_msg=name)
    far = np.zeros_like(near)
    far[..., :8, 0] = 1e12, -1e12, np.inf, -np.inf, np.nan, 3e38, 1e9, -3e9
    far[..., 8:16, rank - 1] = far[..., :8, 0]
    outputs = run(library, {"data": image, "grid": far})
    for kind, found in zip(kinds, outputs.values(), strict=True):
        check_far(kind, image, far.reshape(-1, rank), found.reshape(2, -1))


def check_far(kind: tuple[str, str, int], image: Array, far: Array, found: Array) -> None:
    """Results [channels, places] at coordinates [places, axes] far from an image."""
    _, padding, _ = kind
    for place, coordinates in enumerate(far[:16]):
        values = found[:, place]
        if np.isnan(coordinates).any() or padding == "reflection":
            assert np.isnan(values).all(), (kind, coordinates)
        elif padding == "zeros":
            np.testing.assert_array_equal(values, 0, str((kind, coordinates)))
        else:
            # Between neighbours of one image; cubic convolution goes beyond them by a part.
            low, high = image.min() - 0.5, image.max() + 0.5
            assert ((low <= values) & (values <= high)).all(), (kind, coordinates, values)
        if padding == "border" and kind[0] != "cubic" and not np.isnan(coordinates).any():
            end = 1e3 * np.sign(coordinates)
            clipped = np.where(coordinates == 0, 0, end)
            assert np.isfinite(clipped).all()
            axis = int(np.flatnonzero(coordinates)[0])
            line = np.moveaxis(image[0], image.ndim - 2 - axis, 1)
            edge = line[:, -1 if coordinates[axis] > 0 else 0].reshape(2, -1)
            low, high = edge.min(axis=1), edge.max(axis=1)
            assert ((low - 1e-5 <= values) & (values <= high + 1e-5)).all(), (kind, coordinates)


def max_roi_pool(data: Array, rois: Array, size: int) -> Array:
    """The bins of MaxRoiPool (R. Girshick 2015, as in ONNX Runtime) by brute force."""
    result = np.zeros((len(rois), data.shape[1], size, size), "float32")
    extents = data.shape[2:]
    for number, (image, *corners) in enumerate(rois):
        if not np.isfinite(corners).all():
            result[number] = np.nan
            continue
        x1, y1, x2, y2 = (int(np.floor(corner + 0.5)) for corner in corners)
        for i, j in np.ndindex(size, size):
            part = []
            for first, last, at, extent in ((y1, y2, i, extents[0]), (x1, x2, j, extents[1])):
                step = np.float32(max(last - first + 1, 1)) / np.float32(size)
                begin = int(np.floor(at * step)) + first
                end = int(np.ceil((at + 1) * step)) + first
                part.append(slice(min(max(begin, 0), extent), min(max(end, 0), extent)))
            window = data[int(image), :, part[0], part[1]]
            if window.size:
                result[number, :, i, j] = window.max(axis=(1, 2))
    return result


def test_max_roi_pool(tmp_path: Path) -> None:
    data = RANDOM.standard_normal((2, 3, 6, 7)).astype("float32")
    special = [(0, 1, 2, 1e12), (-1e12, 0, 1e12, 3), (1, 1, np.inf, 4), (0, np.nan, 2, 2),
               (-np.inf, 0, 2, 2), (3e9, 3e9, 4e9, 4e9), (5, 5, 1, 1), (-9, -9, 7, -7)]  # fmt: skip
    corners = np.array([*special, *RANDOM.uniform(-2, 8, (8, 4))])
    rois = np.column_stack([np.arange(16) % 2, corners]).astype("float32")
    graph = Graph()
    images, regions = graph.input("data", *data.shape), graph.input("rois", *rois.shape)
    graph.output(graph.node("MaxRoiPool", images, regions, name="pool", pooled_shape=[2, 2]))
    path = save(graph.model(), tmp_path)
    library = umakit.compile_model(path, [], tmp_path / "library").path
    found = run(library, {"data": data, "rois": rois})["pool"]
    np.testing.assert_array_equal(found, max_roi_pool(data, rois, 2))
    sane = np.isfinite(rois).all(axis=1) & (abs(rois) < 1e6).all(axis=1)
    near = np.where(sane[:, None], rois, rois[:1] * 0)
    wanted = onnxruntime.InferenceSession(path).run(None, {"data": data, "rois": near})
    np.testing.assert_array_equal(found[sane], wanted[0][sane])
    for image, last in itertools.product((2, -1, np.nan, 1e12), (3.0, -50.0)):
        wrong = rois.copy()
        wrong[3] = image, -60, -60, last, last
        with pytest.raises(DeviceError, match=r"pool \(.*: an index is out of range"):
            run(library, {"data": data, "rois": wrong})


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_of_relax(tmp_path: Path, mode: str) -> None:
    builder = relax.BlockBuilder()
    x, r = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in
            (("x", (2, 1, 4, 4)), ("r", (2, 5))))  # fmt: skip
    with builder.function("main", [x, r]):
        with builder.dataflow():
            call = op.vision.roi_align(x, r, (2, 2), 1.0, 2, mode=mode)
            output = builder.emit_output(builder.emit(call, "align"))
        builder.emit_func_output(output)
    library = umakit.compile_model(builder.get(), [], tmp_path / "library").path
    data = RANDOM.standard_normal((2, 1, 4, 4)).astype("float32")
    for image, end in itertools.product((0, 1, 2, -1, np.nan), (3, 1e12, np.nan)):
        rois = np.array([[0, 0, 0, 3, 3], [image, 0, 0, 3, end]], "float32")
        if image in (0, 1):
            values = next(iter(run(library, {"x": data, "r": rois}).values()))
            assert np.isfinite(values[0]).all()
            assert np.isnan(values[1]).all() if np.isnan(end) else np.isfinite(values[1]).all()
        else:
            with pytest.raises(DeviceError, match="an index is out of range"):
                run(library, {"x": data, "r": rois})
