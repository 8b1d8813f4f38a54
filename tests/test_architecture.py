"""Who may know whom: the import table of the design, checked on the source.

Layers are worth having only while nobody reaches across them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

from ddpify.settings import tomllib

ROOT = Path(__file__).parents[1]
RULES = ROOT / "ddpify" / "rules"
FAMILIES = sorted(p.name for p in RULES.iterdir() if p.is_dir() and p.name[0] != "_")
FAMILIES = [name for name in FAMILIES if name not in ("examples", "shared")]
TOOLBOX = (
    {"source", "site", "facts", "names", "ranks", "settings", "strategies"}
    | {
        "python.choices",
        "python.libraries",
        "python.writers",
    }
    | {f"rules.{name}" for name in ("base", "edits", "examples", "shared")}
)


def own_tools(family: str) -> set[str]:
    """The modules of a family that are no rules: nobody else may import them."""
    files = (RULES / family).glob("*.py")
    return {f"rules.{family}.{p.stem}" for p in files if not p.stem.startswith(("ddp", "__"))}


DATA = {"notebooks", "source", "site", "roots", "rules.base", "plan", "outcome", "launchers.model"}
PLAN = {"advice.model", "advice.memory", "advice.shards"}
VERIFY = {
    f"verify.{name}"
    for name in ("causes", "checks", "distance", "evidence", "options", "recording", "verdict")
}

# Module (or package: the longest matching row counts) to what it may import of ddpify.
OURS: dict[str, set[str]] = {
    "": set(),  # ddpify/__init__.py
    "__main__": {"cli"},
    "cli": {"__version__", "commands"},
    "commands": {
        "assistants",
        "choosing",
        "commands",
        "server.serve",
        "converting",
        "discover",
        "initial",
        "pipeline",
        "report",
        "roots",
        "schemas",
        "settings",
        "outcome",
        "progress",
        "surroundings",
        "terminal",
        "write",
    }
    | {f"journal.{name}" for name in ("folder", "record", "restore")}
    | {
        f"checking.{name}"
        for name in "actions catalogue causes cleaning codes fixing lookup model run".split()
    }
    | {"advice.advise", "advice.choice", "advice.model"}
    | {f"verify.{name}" for name in "measure options progress report run verdict".split()},
    # The tools of assistants start the command line: they know the words, not the work.
    "assistants": {"__version__", "assistants", "names", "roots", "schemas"},
    "converting": {"runtime"},
    "pipeline": set(),  # see JOINS
    "reading": {"discover", "vendor", "facts", "names", "outcome", "project", "settings"}
    | {"steps", "strategies"},
    "settings": set(),
    # What differs between DDP and FSDP, as data.
    "strategies": {"settings", "strategies"},
    "names": set(),
    "schemas": set(),
    "links": set(),
    "site": set(),
    "programs": set(),
    # Notebooks as text: no file is opened.
    "notebooks": set(),
    "steps": set(),
    "terminal": set(),
    "progress": {"steps", "terminal"},
    "surroundings": {"__version__", "settings", "verify.which"},
    "roots": {"installs", "python"},
    "installs": {"python.imports", "settings"},
    "source": {"literals", "respelling", "site", "todo"},
    "literals": set(),
    "respelling": set(),
    "outcome": DATA,
    # What both readers know of Python: no samples, no ranks, no files but those of imports.
    "python": {"python"},
    # YAML as trees with places: which files a program may be started with, and what they name.
    "configs": {"configs", "python.imports", "roots", "site"},
    "project": {"source", "facts", "names", "python", "roots", "steps"},
    "facts": {"configs", "source", "facts", "names", "project", "python", "roots"},
    "facts.model": {"source", "facts"},
    # The reading of programs that are distributed already knows neither facts nor rules.
    "ranks": {"configs", "names", "project", "python", "ranks", "roots", "site", "source"}
    | {"steps"},
    # What facts propose is read by ranks: the one place that knows both sides' findings.
    "disposal": {"accepting", "facts.model", "lint", "mending", "outcome", "plan", "rules.base"}
    | {"reading", "settings", "source"},
    # Programs in Lightning's Trainer: what ranks find is all that is proposed.
    "hazards": {"facts.model", "facts.tree", "outcome", "settings", "strategies"}
    | {"lightning.configured", "lightning.manual"},
    "lightning": {"configs", "discover", "facts.model", "facts.tree", "launchers", "lightning"}
    | {"roots", "rules.base", "settings", "source"},
    "trainers": {"facts.model", "lint", "names", "outcome", "rules.base", "settings", "source"}
    | {"advice.rates", "lightning.configured", "strategies"},
    "mending": {"facts.model", "facts.tree", "rules.base", "rules.edits", "source"},
    "unbound": {"outcome", "plan"},
    "accepting": {"outcome", "rules.base", "settings", "source"},
    "lint": {"launchers.lone_starts", "programs", "ranks", "rules.base", "rules.registry", "source"}
    | {"judging", "site", "steps"},
    # Runs judged one by one, and what of them holds for the next reading.
    "judging": {"programs", "ranks", "rules.base", "steps"},
    # A rule reads facts and shares a toolbox; no rule knows another rule, and a family's tools
    # are its own.
    "rules": set(),
    "rules.edits": TOOLBOX,
    "rules.shared": TOOLBOX,
    "rules.examples": {"names", "rules.base", "rules.examples"},
    **{f"rules.{family}": TOOLBOX | own_tools(family) for family in FAMILIES},
    "rules.base": {"site", "source", "facts.model", "ranks.run", "settings"},
    "discover": {"launchers", "notebooks", "outcome", "roots", "source"},
    "assembly": set(),
    "seal": set(),
    "placing": {"installs", "project", "python.imports"},
    "vendor": {"__version__", "assembly", "discover", "names", "placing", "project", "rules.base"}
    | {"seal", "settings", "source"},
    "plan": {"source", "rules.base"},
    "rewrite": {"source", "rules.base", "plan", "rewrite", "todo"},
    "rewrite.files": {"names", "source", "rules.base", "plan", "rewrite"},
    # What is about to be written, and the way back: knows files, and nothing of programs.
    "journal": {"journal", "roots"},
    "belongings": set(),
    "write": {"belongings", "journal", "plan"},
    # A project that was migrated: what of its helpers is not there, and where sentences get them.
    "lost": {"names"},
    "restoring": {"lost", "outcome", "project", "roots", "rules.base", "settings", "source"}
    | {"vendor"},
    "sourcing": {"names", "outcome"},
    # What a partial migration leaves to a person.
    "todo": set(),
    "moved": {"plan"},
    "choosing": {"plan", "rules.base"},
    "leaving": {"facts.model", "outcome", "partial", "reading", "restoring", "rules.base"}
    | {"rules.registry", "settings", "source", "sourcing", "stages", "todo", "unbound", "vendor"},
    # What `pipeline` and `leaving` do alike.
    "stages": {"disposal", "facts.model", "names", "outcome", "plan", "reading", "rewrite"}
    | {"rules.base", "rules.registry", "settings", "source", "steps", "unbound", "vendor"},
    "partial": {"moved", "outcome", "plan", "site", "source", "todo"},
    "launching": {"discover", "launchers", "rules.base", "vendor"},
    # Files that start a program on several nodes; they know of it what its launchers say.
    "clusters": {"clusters", "launchers", "outcome", "plan"},
    "clusters.files": {"clusters", "discover", "outcome", "plan", "rules.base", "settings"}
    | {"source"},
    "initial": {"clusters", "discover", "initial", "launchers", "outcome", "plan", "settings"},
    "siblings": {"discover", "rules.base", "site", "source"},
    "launchers": {"source", "site", "rules.base", "launchers", "names", "settings"},
    # Checking: what a second, unchanged run loads knows neither rules nor parsers nor rewriting.
    "checking": {"checking", "notebooks", "programs", "rules.base", "roots", "settings", "site"}
    | {"steps"},
    "checking.model": {"checking", "judging", "programs", "rules.base", "settings"},
    "checking.cache": {"__version__", "checking", "programs", "rules.base"},
    "checking.catalogue": {"checking.model", "rules.base", "rules.examples", "rules.registry"},
    "checking.lookup": {"checking.catalogue", "rules.base"},
    "checking.copies": {"launching", "lost", "roots", "rules.base", "site", "vendor"},
    "checking.hearing": {"checking", "rules.base", "settings", "source"},
    "checking.judge": {"checking", "judging", "launchers", "lint", "notebooks", "rules.base"}
    | {"site", "steps", "todo"},
    "checking.fixing": {"checking.codes", "plan", "rewrite", "rules.base", "source"},
    "checking.noqa": {"checking.suppress", "launchers"},
    "checking.actions": {"checking", "launchers", "notebooks", "plan", "roots", "rules.base"}
    | {"settings", "source", "steps", "write"},
    "report": DATA
    | {"report", "checking.causes", "checking.model", "links", "notebooks"}
    | {"terminal"},
    "report.settings": {"settings"},
    "report.spelled": DATA | {"moved"},
    "report.hunks": DATA | {"names"},
    "report.by_hand": DATA | {"report", "checking.catalogue", "moved"},
    "report.pair": {"names", "rules.base"},
    "report.rule": DATA | {"checking.measured", "links", "report"},
    "report.way_back": DATA | {"belongings", "report"},
    "report.sarif": DATA
    | {"__version__", "report", "checking.causes", "checking.model", "links"}
    | {"notebooks"},
    **{
        f"report.{name}": DATA | PLAN | {"report", "terminal"}
        for name in "plan plan_json plan_scaling plan_sections plan_tables".split()
    },
    # The editor's side of checking: projects and buffers; the protocol is the business of the rest.
    "server": {"__version__", "checking", "links", "plan", "report", "rules.base", "server"}
    | {"settings", "site", "source"},
    "server.reading": {"checking", "judging", "roots", "rules.base", "settings", "source"},
    "server.worker": set(),
    # What a migration means for batch and memory; the model and its arithmetic read no facts.
    "advice": {"advice", "discover", "facts", "launchers", "outcome", "settings", "source"}
    | {"strategies"},
    "advice.model": {"source"},
    "advice.memory": {"advice.model", "advice.shards"},
    "advice.scaling": {"advice.model", "advice.shards"},
    "advice.shards": {"advice.model"},
    "advice.split": set(),
    # Verifying: what is watched, what was seen, what it means, how it is told.
    "verify": {"verify.options", "verify.recording"},
    "verify.which": set(),
    "verify.occasion": {"verify.verdict"},
    "verify.options": {"verify.which"},
    "verify.evidence": {"rules.base", "verify.options", "verify.recording"},
    "verify.verdict": {"outcome", "verify.options", "verify.recording"},
    "verify.observer": {"verify.observer"},
    "verify.observe": {"verify.observer"},
    "verify.read": {"verify.recording"},
    "verify.snapshot": set(),
    "verify.environment": set(),
    "verify.stacks": set(),
    "verify.terminal": set(),
    "verify.processes": set(),
    "verify.scratch": {"belongings", "verify.snapshot"},
    "verify.baseline": {"verify.scratch", "verify.snapshot"},
    "verify.interpreter": set(),
    "verify.launch": {
        f"verify.{name}"
        for name in "environment processes read recording snapshot stacks terminal".split()
    },
    "verify.progress": {"verify.read"},
    "verify.checkpoints": {
        f"verify.{name}" for name in ("evidence", "identity", "interpreter", "recording")
    },
    "verify.shards": {"names", "verify.interpreter", "verify.recording"},
    "verify.scalars": {"verify.evidence", "verify.interpreter"},
    "verify.checks": VERIFY | {"names"},
    "verify.causes": VERIFY | {"rules.registry", "rules.base"},
    "verify.report": VERIFY
    | DATA
    | {"report", "verify.report", "__version__", "links", "names", "terminal"},
    "verify.pairing": {
        "advice.undivided",
        "facts.model",
        "journal.earlier",
        "names",
        "outcome",
        "pipeline",
        "project",
        "settings",
        "write",
    }
    | {f"verify.{name}" for name in ("baseline", "options", "scratch", "snapshot")},
    "verify.gathering": {"lint", "project", "verify"},
    "verify.run": {"project", "settings", "verify"},
    "verify.measure": {"advice.model", "project", "verify"},
}
# The registry is the one module that names the rules; the pipeline joins all layers.
JOINS = {"rules.registry": {"rules"}, "pipeline": set(OURS) - {"cli", "__main__", ""}}

THEIRS: dict[str, set[str]] = {
    "anyio": {"assistants"},  # mcp brings it, and pydantic
    "libcst": {"rewrite"},
    "markdown_it": {"launchers.markdown"},
    "black": {"rewrite"},
    "click": {"cli", "commands", "report", "verify.report"},
    "jinja2": {"verify.report"},
    "lsprotocol": {"server"},
    "mcp": {"assistants"},
    "numpy": {"verify"},
    "packaging": {"ranks.required"},
    "psutil": {"verify"},
    "pydantic": {"assistants"},
    "pygls": {"server"},
    "rich": {"progress", "report.plan", "verify.progress"},
    "tensorboard": {"verify.observer.read_events"},
    "tomli": {"settings"},
    "torch": {"converting", "verify.observe", "verify.observer"},
    "tree_sitter": {"launchers"},
    "tree_sitter_bash": {"launchers"},
    "wcmatch": {"checking.wildmatch"},
    "yaml": {"configs.nodes"},
}


def modules(package: str) -> list[str]:
    """Dotted names below the folder; a package's own ``__init__`` has the package's name."""
    files = (path.relative_to(ROOT / package) for path in (ROOT / package).rglob("*.py"))
    return sorted(str(path.with_suffix("")).replace("/", ".") for path in files)


def imported(file: Path) -> set[str]:
    """Absolute names this file imports, wherever in it; ``from a import b`` gives ``a.b``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def graph() -> dict[str, set[str]]:
    """The modules of ddpify that each imports, wherever in it: in a function, for types alone."""
    names = {module.removesuffix(".__init__") for module in modules("ddpify")}
    found = {}
    for module in modules("ddpify"):
        wanted = imported(ROOT / "ddpify" / f"{module.replace('.', '/')}.py")
        own = {name.removeprefix("ddpify.") for name in wanted if name.startswith("ddpify.")}
        known = {name if name in names else name.rpartition(".")[0] for name in own} & names
        found[module.removesuffix(".__init__")] = known - {module.removesuffix(".__init__")}
    return found


