"""Small programs by chance, over numbers, the rank and the environment: no collectives matter.

The rank stands in conditions alone: as a number it is believed to stay one, whatever is unknown.
What they compute is known by running them once per rank, with stand-ins for torch, so the reading
can be held against it: see test_sound. Loops are those that are read round by round.
"""

from __future__ import annotations

import os
import random
import sys
from types import FrameType, ModuleType
from typing import Any

NAMES = ("a", "b", "c")
RANK = 'int(os.environ["RANK"])'
_LOOPS = ('("x", "RANK", "y")', '("x", "y")', f"range({RANK} + 1)")
_MOST, _LARGEST = 1000, 10**6  # traced steps, numbers: beyond them a program is left out
_DEEP, _LONG = 3, 30


class Generator:
    """One program, drawn from ``seed``; ``classes``: with a function and an object, too."""

    def __init__(self, seed: int, classes: bool) -> None:
        self.random = random.Random(seed)
        self.classes = classes
        self.made = self.depth = self.loops = self.tries = 0
        self.returns = self.own = False

    def program(self) -> str:
        """Its text; it ends by giving each of its values to ``torch.manual_seed``."""
        lines = ["import os", "import sys", "import torch", "import torch.distributed as dist", ""]
        shown = [*NAMES]
        if self.classes:
            lines += [*self._helper(), *self._box()]
            shown += ["box.x", "box.y"]
        start = f"    a, b, c = {self.random.randrange(3)}, {self.random.randrange(2)}, 0"
        self.made, self.returns = 0, False
        lines += ["def main():", start, *(["    box = Box()"] if self.classes else [])]
        lines += self._block(4, 5)
        lines += [f"    torch.manual_seed({name})" for name in shown]
        return "\n".join([*lines, "", 'dist.init_process_group("gloo")', "main()"]) + "\n"

    def _helper(self) -> list[str]:
        self.returns, self.made = True, 15
        start = '    c = 0 if "RANK" in os.environ else 1'
        body = [start, *self._block(4, 3), f"    return {self._number()}"]
        return ["def helper(a, b):", *body, ""]

    def _box(self) -> list[str]:
        self.own, self.made = True, 15
        fields = ["self.x = 0", "self.y = 1", f"self.r = {RANK}"]
        lines = ["class Box:", "    def __init__(self):", *(f"        {one}" for one in fields)]
        lines += ["    def turn(self, a):", "        b, c = 1, 2", *self._block(8, 3), ""]
        self.own = False
        return lines

    def _names(self) -> tuple[str, ...]:
        return (*NAMES, "self.x", "self.y") if self.own else NAMES

    def _number(self, depth: int = 0) -> str:
        kind = self.random.randrange(10)
        if kind < 3 or depth > 1:
            return self.random.choice(self._names())
        if kind < 6:
            return str(self.random.randrange(-2, 4))
        if kind == 6:
            return "len(sys.argv)"
        one, other = self._number(depth + 1), self._number(depth + 1)
        if kind == 7:
            return f"({one} if {self._test()} else {other})"
        return f"({one} {self.random.choice('+-*')} {other})"

    def _test(self) -> str:
        name = self.random.choice(self._names())
        word = self.random.choice(("RANK", "NOPE", "WORLD_SIZE"))
        compared = f"{name} {self.random.choice(('==', '<', '>', '!='))}"
        tests = (
            f"{RANK} == 0",
            "len(sys.argv) > 1",
            'os.path.exists("nowhere")',
            f'"{word}" in os.environ',
            name,
            f"not {name}",
            f"{compared} {self.random.randrange(-1, 3)}",
        )
        return self.random.choice(tests)

    def _block(self, indent: int, size: int = 0) -> list[str]:
        count = size or self.random.randrange(1, 4)
        return [line for _ in range(count) for line in self._statement(indent)]

    def _statement(self, indent: int) -> list[str]:
        self.made += 1
        pad, kind = " " * indent, self.random.randrange(20)
        if self.depth > _DEEP or self.made > _LONG or kind < 6:
            return [pad + self._assignment()]
        self.depth += 1
        try:
            if kind < 11:
                return self._if(indent)
            if kind < 15:
                return self._for(indent) if kind < 14 else self._while(indent)
            return self._try(indent) if kind < 18 else [pad + self._call()]
        finally:
            self.depth -= 1

    def _assignment(self) -> str:
        if self.random.random() < 0.2:
            one, other = self.random.sample(NAMES, 2)
            return f"{one}, {other} = {self._number()}, {self._number()}"
        sign = self.random.choice(("=", "=", "+="))
        return f"{self.random.choice(self._names())} {sign} {self._number()}"

    def _call(self) -> str:
        if not self.classes or self.own or self.returns:
            return "pass"
        if self.random.random() < 0.5:
            return f"box.turn({self._number()})"
        return f"{self.random.choice(NAMES)} = helper({self._number()}, {self._number()})"

    def _if(self, indent: int) -> list[str]:
        pad = " " * indent
        lines = [f"{pad}if {self._test()}:", *self._arm(indent + 4)]
        if self.random.random() < 0.3:
            lines += [f"{pad}elif {self._test()}:", *self._arm(indent + 4)]
        if self.random.random() < 0.5:
            lines += [f"{pad}else:", *self._arm(indent + 4)]
        return lines

    def _arm(self, indent: int) -> list[str]:
        lines = self._block(indent)
        if self.random.random() < 0.35:
            if self.loops:
                lines.append(" " * indent + self.random.choice(("break", "continue")))
            elif self.returns or self.own:
                lines.append(f"{' ' * indent}return {self._number()}")
        return lines

    def _for(self, indent: int) -> list[str]:
        pad = " " * indent
        self.loops += 1
        lines = [f"{pad}for each{self.made} in {self.random.choice(_LOOPS)}:"]
        lines += self._block(indent + 4)
        self.loops -= 1
        if self.random.random() < 0.25:
            lines += [f"{pad}else:", *self._block(indent + 4, 1)]
        return lines

    def _while(self, indent: int) -> list[str]:
        """At most one round: what a round leaves to the next is not always known."""
        pad = " " * indent
        self.loops += 1
        lines = [f"{pad}while {self.random.choice(('True', 'not True'))}:"]
        lines += [*self._block(indent + 4), f"{pad}    break"]
        self.loops -= 1
        return lines

    def _try(self, indent: int) -> list[str]:
        pad = " " * indent
        self.tries += 1
        lines = [f"{pad}try:", *self._block(indent + 4)]
        self.tries -= 1
        if self.random.random() < 0.6:
            lines += [f"{pad}    if {self._test()}:", f"{pad}        raise ValueError"]
        if self.random.random() < 0.5:
            lines += self._block(indent + 4, 1)
        self.tries += 1
        lines += [f"{pad}except ValueError:", *self._block(indent + 4, 1)]
        self.tries -= 1
        if self.tries and self.random.random() < 0.4:
            lines.append(f"{pad}    raise ValueError")
        if self.random.random() < 0.3:
            lines += [f"{pad}finally:", pad + "    " + self._assignment()]
        return lines


