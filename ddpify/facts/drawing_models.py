"""Whether a model draws random numbers even where it does not train. ::

noise = torch.randn_like(mean)     # and F.dropout(x): `training` is True if nobody says it
"""

from __future__ import annotations

import ast

from ddpify.facts.scopes import ClassInfo

# `x.normal_()`, `distribution.rsample()`; besides everything that begins with rand.
DRAWS = frozenset(
    """bernoulli bernoulli_ multinomial normal normal_ uniform uniform_ random random_ poisson
    exponential_ sample rsample gumbel_softmax choice choices shuffle permutation""".split()
)


def draws(info: ClassInfo) -> bool:
    """Whether a method of a class draws, apart from how it is made."""
    methods = (n for n in info.node.body if isinstance(n, ast.FunctionDef) and n.name != "__init__")
    return any(_draws(node) for method in methods for node in ast.walk(method))


def _draws(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    owner, _, name = ast.unparse(node.func).rpartition(".")
    if "dropout" in name and not owner.startswith("self"):
        return "training" not in ast.unparse(node)
    return name.startswith("rand") or name in DRAWS
