"""Which words of a command start Python, behind `nohup`, `env`, `srun` and the like."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from ddpify.launchers.entries import Folders, LaunchEntries, Match
from ddpify.launchers.model import Form, PythonWords
from ddpify.launchers.script import Script, Word

_PYTHON = re.compile(r"(?:.*/)?python(?:\d+(?:\.\d+)*)?")
_WHICH_PYTHON = re.compile(r"(?:\$\(|`)\s*(?:which|command -v|type -p)\s+python[\d.]*\s*[)`]")
_VARIABLE = re.compile(r'"?\$\{?(\w+)(?:[^}\w][^}]*)?\}?"?')
_DISTRIBUTED = re.compile(r"(?:.*/)?(?:torchrun|accelerate|deepspeed|colossalai)")
_DISTRIBUTED_MODULE = re.compile(
    r"torch\.distributed\.(run|launch)|accelerate\.commands\.launch|torch\.distributed\.elastic\..*"
)
_MPI = frozenset(("mpirun", "mpiexec", "horovodrun"))
_DIRECT = frozenset(("nohup", "time", "exec", "command", "srun", "setsid"))
_TOOLS = re.compile(
    r"env|nice|ionice|stdbuf|sudo|timeout|taskset|numactl|unbuffer|xvfb-run|chrt|screen"
    r"|builtin|coproc|xargs|parallel|uv|poetry|pipenv|conda|mamba|micromamba|pixi|hatch|pdm|rye"
    r"|singularity|apptainer|docker|podman"
)
_SHOWS = re.compile(r"echo|printf|p?grep|pkill|logger|cat|tee|which|man|git|rm|sed|awk|\[+|test")


class _Trust(Enum):
    """How sure it is that a word is Python."""

    PYTHON = "python"
    WITH_FLAGS = "with flags"  # a variable that holds `python -W ignore`
    UNKNOWN = "unknown"  # a variable whose value the script does not show


@dataclass(frozen=True)
class StartWords:
    """The words of one command that start an entry."""

    match: Match
    interpreter: PythonWords | None
    start: int
    distributed: bool = False
    problem: str = ""


@dataclass(frozen=True)
class _Flags:
    """Python's own options, up to the program: ``end`` is the byte where they stop."""

    program: int
    end: int
    module: bool = False
    kept: bool = False
    tail: str = ""
    joined: str = ""
    interactive: bool = False
    no_file: bool = False


def find_start(
    script: Script, words: tuple[Word, ...], entries: LaunchEntries, folders: Folders
) -> StartWords | None:
    """The words that start a migrated entry, if the command does."""
    if not words:
        return None
    finder = _StartFinder(script, words, entries, folders)
    first = _base(words[0].literal or "")
    if _DISTRIBUTED.fullmatch(first):
        return finder.already_distributed(0)
    if first in _MPI:
        return _with_problem(finder.python(True), f"{first} starts its own processes")
    wrapped = first in _DIRECT or _TOOLS.fullmatch(first) is not None
    found = finder.python(wrapped) or finder.direct(wrapped)
    if found is not None or wrapped or _SHOWS.fullmatch(first):
        return found
    name = words[0].text
    return _with_problem(finder.python(True), f"what {name} does with the command is not known")


def _with_problem(found: StartWords | None, problem: str) -> StartWords | None:
    return None if found is None else replace(found, interpreter=None, problem=problem)