class TooLong(Exception):
    """The program runs for ever, as far as is waited for it, or makes numbers of many digits."""


def run(text: str, rank: int) -> list[Any]:
    """What a program gives to ``torch.manual_seed`` as this rank of two. Raises what it raises, and
    TooLong."""
    seen: list[Any] = []
    torch, dist = ModuleType("torch"), ModuleType("torch.distributed")
    vars(torch).update(manual_seed=seen.append, distributed=dist)
    vars(dist).update(init_process_group=lambda backend: None)
    modules = {"torch": torch, "torch.distributed": dist}
    before = {name: sys.modules.pop(name, None) for name in modules}
    environ, argv, steps = dict(os.environ), sys.argv, 0

    def counted(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal steps
        steps += 1
        held = [*frame.f_locals.values(), *vars(frame.f_locals.get("self", dist)).values()]
        large = any(isinstance(one, int) and abs(one) > _LARGEST for one in held)
        if steps > _MOST or large:
            raise TooLong
        return counted

    sys.modules.update(modules)
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    sys.argv = ["main.py"]
    tracing = sys.gettrace()
    sys.settrace(counted)
    try:
        exec(compile(text, "main.py", "exec"), {"__name__": "__main__"})
    finally:
        sys.settrace(tracing)
        sys.argv = argv
        os.environ.clear()
        os.environ.update(environ)
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
    return seen
