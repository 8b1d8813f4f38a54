"""Of commands that hand arguments on to a script: whose option an unknown one is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import islice

import click

from ddpify.commands.shared import Stop

GIVEN = "ddpify.given"  # in a context's ``meta``: the command line, word by word
_ALIKE = 0.8  # of a slip of the keyboard; `--epochs` is no `--steps`


class Passing(click.Command):
    """The script's own options go behind ``--``; the line is printed as it has to be."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As any command. Raises Stop for an option that is not its own."""
        given = list(args)
        ctx.meta[GIVEN] = (*ctx.command_path.split(), *given)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            meant = get_close_matches(error.option_name, self._flags(), 1, _ALIKE)
            if meant:
                raise Stop(f"no option {error.option_name}; did you mean {meant[0]}?") from error
            line = shlex.join((*ctx.command_path.split(), *self._sorted(given)))
            raise Stop(f"your script's own options go behind `--`: {line}") from error

    def _flags(self) -> dict[str, bool]:
        """Its own, each with whether a value follows."""
        options = (one for one in self.params if isinstance(one, click.Option))
        return {
            name: not (one.is_flag or one.count)
            for one in options
            for name in (*one.opts, *one.secondary_opts)
        } | {"--help": False, "-h": False}

    def _sorted(self, given: Sequence[str]) -> list[str]:
        """The script and own options; behind ``--`` all that is not known here."""
        end = given.index("--") if "--" in given else len(given)
        flags, words = self._flags(), iter(given[:end])
        own: list[str] = []
        others: list[str] = []
        for word in words:
            name = word.partition("=")[0]
            if name not in flags:
                others.append(word)
                continue
            own += [word, *islice(words, flags[name] and name == word)]
        named = [one for one in others if not one.startswith("-")]
        script = [next((one for one in named if one.endswith(".py")), named[0])] if named else []
        for one in script:
            others.remove(one)
        return [*script, *own, "--", *others, *given[end + 1 :]]