def test_no_import_leads_back() -> None:
    """Each module can be read, and tested, knowing only what lies below it."""
    sorter = TopologicalSorter(graph())
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_each_class_name_means_one_thing() -> None:
    defined = Counter(
        node.name
        for path in modules("ddpify")
        for node in ast.parse(
            (ROOT / f"ddpify/{path.replace('.', '/')}.py").read_text("utf-8")
        ).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in defined.items() if times > 1] == []


def within(name: str, allowed: set[str]) -> bool:
    """Whether ``name`` is one of ``allowed`` or lies in it."""
    return any(name == one or (one and name.startswith(f"{one}.")) for one in allowed)


@pytest.mark.parametrize("path", modules("ddpify"))
def test_modules_of_ddpify_import_only_what_the_design_allows(path: str) -> None:
    file = ROOT / "ddpify" / f"{path.replace('.', '/')}.py"
    module = path.removesuffix("__init__").removesuffix(".")
    rows = [row for row in OURS if within(module, {row})]
    assert rows, f"ddpify/{file.name} has no row in the table: say what it may know"
    allowed = OURS[max(rows, key=len)] | JOINS.get(module, set())
    for name in imported(file):
        top, _, rest = name.partition(".")
        if top == "ddpify":
            assert within(rest, allowed), f"{module} imports {name}"
        elif top not in sys.stdlib_module_names:
            assert within(module, THEIRS.get(top, set())), f"{module} imports {name}"


