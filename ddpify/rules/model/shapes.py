"""Whether code that builds a model does without the values of its weights.

It then runs on the meta device, which has shapes alone. What torch cannot do there ends with an
error; what is looked for here is said before.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.facts.constructed import own, own_name
from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import ClassInfo, FunctionInfo
from ddpify.facts.values import Kind
from ddpify.source import Site

_LIBRARIES: Final = ("torch.nn.", "math.", "itertools.", "functools.", "typing.", "dataclasses.")
_NOT: Final = ("torch.nn.utils.", "torch.nn.parallel.")
_TORCH: Final = frozenset(
    f"torch.{name}"
    for name in """empty zeros ones full rand randn randint randperm normal arange linspace eye
    tensor tril triu cat stack exp log sqrt rsqrt sin cos pow abs sum mean outer meshgrid
    empty_like zeros_like ones_like full_like rand_like randn_like flatten clamp where einsum matmul
    Tensor FloatTensor Generator Size finfo device no_grad manual_seed get_default_dtype
    cuda.is_available repeat_interleave cumsum polar complex prod""".split()
)
_NO_TENSORS: Final = ("device", "finfo", "no_grad", "manual_seed", "get_default_dtype")
_OTHERS: Final = frozenset({"copy.deepcopy", "copy.copy", "collections.OrderedDict"})
_BUILTINS: Final = {f"builtins.{name}" for name in vars(builtins)} - {
    f"builtins.{name}" for name in "open input eval exec compile __import__".split()
}
_METHODS: Final = frozenset(
    """__init__ apply register_buffer register_parameter add_module register_module parameters
    named_parameters modules named_modules children named_children buffers named_buffers
    load_state_dict train eval requires_grad_ to cuda cpu float double half bfloat16 type
    to_empty register_forward_hook register_forward_pre_hook reset_parameters _reset_parameters
    init_weights append extend insert pop get keys values items update copy setdefault index count
    add join format find split strip lower upper startswith endswith replace
    view reshape unsqueeze squeeze size dim numel transpose permute t expand expand_as repeat
    contiguous clone detach flatten fill_ zero_ normal_ uniform_ copy_ mul_ add_ sub_ div_ clamp_
    trunc_normal_ fill_diagonal_ masked_fill masked_fill_ exp log sin cos sqrt pow mul add sub div
    sum mean long int bool tril triu chunk unbind log_ exp_ erfinv_ bernoulli_ cumsum flip
    new_zeros new_ones new_empty new_full fan_in fan_out is_floating_point""".split()
)
_CONTAINERS: Final = (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp)
_CODE: Final = (Kind.CLASS, Kind.FUNCTION, Kind.METHOD)
_MOVES: Final = ("to", "cuda", "cpu")
_CALLED: Final = ("__init__", "__post_init__", "reset_parameters", "_reset_parameters")
_PLAIN: Final = ("builtins.", "torch.nn.", "typing.", "abc.", "enum.", "collections.")


@dataclass(frozen=True)
class _Reached:
    """A statement that is run; ``made``: by the constructor of something."""

    path: str
    statement: ast.stmt
    made: bool = False


def asks_values(
    facts: Facts, path: str, statements: Iterable[ast.stmt]
) -> Iterator[tuple[Site, str]]:
    """The places that need values, or may, and what each does: here and in what is called."""
    calls = {call.site: call for call in facts.everywhere}
    done = set[ast.AST]()
    todo = [_Reached(path, node) for node in statements]
    while todo:
        one = todo.pop()
        if one.statement in done:
            continue
        done.add(one.statement)
        for inner in ast.walk(one.statement):
            yield from _against(facts, one, inner, calls)
            todo += _leads_to(facts, one, inner)


def _against(
    facts: Facts, one: _Reached, node: ast.AST, calls: dict[Site, Call]
) -> Iterator[tuple[Site, str]]:
    tree = facts.trees[one.path]
    if isinstance(node, ast.Call):
        moves = one.made and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES
        why = "moves what it makes" if moves else ""
        why = why or _of_call(facts, node, calls.get(tree.site(node)), one.path)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        why = "sets `.data`" if node.attr == "data" and not own_name(node) else ""
    elif isinstance(node, ast.Assign):
        kept = ast.walk(node.value) if isinstance(node.value, _CONTAINERS) else (node.value,)
        plain = own(ast.Tuple([*node.targets])) and any(
            _is_tensor(tree.site(one), calls) for one in kept if isinstance(one, ast.Call)
        )
        why = "keeps a tensor that is no buffer: use register_buffer" if plain else ""
    else:
        why = ""
    if why:
        yield tree.site(node), why


def _is_tensor(site: Site, calls: dict[Site, Call]) -> bool:
    """Whether a value is made by a function of torch, of those that give tensors."""
    name = calls[site].name if site in calls else ""
    tail = name.removeprefix("torch.")
    return name in _TORCH and tail[:1].islower() and "." not in tail and tail not in _NO_TENSORS


def _of_call(facts: Facts, node: ast.Call, call: Call | None, path: str) -> str:
    text = ast.unparse(node.func)
    if text == "super" or (text.startswith("super(") and text.endswith(".__init__")):
        return ""
    if any(word.arg == "device" for word in node.keywords):
        return "says a device for what it makes"
    if call is None:
        known = isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS
        return "" if known else f"`{text}`: what it needs is not known"
    if call.target is not None or _is_read(facts, call) or _is_known(call.name):
        return ""
    if call.name == "torch.load" and _is_loaded(facts, path, node):
        return ""
    return f"`{text}`: whether it does without the values of weights is not known"


def _is_known(name: str) -> bool:
    if name.startswith("."):
        return name[1:] in _METHODS
    if name.startswith(_NOT):
        return False
    return name in _TORCH | _OTHERS | _BUILTINS or name.startswith(_LIBRARIES)


def _is_loaded(facts: Facts, path: str, node: ast.Call) -> bool:
    """``model.load_state_dict(torch.load(path))``, which gives rank 0 its values."""
    above = [n for n in facts.trees[path].ancestors(node) if isinstance(n, ast.Call)]
    return any(ast.unparse(one.func).endswith(".load_state_dict") for one in above)


def _is_read(facts: Facts, call: Call) -> bool:
    """Whether a class of the project is called that only has bases of the project and torch's."""
    value = facts.values.get(call.callee)
    infos = [thing.ref for thing in value.things] if value is not None else []
    return bool(infos) and all(
        isinstance(one, ClassInfo) and all(base.startswith(_PLAIN) for base in one.external_bases())
        for one in infos
    )


def _leads_to(facts: Facts, one: _Reached, node: ast.AST) -> Iterator[_Reached]:
    """The statements of the project's functions and constructors that a name stands for."""
    if not isinstance(node, ast.expr):
        return
    value = facts.values.get(facts.trees[one.path].site(node))
    things = value.of(*_CODE) if value is not None else ()
    for ref in (thing.ref for thing in things):
        if isinstance(ref, FunctionInfo) and not isinstance(ref.node, ast.Lambda):
            yield from (_Reached(ref.module.source.path, n, one.made) for n in ref.node.body)
        elif isinstance(ref, ClassInfo):
            for info, method in _constructors(ref):
                yield from (_Reached(info.module.source.path, n, True) for n in method.body)


def _constructors(info: ClassInfo) -> Iterator[tuple[ClassInfo, ast.FunctionDef]]:
    for one in info.mro():
        for method in one.node.body:
            if isinstance(method, ast.FunctionDef) and method.name in _CALLED:
                yield one, method
