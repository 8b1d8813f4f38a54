"""Where a distributed program puts its tensors: device choices, and when a process has chosen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.rules.shared.exclusion import chosen_apart

DEVICE = "torch.device"
SET_DEVICE = "torch.cuda.set_device"
VISIBLE = "CUDA_VISIBLE_DEVICES"
MOVES = frozenset({"to", "cuda"})
DIST_INIT = "torch.distributed.init_process_group"
# Calls that give a process its GPU; after them plain "cuda" is that GPU.
CHOOSERS = frozenset(
    {SET_DEVICE, "torch.cuda.device", "torch.accelerator.set_device_index", "torch.npu.set_device"}
)


@dataclass(frozen=True)
class Choice:
    """A call that names a device: ``index`` gives its number (None: plain "cuda")."""

    call: RankCall
    index: RankValue | None
    node: ast.expr | None


def choices(run: Run) -> Iterator[Choice]:
    """The CUDA devices a program names, in the order in which it does."""
    for call in run.calls:
        found = _choice(call)
        if found is not None:
            yield found


def _choice(call: RankCall) -> Choice | None:
    if call.name in (SET_DEVICE, DEVICE):
        return _named(call, call.arg(0, "device"), call.node_of(0, "device"))
    if call.receiver is None or call.method not in MOVES:
        return None
    if call.name.startswith(("accelerate.", "lightning.")):
        return None
    given, node = call.arg(0, "device"), call.node_of(0, "device")
    if call.method == "cuda":
        return Choice(call, given, node) if given is not None or not call.args else None
    return _named(call, given, node)


def _named(call: RankCall, given: RankValue | None, node: ast.expr | None) -> Choice | None:
    """What ``torch.device(…)``, ``set_device(…)`` and ``.to(…)`` are given."""
    if given is None:
        return None
    index = call.arg(1, "index") if call.name == DEVICE else None
    if index is not None:
        return Choice(call, index, call.node_of(1, "index")) if _says_cuda(given, node) else None
    text = given.constant
    if text == "cuda" or _may_be_plain(node):
        return Choice(call, None, node)
    if _is_device(given) or text == "cpu":
        return None
    number = _is_number(given) or _says_cuda(given, node) or call.name == SET_DEVICE
    return Choice(call, given, node) if number else None


def _may_be_plain(node: ast.expr | None) -> bool:
    """`"cuda" if … else "cpu"`."""
    arms = (node.body, node.orelse) if isinstance(node, ast.IfExp) else ()
    return any(isinstance(arm, ast.Constant) and arm.value == "cuda" for arm in arms)


def _is_device(value: RankValue) -> bool:
    return value.made_by(DEVICE) is not None


def _is_number(value: RankValue) -> bool:
    return all(isinstance(a, int) and not isinstance(a, bool) for a in value.atoms)


def _says_cuda(value: RankValue, node: ast.expr | None) -> bool:
    """``"cuda:1"``, ``f"cuda:{n}"``, ``"cuda:" + n``."""
    if any(isinstance(atom, str) and atom.startswith("cuda") for atom in value.atoms):
        return True
    texts = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant)) if node else ()
    return any(isinstance(text, str) and text.startswith("cuda:") for text in texts)


def chosen(run: Run, before: int | None = None) -> bool:
    """Whether each process has been given its GPU (before the event of that number)."""
    for call in run.calls:
        if before is not None and call.order >= before:
            break
        if call.name in CHOOSERS or (call.name == DIST_INIT and "device_id" in call.kwargs):
            return True
    return any(store.key == VISIBLE for store in run.stores)


def by_number(run: Run) -> bool:
    """Whether some device has a number that follows the rank."""
    return any(choice.index is not None and choice.index.by_rank for choice in choices(run))


def sees_own(run: Run) -> bool:
    """Whether each process is shown only its own GPU, which is then number 0."""
    return any(store.key == VISIBLE and store.value.by_rank for store in run.stores)


def moves(choice: Choice) -> bool:
    """Whether something goes there, or "cuda" is written there."""
    return choice.node is None or isinstance(choice.node, (ast.Constant, ast.IfExp))


def used(run: Run, choice: Choice) -> bool:
    """Whether something goes to a device, wherever it is made: one that is kept may be asked for
    its type alone. Not where it stands for a device that came without a number."""
    asked = {one.attr for guard in choice.call.guards for one in _attributes(guard.node)}
    if choice.call.name != DEVICE or choice.call.result is None:
        return True
    made = set(choice.call.result.things)
    places = (call for call in run.calls if call.method in MOVES or call.name in CHOOSERS)
    given = [value for call in places for value in call.given]
    given += [call.kwargs["device"] for call in run.calls if "device" in call.kwargs]
    return "index" not in asked and any(not made.isdisjoint(value.things) for value in given)


def _attributes(node: ast.expr) -> Iterator[ast.Attribute]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Attribute))


def names_one(choice: Choice) -> bool:
    """`"cuda:0" if … else "cpu"`."""
    arms = (choice.node.body, choice.node.orelse) if isinstance(choice.node, ast.IfExp) else ()
    return any(isinstance(a, ast.Constant) and str(a.value).startswith("cuda:") for a in arms)


def elsewhere(run: Run, call: RankCall) -> bool:
    """Whether a call may belong to a start without a process group: an arm that is not the group's.

    `if args.distributed: … else: device = "cuda:0"` is right in both arms.
    """
    if run.openings and all(chosen_apart(one, call) for one in run.openings):
        return True
    opened = dict(_conditions(run.session)) if run.session is not None else {}
    for key, holds in _conditions(call):
        if opened.get(key, holds) is not holds or (not holds and key not in opened):
            return True
    return False


def _conditions(call: RankCall) -> Iterator[tuple[str, bool]]:
    """The conditions of a call whose outcome is not known, without their `not`."""
    for guard in call.guards:
        atom = guard.test.atoms[0]
        if isinstance(atom, Symbol):
            plain = atom.key.removeprefix("not ")
            yield plain, guard.holds is (plain == atom.key)


def on_gpus(run: Run) -> bool:
    """Whether the ranks work on GPUs: the backend says so, or tensors go there."""
    if any(t == "nccl" for t in backends(run)):
        return True
    return any(choice.call.name != DEVICE for choice in choices(run))


def backends(run: Run) -> set[str]:
    """The backends that sessions are opened with, as far as they are known."""
    found = (call.arg(0, "backend") for call in run.named(DIST_INIT))
    return {str(value.constant) for value in found if value is not None and value.constant}


def may_be_nccl(run: Run) -> bool:
    """Whether a session's backend is NCCL, or not known."""
    known = backends(run)
    return not known or any("nccl" in backend for backend in known)


def sources(value: RankValue) -> set[str]:
    """The names of what a value was computed from."""
    return {thing.name for thing in value.sources()}
