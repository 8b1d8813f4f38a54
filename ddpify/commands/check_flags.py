"""The flags of ``ddpify check`` by their names."""

from __future__ import annotations

from pathlib import Path

from ddpify.commands.shared import Stop, wants_color


class CheckFlags:
    """The flags by their names."""

    def __init__(self, given: dict[str, object]) -> None:
        self._given = given

    def on(self, name: str) -> bool:
        """Whether a switch is set."""
        return bool(self._given[name])

    def path(self, name: str) -> Path | None:
        """The path that was given."""
        value = self._given[name]
        return value if isinstance(value, Path) else None

    def codes(self, name: str) -> tuple[str, ...]:
        """Rule codes that were given."""
        from ddpify.checking.codes import split

        value = self._given[name]
        codes = split(value) if isinstance(value, tuple) else ()
        if value and not codes:
            raise Stop(f"--{name.replace('_', '-')} has no code; `ddpify rule --all` lists them.")
        return codes

    def texts(self, name: str) -> tuple[str, ...]:
        """What was given, as often as it was."""
        value = self._given[name]
        return tuple(map(str, value)) if isinstance(value, tuple) else ()

    @property
    def form(self) -> str:
        """The output format."""
        return str(self._given["form"])

    @property
    def colored(self) -> bool:
        """Whether to colour what goes to the terminal."""
        value = self._given["color"]
        wanted = wants_color(value if isinstance(value, bool) else None)
        return wanted and self.path("output_file") is None
