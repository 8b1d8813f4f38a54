"""Names: of frames, modules, imports; functions and classes as they are made."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.ranks import words
from ddpify.ranks.decorating import decorated
from ddpify.ranks.frames import Frame
from ddpify.ranks.model import ALL, Thing, Value
from ddpify.ranks.modules import ClassInfo, FunctionInfo, Module
from ddpify.ranks.protocol import Machine
from ddpify.ranks.values import of, symbol


def external(m: Machine, name: str) -> Value:
    """A name of a library."""
    name = words.canonical(name)
    found = m.externals.get(name)
    if found is None:
        found = m.externals[name] = of(Thing("external", name))
        top = name.split(".")[0]
        m.words.add(top)
    return found


def lookup(m: Machine, f: Frame, name: str) -> Value:
    """What a name is here."""
    frame: Frame | None = f
    while frame is not None:
        if name in frame.names and name not in frame.outward:
            return frame.names[name]
        frame = frame.outer
    return global_name(m, f.module, name)


def namespace(m: Machine, module: Module) -> Thing:
    """The module as an object."""
    if module not in m.namespaces:
        m.namespaces[module] = Thing("module", module.name, info=module)
        m.run.modules[module.path] = module
    return m.namespaces[module]


def global_name(m: Machine, module: Module, name: str) -> Value:
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
    space[name] = found
    return found


def _defined(m: Machine, module: Module, name: str) -> Value:
    frame = Frame(module, None, namespace(m, module).attrs)
    if name in module.functions:
        return make_function(m, frame, module.functions[name])
    if name in module.classes:
        return make_class(m, frame, module.classes[name])
    if name in module.imports:
        dotted, attribute, level = module.imports[name]
        return imported(m, module, dotted, attribute, level)
    if name in module.assigns:
        return _lazily(m, frame, module.assigns[name])
    for dotted, level in module.stars:
        found = _starred(m, module, name, dotted, level)
        if found is not None:
            return found
    return external(m, f"builtins.{name}")


def _lazily(m: Machine, frame: Frame, node: ast.expr) -> Value:
    kept = (m.items, m.live, m.here)
    m.items, m.live, m.here = [], ALL, replace(m.here, guards=(), loops=())
    try:
        return m.evaluate(frame, node)
    finally:
        m.items, m.live, m.here = kept


def _starred(m: Machine, module: Module, name: str, dotted: str, level: int) -> Value | None:
    file = m.modules.find(module.file, dotted, level)
    if file is None or not m.modules.says(file, name):
        return None
    other = m.modules.load(file)
    if other is None or other is module:
        return None
    known = (other.functions, other.classes, other.imports, other.assigns)
    if any(name in names for names in known) or other.stars:
        found = global_name(m, other, name)
        return None if found.names() == {f"builtins.{name}"} else found
    return None


def imported(m: Machine, module: Module, dotted: str, attribute: str, level: int) -> Value:
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
    return member(m, other, attribute)


def submodule(m: Machine, module: Module, dotted: str, level: int = 0) -> Value | None:
    """A module in a folder without ``__init__.py``, which is a package all the same."""
    key = (module, dotted, level)
    if key not in m.submodules:
        file = m.modules.find(module.file, dotted, level)
        found = m.modules.load(file) if file is not None else None
        m.submodules[key] = of(namespace(m, found)) if found is not None else None
    return m.submodules[key]


def member(m: Machine, module: Module, name: str) -> Value:
    """``module.name``: a global of it, or a module below it."""
    known = (module.functions, module.classes, module.imports, module.assigns)
    if name not in namespace(m, module).attrs and not any(name in names for names in known):
        if module.file.name == "__init__.py":
            file = m.modules.find(module.file, name, 1)
            below = m.modules.load(file) if file else None
            if below is not None and below is not module:
                return of(namespace(m, below))
        if not module.stars:
            return symbol(f"{module.name}.{name}")
    return global_name(m, module, name)


def make_function(m: Machine, f: Frame, info: FunctionInfo) -> Value:
    """What a ``def`` binds, its decorators applied."""
    thing = Thing("function", info.qualname, info.module.site(info.node), info=info)
    value = of(thing)
    m.closures[thing] = f if f.function is not None or f.cls is not None else None
    if not isinstance(info.node, ast.Lambda):
        for decorator in reversed(info.node.decorator_list):
            value = decorated(m, f, decorator, value)
    return value


def make_class(m: Machine, f: Frame, info: ClassInfo) -> Value:
    """What a ``class`` binds."""
    if info not in m.classes:
        bases: list[ClassInfo | str] = []
        for base in info.node.bases:
            for thing in m.evaluate(f, base).things:
                bases.append(thing.info if thing.kind == "class" else thing.name)
        info.bases = tuple(base for base in bases if base is not info)
        site = info.module.site(info.node)
        m.classes[info] = Thing("class", f"{info.module.name}.{info.name}", site, info=info)
    return of(m.classes[info])


def class_attribute(m: Machine, info: ClassInfo, name: str) -> Value | None:
    """An attribute of a class; methods are functions, not bound."""
    for one in info.mro():
        thing = m.classes.get(one)
        if thing is not None and name in thing.attrs:
            return thing.attrs[name]
        if name in one.methods:
            frame = Frame(one.module, None, namespace(m, one.module).attrs)
            value = make_function(m, frame, one.methods[name])
        elif name in one.assigns:
            frame = Frame(one.module, None, namespace(m, one.module).attrs)
            value = _lazily(m, frame, one.assigns[name])
        else:
            continue
        if thing is not None:
            thing.attrs[name] = value
        return value
    return None
