"""State dicts: contexts and settings of FSDP1 become the functions of the distributed state API."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.conversion.code import RULE, NamedArguments, NoCounterpart, is_simple, written
from ddpify.rules.conversion.names import CLASS, called, mentions, short
from ddpify.rules.conversion.objects import text
from ddpify.rules.conversion.wrapped import is_wrapped
from ddpify.rules.conversion.wrapping import once

_TYPE: Final = "module state_dict_type state_dict_config optim_state_dict_config".split()
_ALL: Final = "full_state_dict=True"
_WHOLE: Final = f"StateDictOptions({_ALL})"
_FULL, _SHARDED = "StateDictType.FULL_STATE_DICT", "StateDictType.SHARDED_STATE_DICT"
_OPTIMIZER: Final = "model optim optim_state_dict group".split()
_EITHER: Final = "write it around the call, in the same function, then run again"


@dataclass(frozen=True)
class Kept:
    """In which form states are given at a place, and the settings that say so."""

    model: str
    whole: bool
    weights: str
    optimizer: str

    @property
    def options(self) -> str:
        return self.weights or (_WHOLE if self.whole else "")

    @property
    def of_optimizer(self) -> str:
        return self.optimizer or (_WHOLE if self.whole else "")


def context(tree: Tree, statement: ast.With) -> Edit | None:
    """The edit that opens a ``with FSDP.state_dict_type(…)``. Raises NoCounterpart."""
    name = f"{CLASS}.state_dict_type"
    found = [item for item in statement.items if called(tree, item.context_expr) == name]
    if not found:
        return None
    if len(statement.items) > 1 or found[0].optional_vars is not None:
        raise NoCounterpart(
            tree.site(found[0].context_expr),
            "the form of the states is set together with something else",
            "give it a `with` statement of its own, then run again",
        )
    _kept(tree, found[0].context_expr)
    return Edit(How.BODY, tree.site(statement), "")


def _kept(tree: Tree, node: ast.expr) -> Kept:
    """What a call sets. Raises NoCounterpart."""
    assert isinstance(node, ast.Call)
    given = NamedArguments.of(tree, node, _TYPE)
    model, kind = given.get("module"), given.get("state_dict_type")
    names = {one: name for one, name in mentions(tree)}
    named = names.get(kind, "") if kind is not None else ""
    if named not in (_FULL, _SHARDED) or kind is None or model is None:
        what = "LOCAL_STATE_DICT is gone" if "LOCAL" in named else "which form this is is not known"
        way = "take StateDictType.FULL_STATE_DICT or SHARDED_STATE_DICT, then run again"
        raise NoCounterpart(tree.site(kind or node), what, way)
    configs = [given.get(name) for name in _TYPE[2:]]
    weights, optimizer = (text(tree, one) if one is not None else "" for one in configs)
    return Kept(tree.text(model), named == _FULL, weights, optimizer)


class StateCalls:
    """The calls of one program that give or take states."""

    def __init__(self, facts: Facts, everywhere: tuple[Tree, ast.Call] | None) -> None:
        self.facts = facts
        self.set = _kept(*everywhere) if everywhere is not None else None

    def edits(self, call: Call, tree: Tree, node: ast.Call) -> tuple[Edit, ...]:
        """The edits of one call of a state, none for another call. Raises NoCounterpart."""
        owner = call.receiver
        if call.name in (".state_dict", ".load_state_dict") and owner is not None:
            if is_wrapped(owner):
                return (self._weights(call, tree, node),)
            if owner.of(Kind.OPTIMIZER):
                return self._optimizer(call, tree, node)
        return ()

    def notes(self, call: Call) -> Iterator[Finding]:
        """What of the loading of a state is another thing, and said."""
        if call.name == ".load_state_dict" and is_wrapped(call.receiver):
            yield Finding(
                RULE,
                call.site,
                "a whole state that lacks some of the model's names is no error any more: these"
                " weights stay as they are",
                Severity.NOTE,
            )

    def _at(self, call: Call, tree: Tree, node: ast.Call, model: str) -> Kept:
        name = f"{CLASS}.state_dict_type"
        for above in tree.ancestors(node):
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
                break
            for item in above.items if isinstance(above, ast.With) else ():
                if called(tree, item.context_expr) == name:
                    kept = _kept(tree, item.context_expr)
                    if kept.model == model:
                        return kept
                    what = "the form is set for another name of the model"
                    raise NoCounterpart(tree.site(node), what, _EITHER)
        if any(short(thing.name) == name for one in call.where.contexts for thing in one.things):
            raise NoCounterpart(
                tree.site(node), "the form of this state is set by a caller", _EITHER
            )
        if self.set is not None:
            return self.set
        return Kept(model, True, "", "")

    def _weights(self, call: Call, tree: Tree, node: ast.Call) -> Edit:
        assert isinstance(node.func, ast.Attribute)
        model = tree.text(node.func.value)
        kept = self._at(call, tree, node, model)
        if call.name == ".state_dict":
            NamedArguments.of(tree, node, [])
            return _written(tree, node, f"get_model_state_dict({model}", kept.options)
        given = NamedArguments.of(tree, node, ["state_dict", "strict"])
        options = kept.options
        if not isinstance(tree.parent(node), ast.Expr):
            what = "what load_state_dict() returns are other names than of FSDP1"
            raise NoCounterpart(tree.site(node), what, "leave it alone, then run again")
        if not given.flag("strict", True):
            if kept.weights:
                what = "strict=False and settings of FSDP1 are not put together"
                raise NoCounterpart(tree.site(node), what, "leave the settings out for loading")
            words = [_ALL] if kept.whole else []
            options = f"StateDictOptions({', '.join([*words, 'strict=False'])})"
        loaded = given.by_name["state_dict"]
        state = text(tree, loaded)
        if not isinstance(loaded, ast.Call) and kept.whole:
            state = f"dict({state})"  # its tensors are replaced by shards
        return _written(tree, node, f"set_model_state_dict({model}, {state}", options)

    def _optimizer(self, call: Call, tree: Tree, node: ast.Call) -> tuple[Edit, ...]:
        if call.name == ".state_dict":
            if called(tree, tree.parent(node) or node) == f"{CLASS}.optim_state_dict":
                return ()
            raise NoCounterpart(
                tree.site(node),
                "these states are this rank's shards",
                "FSDP.optim_state_dict(model, optimizer) is that of all, and is converted",
            )
        given = NamedArguments.of(tree, node, ["state_dict"])
        loaded = given.by_name["state_dict"]
        made = loaded if isinstance(loaded, ast.Call) else once(tree, loaded)
        if made is None or called(tree, made) != f"{CLASS}.optim_state_dict_to_load":
            raise NoCounterpart(
                tree.site(node),
                "what is loaded here is not given by FSDP.optim_state_dict_to_load",
                "load FSDP.optim_state_dict_to_load(model, optimizer, state), then run again",
            )
        assert isinstance(made, ast.Call)
        assert isinstance(node.func, ast.Attribute)
        model, optimizer, state = self._to_load(tree, made)
        if tree.text(node.func.value) != optimizer:
            raise NoCounterpart(tree.site(node), "it is made for another optimizer", _EITHER)
        kept = self._at(call, tree, made, model)
        source = state if loaded is made else tree.text(loaded)
        code = f"set_optimizer_state_dict({model}, {optimizer}, {source}"
        edit = _written(tree, node, code, kept.of_optimizer)
        return (edit,) if loaded is made else (written(How.REPLACE, tree.site(made), state), edit)

    def _to_load(self, tree: Tree, made: ast.Call) -> tuple[str, str, str]:
        """The model, the optimizer and the state; torch 2.0 had the state first."""
        names = ["model", "optim", "optim_state_dict"]
        first = self.facts.values.get(tree.site(made.args[0])) if made.args else None
        if first is not None and not is_wrapped(first):
            names = ["optim_state_dict", "model", "optim"]
        given = NamedArguments.of(tree, made, names)
        wanted = ("model", "optim", "optim_state_dict")
        model, optimizer, state = (given.by_name.get(name) for name in wanted)
        if model is None or optimizer is None or state is None:
            raise NoCounterpart(tree.site(made), "its arguments are not followed", _EITHER)
        return tree.text(model), tree.text(optimizer), text(tree, state)

    def gathered(self, call: Call, tree: Tree, node: ast.Call, name: str) -> Edit:
        """``FSDP.optim_state_dict(model, optimizer)`` and those before it. Raises NoCounterpart."""
        sharded, full = name.startswith("sharded"), name.startswith("full")
        names = _OPTIMIZER
        if full or sharded:
            names = "model optim optim_input rank0_only group".split()
        given = NamedArguments.of(tree, node, names)
        given.refuse({"group": "leave it out", "optim_input": "leave it out"})
        model, optimizer, state = (given.get(one) for one in ("model", "optim", "optim_state_dict"))
        own = state is None or (
            isinstance(state, ast.Call)
            and optimizer is not None
            and tree.text(state) == f"{tree.text(optimizer)}.state_dict()"
        )
        if model is None or optimizer is None or not own or not is_simple(model):
            raise NoCounterpart(tree.site(node), "its arguments are not followed", _EITHER)
        options = self._at(call, tree, node, tree.text(model)).of_optimizer
        if full:
            once_more = ", cpu_offload=True" if given.flag("rank0_only", True) else ""
            options = f"StateDictOptions({_ALL}{once_more})"
        code = f"get_optimizer_state_dict({tree.text(model)}, {tree.text(optimizer)}"
        return _written(tree, node, code, "" if sharded else options)


def _written(tree: Tree, node: ast.Call, code: str, options: str) -> Edit:
    code = f"{code}, options={options})" if options else f"{code})"
    return written(How.REPLACE, tree.site(node), code)
