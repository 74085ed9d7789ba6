"""A program of tensors as the flat list of what depends on its inputs; all else is worked out once.

Running a Pyro program takes milliseconds: handlers, plates, distributions, and everything that the
posterior draws alone decide, again and again. Here it is run once while torch writes down each
elementary operation; those that the inputs do not reach are replaced by their results, those that
do not reach the answer are dropped. What is left has no Python of the program's own in it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node, map_arg
from torch.fx.experimental.proxy_tensor import make_fx

AGREES = 1e-10  # relative to the size of the answer


def flat_program(
    program: Callable[..., Any], inputs: Sequence[torch.Tensor], other: Sequence[torch.Tensor]
) -> Callable[..., Any] | None:
    """Return a faster function of tensors of the same shapes, or None if there is none.

    program : of tensors, to one or to a tuple of them, without side effects. inputs : those it is
    written down at. other : of the same shapes; there, and at ``inputs``, both must agree, to 1e-10
    of the answer's largest finite value, with what is infinite or NaN in its place. None where the
    program decides by values, draws random numbers that the answer depends on, or cannot be written
    down for any other reason: it has to be run as it is.
    """
    try:
        # in-place writes, which distributions make inside, become values of their own
        written = make_fx(torch.func.functionalize(program))(*inputs)
        flat = _folded(written)
        same = all(_agree(flat(*at), program(*at)) for at in (inputs, other))
    except Exception:  # any Python may be in a program; what cannot be written down is run
        return None
    return flat if same else None


def _agree(flat: Any, ran: Any) -> bool:
    if not isinstance(ran, torch.Tensor):
        return len(flat) == len(ran) and all(map(_agree, flat, ran))
    if flat.shape != ran.shape or not ran.numel():
        return bool(flat.shape == ran.shape)
    # by what is finite: an infinite value must be met by itself, and excuses no other
    size = torch.where(torch.isfinite(ran), ran.abs(), 0.0).max().clamp(min=1.0)
    return torch.allclose(flat, ran, rtol=0.0, atol=float(AGREES * size), equal_nan=True)


def _folded(written: GraphModule) -> GraphModule:
    """Return the operations between inputs and answer alone, the rest as stored tensors."""
    graph, stored = Graph(), torch.nn.Module()
    known: dict[Node, Any] = {}  # results of what the inputs do not reach
    moving: set[Node] = set()  # what they do
    kept: dict[Node, Node] = {}  # its place in the new list, and that of stored tensors
    useful = _reaching(next(n for n in written.graph.nodes if n.op == "output"))

    def moved(node: Node) -> Node:
        if node not in kept:
            name = f"known{len(kept)}"
            stored.register_buffer(name, known[node])
            kept[node] = graph.get_attr(name)
        return kept[node]

    for node in written.graph.nodes:
        if node.op == "placeholder":
            kept[node] = graph.placeholder(node.name)
            moving.add(node)
        elif node not in useful:
            continue
        elif node.op == "get_attr":
            known[node] = getattr(written, node.target)
        elif node.op == "output" or moving.intersection(node.all_input_nodes):
            kept[node] = graph.node_copy(node, moved)
            moving.add(node)
        else:
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise ValueError("the answer depends on random numbers")
    return GraphModule(stored, graph)


def _reaching(answer: Node) -> set[Node]:
    found: set[Node] = set()
    waiting = [answer]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found
