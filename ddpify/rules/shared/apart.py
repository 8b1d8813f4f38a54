"""What tells the training loader from the others that the same call makes."""

from __future__ import annotations

from dataclasses import dataclass

from ddpify.facts.evaluation import carriers
from ddpify.facts.events import Call
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts, Loader
from ddpify.facts.values import Kind, Thing
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit


@dataclass(frozen=True)
class Apart:
    """A condition on a parameter of the factory, "" where none is needed.

    It holds of ``alike`` as well, whose loaders do not train.
    """

    condition: str = ""
    alike: tuple[Call, ...] = ()


def told_apart(loader: Loader) -> Apart:
    """When a call of the factory trains: by an argument that is another constant otherwise.

    Of a loader that nothing takes batches from it does not matter.
    """
    others = [c for c in loader.calls if c not in loader.training]
    busy = [c for c in others if c not in loader.idle]
    given = [_given(loader, name) for name in loader.call.where.frame.parameters]
    for rest in (others, busy):
        for one in given if rest else ():
            if one.tells(loader.training, rest):
                return Apart(one.condition(loader.training))
    for rest in (others, busy):
        for one in given:
            alike = [c for c in rest if one.of(c) in one.among(loader.training)]
            left = [c for c in rest if c not in alike]
            if left and one.tells(loader.training, left):
                again = tuple(c for c in alike if c in busy)
                return Apart(one.condition(loader.training), again)
    return Apart("", tuple(busy))


@dataclass(frozen=True)
class _Given:
    """What a parameter of the factory is in each of its calls."""

    name: str
    constants: dict[Call, str]

    def of(self, call: Call) -> str | None:
        return self.constants.get(call)

    def among(self, calls: tuple[Call, ...]) -> set[str | None]:
        return {self.of(c) for c in calls}

    def tells(self, training: tuple[Call, ...], others: list[Call]) -> bool:
        yes, no = self.among(training), self.among(tuple(others))
        return not (None in yes | no or yes & no) and (len(yes) == 1 or not _flags(yes))

    def condition(self, training: tuple[Call, ...]) -> str:
        wanted = sorted(text for text in self.among(training) if text is not None)
        if _flags(set(wanted)):
            return self.name if wanted[0] == "True" else f"not {self.name}"
        if len(wanted) == 1:
            return f"{self.name} == {wanted[0]}"
        return f"{self.name} in ({', '.join(wanted)})"


def _flags(texts: set[str | None]) -> bool:
    return not texts.isdisjoint({"True", "False"})


def _given(loader: Loader, name: str) -> _Given:
    values = ((call, call.where.frame.env.get(name)) for call in loader.calls)
    return _Given(
        name,
        {
            call: repr(value.const)
            for call, value in values
            if value is not None and value.known and isinstance(value.const, (bool, str))
        },
    )


def is_evaluated(loader: Loader) -> bool:
    """Whether a loader that trains is gone through for something else, too."""
    trained = _made(loader.training)
    return any(not trained.isdisjoint(loaders_in(loop.over)) for loop in loader.evaluations)


def whole_again(facts: Facts, loader: Loader, alike: tuple[Call, ...]) -> tuple[Edit, ...] | None:
    """Let the loops that evaluate on such loaders go through all samples; None where one cannot."""
    if not set(alike).isdisjoint(loader.by_hand):
        return None
    again = {t for x in facts.loaders if x.training for t in _made(told_apart(x).alike)}
    edits: list[Edit] = []
    for loop in loader.evaluations:
        mine = _made(alike) & set(loaders_in(loop.over))
        tree = facts.tree(loop.header)
        sites = [*carriers(tree, facts.values, loop)] if mine else None
        over = {t for site in sites or () for t in facts.values[site].of(Kind.LOADER)}
        if sites == [] or not over <= again:
            return None
        edits += [edit(facts, How.REPLACE, site, "whole_loader({})") for site in sites or ()]
    return tuple(dict.fromkeys(edits))


def _made(calls: tuple[Call, ...]) -> set[Thing]:
    return {thing for call in calls for thing in call.result.of(Kind.LOADER)}
