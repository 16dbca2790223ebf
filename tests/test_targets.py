# SPDX-License-Identifier: Apache-2.0
"""Targets of accelerators: names, attributes, overrides, and what UMA refuses."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from umakit import create_target, target_attributes, tvm_api
from umakit.backend import UMABackend
from umakit.errors import BackendError, TargetAttributeError

Target = tvm_api.Target
DEFAULTS = {"variant": "v1", "memory": 131072, "debug": False, "empty": "", "zero": 0}

_numbers = itertools.count()


def make_backend(name: str = "", attributes: dict[str, Any] | None = None) -> UMABackend:
    """A backend of a name of its own: TVM cannot forget a target."""
    chosen = name or f"target_test_{next(_numbers)}"

    class TargetBackend(UMABackend):
        target_name = chosen

        def __init__(self) -> None:
            super().__init__()
            for key, default in (DEFAULTS if attributes is None else attributes).items():
                self._register_target_attr(key, default)

    return TargetBackend()


def test_a_registered_backend_is_a_target_of_tvm_with_its_defaults() -> None:
    backend = make_backend()
    with pytest.raises(Exception, match=backend.target_name):
        Target(backend.target_name)
    backend.register()
    target = Target(backend.target_name)
    assert target.tag == backend.target_name
    assert str(target.kind.name) == "c"
    assert target_attributes(target) == DEFAULTS


def test_an_attribute_without_a_default_is_an_empty_string() -> None:
    backend = make_backend(attributes={})
    backend._register_target_attr("note")
    assert target_attributes(backend.target()) == {"note": ""}


OVERRIDES = [
    {"variant": "v2"},
    {"variant": ""},
    {"variant": 'a "b" = , ; \\ -x ü'},
    {"memory": 0},
    {"memory": -1},
    {"memory": 2**62},
    {"debug": True},
    {"variant": "v2", "memory": 1, "debug": True, "empty": "full", "zero": 7},
]


@pytest.mark.parametrize("overrides", OVERRIDES, ids=str)
def test_attributes_are_overridden_at_creation(overrides: dict[str, Any]) -> None:
    backend = make_backend()
    wanted = {**DEFAULTS, **overrides}
    assert target_attributes(backend.target(**overrides)) == wanted
    assert target_attributes(create_target(backend.target_name, **overrides)) == wanted
    types = {key: type(value) for key, value in target_attributes(backend.target()).items()}
    assert types == {key: type(value) for key, value in DEFAULTS.items()}
    assert target_attributes(backend.target()) == DEFAULTS  # of this one target only


COPIES: dict[str, Callable[[Any], Any]] = {
    "export": lambda target: Target(target.export()),
    "JSON": lambda target: Target(json.dumps(json.loads(str(target)))),
    "dictionary": lambda target: Target(json.loads(str(target))),
    "saved IR": lambda target: tvm_api.tvm.ir.load_json(tvm_api.tvm.ir.save_json(target)),
    "deep copy": copy.deepcopy,
    "with_host": lambda target: target.with_host(Target("c")),
    "host": lambda target: Target(target, host=Target("llvm")),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("overrides", OVERRIDES, ids=str)
def test_overrides_survive_export_json_and_a_host(way: str, overrides: dict[str, Any]) -> None:
    target = make_backend().target(**overrides)
    copied = COPIES[way](target)
    assert target_attributes(copied) == {**DEFAULTS, **overrides}
    assert copied.tag == target.tag


@pytest.mark.parametrize(
    ("default", "message"),
    [
        (None, "None is not supported"),
        (1.5, "only str, int and bool are supported, not float"),
        ([1], "not list"),
        (b"x", "not bytes"),
        ({}, "not dict"),
    ],
)
def test_defaults_of_other_types_are_refused(default: Any, message: str) -> None:
    with pytest.raises(TargetAttributeError, match=message) as caught:
        make_backend("refused_default", {"option": default})
    assert "refused_default" in str(caught.value) and "'option'" in str(caught.value)


def test_refusals_are_what_uma_v1_raised() -> None:
    for expected in (ValueError, TypeError, BackendError):
        with pytest.raises(expected):
            make_backend(attributes={"option": None})


@pytest.mark.parametrize(
    "name", ["mcpu", "keys", "kind", "tag", "host", "device", "libs", "model", "march"]
)
def test_attributes_of_tvm_are_refused(name: str) -> None:
    with pytest.raises(TargetAttributeError, match=f"attribute '{name}' is TVM's own"):
        make_backend(attributes={name: "x"})


def test_an_attribute_is_registered_once() -> None:
    backend = make_backend()
    with pytest.raises(TargetAttributeError, match="attribute 'variant' is registered already"):
        backend._register_target_attr("variant", "v3")


@pytest.mark.parametrize("name", ["", "a b", "a=b", "1x", "a-b"])
def test_an_attribute_that_cannot_be_a_keyword_is_refused(name: str) -> None:
    with pytest.raises(TargetAttributeError):
        make_backend(attributes={name: "x"})


@pytest.mark.parametrize("name", ["llvm", "c", "cuda", "ext_dev"])
def test_a_target_named_like_a_kind_of_tvm_is_refused(name: str) -> None:
    with pytest.raises(TargetAttributeError, match=f"target '{name}' already exists in TVM"):
        make_backend(name).register()


def test_a_target_named_like_a_tag_of_tvm_is_refused() -> None:
    tvm_api.tvm.target.register_tag("someone_elses_tag", {"kind": "c", "tag": "someone_elses_tag"})
    with pytest.raises(TargetAttributeError, match="'someone_elses_tag' already exists in TVM"):
        make_backend("someone_elses_tag").register()


@pytest.mark.parametrize("name", ["my-npu", "1npu", "a b", "nvidia/nvidia-a100", "npu\n", "größe"])
def test_a_target_name_that_is_no_c_identifier_is_refused(name: str) -> None:
    with pytest.raises(TargetAttributeError, match="is not a C identifier"):
        make_backend(name).register()


def test_registering_twice_is_harmless() -> None:
    backend = make_backend()
    backend.register()
    backend.register()
    type(backend)().register()
    assert target_attributes(backend.target()) == DEFAULTS


def test_a_name_taken_by_a_backend_with_other_attributes_is_refused() -> None:
    first = make_backend()
    first.register()
    second = make_backend(first.target_name, {"other": 1})
    with pytest.raises(TargetAttributeError, match="is registered already, by") as caught:
        second.register()
    assert "TargetBackend" in str(caught.value)
    assert target_attributes(first.target()) == DEFAULTS


def test_attributes_of_another_type_are_other_attributes() -> None:
    first = make_backend(attributes={"flag": True})
    first.register()
    with pytest.raises(TargetAttributeError, match="is registered already"):
        make_backend(first.target_name, {"flag": 1}).register()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"variant": 2}, "attribute 'variant' is str, not int"),
        ({"variant": None}, "attribute 'variant' is str, not NoneType"),
        ({"memory": "1"}, "attribute 'memory' is int, not str"),
        ({"memory": True}, "attribute 'memory' is int, not bool"),
        ({"memory": 1.0}, "attribute 'memory' is int, not float"),
        ({"debug": 1}, "attribute 'debug' is bool, not int"),
        ({"unknown": 1}, "there is no attribute 'unknown'; known: debug, empty, memory"),
    ],
)
def test_wrong_overrides_are_refused(overrides: dict[str, Any], message: str) -> None:
    backend = make_backend()
    with pytest.raises(TargetAttributeError, match=message) as caught:
        backend.target(**overrides)
    assert backend.target_name in str(caught.value)


def test_a_target_without_attributes_says_so() -> None:
    with pytest.raises(TargetAttributeError, match="known: none"):
        make_backend(attributes={}).target(unknown=1)


@pytest.mark.parametrize("use", [create_target, lambda name: target_attributes(Target("c"))])
def test_a_target_that_nobody_registered_is_refused(use: Any) -> None:
    with pytest.raises(TargetAttributeError, match="is not a registered accelerator"):
        use("nobody_registered_this")
