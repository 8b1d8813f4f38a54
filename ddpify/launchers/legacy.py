"""Command lines with torch.distributed.launch, in shell, Make, Slurm and Markdown files.

torchrun takes the same options. What is gone is `--local-rank`, which launch passes to the program
unless it is told `--use_env`: so the line can be rewritten where the program does not need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpify.launchers.embedded import EmbeddedPiece
from ddpify.launchers.entries import Folders
from ddpify.launchers.reading import pieces
from ddpify.launchers.script import Command, Script, Word
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.site import Site
from ddpify.source import Source

CODE = "DDP003"
LEGACY = "torch.distributed.launch"
MODERN = "torch.distributed.run"
_USE_ENV = ("--use_env", "--use-env")
_FLAGS = re.compile(r"--(?:use[-_]env|module|no[-_]python|standalone|help)|-[mh]")
_SHOWS = frozenset("echo printf grep pgrep pkill sed awk cat man which".split())
_LOCAL_RANK = re.compile(r"[\"']--?local[-_]rank[\"']")
_REQUIRED = re.compile(r"--?local[-_]rank[\"'][^()]*required\s*=\s*True")
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import|import\s+([\w.]+))", re.MULTILINE)
_FILES = 40
_PARSES = re.compile(r"ArgumentParser\([\s\S]*\.parse_args\(")
_KNOWS = re.compile(r"[\"']--local-rank[\"']|\.parse_known_args\(|HfArgumentParser")
_STOPS = (
    ", and passes --local-rank, which the program's parser does not know: it stops (torch 2.0 on)"
)
_ADVICE = "start it with torchrun, and let the program read LOCAL_RANK from the environment"


@dataclass(frozen=True)
class _Start:
    """The words of one command: the interpreter, the module's name, and what follows it."""

    words: tuple[Word, ...]
    python: int
    module: int

    @property
    def flags(self) -> tuple[Word, ...]:
        """Python's own options, `-m` left out."""
        return self.words[self.python + 1 : self.module - 1]

    @property
    def program(self) -> Word | None:
        """The program, behind the launcher's options."""
        skip = False
        for word in self.words[self.module + 1 :]:
            if skip:
                skip = False
            elif word.text.startswith("-"):
                skip = "=" not in word.text and _FLAGS.fullmatch(word.text) is None
            else:
                return word
        return None

    @property
    def use_env(self) -> tuple[Word, ...]:
        """`--use_env` among the launcher's options."""
        end = self.program.start if self.program is not None else self.words[-1].end + 1
        return tuple(
            word
            for word in self.words[self.module + 1 :]
            if word.start < end and word.literal in _USE_ENV
        )


def findings(root: Path, files: Sequence[Path]) -> list[Finding]:
    """One finding per command with the old launcher, with a fix where torchrun does the same."""
    return [
        piece.placed(_finding(root, script, start)) for piece, script, start in _starts(root, files)
    ]


def given_option(root: Path, files: Sequence[Path]) -> frozenset[str] | None:
    """The files of the programs to which the old launcher passes `--local-rank`; None where it is
    not seen which program it starts."""
    reached: set[Path] = set()
    for _, script, start in _starts(root, files):
        if start.use_env:
            continue
        program = _program_file(root, script, start)
        if program is None:
            return None
        reached |= dict(_texts(root, program)).keys()
    return frozenset(one.resolve().relative_to(root.resolve()).as_posix() for one in reached)


def _starts(root: Path, files: Sequence[Path]) -> Iterator[tuple[EmbeddedPiece, Script, _Start]]:
    for file in files:
        file = root / file
        raw = file.read_bytes() if file.is_file() else b""
        if LEGACY.encode() not in raw:  # no parser for what cannot matter
            continue
        path = file.resolve().relative_to(root.resolve()).as_posix()
        text = Source.plain(raw, file, path).text
        for piece in pieces(path, text):
            script = Script.parse(path, piece.text if LEGACY in piece.text else "")
            for start in filter(None, map(_start, script.commands)):
                if piece.holds(_site(script, start.words[start.python])):
                    yield piece, script, start