@dataclass(frozen=True)
class _StartFinder:
    script: Script
    words: tuple[Word, ...]
    entries: LaunchEntries
    folders: Folders

    def already_distributed(self, at: int) -> StartWords | None:
        """The entry among the arguments of a distributed launcher."""
        for index, word in enumerate(self.words[at + 1 :], start=at + 1):
            module = self.words[index - 1].literal in ("-m", "--module")
            find = self._module if module else self._names
            match = find(word) if not word.text.startswith("-") else None
            if match is not None:
                return StartWords(match, None, self.words[at].start, distributed=True)
        return None

    def python(self, wrapped: bool) -> StartWords | None:
        """`python … entry`, at the front or behind a wrapper."""
        for at, word in enumerate(self.words if wrapped else self.words[:1]):
            if _DISTRIBUTED.fullmatch(word.literal or ""):
                return self.already_distributed(at)
            if at and self.words[at - 1].literal in ("--python", "-p", "-n"):
                continue
            trust = _trust(self.script, word)
            found = None if trust is None else self._from_python(at, trust)
            if found is not None:
                return found
        return None

    def direct(self, wrapped: bool) -> StartWords | None:
        """`./main.py`, perhaps behind a wrapper, and `uv run main.py`."""
        for at, word in enumerate(self.words if wrapped else self.words[:1]):
            before = tuple(w.literal for w in self.words[:at])
            bare = all(_base(name or "") in _DIRECT for name in before)
            through_uv = len(before) == 2 and before == ("uv", "run")
            match = None
            if through_uv or (bare and "/" in word.text):
                match = self._names(word)
            if match is not None:
                span = self.script.span(word.start, word.end)
                return StartWords(match, PythonWords(span, word.text, Form.PREFIX), word.start)
        return None

    def _from_python(self, at: int, trust: _Trust) -> StartWords | None:
        flags = self._flags(at)
        if flags is None or flags.program >= len(self.words):
            return None
        word = self.words[flags.program]
        if flags.module and _DISTRIBUTED_MODULE.fullmatch(flags.joined or word.literal or ""):
            return self.already_distributed(flags.program)
        if flags.joined:
            word = Word(word.start, word.end, flags.joined, (flags.joined,))
        match = self._module(word) if flags.module else self._names(word)
        if match is None:
            return None
        start = self.words[at].start
        if trust is _Trust.UNKNOWN:
            problem = f"what {self.words[at].text} stands for is not known"
            return StartWords(match, None, start, problem=problem)
        if flags.interactive:
            return StartWords(match, None, start, problem="-i keeps Python open for typing")
        return StartWords(match, self._interpreter(at, flags, trust), start)

    def _flags(self, at: int) -> _Flags | None:
        """Python's options after the interpreter; None where it runs no file or module."""
        flags = _Flags(at + 1, self.words[at].end)
        while flags.program < len(self.words):
            word = self.words[flags.program]
            option = word.literal
            if option is None and self._holds_flags(flags.program):
                flags = replace(flags, program=flags.program + 1, end=word.end, kept=True)
                continue
            if option is None or not option.startswith("-"):
                return flags
            if option.startswith("--") or option == "-":
                return None
            flags = self._after_cluster(flags, option[1:])
            if flags.module or flags.no_file:
                return None if flags.no_file else flags
        return None

    def _after_cluster(self, flags: _Flags, cluster: str) -> _Flags:
        at, word = flags.program, self.words[flags.program]
        plain, option, value = _split_cluster(cluster)
        kept = flags.kept or bool(set(plain) - {"u"}) or option in ("W", "X")
        flags = replace(flags, kept=kept, interactive=flags.interactive or "i" in plain)
        if option == "c":
            return replace(flags, no_file=True)
        if option == "m" and value:
            return replace(flags, end=word.end, module=True, tail=f" -m {value}", joined=value)
        if option == "m" and plain:
            return replace(flags, program=at + 1, end=word.end, module=True, tail=" -m")
        if option == "m":
            return replace(flags, program=at + 1, module=True)
        last = at if value or not option else min(at + 1, len(self.words) - 1)
        return replace(flags, program=last + 1, end=self.words[last].end)

    def _module(self, word: Word) -> Match | None:
        return self.entries.module(word, self.folders)

    def _names(self, word: Word) -> Match | None:
        """The entry that ``word`` names as a path, also through a variable of the script."""
        whole = self.entries.script(word, self.folders)
        values = self.script.values(word)
        if not values or (whole is not None and not whole.problem):
            return whole
        each = [self.entries.script(value, self.folders) for value in values]
        found = [match for match in each if match is not None]
        if not found:
            return whole
        if len(found) == len(each):
            return next((match for match in found if match.problem), found[0])
        return Match(found[0].entry, f"{word.text} does not always stand for it")

    def _holds_flags(self, at: int) -> bool:
        """Whether the word is options kept in a variable: the program comes after it."""
        if self._names(self.words[at]) is not None or at + 1 >= len(self.words):
            return False
        return self._names(self.words[at + 1]) is not None

    def _interpreter(self, at: int, flags: _Flags, trust: _Trust) -> PythonWords:
        word = self.words[at]
        text = self.script.slice(word.start, flags.end)
        span = self.script.span(word.start, flags.end)
        plain = word.literal in ("python", "python3")
        if flags.kept or trust is _Trust.WITH_FLAGS:
            return PythonWords(span, text, Form.WRAP, "" if plain else word.text)
        form = Form.SWAP if plain else Form.MODULE
        return PythonWords(span, text, form, word.text, flags.tail)


def _trust(script: Script, word: Word) -> _Trust | None:
    """How sure it is that ``word`` is a Python interpreter; None: it is not."""
    if word.literal is not None:
        return _Trust.PYTHON if _PYTHON.fullmatch(word.literal) else None
    if _WHICH_PYTHON.fullmatch(word.text.strip('"')):
        return _Trust.PYTHON
    if "/" in word.tail and _PYTHON.fullmatch(word.tail):
        return _Trust.PYTHON
    variable = _VARIABLE.fullmatch(word.text)
    if variable is None:
        return None
    name = variable.group(1)
    values = [a.value.literal for a in script.assignments if a.name == name]
    known = [value.split() for value in values if value]
    if known:
        return _trust_in_values(known)
    return _Trust.PYTHON if re.search(r"py", name, re.IGNORECASE) else _Trust.UNKNOWN


def _trust_in_values(values: list[list[str]]) -> _Trust | None:
    """The same for a variable, from the values that the script gives it."""
    first = [value[0] for value in values if value]
    if all(_DISTRIBUTED.fullmatch(word) for word in first):
        return None
    if not all(_PYTHON.fullmatch(word) for word in first):
        return _Trust.UNKNOWN
    if any("-m" in value for value in values):
        return None if all("torch.distributed" in " ".join(v) for v in values) else _Trust.UNKNOWN
    plain = all(value[1:] in ([], ["-u"]) for value in values)
    return _Trust.PYTHON if plain else _Trust.WITH_FLAGS


def _split_cluster(cluster: str) -> tuple[str, str, str]:
    """`uWignore` as flags (`u`), the option that takes a value (`W`), the value (`ignore`)."""
    for at, letter in enumerate(cluster):
        if letter in "cmWX":
            return cluster[:at], letter, cluster[at + 1 :]
    return cluster, "", ""


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1]
