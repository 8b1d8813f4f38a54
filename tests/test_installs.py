"""Scripts in a folder of their own import a package from above where that is provably the one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ddpify.installs import installed
from ddpify.pipeline import migrate
from ddpify.roots import project_root
from ddpify.settings import Settings

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pkg import files

net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 1)), 2)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    files.keep(net.state_dict())
"""
KEEP = 'import torch\n\n\ndef keep(state):\n    torch.save(state, "net.pth")\n'
SETUP = "from setuptools import find_packages, setup\n\nsetup({})\n"
PROJECT = '[project]\nname = "own"\n{}'
FLAT, SOURCES = "pkg", "src/pkg"
# What lies in the top folder, and where the package does.
IMPORTED = {
    "named": ({"setup.py": SETUP.format('packages=["pkg", "pkg.sub"]')}, FLAT),
    "found": ({"setup.py": SETUP.format('packages=find_packages(exclude=["tests"])')}, FLAT),
    "found in src": (
        {"setup.py": SETUP.format('packages=find_packages("src"), package_dir={"": "src"}')},
        SOURCES,
    ),
    "setup.cfg": (
        {
            "setup.py": SETUP.format(""),
            "setup.cfg": "[options]\npackages = find:\npackage_dir =\n    = src\n"
            "[options.packages.find]\nwhere = src\n",
        },
        SOURCES,
    ),
    "by itself": ({"pyproject.toml": PROJECT.format("")}, FLAT),
    "by itself in src": ({"pyproject.toml": PROJECT.format("")}, SOURCES),
    "pyproject.toml": (
        {"pyproject.toml": PROJECT.format('[tool.setuptools.packages.find]\ninclude = ["pkg*"]\n')},
        FLAT,
    ),
    "pyproject.toml, without namespaces": (
        {"pyproject.toml": PROJECT.format("[tool.setuptools.packages.find]\nnamespaces = false\n")},
        FLAT,
    ),
    "poetry": (
        {
            "pyproject.toml": '[build-system]\nbuild-backend = "poetry.core.masonry.api"\n'
            '[tool.poetry]\nname = "own"\npackages = [{include = "pkg", from = "src"}]\n'
        },
        SOURCES,
    ),
    "hatch": (
        {
            "pyproject.toml": '[build-system]\nbuild-backend = "hatchling.build"\n'
            '[project]\nname = "pkg"\n'
        },
        FLAT,
    ),
    "README": (
        {
            ".git": "",
            "README.md": "    export PYTHONPATH=$PYTHONPATH:.\n    python scripts/train.py\n",
        },
        FLAT,
    ),
    "launcher": ({".git": "", "scripts/go.sh": 'PYTHONPATH=".." python train.py\n'}, FLAT),
    "script": (
        {
            ".git": "",
            "scripts/train.py": f"import path\n{TRAIN}",
            "scripts/path.py": 'import sys\nsys.path.append("../lib")\n',
        },
        "lib/pkg",
    ),
}
ELSEWHERE = {
    "nothing said": ({".git": ""}, FLAT),
    "another named": ({"setup.py": SETUP.format('packages=["other"]')}, FLAT),
    "left out": ({"setup.py": SETUP.format('packages=find_packages(exclude=["pkg"])')}, FLAT),
    "computed": ({"setup.py": SETUP.format("packages=all_of_them()")}, FLAT),
    "may say anything": ({"setup.py": SETUP.format("**options")}, FLAT),
    "that of src": (
        {"setup.py": SETUP.format('packages=["pkg"], package_dir={"": "src"}'), "src/a.py": ""},
        FLAT,
    ),
    "both, that of src": (
        {
            "setup.py": SETUP.format('packages=["pkg"], package_dir={"": "src"}'),
            "src/pkg/__init__.py": "",
        },
        FLAT,
    ),
    "lies under another name": (
        {"setup.py": SETUP.format('packages=["pkg"], package_dir={"pkg": "lib"}')},
        FLAT,
    ),
    "one of several": ({"pyproject.toml": PROJECT.format(""), "more/a.py": ""}, FLAT),
    "installs nothing": ({"pyproject.toml": "[tool.black]\nline-length = 100\n"}, FLAT),
    "of another script": (
        {".git": "", "README.md": "PYTHONPATH=. python test.py\n\npython train.py\n"},
        FLAT,
    ),
    "commented out": ({".git": "", "go.sh": "# PYTHONPATH=. python scripts/train.py\n"}, FLAT),
    "another folder": ({".git": "", "go.sh": "PYTHONPATH=lib python scripts/train.py\n"}, FLAT),
    "beside one that may be": (
        {
            "setup.py": SETUP.format('packages=["pkg"]'),
            "more.py": "",
            "scripts/train.py": f"import more\n{TRAIN}",
        },
        FLAT,
    ),
    "another script adds it": (
        {".git": "", "scripts/test.py": 'import sys\nsys.path.append("..")\n'},
        FLAT,
    ),
}