def _start(command: Command) -> _Start | None:
    """`… python -m torch.distributed.launch …`, not shown or searched for."""
    words = command.words
    if not words or words[0].literal in _SHOWS:
        return None
    for number, word in enumerate(words[2:], start=2):
        if word.literal == LEGACY and words[number - 1].literal == "-m":
            python = number - 2
            while python and words[python].text.startswith("-"):
                python -= 1
            return _Start(words, python, number)
    return None


def _finding(root: Path, script: Script, start: _Start) -> Finding:
    first, last = start.words[start.python], start.words[start.module]
    texts = _program_texts(root, script, start)
    stops = not start.use_env and _stops_at_option(texts)
    return Finding(
        CODE,
        script.site(first.start, last.end),
        f"{LEGACY} is deprecated{_STOPS if stops else ''}",
        Severity.WARNING if stops else Severity.NOTE,
        _fix(script, start) if start.use_env or _needs_no_option(texts) else (),
        _ADVICE,
    )


def _fix(script: Script, start: _Start) -> tuple[Edit, ...]:
    """torchrun in place of `python -m …`, which keeps all other options."""
    python, module = start.words[start.python], start.words[start.module]
    plain = python.literal in ("python", "python3") and all(w.literal == "-u" for w in start.flags)
    site = script.site(python.start if plain else module.start, module.end)
    edits = [Edit(How.TEXT, site, "torchrun" if plain else MODERN)]
    for word in start.use_env:
        before = max(w.end for w in start.words if w.end <= word.start)
        edits.append(Edit(How.TEXT, script.site(before, word.end), ""))
    return tuple(edits)


def _site(script: Script, word: Word) -> Site:
    return script.site(word.start, word.end)


def _program_texts(root: Path, script: Script, start: _Start) -> list[str]:
    """The program, and what it imports of the project; nothing where it is not seen."""
    file = _program_file(root, script, start)
    return [text for _, text in _texts(root, file)] if file is not None else []


def _stops_at_option(texts: list[str]) -> bool:
    """Whether the program's parser, argparse's own, does not know `--local-rank`.

    What an imported file does where it is a program itself is no part of it.
    """
    whole = "\n".join([*texts[:1], *(text.partition("\nif __name__")[0] for text in texts[1:])])
    return _PARSES.search(whole) is not None and _KNOWS.search(whole) is None


def _needs_no_option(texts: list[str]) -> bool:
    """Whether the program is seen, and reads LOCAL_RANK or has no option for it."""
    if not texts or any(_REQUIRED.search(text) for text in texts):
        return False
    read = any("LOCAL_RANK" in text for text in texts)
    return read or not any(_LOCAL_RANK.search(text) for text in texts)


def _program_file(root: Path, script: Script, start: _Start) -> Path | None:
    word = start.program
    if word is None or word.literal is None:
        return None
    as_module = any(
        w.literal in ("-m", "--module")
        for w in start.words[start.module + 1 :]
        if w.start < word.start
    )
    name = word.literal.replace(".", "/") + ".py" if as_module else word.literal
    places = (root / folder / name for folder in Folders.of_script(script.path).known)
    return next((place for place in places if place.is_file()), None)


def _texts(root: Path, file: Path) -> Iterator[tuple[Path, str]]:
    """The program and the files of the project that it imports."""
    todo, seen = [file], {file}
    while todo and len(seen) < _FILES:
        one = todo.pop()
        text = one.read_text("utf-8", "replace")
        yield one, text
        for names in _IMPORT.findall(text):
            below = ".".join(filter(None, names)).lstrip(".").replace(".", "/")
            for base in (one.parent, file.parent, root):
                for place in (base / f"{below}.py", base / below / "__init__.py"):
                    if below and place.is_file() and place not in seen:
                        seen.add(place)
                        todo.append(place)
