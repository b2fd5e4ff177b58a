"""Weights prepared once (`optimize(…, freeze=True)`): what a module computes from its parameters and buffers alone
leaves the program that is optimised, which gets the results as buffers.

An exported program is split in two: the *preparation*, from weights to prepared tensors, and the rest. A transposed
weight is prepared too: it is laid out so once. Prepared tensors are made anew when a weight was replaced or written to,
so that what a caller sees is the module with the weights that it has now.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from equiforge._native import EquiForgeError

NAME = "equiforge_prepared_{}"  # of the buffers that the rest has


def _is_weight(node: fx.Node) -> bool:
    """A parameter, buffer or constant of the module, and no graph of it."""
    return node.op == "get_attr" and isinstance(node.meta.get("val"), Tensor)


def _written(node: fx.Node) -> list[fx.Node]:
    """The arguments that a call writes to."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    arguments = zip(node.target._schema.arguments, node.args, strict=False)
    named = {argument.name: argument for argument in node.target._schema.arguments}
    pairs = [*arguments, *((named[name], value) for name, value in node.kwargs.items())]
    return [
        x
        for argument, value in pairs
        if argument.alias_info is not None and argument.alias_info.is_write
        for x in (value if isinstance(value, (list, tuple)) else [value])
        if isinstance(x, fx.Node)
    ]


