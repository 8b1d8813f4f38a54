"""Import statements: local modules are read, others are known by name."""

from __future__ import annotations

import ast

from ddpify.facts.events import Unknown
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, ModuleInfo
from ddpify.facts.values import Kind, Value
from ddpify.python.imports import exported
from ddpify.python.libraries import is_known
from ddpify.source import Site


def import_(m: Machine, f: Frame, node: ast.Import) -> None:
    for alias in node.names:
        value = m.import_module(f, alias.name, m.site(f, node))
        unread(m, value, m.site(f, node))
        if alias.asname:
            f.bind(alias.asname, value)
        else:
            top = alias.name.split(".")[0]
            f.bind(top, m.import_module(f, top, m.site(f, node)) if top != alias.name else value)


def import_from(m: Machine, f: Frame, node: ast.ImportFrom) -> None:
    site = m.site(f, node)
    module = m.import_from(f, node.module or "", node.level, site)
    unread(m, module, site)
    for alias in node.names:
        if alias.name == "*":
            import_star(m, f, module, site)
        else:
            f.bind(alias.asname or alias.name, m.member(f, module, alias.name, site))


def unread(m: Machine, module: Value, site: Site) -> None:
    """Say that a module is neither in the project nor known: what it does is not seen."""
    for thing in module.of(Kind.EXTERNAL):
        if not is_known(thing.name):
            m.unknown(
                Unknown(site, f"`{thing.name or '.'}` is not read: what it writes, each rank does")
            )


def import_star(m: Machine, f: Frame, module: Value, site: Site) -> None:
    for thing in module.things:
        if thing.kind is Kind.MODULE:
            known = m.module_globals(thing)
            said = exported(thing.ref.tree.body) if isinstance(thing.ref, ModuleInfo) else None
            public = (name for name in list(known) if not name.startswith("_"))
            for name in said if said is not None else public:
                f.env[name] = m.module_attribute(thing, name)
            if said is None and isinstance(thing.ref, ModuleInfo):
                f.module.stars += thing.ref.stars
        else:
            f.module.stars.append(thing.name)
            if not is_known(thing.name):
                why = f"`from {thing.name} import *` hides where names come from"
                m.unknown(Unknown(site, why))
