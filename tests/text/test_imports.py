"""Where new imports go, and how the new code spells what they import."""

from __future__ import annotations

import pytest

from tests.text.edits import changes, edit, rewritten, source_of

# The edit of every case: `use()` is put under `if main():`, with `main` from ddp.
NEW = "from ddp import main\n"
IF = "if main():\n    use()\n"

PLACES = [
    pytest.param("import os\n\nuse()\n", f"import os\n{NEW}\n{IF}", id="after-the-last-import"),
    pytest.param("use()\n", f"{NEW}\n{IF}", id="nothing-above"),
    pytest.param("# head\nuse()\n", f"# head\n\n{NEW}\n{IF}", id="below-the-head"),
    pytest.param("#!/x\n\n# c\nuse()\n", f"#!/x\n\n# c\n\n{NEW}\n{IF}", id="below-shebang"),
    pytest.param('"""D."""\nuse()\n', f'"""D."""\n\n{NEW}\n{IF}', id="below-the-docstring"),
    pytest.param(
        '"""D."""\n\n# c\nuse()\n', f'"""D."""\n\n{NEW}\n# c\n{IF}', id="above-the-comment-of-code"
    ),
    pytest.param(
        '"""D."""\nfrom __future__ import annotations\n\nuse()\n',
        f'"""D."""\nfrom __future__ import annotations\n\n{NEW}\n{IF}',
        id="below-the-future",
    ),
    pytest.param(
        "import os  # c\n# about use\nuse()\n",
        f"import os  # c\n{NEW}# about use\n{IF}",
        id="comments-stay-with-their-own",
    ),
    pytest.param(
        "import sys\nsys.path.insert(0, '..')\nimport local\n\nuse()\n",
        f"import sys\nsys.path.insert(0, '..')\nimport local\n{NEW}\n{IF}",
        id="below-a-path-change",
    ),
    pytest.param(
        "import sys\nsys.path.append('..')\n\nuse()\n",
        f"import sys\nsys.path.append('..')\n{NEW}\n{IF}",
        id="below-a-trailing-path-change",
    ),
    pytest.param(
        "import sys\nROOT = find()\nif ROOT not in sys.path:\n    sys.path.append(ROOT)\n\n"
        "import local\n\nx = 1\nuse()\n",
        "import sys\nROOT = find()\nif ROOT not in sys.path:\n    sys.path.append(ROOT)\n\n"
        f"import local\n{NEW}\nx = 1\n{IF}",
        id="below-a-computed-path-change",
    ),
    pytest.param(
        "try:\n    import a\nexcept ImportError:\n    a = None\n\nuse()\n",
        f"try:\n    import a\nexcept ImportError:\n    a = None\n{NEW}\n{IF}",
        id="below-try",
    ),
    pytest.param(
        "import os\nif TYPE_CHECKING:\n    from a import b\n\nuse()\n",
        f"import os\nif TYPE_CHECKING:\n    from a import b\n{NEW}\n{IF}",
        id="below-type-checking",
    ),
    pytest.param(
        "import os\nos.environ['A'] = '1'\nimport torch\n__version__ = '1'\n\nuse()\n",
        f"import os\nos.environ['A'] = '1'\nimport torch\n{NEW}__version__ = '1'\n\n{IF}",
        id="settings-belong-to-the-block",
    ),
    pytest.param(
        "import os\nx = f()\nimport late\n\nuse()\n",
        f"import os\n{NEW}x = f()\nimport late\n\n{IF}",
        id="code-ends-the-block",
    ),
    pytest.param(
        "import os\nos.environ['A'] = '1'\nuse()\nimport late\n",
        f"import os\n{NEW}os.environ['A'] = '1'\n{IF}import late\n",
        id="never-below-its-use",
    ),
    pytest.param(
        "import sys\nuse()\nsys.path.append('..')\nimport local\n",
        f"import sys\n{NEW}{IF}sys.path.append('..')\nimport local\n",
        id="use-above-a-path-change",
    ),
    pytest.param(
        "import sys\nsys.path.append('..')\nimport local\nx = f()\ndef g(): pass\n"
        "sys.path.append('.')\nwhile x: pass\nimport late\n\nuse()\n",
        f"import sys\nsys.path.append('..')\nimport local\n{NEW}x = f()\ndef g(): pass\n"
        f"sys.path.append('.')\nwhile x: pass\nimport late\n\n{IF}",
        id="a-late-path-change-does-not-count",
    ),
    pytest.param(
        "import os; import sys\nuse()\n", f"import os; import sys\n{NEW}{IF}", id="one-line"
    ),
    pytest.param(
        "import os; use(); x\n", f"import os\n{NEW}if main():\n    use()\nx\n", id="use-on-the-line"
    ),
    pytest.param(
        "def f():\n    import os\n    use()\n",
        f"{NEW}\n\ndef f():\n    import os\n    if main():\n        use()\n",
        id="inner-imports-do-not-count",
    ),
]