def _ancestors(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes, and all that they are computed from."""
    found: set[fx.Node] = set()
    left = list(nodes)
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left.extend(node.all_input_nodes)
    return found


def _size(node: fx.Node) -> int:
    """Elements."""
    value = node.meta["val"]
    return int(value.numel())


def _of_weights(graph: fx.Graph) -> set[fx.Node]:
    """The calls whose results depend on weights alone: no random ones, none that write, none of what is written to."""
    written = _ancestors([x for node in graph.nodes for x in _written(node)])
    constant = {node for node in graph.nodes if _is_weight(node) and node not in written}
    found: set[fx.Node] = set()
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if (
            node.op == "call_function"
            and isinstance(node.target, torch._ops.OpOverload)
            and isinstance(node.meta.get("val"), Tensor)
            and not node.target._schema.is_mutable
            and torch.Tag.nondeterministic_seeded not in node.target.tags
            and inputs
            and all(x in constant or x in found for x in inputs)
        ):
            found.add(node)
    return found


def _transpose(graph: fx.Graph) -> None:
    """Prints `linear` as the product with a transposed weight, so that this is prepared: on a processor, kernels read
    rows of that side by side, which is up to twice as fast. A narrow type would be rounded once more, before the bias
    is added: it stays."""
    found = _of_weights(graph)
    aten = torch.ops.aten
    for node in [node for node in graph.nodes if node.target is aten.linear.default]:
        x, weight, *bias = node.args
        value = weight.meta.get("val")
        plain = isinstance(value, Tensor) and value.dim() == 2 and value.dtype in (torch.float32, torch.float64)
        if node.kwargs or not plain or value.device.type != "cpu" or not (weight in found or _is_weight(weight)):
            continue
        with graph.inserting_before(node):
            turned = graph.call_function(aten.t.default, (weight,))
            turned.meta["val"] = value.detach().t()
            product = graph.call_function(aten.matmul.default, (x, turned))
            if bias and bias[0] is not None:
                product.meta["val"] = node.meta["val"]
                product = graph.call_function(aten.add.Tensor, (product, bias[0]))
        product.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(product)
        graph.erase_node(node)


def _frontier(graph: fx.Graph) -> list[fx.Node]:
    """The results that the rest needs. One with more elements than the weights that it is made of would cost more to
    read than to compute: then its operands are prepared instead."""
    found = _of_weights(graph)
    while True:
        ends = [node for node in graph.nodes if node in found and any(user not in found for user in node.users)]
        large = [node for node in ends if _size(node) > sum(_size(x) for x in _ancestors([node]) if x.op == "get_attr")]
        if not large:
            return ends
        found.difference_update(large)


@dataclass(frozen=True)
class Preparation:
    """From weights, by name, to prepared tensors. None is prepared when the module computes nothing from them."""

    module: fx.GraphModule
    weights: tuple[str, ...]
    count: int

    def __call__(self, weights: Sequence[Tensor]) -> dict[str, Tensor]:
        """Prepared tensors by name, contiguous, and none that shares its memory with a weight."""
        with torch.no_grad():
            results = self.module(*weights)
            return {NAME.format(i): x.clone(memory_format=torch.contiguous_format) for i, x in enumerate(results)}


def split(exported: torch.export.ExportedProgram) -> tuple[Preparation, Callable[[], nn.Module]]:
    """The preparation, and a function that makes the rest of the program, a module with the same weights."""
    whole = exported.module()
    _describe(whole)
    ends = []
    # Graphs that calls run (branches, loops) stay what they are, with all around them.
    if not any(_is_graph(whole, node) for node in whole.graph.nodes):
        _transpose(whole.graph)
        ends = _frontier(whole.graph)
    needed = _ancestors(ends)
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    weights: list[str] = []
    for node in whole.graph.nodes:
        if node not in needed:
            continue
        if node.op == "get_attr":
            copies[node] = graph.placeholder(f"weight_{len(weights)}")
            weights.append(str(node.target))
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in ends))
    preparation = Preparation(fx.GraphModule(nn.Module(), graph), tuple(weights), len(ends))

    def rest() -> nn.Module:
        tensors = preparation([_tensor(whole, name) for name in weights])
        for (name, tensor), node in zip(tensors.items(), ends, strict=True):
            whole.register_buffer(name, tensor)
            with whole.graph.inserting_before(node):
                node.replace_all_uses_with(whole.graph.get_attr(name))
        whole.graph.eliminate_dead_code()
        whole.recompile()
        return whole

    return preparation, rest


def _is_graph(whole: fx.GraphModule, node: fx.Node) -> bool:
    return node.op == "get_attr" and isinstance(_tensor(whole, str(node.target)), fx.GraphModule)


def _describe(whole: fx.GraphModule) -> None:
    """Sees to it that weights have a value in their description, as other nodes have."""
    for node in whole.graph.nodes:
        if node.op == "get_attr" and not isinstance(node.meta.get("val"), Tensor):
            with contextlib.suppress(AttributeError):
                value = _tensor(whole, str(node.target))
                if isinstance(value, Tensor):
                    node.meta["val"] = value


def _tensor(module: nn.Module, name: str) -> Any:
    path, _, last = name.rpartition(".")
    return getattr(module.get_submodule(path), last)


class Prepared:
    """The prepared tensors of a module. They are made anew, at the next call, when a weight of it has changed.

    Attributes:
        tensors: by name; the same dictionary all the time.
    """

    def __init__(self, preparation: Preparation, module: nn.Module | None, constants: dict[str, Tensor]):
        self.preparation, self.constants = preparation, constants
        self.places = [_place(name, module, constants) for name in preparation.weights]
        self.lock = threading.Lock()
        self.seen: list[tuple[int, object]] = []  # which weights, in which version, the tensors are made of
        self.kept: list[Tensor] = []  # … alive, so that no other has its identity
        self.tensors: dict[str, Tensor] = {}
        self._make([held[name] for held, name in self.places])

    def of(self, module: nn.Module | None) -> Prepared:
        """The same of another module."""
        return Prepared(self.preparation, module, self.constants)

    def refresh(self) -> bool:
        """What is written to a weight by PyTorch counts; what is written behind its back (`.data`) does not. False when
        nothing can be prepared from the weights as they are now."""
        weights = [x for x in (held.get(name) for held, name in self.places) if isinstance(x, Tensor)]
        if len(weights) < len(self.places):
            return False
        if self.seen == [_state(x) for x in weights]:
            return True
        try:
            self._make(weights)
        except RuntimeError:  # another shape, most likely
            return False
        return True

    def _make(self, weights: list[Tensor]) -> None:
        with self.lock:
            seen = [_state(x) for x in weights]
            if seen != self.seen:
                self.tensors.update(self.preparation([x.detach() for x in weights]))
                self.kept, self.seen = weights, seen

    def want_gradients(self) -> bool:
        """Whether a weight does."""
        return any(held[name].requires_grad for held, name in self.places)


def _state(x: Tensor) -> tuple[int, object]:
    """Another one when the tensor is another one, or was written to; every time where that is not known."""
    return id(x), object() if x.is_inference() else x._version


def _place(name: str, module: nn.Module | None, constants: dict[str, Tensor]) -> tuple[dict[str, Any], str]:
    """Where a weight is. EquiForgeError when it is nowhere."""
    path, _, last = name.rpartition(".")
    with contextlib.suppress(AttributeError):
        owner = module.get_submodule(path) if module is not None else None
        for held in (owner._parameters, owner._buffers, owner.__dict__) if owner is not None else ():
            if isinstance(held.get(last), Tensor):
                return held, last
    if name not in constants:
        raise EquiForgeError(f"the weight {name} is missing: pass the module it belongs to")
    return constants, name
