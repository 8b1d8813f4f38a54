"""``ddpify check``: flags in, exit code out."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddpify.commands.check_flags import CheckFlags
from ddpify.commands.completion import rule_codes
from ddpify.commands.shared import CLEAN, TO_DO, Stop, color_flag, config_flag, echo, mend

if TYPE_CHECKING:
    from ddpify.checking.fixing import Fixed
    from ddpify.checking.model import Checked, CheckRequest

_STDIN = Path("-")
_FEW = 3  # programs that one line names
_FORMATS = ("text", "concise", "json", "sarif", "github", "gitlab", "junit")
_APART = (
    ("--add-noqa", "--diff"),
    ("--add-noqa", "--fix"),
    ("--add-noqa", "--statistics"),
    ("--diff", "--statistics"),
    ("--add-noqa", "--ignore-noqa"),
    ("--show-files", "--show-settings"),
)
_UNNAMED = re.compile("[\ud800-\udfff]")  # bytes of a file's name that are no UTF-8
_COUNTED = ("text", "concise", "json")


def _codes_flag(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, multiple=True, metavar="CODES", help=text, shell_complete=rule_codes)


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATHS]...")
@_codes_flag("--select", "Only these rules (or prefixes).")
@_codes_flag("--ignore", "Not these rules (or prefixes).")
@_codes_flag("--extend-select", "These rules besides the chosen ones.")
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave this out of folders, too (as in a .gitignore in the current folder).",
)
@click.option(
    "--force-exclude", is_flag=True, help="Leave out what `exclude` names even if it is named here."
)
@click.option("--fix", is_flag=True, help="Make the safe fixes, in all files or in none.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: the unsafe fixes, too.")
@click.option("--diff", is_flag=True, help="Print what --fix would change; write nothing.")
@click.option(
    "--ignore-noqa", is_flag=True, help="Report what comments silence, `# ddpify: ignore` too."
)
@click.option("--add-noqa", is_flag=True, help="Write a `# noqa: CODE` at each finding.")
@click.option(
    "--assume-distributed",
    is_flag=True,
    help="Read programs of one process as if several ran them: what is wrong then already. What is "
    "missing yet (sampler, wrapper, one writer), `ddpify diff` shows.",
)
@click.option(
    "--stdin-filename",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What the file is called that is read from standard input (with - as path).",
)
@click.option(
    "--output-format",
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="How to print the findings.",
)
@click.option(
    "-o",
    "--output-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the findings into FILE.",
)
@click.option("--show-source", is_flag=True, help="With the lines of source they are about.")
@click.option("--statistics", is_flag=True, help="Print only how often each rule is broken.")
@click.option("--no-cache", is_flag=True, help="Neither use nor write the cache.")
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the cache is (default: .ddpify_cache in the project).",
)
@click.option("-e", "--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option("-q", "--quiet", is_flag=True, help="Print findings, but no summary.")
@click.option("--show-files", is_flag=True, help="List the files that would be read; read none.")
@click.option("--show-settings", is_flag=True, help="Print the settings that count, and whose.")
@config_flag
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="List what was read, and what was not and why.",
)
@color_flag
def check(paths: tuple[str, ...], **flags: object) -> int:
    """Find distributed-training bugs: hangs, wrong numbers, damaged files.

    PATHS are files, folders (all Python files and launch scripts in them, .gitignore honoured) or
    - for standard input; the default is the current folder. Nothing of it is run or imported.
    Exit code 0: nothing found, or notes only; 1: findings; 2: error.
    """
    from ddpify.checking.model import CheckError
    from ddpify.settings import SettingsError

    try:
        return _run(tuple(map(_path, paths)), CheckFlags(flags))
    except (CheckError, SettingsError) as error:
        raise Stop(str(error)) from error


def _path(given: str) -> Path:
    if not given:  # an unset variable, which Path takes for the current folder
        raise Stop("a path is empty; name a file or a folder, or nothing for the current folder.")
    return Path(given)


def _run(paths: tuple[Path, ...], flags: CheckFlags) -> int:
    from ddpify.checking.run import check as run
    from ddpify.progress import progress
    from ddpify.roots import shown

    _check_flags(flags)
    asked = _asked(paths, flags)
    if flags.on("show_files") or flags.on("show_settings"):
        return _show(asked, flags)
    mend([*asked.paths, *filter(None, [asked.stdin])])
    with progress(flags.on("quiet")) as step:
        checked = run(asked, step)
    for line in _read(checked) if flags.on("verbose") else _unread(checked):
        click.echo(f"ddpify: {line}", err=True)
    if not checked.files and not flags.on("quiet"):
        click.echo("ddpify: no Python file or launch script was there to be read", err=True)
    if flags.on("diff"):
        return _show_diff(asked, checked, flags)
    if flags.on("add_noqa"):
        return _add_noqa(asked, checked)
    if flags.on("fix"):
        asked, checked = _fix(asked, checked, flags)
    if asked.stdin:
        checked = replace(checked, texts={shown(asked.stdin.resolve()): asked.text})
    _print(_rendered(asked, checked, flags), flags, to_error=flags.on("fix") and bool(asked.stdin))
    return TO_DO if checked.wanting and not flags.on("exit_zero") else CLEAN


def _show(asked: CheckRequest, flags: CheckFlags) -> int:
    """What a run would go by, without one."""
    from ddpify.checking.codes import chosen
    from ddpify.checking.run import groups
    from ddpify.report import settings
    from ddpify.roots import shown
    from ddpify.settings import nearest_pyproject

    for group in groups(asked, []):
        if flags.on("show_settings"):
            own = asked.settings(group.root)
            off = chosen(own, asked).ignore
            click.echo(settings.render(own, nearest_pyproject(group.root), group.root, off))
        for file in sorted((*group.python, *group.launchers)) if flags.on("show_files") else ():
            click.echo(shown(file))
    return CLEAN


def _read(checked: Checked) -> Iterator[str]:
    """All that was read, and what was not."""
    for one in checked.programs:
        yield f"read as several ranks run it: {one.start} ({one.begun})"
    yield from (f"not read to its end, for it is too large: {left}" for left in checked.unread)
    yield from (f"not read: {one.path} ({one.why})" for one in checked.skipped)


def _unread(checked: Checked) -> Iterator[str]:
    """A line for the programs that were not read to the end."""
    left = checked.unread
    if left:
        more = f" and {len(left) - _FEW} more (-v lists them)" if len(left) > _FEW else ""
        named = "; ".join(left[:_FEW])
        yield f"too large to be read to the end, so bugs may be missed: {named}{more}"


def _check_flags(flags: CheckFlags) -> None:
    """No flag is passed over for another one without a word."""
    for pair in _APART:
        if all(flags.on(one.removeprefix("--").replace("-", "_")) for one in pair):
            raise Stop(f"{' and '.join(pair)} exclude each other: choose one.")
    if flags.on("statistics") and flags.form not in _COUNTED:
        raise Stop(f"--statistics has no form for {flags.form}: choose {', '.join(_COUNTED)}.")


def _asked(paths: tuple[Path, ...], flags: CheckFlags) -> CheckRequest:
    from ddpify.checking.model import CheckRequest

    asked = CheckRequest(
        paths or (Path(),),
        flags.codes("select") or None,
        flags.codes("ignore"),
        flags.codes("extend_select"),
        flags.on("assume_distributed"),
        not flags.on("no_cache"),
        flags.path("cache_dir"),
        force_exclude=flags.on("force_exclude"),
        exclude=flags.texts("exclude"),
        config=flags.texts("config"),
        comments=not flags.on("ignore_noqa"),
    )
    name = flags.path("stdin_filename")
    if _STDIN not in paths:
        if name:
            raise Stop("--stdin-filename needs - as the only path.")
        return asked
    if len(paths) > 1:
        raise Stop("- (standard input) excludes other paths.")
    if flags.on("add_noqa"):
        raise Stop("--add-noqa writes into files: it cannot be used with - (standard input).")
    text = sys.stdin.buffer.read()
    return replace(asked, paths=(), stdin=name or Path("stdin.py"), text=text)


def _fix(asked: CheckRequest, checked: Checked, flags: CheckFlags) -> tuple[CheckRequest, Checked]:
    """Write the fixes; what is left to find."""
    from ddpify.checking.actions import fixed, new_text, written
    from ddpify.progress import progress

    done = fixed(asked, checked, flags.on("unsafe_fixes"))
    _tell(done)
    after = replace(asked, text=new_text(asked, done.changes)) if asked.stdin else asked
    if asked.stdin:
        click.echo(after.text, nl=False)
    with progress(flags.on("quiet")) as step:
        return after, written(after, done, step) if done.changes else checked


def _show_diff(asked: CheckRequest, checked: Checked, flags: CheckFlags) -> int:
    """The patch goes to standard output, what no patch can hold to standard error."""
    from ddpify.checking.actions import fixed
    from ddpify.checking.causes import causes
    from ddpify.outcome import Outcome
    from ddpify.report import diff

    done = fixed(asked, checked, flags.on("unsafe_fixes"))
    _tell(done)
    changes = tuple(replace(one, path=one.path.lstrip("/")) for one in done.changes)
    text = diff.render(Outcome(Path.cwd(), (), changes=changes), color=flags.colored)
    _print(text, flags)
    if not flags.on("quiet"):
        click.echo(
            f"Would fix {len(causes(done.done))} of {len(checked.causes)} findings.", err=True
        )
    return TO_DO if changes and not flags.on("exit_zero") else CLEAN


def _tell(done: Fixed) -> None:
    for line in done.left:
        click.echo(f"ddpify: {line}", err=True)


def _add_noqa(asked: CheckRequest, checked: Checked) -> int:
    from ddpify.checking.actions import silence

    count, left = silence(asked, checked.findings)
    for line in left:
        click.echo(f"ddpify: {line}", err=True)
    click.echo(f"Wrote {count} noqa comment{'s' * (count != 1)}.")
    return CLEAN


def _rendered(asked: CheckRequest, checked: Checked, flags: CheckFlags) -> str:
    form = flags.form
    if flags.on("statistics"):
        from ddpify.report import statistics

        render = statistics.render_json if form == "json" else statistics.render
        return render(checked)
    if form == "concise":
        from ddpify.report import concise

        return concise.render(checked, color=flags.colored, quiet=flags.on("quiet"))
    if form == "text":
        from ddpify.report import findings

        return findings.render(
            checked,
            color=flags.colored,
            quiet=flags.on("quiet"),
            source=flags.on("show_source"),
        )
    text = _sarif(asked, checked) if form == "sarif" else _for_programs(form)(checked)
    return _UNNAMED.sub("\ufffd", text)


def _for_programs(form: str) -> Callable[[Checked], str]:
    from importlib import import_module

    render: Callable[[Checked], str] = import_module(f"ddpify.report.{_MODULES[form]}").render
    return render


_MODULES = {"json": "check_json", "github": "github", "gitlab": "gitlab", "junit": "junit"}


def _sarif(asked: CheckRequest, checked: Checked) -> str:
    from ddpify.checking.actions import fixes
    from ddpify.checking.catalogue import catalogue
    from ddpify.report import sarif

    return sarif.render(checked, catalogue(), lambda found: fixes(asked, found).changes)


def _print(text: str, flags: CheckFlags, to_error: bool = False) -> None:
    target = flags.path("output_file")
    if target is None:
        if to_error:
            click.echo(text, nl=False, err=True)
        else:
            echo(text, flags.colored)
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8", "surrogateescape")
    except OSError as error:
        raise Stop(f"{target}: cannot be written ({error.strerror})") from error