@pytest.mark.parametrize(("text", "expected"), PLACES)
def test_places(text: str, expected: str) -> None:
    assert rewritten(text, ("gate", "use()", "main()", "", "ddp.main")) == expected


EXTENDED = [
    pytest.param("from ddp import a", "from ddp import a, main", id="one-line"),
    pytest.param("from ddp import a, z", "from ddp import a, main, z", id="sorted"),
    pytest.param("from ddp import z, a", "from ddp import z, a, main", id="unsorted"),
    pytest.param("from ddp import Z, a, z", "from ddp import Z, a, main, z", id="kinds"),
    pytest.param("from ddp import (a)", "from ddp import (a, main)", id="parenthesised"),
    pytest.param("from ddp import a as b  # c", "from ddp import a as b, main  # c", id="alias"),
    pytest.param("from ddp import main", "from ddp import main", id="there"),
    pytest.param("from ddp import a, main", "from ddp import a, main", id="there-with-others"),
    pytest.param(
        "from ddp import (\n    a,  # c\n    z,\n)",
        "from ddp import (\n    a,  # c\n    main,\n    z,\n)",
        id="lines",
    ),
    pytest.param(
        "from ddp import (\n    a,\n    b  # c\n)",
        "from ddp import (\n    a,\n    b,  # c\n    main\n)",
        id="lines-without-trailing-comma",
    ),
    pytest.param(
        "from ddp import (a,\n                 b)",
        "from ddp import (a,\n                 b,\n                 main)",
        id="aligned",
    ),
    pytest.param(
        f"from ddp import {'a' * 40}, {'b' * 28}",
        f"from ddp import (\n    {'a' * 40},\n    {'b' * 28},\n    main,\n)",
        id="too-long",
    ),
]


@pytest.mark.parametrize(("line", "expected"), EXTENDED)
def test_an_import_of_the_module_is_extended(line: str, expected: str) -> None:
    edits = ("gate", "use()", "main()", "", "ddp.main")
    assert rewritten(f"{line}\n\nuse()\n", edits) == f"{expected}\n\n{IF}"


NOT_EXTENDED = [
    pytest.param("from .ddp import a\n", id="relative"),
    pytest.param("import ddp\n", id="plain"),
    pytest.param("from ddp.x import a\n", id="submodule"),
    pytest.param("from ddp import *\n", id="star"),
    pytest.param("try:\n    from ddp import main as m\nexcept ImportError: pass\n", id="try"),
]


@pytest.mark.parametrize("line", NOT_EXTENDED)
def test_other_imports_are_not_extended(line: str) -> None:
    edits = ("gate", "use()", "main()", "", "ddp.main")
    assert rewritten(f"{line}\nuse()\n", edits) == f"{line}{NEW}\n{IF}"


def test_a_relative_module_is_one_too() -> None:
    edits = ("gate", "use()", "main()", "", "..ddp.main")
    assert rewritten("from ..ddp import a\nuse()\n", edits) == f"from ..ddp import a, main\n{IF}"


def test_an_import_that_goes_away_is_not_extended() -> None:
    edits = [("gate", "use()", "main()", "", "ddp.main"), ("delete", "from ddp import a")]
    assert rewritten("from ddp import a\nuse()\n", *edits) == f"{NEW}{IF}"


def test_an_import_below_the_use_is_not_extended() -> None:
    text = "use()\nfrom ddp import a\n"
    wanted = f"{NEW}\n{IF}from ddp import a\n"
    assert rewritten(text, ("gate", "use()", "main()", "", "ddp.main")) == wanted


CLASHES = [
    pytest.param("def main(): pass", id="function"),
    pytest.param("class main: pass", id="class"),
    pytest.param("main = 1", id="assignment"),
    pytest.param("for main in x: pass", id="loop"),
    pytest.param("def f(main): pass", id="parameter"),
    pytest.param("def f(*, main=1): pass", id="keyword-parameter"),
    pytest.param("f = lambda main: main", id="lambda"),
    pytest.param("with x as main: pass", id="with"),
    pytest.param("try: pass\nexcept E as main: pass", id="except"),
    pytest.param("import main", id="import"),
    pytest.param("import main.sub", id="import-of-a-submodule"),
    pytest.param("import x as main", id="import-as"),
    pytest.param("from other import main", id="from-import"),
    pytest.param("def f():\n    from other import x as main", id="inner-import"),
    pytest.param("[main for main in x]", id="comprehension"),
    pytest.param("match x:\n    case [1, *main]: pass", id="match-star"),
    pytest.param("match x:\n    case {**main}: pass", id="match-mapping"),
    pytest.param("match x:\n    case main: pass", id="match-name"),
    pytest.param("if (main := 1): pass", id="walrus"),
    pytest.param("from other import *\nmain()", id="star-and-read"),
]


