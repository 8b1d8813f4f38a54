"""How many terms the mean of a criterion has, as an expression beside its call."""

from __future__ import annotations

import ast

from ddpify.facts.criteria import option, option_site, varying_count
from ddpify.facts.details import CountMean, call_that_made
from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Measure, Thing
from ddpify.source import Site

# What keeps all entries of a tensor: they are as many without it.
KEEPS = frozenset(
    "view reshape flatten contiguous squeeze unsqueeze long to cuda cpu permute transpose t".split()
)
IGNORED = "-100"  # of cross_entropy and nll_loss, where nothing else is given
CREATORS = ("torch.tensor", "torch.Tensor", "torch.FloatTensor", "torch.ones", "torch.as_tensor")


def counted(m: Machine, ratio: Thing) -> str | None:
    """The number of terms, or the sum of their weights; None where it cannot be written.

    Where the criterion that is called says it only then, what asks it.
    """
    mean = ratio.detail(CountMean)
    call = mean.call if mean is not None else None
    if mean is None or call is None or call.bound or call.star:
        return None
    if mean.terms:
        return mean.terms if call.site.path == ratio.born.path else None
    if mean.made is None:
        return _entries(m.tree(call.site.path), call)
    criteria = _criteria(m, call)
    found = {_terms(m, call, made) for made in criteria}
    return (found.pop() if len(found) == 1 else None) or _asked(m, call)


def _asked(m: Machine, call: Call) -> str | None:
    """``loss_terms`` of the criterion that is called, where each of them gives a mean."""
    tree, site = m.tree(call.site.path), call.arg_site(1, "target")
    criterion = tree.expression(call.callee)
    things = m.values[call.callee].things
    if call.result.measure is not Measure.RATIO or not things or not all(map(_says, things)):
        return None
    if site is None or criterion is None or not _cheap(criterion) or _plain(tree, site) is None:
        return None
    return f"loss_terms({tree.text(criterion)}, {tree.source.segment(site.span)})"


def _says(criterion: Thing) -> bool:
    """One of torch's, or a module of the project's own, which is none of torch's criteria."""
    if isinstance(criterion.ref, ClassInfo):
        return set(criterion.ref.external_bases()) == {"torch.nn.Module"}
    made = call_that_made(criterion)
    return criterion.kind is Kind.CRITERION and made is not None and not (made.bound or made.star)


def _criteria(m: Machine, call: Call) -> list[Call]:
    """What made the criteria that are called here; none where one of them is something else."""
    if call.name.startswith("torch.nn.functional."):
        return [call]
    made = []
    for thing in m.values[call.callee].things:
        by = call_that_made(thing)
        if thing.kind is not Kind.CRITERION or thing.ref is not None or by is None:
            return []
        if by.bound or by.star or not varying_count(by):
            return []
        made.append(by)
    return made


def _entries(tree: Tree, call: Call) -> str | None:
    """Of entries that a mask picked there are as many as the tensor has."""
    first = call.receiver_site if call.name in (".mean",) else call.arg_site(0, "input")
    text = _plain(tree, call.arg_site(1, "target") if _of_two(call) else first)
    return f"{text}.numel()" if text else None


def _of_two(call: Call) -> bool:
    """A criterion, which compares two tensors."""
    return call.name not in (".mean", "torch.mean")


def _terms(m: Machine, call: Call, made: Call) -> str | None:
    target = _plain(m.tree(call.site.path), call.arg_site(1, "target"))
    ignored, weight = _ignored(m, call, made), _weight(m, call, made)
    if target is None or ignored is None or weight is None:
        return None
    counts = f"{target} != {ignored}"
    return f"{weight}[{target}[{counts}]].sum()" if weight else f"({counts}).sum()"


def _ignored(m: Machine, call: Call, made: Call) -> str | None:
    """The target that does not count, as the script has it."""
    site = option_site(made, "ignore_index")
    if site is None:
        return IGNORED
    tree = m.tree(site.path)
    node = tree.expression(site)
    literal = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(literal, ast.Constant) or (made is call and _cheap(node)):
        return tree.source.segment(site.span)
    return _member(m, call, "ignore_index") if made is not call else None


def _weight(m: Machine, call: Call, made: Call) -> str | None:
    """The weights of the classes, "" without any.

    None where they may be missing, or the targets may be probabilities, which cannot index them:
    only those of NLLLoss, and those of which one is ignored, are surely numbers of classes.
    """
    value, site = option(made, "weight"), option_site(made, "weight")
    if value is None or site is None:
        return ""
    if option(made, "ignore_index") is None and "nll" not in made.name.lower():
        return None
    node = m.tree(site.path).expression(site)
    if made is call:
        return m.tree(site.path).text(node) if node is not None and _cheap(node) else None
    there = isinstance(node, ast.Call) and _is_tensor(m, site)
    return _member(m, call, "weight") if there else None


def _is_tensor(m: Machine, site: Site) -> bool:
    """A call that gives a tensor for certain: one that makes it, or a method of it."""
    return any(
        isinstance(event, Call)
        and event.site == site
        and (event.name in CREATORS or event.name in (".to", ".cuda", ".float"))
        for event in m.events
    )


def _member(m: Machine, call: Call, name: str) -> str | None:
    """``criterion.name``, where the criterion has a name."""
    tree = m.tree(call.callee.path)
    node = tree.expression(call.callee)
    return f"{tree.text(node)}.{name}" if node is not None and _cheap(node) else None


def _plain(tree: Tree, site: Site | None) -> str | None:
    """The text of a tensor that costs nothing to name again; what keeps its entries left out."""
    node = tree.expression(site) if site is not None else None
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in KEEPS:
            return None
        node = node.func.value
    return tree.text(node) if node is not None and _cheap(node) else None


def _cheap(node: ast.AST | None) -> bool:
    """A name, an attribute, an entry, a slice, a constant, or two of them compared."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Attribute):
        return _cheap(node.value)
    if isinstance(node, ast.Subscript):
        return _cheap(node.value) and _cheap(node.slice)
    if isinstance(node, ast.Tuple):
        return all(_cheap(part) for part in node.elts)
    if isinstance(node, ast.Compare):
        return all(_cheap(part) for part in (node.left, *node.comparators))
    if isinstance(node, ast.Slice):
        bounds = (node.lower, node.upper, node.step)
        return all(part is None or _cheap(part) for part in bounds)
    return isinstance(node, (ast.Name, ast.Constant))
