"""Methods of torch's that a model writes anew: of the wrapper torch calls them, or nobody does."""

from __future__ import annotations

from ddpify.facts.events import Access, Call
from ddpify.facts.fresh import method_of
from ddpify.facts.model import Facts, Status
from ddpify.facts.values import Kind
from ddpify.python.words import RETURNS_SELF

# `wrapper.train(mode)` calls that of the model; `wrapper.eval()` calls `train(False)` of it. What
# is done to all parameters, such as a move, goes by `_apply`.
BY_WRAPPER = frozenset({"train", "forward", "state_dict", "load_state_dict"})
_INHERITED = (RETURNS_SELF | {"parameters", "zero_grad", "requires_grad_"}) - BY_WRAPPER


def asked_of_inner(facts: Facts, access: Access) -> bool:
    """Whether the wrapper answers for itself, where the model has a method of its own.

    As nn.DataParallel did: what was asked of that stays as it was.
    """
    wrapped = access.base.of(Kind.WRAPPED)
    own = any(method_of(thing, access.attribute) is not None for thing in wrapped)
    if not own or not _is_alone(facts, access):
        return False
    if access.attribute == "train":
        return any(_says_more(call) for call in _calls(facts, access))
    return access.attribute in _INHERITED and facts.status is not Status.DATA_PARALLEL


def _is_alone(facts: Facts, access: Access) -> bool:
    """``net.eval()``; ``net = net.eval()`` would leave the name to the inner module."""
    return access.attribute not in RETURNS_SELF or all(c.alone for c in _calls(facts, access))


def _calls(facts: Facts, access: Access) -> list[Call]:
    name = f".{access.attribute}"
    return [c for c in facts.calls if c.name == name and c.receiver_site == access.base_site]


def _says_more(call: Call) -> bool:
    """``net.train(freeze=True)``, of which the wrapper's method knows nothing."""
    return len(call.args) > 1 or bool(call.kwargs.keys() - {"mode"})
