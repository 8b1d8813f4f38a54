"""Modules and names that a program looks up by a text that is put together when it runs.

``import_module(f"models.{args.arch}")``, ``getattr(models, name)``, ``eval("models." + name)``:
each candidate of the project is read, and what comes of it is any of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.joining import join
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo, ModuleInfo
from ddpify.facts.values import NOTHING, Kind, Thing, Value, one
from ddpify.python.imports import defined
from ddpify.source import Site

MANY: Final = 32  # candidates: where there are more, none is read
_ANY = "\0"  # stands for the part of a text that is not known
_FORMATTED = re.compile(r"%\d*[sd]|\{\w*(?::\w*)?\}")
# What each of a library's classes is, where only the name of the class is not known.
_ABSTRACT: Final = {
    "torch.optim": "torch.optim.Optimizer",
    "torch.optim.lr_scheduler": "torch.optim.lr_scheduler.LRScheduler",
}


def modules(m: Machine, f: Frame, call: Call) -> Value:
    """Every module that ``import_module`` of a text that is not known may mean."""
    pattern, options = _written(m, call.site, 0)
    if "." not in pattern.partition(_ANY)[0] and not options:
        return NOTHING  # any module at all
    said = [pattern.replace(_ANY, option) for option in options]
    found = [name for name in said if m.project.find(name) is not None]
    if len(said) == 1 and found:  # a default: others beside it may be asked for
        found += [name for name in _beside(m, found[0]) if _matches(name, pattern)]
    if not options:
        package = pattern.partition(_ANY)[0].rpartition(".")[0]
        found = [name for name in _below(m, package) if _matches(name, pattern)]
    names = dict.fromkeys(found)
    return (
        join(*[m.import_module(f, n, call.site) for n in names]) if len(names) <= MANY else NOTHING
    )


def members(m: Machine, call: Call) -> Value | None:
    """What ``getattr(module, name)`` may give; None where it asks no module, and no method."""
    found = _members(m, call.args[0], *_written(m, call.site, 1), call.site)
    return join(*found, *call.args[2:]) if found else None


def evaluated(m: Machine, f: Frame, call: Call) -> Value | None:
    """What ``eval("models." + name + ".build")`` may give; None where that is no dotted name."""
    pattern, options = _written(m, call.site, 0)
    head, *names = pattern.split(".")
    found = f.lookup(head)
    for number, name in enumerate(names):
        if found is None or not name.replace(_ANY, "x").isidentifier():
            return None
        if _ANY not in name:
            node = m.tree(call.site.path).expression(call.site)
            found = m.attribute(f, found, name, node) if node is not None else None
            continue
        parts = _members(m, found, name, options, call.site)
        parts += [v for after in names[number + 1 :][:1] for v in _parts(m, found, name, after)]
        found = join(*parts) if parts else any_member(m, found, call.site)
    return found if names else None


def any_member(m: Machine, base: Value, site: Site) -> Value | None:
    """What a library has under a name that is not known: ``getattr(torch.optim, flags.solver)``."""
    found = [one(m.external(f"{t.name}.*", site)) for t in base.of(Kind.EXTERNAL)]
    return join(*found) if found else None


def _members(m: Machine, base: Value, pattern: str, options: list[str], site: Site) -> list[Value]:
    """The functions and classes of modules, what an object keeps and its methods, under a name."""
    found = []
    for thing in base.things:
        if thing.kind is Kind.MODULE:
            named = dict(_offered(m, thing))
            wanted = {pattern.replace(_ANY, option) for option in options}
            chosen = wanted if len(wanted) > 1 and wanted <= set(named) else named
            found += [named[name] for name in chosen if _matches(name, pattern)]
        elif thing.kind is Kind.EXTERNAL and thing.name in _ABSTRACT:
            found.append(one(m.external(_ABSTRACT[thing.name], site)))
        elif isinstance(thing.ref, ClassInfo) and pattern != _ANY:
            found += [kept for name, kept in thing.attrs.items() if _matches(name, pattern)]
            methods = [one for one in _methods(thing.ref) if _matches(one[0], pattern)]
            found += [m.bind_method(thing, method, site) for _, method in methods]
    return found


def _methods(info: ClassInfo) -> Iterator[tuple[str, Value]]:
    """The methods of a class, those that it inherits from the project, too, by name."""
    named = {name: value for owner in info.mro()[::-1] for name, value in owner.env.items()}
    for name, value in named.items():
        if any(isinstance(thing.ref, FunctionInfo) for thing in value.things):
            yield name, value


def _parts(m: Machine, base: Value, pattern: str, name: str) -> Iterator[Value]:
    """The modules of a package under such a name that define what is asked of them."""
    for thing in base.things:
        if thing.kind is Kind.MODULE and isinstance(thing.ref, ModuleInfo):
            beside = sorted(thing.ref.source.file.parent.glob("*.py"))
            found = [p.stem for p in beside if _matches(p.stem, pattern) and name in _defined(m, p)]
            yield from (m.module_attribute(thing, stem) for stem in found if len(found) <= MANY)


def holding(base: Value, name: str) -> tuple[Thing, ...]:
    """The things whose attribute is asked for: of several modules those that have it."""
    modules = [t for t in base.things if isinstance(t.ref, ModuleInfo)]
    have = {t for t in modules if isinstance(t.ref, ModuleInfo) and name in t.ref.globals}
    if len(modules) < 2 or not have:
        return base.things
    return tuple(t for t in base.things if t in have or t not in modules)


def _matches(name: str, pattern: str) -> bool:
    parts = map(re.escape, re.split(f"{_ANY}+", pattern))  # `i + 1` is one text
    return re.fullmatch(r"\w+".join(parts), name) is not None


def _offered(m: Machine, thing: Thing) -> Iterator[tuple[str, Value]]:
    """The functions and classes of the project that a module has by name.

    What others of them only inherit from is there to be inherited from.
    """
    known = m.module_globals(thing)
    made = {
        name: [t.ref for t in value.things if isinstance(t.ref, (ClassInfo, FunctionInfo))]
        for name, value in known.items()
    }
    classes = [ref for refs in made.values() for ref in refs if isinstance(ref, ClassInfo)]
    bases = {base for info in classes for base in info.local_bases()}
    for name, refs in made.items():
        inherited = any(ref in bases and ref.module is not thing.ref for ref in refs)
        if refs and not inherited:
            yield name, known[name]


def _beside(m: Machine, dotted: str) -> Iterator[str]:
    """The modules beside one that define some name that it defines."""
    package, _, _ = dotted.rpartition(".")
    file = m.project.find(dotted)
    own = _defined(m, file)
    for other in sorted(file.parent.glob("*.py")) if file is not None else ():
        if other != file and other.stem != "__init__" and own & _defined(m, other):
            yield f"{package}.{other.stem}".lstrip(".")


def _below(m: Machine, package: str) -> Iterator[str]:
    found = m.project.find(package)
    folder = found.parent if found is not None and found.name == "__init__.py" else found
    if folder is not None and folder.is_dir():
        for file in sorted(folder.glob("*.py")):
            if file.stem != "__init__":
                yield f"{package}.{file.stem}"


def _defined(m: Machine, file: Path | None) -> frozenset[str]:
    tree = m.project.glance(file) if file is not None and file.is_file() else None
    return defined(tree.body) if tree is not None else frozenset()


def _written(m: Machine, site: Site, position: int) -> tuple[str, list[str]]:
    """The text of an argument with a mark for what is not known of it, and what an option that
    stands there may be: its choices, or its default."""
    tree = m.tree(site.path)
    node = tree.expression(site)
    if not isinstance(node, ast.Call) or len(node.args) <= position:
        return _ANY, []
    text = node.args[position]
    if isinstance(text, ast.Name):
        text = _assigned(tree.nodes(tree.function(text)), text)
    holes: list[ast.AST] = []
    pattern = _pattern(text, holes)
    values = [m.values.get(tree.site(hole)) for hole in holes if isinstance(hole, ast.expr)]
    options = [t.name for value in values if value for t in value.of(Kind.ARGUMENT)]
    single = len(holes) == 1 and len(options) == 1
    return pattern, list(dict.fromkeys(_choices(m, options[0]))) if single else []


def _assigned(nodes: tuple[ast.AST, ...], name: ast.Name) -> ast.expr:
    """What a name is given, where that is once; else the name."""
    given = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name.id for t in node.targets)
    ]
    return given[0] if len(given) == 1 else name


def _pattern(node: ast.AST, holes: list[ast.AST]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_pattern(part, holes) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _pattern(node.value, holes)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _pattern(node.left, holes) + _pattern(node.right, holes)
    formatted = _formatted(node)
    if formatted is not None:
        text, given = formatted
        filled = iter(given)
        unknown = ast.Pass()  # more marks than values: an error of the program's own
        return _FORMATTED.sub(lambda _: _pattern(next(filled, unknown), holes), text)
    holes.append(node)
    return _ANY


def _formatted(node: ast.AST) -> tuple[str, list[ast.expr]] | None:
    """``"models.%s" % name``, ``"models.{}".format(name)``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        text, right = node.left, node.right
        given = right.elts if isinstance(right, ast.Tuple) else [right]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        text, given = node.func.value, node.args
        if node.func.attr != "format" or node.keywords:
            return None
    else:
        return None
    known = isinstance(text, ast.Constant) and isinstance(text.value, str)
    return (text.value, given) if known else None  # type: ignore[attr-defined]


def _choices(m: Machine, option: str) -> Iterator[str]:
    """The texts that a program names for an option of its command line."""
    for event in m.events:
        if not isinstance(event, Call) or not event.name.endswith("add_argument"):
            continue
        names = [str(a.const).lstrip("-").replace("-", "_") for a in event.args if a.known]
        if option not in names:
            continue
        chosen = event.kwargs.get("choices")
        items = [i for t in chosen.things for i in t.items or ()] if chosen is not None else []
        default = event.kwargs.get("default")
        for value in items or ([default] if default is not None else []):
            if isinstance(value.const, str):
                yield value.const


def otherwise(thing: Thing, name: str, site: Site) -> Value | None:
    """What an attribute is where a condition does not hold under which it is stored.

    An option that nothing has asked for yet is one still; an object may have it from its class.
    """
    if name not in thing.attrs and thing.kind is Kind.ARGUMENT and thing.name == "":
        return one(Thing(Kind.ARGUMENT, site, name))
    if name not in thing.attrs and isinstance(thing.ref, ClassInfo):
        return thing.ref.lookup(name)
    return thing.attrs.get(name)