def put(files: Mapping[str, str], package: str, top: Path) -> Path:
    """A package, and a script with requirements of its own that trains; its path."""
    all_files = {
        f"{package}/__init__.py": "",
        f"{package}/files.py": KEEP,
        "scripts/requirements.txt": "torch\n",
        "scripts/train.py": TRAIN,
        **files,
    }
    for path, text in all_files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(text)
    return top / "scripts/train.py"


@pytest.mark.parametrize(("files", "package"), IMPORTED.values(), ids=IMPORTED)
def test_a_package_that_scripts_provably_import_is_the_projects(
    files: dict[str, str], package: str, tmp_path: Path
) -> None:
    script = put(files, package, tmp_path)
    assert project_root(script) == tmp_path
    outcome = migrate([script], Settings())
    assert not outcome.refusals
    changed = {change.path: change.after.decode() for change in outcome.changes}
    assert "save_on_main(state" in changed[f"{package}/files.py"]


@pytest.mark.parametrize(("files", "package"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_one_that_may_be_installed_from_elsewhere_is_not_read(
    files: dict[str, str], package: str, tmp_path: Path
) -> None:
    script = put(files, package, tmp_path)
    assert project_root(script) == script.parent
    (refusal,) = migrate([script], Settings()).refusals
    assert "`pkg.files.keep`, which was not read" in refusal.message
    assert "that it is the `pkg` in `..` is not sure" in refusal.message


def test_what_lies_beside_the_script_is_the_one(tmp_path: Path) -> None:
    files = {"setup.py": SETUP.format('packages=["pkg"]'), "scripts/pkg/__init__.py": ""}
    script = put({**files, "scripts/pkg/files.py": KEEP}, FLAT, tmp_path)
    assert project_root(script) == script.parent


def test_a_known_library_is_not_the_project_of_its_examples(tmp_path: Path) -> None:
    files = {"setup.py": SETUP.format('packages=["timm"]'), "scripts/train.py": "import timm\n"}
    script = put(files, "timm", tmp_path)
    assert project_root(script) == script.parent


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        ("", "", "other/ddp_utils.py"),
        ("import other.data\n", "", "other/ddp_utils.py"),
        ("", "from pkg import files\n", "pkg/ddp_utils.py"),
        ("import other.data\n", "from pkg import files\n", "scripts/ddp_utils.py"),
    ],
)
def test_helpers_lie_where_installed_packages_find_them(
    first: str, second: str, place: str, tmp_path: Path
) -> None:
    """``pip install -e`` may make nothing else of the folder importable; none shall be a circle."""
    files = {
        "setup.py": SETUP.format('packages=["other", "pkg"]'),
        "pkg/__init__.py": first,
        "other/__init__.py": second,
        "other/data.py": "",
        "scripts/train.py": f"import other.data\n{TRAIN}",
    }
    outcome = migrate([put(files, FLAT, tmp_path)], Settings())
    assert not outcome.refusals
    assert place in {change.path for change in outcome.changes}


def test_a_build_file_that_cannot_be_read_installs_nothing(tmp_path: Path) -> None:
    put({"setup.py": "print 'old'\n", "pyproject.toml": "= ="}, FLAT, tmp_path)
    (tmp_path / "setup.cfg").write_text("no section\n")
    assert not installed(tmp_path)
