"""Quotients of an object's numbers, of which another of its methods has reduced only one:

def synchronize(self):
    dist.all_reduce(self.sum)           # and not self.count: this is to be changed

@property
def avg(self):
    return self.sum / self.count
"""

from __future__ import annotations

import ast

from ddpify.ranks.mixing import Mark, Of, marks
from ddpify.ranks.run import Run
from ddpify.site import Site


def reduced_apart(run: Run, quotient: Mark) -> Site | None:
    """The reduction, if it stands in another method of the class that divides."""
    found = [marks(part).get(Of.ALL) for part in quotient.parts]
    sites = {one.site for one in found if one is not None and one.site is not None}
    site = quotient.site
    if site is None or len(sites) != 1:
        return None
    other = sites.pop()
    if other.path != site.path or other.path not in run.modules:
        return None
    module = run.modules[other.path]
    for cls in module.nodes:
        if isinstance(cls, ast.ClassDef):
            methods = [one for one in cls.body if isinstance(one, ast.FunctionDef)]
            divides = [one for one in methods if site.within(module.site(one))]
            reduces = [one for one in methods if other.within(module.site(one))]
            if divides and reduces and divides != reduces:
                return other
    return None
