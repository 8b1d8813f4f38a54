"""Names: of frames, modules, imports; functions and classes as they are made."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.python.imports import GIVES, starred
from ddpify.ranks import toplevel, words
from ddpify.ranks.aliases import is_container
from ddpify.ranks.decorating import decorated
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import ALL, RankThing, RankValue
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, Module
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import constant, merge, of, symbol

MAX_CHOICES = 4  # as many as are followed of what a call may mean


def external(m: RankMachine, name: str) -> RankValue:
    """A name of a library."""
    name = words.canonical(name)
    found = m.externals.get(name)
    if found is None:
        found = m.externals[name] = of(RankThing("external", name))
        top = name.split(".")[0]
        m.words.add(top)
    return found


def lookup(m: RankMachine, f: RankFrame, name: str) -> RankValue:
    """What a name is here."""
    frame: RankFrame | None = f
    while frame is not None:
        if name in frame.names and name not in frame.outward:
            return frame.names[name]
        if frame.body is not None and (found := _of_body(m, frame.body, name)) is not None:
            return found
        frame = frame.outer
    return global_name(m, f.module, name)


def namespace(m: RankMachine, module: Module) -> RankThing:
    """The module as an object."""
    if module not in m.namespaces:
        m.namespaces[module] = RankThing("module", module.name, info=module)
        m.run.modules[module.path] = module
    return m.namespaces[module]


def global_name(m: RankMachine, module: Module, name: str) -> RankValue:
    """A global of a module: bound by running it, or found among its definitions."""
    space = namespace(m, module).attrs
    if name in space:
        return space[name]
    if (module, name) in m.resolving:
        return symbol(f"{module.name}.{name}")
    m.resolving.add((module, name))
    try:
        found = _defined(m, module, name)
    finally:
        m.resolving.discard((module, name))
    m.hold(space, name, found)
    toplevel.register(m, module, name, found)
    return space[name]


def _defined(m: RankMachine, module: Module, name: str) -> RankValue:
    frame = RankFrame(module, None, namespace(m, module).attrs)
    if name in module.functions:
        return make_function(m, frame, module.functions[name])
    if name in module.classes:
        return make_class(m, frame, module.classes[name])
    if name in module.imports:
        dotted, attribute, level = module.imports[name]
        return imported(m, module, dotted, attribute, level)
    held = None if m.runs(module) else module.statements.get(name)
    if held is not None and held.binding and not held.simple:
        return toplevel.found_in(m, frame, name, held)
    if held is not None and held.value is not None:
        return _lazily(m, frame, held.value)
    if name in module.assigns:
        return _lazily(m, frame, module.assigns[name])
    for dotted, level in module.stars:
        found = _starred(m, module, name, dotted, level)
        if found is not None:
            return found
    return external(m, starred(name, (one for one, level in module.stars if one in GIVES)))


def _lazily(m: RankMachine, frame: RankFrame, node: ast.expr) -> RankValue:
    kept = (m.items, m.live, m.here)
    m.items, m.live, m.here = [], ALL, replace(m.here, guards=(), loops=())
    try:
        return m.evaluate(frame, node)
    finally:
        m.items, m.live, m.here = kept


def _starred(
    m: RankMachine, module: Module, name: str, dotted: str, level: int
) -> RankValue | None:
    file = m.modules.find(module.file, dotted, level)
    if file is None or not m.modules.says(file, name):
        return None
    other = m.modules.load(file)
    if other is None or other is module:
        return None
    known = (other.functions, other.classes, other.imports, other.assigns, other.statements)
    if any(name in names for names in known) or other.stars:
        found = global_name(m, other, name)
        return None if found.names() == {f"builtins.{name}"} else found
    return None


def imported(m: RankMachine, module: Module, dotted: str, attribute: str, level: int) -> RankValue:
    """What ``import dotted`` or ``from dotted import attribute`` binds."""
    file = m.modules.find(module.file, dotted, level)
    if file is None:
        inner = submodule(m, module, f"{dotted}.{attribute}".strip("."), level)
        if attribute and inner is not None:
            return inner
        if attribute and not level:
            return external(m, f"{dotted}.{attribute}")
        return external(m, dotted if not level else f"{dotted}.{attribute}".strip("."))
    other = m.modules.load(file)
    if other is None:
        return symbol(f"import {dotted}.{attribute}")
    if not attribute:
        return of(namespace(m, other))
    if other is module:  # `from . import feeds` in a package's own __init__
        below = submodule(m, module, f"{dotted}.{attribute}".strip("."), level)
        if below is not None:
            return below
    return member(m, other, attribute)


def submodule(m: RankMachine, module: Module, dotted: str, level: int = 0) -> RankValue | None:
    """A module in a folder without ``__init__.py``, which is a package all the same."""
    key = (module, dotted, level)
    if key not in m.submodules:
        file = m.modules.find(module.file, dotted, level)
        found = m.modules.load(file) if file is not None else None
        m.submodules[key] = of(namespace(m, found)) if found is not None else None
    return m.submodules[key]


def chosen(m: RankMachine, module: Module) -> RankValue | None:
    """``resnet.__dict__[args.arch]``, ``getattr(resnet, args.arch)``: one of the functions that are
    there for others; of many the first stand for all."""
    functions = list(module.all_functions())
    within = {name for one in functions for name in one.called() if name != one.name}
    names = [one for one in module.functions if one not in within and not one.startswith("_")]
    held = [member(m, module, name) for name in names[:MAX_CHOICES]]
    return merge(f"{module.name}[]", (held, held), frozenset()) if held else None


def member(m: RankMachine, module: Module, name: str) -> RankValue:
    """``module.name``: a global of it, or a module below it."""
    known = (
        *(module.functions, module.classes, module.imports, module.assigns),
        module.statements,
    )
    if name not in namespace(m, module).attrs and not any(name in names for names in known):
        if module.file.name == "__init__.py":
            file = m.modules.find(module.file, name, 1)
            below = m.modules.load(file) if file else None
            if below is not None and below is not module:
                return of(namespace(m, below))
        if not module.stars and "__getattr__" in module.functions and name[:2] != "__":
            frame = RankFrame(module, None, namespace(m, module).attrs)
            asked = global_name(m, module, "__getattr__")
            return m.apply(frame, asked, module.functions["__getattr__"].node, (constant(name),))
        if not module.stars:
            return symbol(f"{module.name}.{name}")
    return global_name(m, module, name)


def make_function(m: RankMachine, f: RankFrame, info: FunctionDefinition) -> RankValue:
    """What a ``def`` binds, its decorators applied."""
    thing = RankThing("function", info.qualname, info.module.site(info.node), info=info)
    value = of(thing)
    m.closures[thing] = f if f.function is not None or f.cls is not None else f.outer
    thing.defaults = _defaults(m, f, info)
    if not isinstance(info.node, ast.Lambda):
        for decorator in reversed(info.node.decorator_list):
            value = decorated(m, f, decorator, value)
    return value


def _defaults(m: RankMachine, f: RankFrame, info: FunctionDefinition) -> dict[str, RankValue]:
    """What parameters have that are not given: evaluated once, when the ``def`` is run."""
    spec = info.node.args
    written = [*zip(reversed(info.parameters), reversed(spec.defaults), strict=False)]
    given = zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    written += [(one.arg, node) for one, node in given if node is not None]
    found = {}
    for name, node in written:
        found[name] = _lazily(m, f, node)
        if is_container(found[name]):
            m.aliases.note(found[name], found, name)
    return found


def make_class(m: RankMachine, f: RankFrame, info: ClassDefinition) -> RankValue:
    """What a ``class`` binds."""
    if info not in m.classes:
        bases: list[ClassDefinition | str] = []
        for base in info.node.bases:
            for thing in m.evaluate(f, base).things:
                bases.append(thing.info if thing.kind == "class" else thing.name)
        info.bases = tuple(base for base in bases if base is not info)
        site = info.module.site(info.node)
        thing = RankThing("class", f"{info.module.name}.{info.name}", site, info=info)
        m.classes[info] = thing
        m.closures[thing] = f if f.function is not None else None
        m.finished[info] = _finished(m, f, info, of(thing))
    found = m.finished.get(info)
    return found if found is not None else of(m.classes[info])


def _finished(m: RankMachine, f: RankFrame, info: ClassDefinition, value: RankValue) -> RankValue:
    """A class, after ``__init_subclass__`` and its decorators."""
    after = class_attribute(m, info, "__init_subclass__", info)
    for thing in after.things if after is not None else ():
        if thing.kind == "function":
            hook = RankThing("function", thing.name, thing.site, info=thing.info)
            hook.receiver = m.classes[info]
            m.enter(f, hook, (), {}, None)
    for decorator in reversed(info.node.decorator_list):
        value = decorated(m, f, decorator, value)
    return value


def class_attribute(
    m: RankMachine, info: ClassDefinition, name: str, after: ClassDefinition | None = None
) -> RankValue | None:
    """An attribute of a class, or of those that come ``after`` one of its bases; methods are
    functions, not bound."""
    order = info.mro()
    if after in order:
        order = order[order.index(after) + 1 :]
    for one in order:
        value = _of_body(m, one, name)
        if value is not None:
            return value
    return None


def _of_body(m: RankMachine, info: ClassDefinition, name: str) -> RankValue | None:
    """What the body of a class binds a name to."""
    thing = m.classes.get(info)
    if thing is not None and name in thing.attrs:
        return thing.attrs[name]
    if (info, name) in m.resolving:
        return None
    m.resolving.add((info, name))
    try:
        value = _in_body(m, info, name)
    finally:
        m.resolving.discard((info, name))
    if thing is not None and value is not None:
        m.hold(thing.attrs, name, value)
    return value


def _in_body(m: RankMachine, info: ClassDefinition, name: str) -> RankValue | None:
    thing = m.classes.get(info)
    outer = m.closures.get(thing) if thing is not None else None
    space = thing.attrs if thing is not None else {}
    frame = RankFrame(info.module, None, space, outer, body=info)
    if name in info.methods:
        return make_function(m, frame, info.methods[name])
    held = info.statements.get(name)
    if held is not None and held.binding and not held.simple:
        return toplevel.found_in(m, frame, name, held)
    return _lazily(m, frame, info.assigns[name]) if name in info.assigns else None
