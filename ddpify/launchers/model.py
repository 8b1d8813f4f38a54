"""What a launch script does with a migrated entry.

Plain data, so that rules and reports can use launches without loading a shell parser.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ddpify.source import Site, Span


class Form(Enum):
    """How the launching words change."""

    SWAP = "swap"  # `python -u` -> `torchrun …`
    MODULE = "module"  # `$PYTHON -u` -> `$PYTHON -m torch.distributed.run …`
    WRAP = "wrap"  # `python -W ignore` -> `torchrun … --no-python python -W ignore`
    PREFIX = "prefix"  # `./main.py` -> `torchrun … ./main.py`


@dataclass(frozen=True)
class PythonWords:
    """The words that start Python: ``text`` at ``span``, and what replaces them.

    ``program`` is the interpreter alone, ``tail`` what has to follow torchrun's own options
    because it was glued to a dropped one (`-um pkg` leaves ` -m`).
    """

    span: Span
    text: str
    form: Form
    program: str = ""
    tail: str = ""


@dataclass(frozen=True)
class Gpus:
    """The GPU list of a launch: written out (``ids``), or ``value``, shell text that gives it.

    ``number`` is shell text for their number, where that is what the script says. All unset:
    the script does not choose GPUs.
    """

    ids: tuple[str, ...] | None = None
    value: str | None = None
    number: str | None = None

    @property
    def count(self) -> int | None:
        """Processes for a list that is written out; an empty list or -1 is one on the CPU."""
        return None if self.ids is None else max(1, len(self.ids))

    @property
    def unset(self) -> bool:
        """Whether nothing is said of GPUs."""
        return self.ids is None and self.value is None and self.number is None


@dataclass(frozen=True)
class Above:
    """Where a line can be put above the launch: the start of its statement, and its indent."""

    at: Span
    indent: str
    newline: str


@dataclass(frozen=True)
class Nodes:
    """One torchrun on each of several Slurm nodes; they meet at the first.

    ``one_task`` is where the option goes that starts one task per node; None: it is said
    already. ``above`` is where a line can name the first node; None: it is named in place.
    ``named``: an earlier launch has done it.
    """

    one_task: Span | None = None
    above: Above | None = None
    named: bool = False


@dataclass(frozen=True)
class Launch:
    """A command that starts ``entry``.

    ``above`` is None where the command does not begin a line of its own. ``bash`` says
    whether the script may use what POSIX sh lacks. ``counted`` is True where an earlier
    launch has already put the number of processes into the variable. ``unsupported`` is
    the reason not to rewrite it, ``remark`` what stays to be known when it is. ``brief``:
    it stands in documentation. ``announced`` are the same words in what an `echo` says of it.
    ``pin`` is the command's own list of one GPU; ``slurm``: `srun` starts it.
    """

    site: Site
    entry: str
    python: PythonWords | None = None
    gpus: Gpus = Gpus()
    above: Above | None = None
    bash: bool = False
    counted: bool = False
    already_torchrun: bool = False
    unsupported: str = ""
    nodes: Nodes | None = None
    remark: str = ""
    brief: bool = False
    announced: tuple[Span, ...] = ()
    pin: Span | None = None
    slurm: bool = False