@pytest.mark.parametrize("path", modules("runtime"))
def test_the_runtime_needs_torch_and_the_standard_library_only(path: str) -> None:
    tops = {name.split(".")[0] for name in imported(ROOT / "runtime" / f"{path}.py")}
    assert tops <= sys.stdlib_module_names | {"torch", ""}, "(relative imports start with '')"


def test_rules_do_no_file_access() -> None:
    for file in (ROOT / "ddpify" / "rules").rglob("*.py"):
        touched = imported(file) & {"os", "io", "subprocess", "shutil", "pathlib.Path"}
        assert not touched, f"{file.name} imports {touched}"


def test_declared_dependencies_are_the_imported_ones() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = declared["optional-dependencies"]
    asked = [extras[name] for name in ("mcp", "server", "verify")]
    lines = [*declared["dependencies"], *chain(*asked)]
    names = {re.split(r"\W*[<>=;]", one)[0].replace("-", "_") for one in lines}
    # markdown-it-py is imported without "py", and so is pyyaml
    names = {name.removesuffix("_py").replace("pyyaml", "yaml") for name in names}
    # the project's own interpreter has the first two, mcp brings the others
    assert names == set(THEIRS) - {"torch", "tensorboard", "anyio", "pydantic"}
    used = {
        name.split(".")[0] for path in (ROOT / "ddpify").rglob("*.py") for name in imported(path)
    }
    assert names <= used
