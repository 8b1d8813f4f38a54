"""Elements: ``base[index]``, and which of them are this rank's."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any, Final

from ddpify.ranks import builtin, calls, configured, containers, environment, mixing, naming, picked
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import DATA, IDENTITY, ITEM, PART, PIECE, SLICE, STRIDE, Origin, Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.sizes import is_world_size
from ddpify.ranks.values import OwnRows, counts, differs, key_of, per_rank, symbol, text
from ddpify.source import Site


def item(
    m: RankMachine, f: RankFrame, base: RankValue, index: RankValue, node: ast.expr
) -> RankValue:
    """``base[index]``."""
    if any(t.name == "os.environ" for t in base.things):
        return environment.element(m, f, index, node) or symbol(f"environ[{key_of(index)}]")
    section = configured.entry(m, f, base, index, node)
    if section is not None:
        return section
    _note(m, f, base, index, node)
    sliced = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
    bounds = index.items if sliced else containers.bounds_of(index)
    if bounds is not None:
        return _sliced(f, base, index, bounds, node)
    held = _held(m, f, base, index, node)
    if held is not None:
        return held
    by_rank = _picked_by_rank(f, base, index, node)
    if by_rank is not None:
        return by_rank
    if base.items:
        found = containers.any_of(base.items)
        if index.origins:
            found = replace(found, origins=found.origins | index.origins)
        return _own_part(f, found, index, node)
    found = symbol("element", containers.asked_for(base, index), index)
    found = mixing.axis(found, base, index)
    atoms = zip(base.atoms, index.atoms, strict=True)
    one, other = (Symbol(f"{text(a)}[{text(b)}]", (ITEM, a, b)) for a, b in atoms)
    found = picked.by_mask(replace(found, atoms=(one, other)), index, f.module.site(node))
    if _ranks_in(index) <= _ranks_in(base):
        return found  # as much the rank's as the whole, whose name it is: ``for key in d: d[key]``
    return _piece(f, found, base, index, node)


def _note(m: RankMachine, f: RankFrame, base: RankValue, index: RankValue, node: ast.expr) -> None:
    if index.by_rank:
        m.run.parted.append((m.tick(), base))
    if base.items:  # an element of a known list does not say by what it was chosen
        m.run.asked.append((index, m.live, f.module.site(node)))


def _piece(
    f: RankFrame, found: RankValue, base: RankValue, index: RankValue, node: ast.expr
) -> RankValue:
    """An element that the rank picks, be it one of as many parts as there are ranks."""
    cut = _cut_up(base)
    rows = _rows_of_all(cut) if cut is not None else None
    if rows is not None:
        one, other = (OwnRows(text(a), a.parts, (), rows, stride=True) for a in found.atoms)
        found = replace(found, atoms=(one, other))
    return _own_part(f, found, index, node, PART if cut is None else PIECE)


def _ranks_in(value: RankValue) -> set[Site]:
    """Where the rank's number came into a value."""
    return {origin.site for origin in value.all_origins if origin.kind in IDENTITY}


def _held(
    m: RankMachine, f: RankFrame, base: RankValue, index: RankValue, node: ast.expr
) -> RankValue | None:
    """The element, where it is known which one is asked for, or what ``__getitem__`` gives."""
    key = index.constant
    module = next((t.receiver for t in base.things if t.name.endswith(".__dict__")), None)
    if module is not None and module.kind == "module" and not index.known:
        return naming.chosen(m, module.info)
    if base.keys is not None and (not index.known or not differs(index)):
        found = containers.entry(base, index) or builtin.missing(m, f, base, index, node)
        if found is not None:
            return found
    items = base.items
    if items is not None and isinstance(key, int) and -len(items) <= key < len(items):
        return items[key]
    layer = _layer(m, base, key) if type(key) is int else None
    if layer is not None:
        return layer
    return calls.call_method(m, f, base, "__getitem__", node, (index,))


def _layer(m: RankMachine, base: RankValue, number: int) -> RankValue | None:
    """``net[0]`` of ``nn.Sequential(…)``, in which nothing was put since."""
    made = base.things[0].call if len(base.things) == 1 else None
    if made is None or base.things[0].name != "torch.nn.Sequential" or made.star:
        return None
    if any(store.element and base.things[0] in store.base.things for store in m.run.stores):
        return None
    known = -len(made.args) <= number < len(made.args) and len(made.args[number].things) == 1
    layer = made.args[number] if known else None
    return None if layer is None else replace(layer, deps=layer.deps | set(base.things))


