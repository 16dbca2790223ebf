# SPDX-License-Identifier: Apache-2.0
"""Reshapes of reshapes become one, which needs no code."""

from __future__ import annotations

from umakit import tvm_api


@tvm_api.mutator
class _Joiner(tvm_api.PyExprMutator):
    """Lets each reshape read what the first of a chain reads."""

    def visit_var_binding_(self, binding: tvm_api.VarBinding) -> None:
        emitted = tvm_api.emit_like(self.builder_, binding.var, self.visit_expr(binding.value))
        self.set_var_remap(binding.var, emitted)

    def visit_call_(self, call: tvm_api.Call) -> tvm_api.Expr:
        call = self.visit_expr_post_order(call)
        if tvm_api.operator_name(call) != "reshape" or not isinstance(call.args[0], tvm_api.Var):
            return call
        first = self.lookup_binding(call.args[0])
        if first is None or tvm_api.operator_name(first) != "reshape":
            return call
        joined = tvm_api.relax.op.reshape(first.args[0], call.args[1])
        return tvm_api.make_call(joined, span=call.span)


def joined_reshapes(module: tvm_api.IRModule) -> tvm_api.IRModule:
    """Return a module in which no reshape of `main` reads the result of another one.

    TVM fuses two of them to a kernel that copies each element to where it is.
    """
    joiner = _Joiner(module)
    main = joiner.visit_expr(module["main"])
    joiner.builder_.update_func(module.get_global_var("main"), main)
    return joiner.builder_.get()
