"""What is published: its metadata, its readme, its files, and the workflow that does it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ddpify.settings import tomllib
from tests.docs.blocks import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
HELD = (
    """CHANGELOG.md Dockerfile LICENSE Makefile README.md mkdocs.yml .github/workflows/release.yml
    docs/tutorial.md docs/hooks/generated.py docs/pictures/share.svg fixtures/vae/main.py
    tests/constraints.txt tests/docs/blocks.py ddpify/cli.py runtime/ddp_utils.py""".split()
)


def test_links_of_the_readme_lead_somewhere_on_pypi_too() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert not re.findall(r"\]\((?!https://|#)[^)]*\)", text)


def test_files_that_the_readme_links_to_are_there() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    urls = PROJECT["urls"]
    for path in re.findall(rf"\]\({re.escape(urls['Repository'])}/blob/main/([^)#]+)", text):
        assert (ROOT / path).is_file(), path
    for path in re.findall(rf"\]\({re.escape(urls['Documentation'])}([^)#]*)/[)#]", text):
        assert path == "rules" or (ROOT / "docs" / f"{path}.md").is_file(), path


def test_the_release_workflow_has_the_shape_that_github_wants() -> None:
    command = ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW)]
    command[0] = str(Path(sys.executable).parent / command[0])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_release_workflow_tries_the_versions_that_are_said() -> None:
    said = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if ":: 3." in one}
    tried = set(re.findall(r'"(3\.\d+)"', WORKFLOW.read_text("utf-8")))
    assert min(said, key=lambda one: int(one[2:])) == PROJECT["requires-python"].removeprefix(">=")
    assert said <= tried


def test_the_container_copies_what_is_there() -> None:
    lines = re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text("utf-8"), re.M)
    names = [name for line in lines for name in line.split()]
    assert {"pyproject.toml", "ddpify", "runtime"} <= set(names)
    assert all((ROOT / name).exists() for name in names)


@pytest.mark.install
def test_the_source_distribution_holds_docs_changelog_and_tests(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if not name.startswith("benchmarks/") and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    build = "import setuptools.build_meta as b, sys; print(b.build_sdist(sys.argv[1]))"
    command = [sys.executable, "-c", build, str(tmp_path)]
    subprocess.run(command, cwd=tree, capture_output=True, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert set(HELD) <= held
    assert not [name for name in held if "__pycache__" in name or name.startswith("build/")]