def _sliced(
    f: RankFrame, base: RankValue, index: RankValue, bounds: tuple[RankValue, ...], node: ast.expr
) -> RankValue:
    items = None if base.items is None else containers.sliced(base.items, bounds)
    part = replace(symbol(f"{key_of(base)}[:]", base, index), items=items)
    if not index.by_rank:
        ends = len(bounds) > 1 and bounds[1].atoms != (None, None)
        part = replace(part, atoms=_bounded(base, part, bounds))
        return replace(part, things=base.things, origins=_cut(part) if ends else part.origins)
    site = f.module.site(node)
    if items is not None:
        part = replace(
            part, items=tuple(_own_item(item, f"{part.atoms[0].key}[]", site) for item in items)
        )
    given = [one.atoms != (None, None) for one in bounds]
    stride = given == [True, False, True] and not _is_fitted(base)
    if not _is_fitted(base):
        one = OwnRows(f"{key_of(base)}[:]", (), bounds, picked.rows_of(base), stride, base)
        part = replace(part, atoms=(one, one))
    return _own_part(f, part, index, node, STRIDE if stride else PART)


def _bounded(base: RankValue, part: RankValue, bounds: tuple[RankValue, ...]) -> tuple[Any, Any]:
    """The atoms of a slice, with its ends: one that a loop moves on is any of them."""
    ends = tuple(one.atoms[0] for one in bounds)
    if len(ends) != 3 or any(map(counts, ends)):
        return part.atoms
    one, other = (
        Symbol(text(a), (SLICE, b, *ends)) for a, b in zip(part.atoms, base.atoms, strict=True)
    )
    return one, other


def _own_item(item: RankValue, key: str, site: Site) -> RankValue:
    """An element of a rank's part of a list that is written out: the other ranks have others."""
    items = item.items
    if items is not None:
        items = tuple(_own_item(one, f"{key}[{n}]", site) for n, one in enumerate(items))
    origins = item.origins | {Origin(DATA, PART, site)}
    if not item.known:
        return replace(item, items=items, origins=origins)
    one = Symbol(key, (ITEM, Symbol(key), 0))
    return replace(item, atoms=(one, one), items=items, origins=origins)


def _cut(part: RankValue) -> frozenset[Origin]:
    """Its origins where it was cut to a length: ``rows[rank::world][:n]``."""
    return frozenset(replace(o, what=PART) if o.what == STRIDE else o for o in part.origins)


def _cut_up(base: RankValue) -> RankCall | None:
    """The call that gave as many parts as there are ranks, of rows that they may not divide:
    ``torch.chunk(rows, world)``, ``rows.split(ceil(len(rows) / world))``."""
    made = base.things[0].call if len(base.things) == 1 else None
    if made is None or made.method not in _CUTS:
        return None
    number = made.arg(0 if made.receiver is not None else 1, _CUTS[made.method])
    if number is None:
        return None
    if made.method == "split":
        return made if number.made_by("math.ceil", "numpy.ceil") is not None else None
    return made if is_world_size(number.constant) else None


def _rows_of_all(cut: RankCall) -> int | None:
    """How many rows were cut up, if that is known, and no columns were."""
    along = cut.arg(1 if cut.receiver is not None else 2, "axis") or cut.kwargs.get("dim")
    return picked.rows_of(cut.inputs[0]) if along is None or along.constant == 0 else None


_CUTS: Final = {
    "chunk": "chunks",
    "tensor_split": "indices_or_sections",
    "array_split": "indices_or_sections",
    "split": "split_size_or_sections",
}


def _is_fitted(base: RankValue) -> bool:
    """Whether a list was cut or added to: perhaps to a length that divides."""
    atom = base.atoms[0]
    return isinstance(atom, Symbol) and (atom.parts[:1] == ("Add",) or "[:]" in atom.key)


def _picked_by_rank(
    f: RankFrame, base: RankValue, index: RankValue, node: ast.AST
) -> RankValue | None:
    """``[10, 12][rank]``, ``{True: save, False: skip}[rank == 0]``: one element for each rank."""
    if not (index.known and differs(index)):
        return None
    entries = dict(base.keys or ())
    held: list[tuple[int, RankValue]] = []
    items = base.items or ()
    for rank, atom in enumerate(index.atoms):
        found = entries.get(str(atom))
        if isinstance(atom, int) and -len(items) <= atom < len(items):
            found = items[atom]
        if found is None:
            return None
        held.append((1 << rank, found))
    return per_rank(f"pick@{f.module.site(node)}", held, index.origins)


def _own_part(
    f: RankFrame, value: RankValue, index: RankValue, node: ast.AST, what: str = PART
) -> RankValue:
    """What is picked by the rank is this rank's data."""
    if not index.by_rank:
        return value
    origin = Origin(DATA, what, f.module.site(node))
    return replace(value, origins=value.origins | {origin})