@pytest.mark.parametrize("line", CLASHES)
def test_a_name_that_is_taken_gets_another(line: str) -> None:
    text = f"import os\nuse()\n{line}\n"
    code = 'main() and o.main(main=[main, "main"])'
    wanted = 'ddp_main() and o.main(main=[ddp_main, "main"])'
    after = rewritten(text, ("gate", "use()", code, "", "ddp.main"))
    assert "from ddp import main as ddp_main\n" in after
    assert f"if {wanted}:\n    use()\n" in after
    assert line in after


FREE = [
    pytest.param("x.main = 1", id="attribute"),
    pytest.param("f(main=1)", id="keyword"),
    pytest.param("print('main')", id="string"),
    pytest.param("from other import *", id="star"),
    pytest.param("import x.main", id="submodule"),
]


@pytest.mark.parametrize("line", FREE)
def test_a_name_that_only_looks_taken_is_used(line: str) -> None:
    after = rewritten(f"{line}\nuse()\n", ("gate", "use()", "main()", "", "ddp.main"))
    assert "from ddp import main\n" in after
    assert IF in after


def test_every_kind_of_code_is_respelled() -> None:
    text = "main = 1\na(x=1)\nb()\nc()\n"
    names = "ddp.main"
    edits = [
        ("argument", "a(x=1)", "main({})", "x", names),
        ("replace", "b()", "main({})", "", names),
        ("indent", "c()", "with main():", "", names),
        ("before", "c()", "main(main=1)\ny = {}", "", names),
        ("after", "c()", "main", "", ""),
    ]
    wanted = (
        "from ddp import main as ddp_main\n\nmain = 1\na(x=ddp_main(1))\nddp_main(b())\n"
        "ddp_main(main=1)\ny = {}\nwith ddp_main():\n    c()\nmain\n"
    )
    assert rewritten(text, *edits) == wanted


def test_the_name_it_has_there_is_used_again() -> None:
    text = "from ddp import main as ddp_main\nmain = 1\nuse()\n"
    wanted = "from ddp import main as ddp_main\nmain = 1\nif ddp_main():\n    use()\n"
    assert rewritten(text, ("gate", "use()", "main()", "", "ddp.main")) == wanted


def test_an_alias_of_the_author_is_used() -> None:
    wanted = "from ddp import main as m\nif m():\n    use()\n"
    spec = ("gate", "use()", "main()", "", "ddp.main")
    assert rewritten("from ddp import main as m\nuse()\n", spec) == wanted


def test_two_modules_with_one_name() -> None:
    edits = [("gate", "a()", "main()", "", "one.main"), ("gate", "b()", "main()", "", "two.main")]
    wanted = (
        "from one import main\nfrom two import main as ddp_main\n\n"
        "if main():\n    a()\nif ddp_main():\n    b()\n"
    )
    assert rewritten("a()\nb()\n", *edits) == wanted


def test_the_other_name_may_be_taken_too() -> None:
    after = rewritten("main = ddp_main = 1\nuse()\n", ("gate", "use()", "main()", "", "ddp.main"))
    assert "from ddp import main as ddp_main_2\n" in after


def test_many_names_are_one_statement_and_fit_the_line() -> None:
    names = [f"some_long_name_{number}" for number in range(5)]
    edits = ("before", "use()", f"f({', '.join(names)})", "", " ".join(f"ddp.{n}" for n in names))
    listed = ",\n    ".join(names)
    after = rewritten("import os\n\nuse()\n", edits)
    assert after.startswith(f"import os\nfrom ddp import (\n    {listed},\n)\n\nf(")


def test_a_decorator_runs_before_the_function_it_stands_on() -> None:
    text = "import os\nos.environ['A'] = '1'\n@d(use)\ndef f(): pass\nimport late\n"
    source = source_of(text)
    made = changes(source, [edit(source, "replace", "use", "main", "", "ddp.main")])
    assert b"import os\nfrom ddp import main\nos" in made[0].after


def test_at_the_top_with_other_new_code() -> None:
    spec = ("before", "use()", "main()", "", "ddp.main")
    assert rewritten("# head\nuse()\n", spec) == f"# head\n\n{NEW}\nmain()\nuse()\n"


def test_after_the_last_import_the_new_one_comes_first() -> None:
    text = "import os\nuse()\n"
    wanted = f"import os\n{NEW}\nmain()\nuse()\n"
    assert rewritten(text, ("after", "import os", "main()", "", "ddp.main")) == wanted
