"""Edits of statements: a text, what is to be done, and the text that it gives."""

from __future__ import annotations

import pytest

MAIN = "is_main()"

GATE = [
    pytest.param(
        "x = 1\nprint(x)\ny = 2\n",
        [("gate", "print(x)", MAIN)],
        "x = 1\nif is_main():\n    print(x)\ny = 2\n",
        id="one",
    ),
    pytest.param(
        "print(1)\nprint(2)\nx\nprint(3)\n",
        [("gate", f"print({n})", MAIN) for n in (1, 2, 3)],
        "if is_main():\n    print(1)\n    print(2)\nx\nif is_main():\n    print(3)\n",
        id="neighbours-share",
    ),
    pytest.param(
        "print(1)\nprint(2)\n",
        [("gate", "print(1)", MAIN), ("gate", "print(2)", "is_local()")],
        "if is_main():\n    print(1)\nif is_local():\n    print(2)\n",
        id="other-test",
    ),
    pytest.param(
        "# top\nprint(1)  # one\n\n# between\nprint(2)\n# end\n",
        [("gate", "print(1)", MAIN), ("gate", "print(2)", MAIN)],
        "# top\nif is_main():\n    print(1)  # one\n\n    # between\n    print(2)\n# end\n",
        id="comments",
    ),
    pytest.param(
        "def f():\n    x\n    # why\n    print(1)\n    # last\n\n\nf()\n",
        [("gate", "print(1)", MAIN)],
        "def f():\n    x\n    # why\n    if is_main():\n        print(1)\n    # last\n\n\nf()\n",
        id="end-of-block",
    ),
    pytest.param(
        "print(1)\nprint(2)\n",
        [("gate", "print(1)", MAIN), ("gate", "print(2)", MAIN), ("before", "print(2)", "x = 1")],
        "if is_main():\n    print(1)\nx = 1\nif is_main():\n    print(2)\n",
        id="kept-apart-by-before",
    ),
    pytest.param(
        "print(1)\nprint(2)\n",
        [("gate", "print(1)", MAIN), ("gate", "print(2)", MAIN), ("after", "print(1)", "x = 1")],
        "if is_main():\n    print(1)\nx = 1\nif is_main():\n    print(2)\n",
        id="kept-apart-by-after",
    ),
    pytest.param(
        "a; print(1); b; c  # end\n",
        [("gate", "print(1)", MAIN)],
        "a\nif is_main():\n    print(1)\nb; c  # end\n",
        id="split-line",
    ),
    pytest.param(
        "print(1); print(2);\n",
        [("gate", "print(1)", MAIN), ("gate", "print(2)", MAIN)],
        "if is_main():\n    print(1)\n    print(2)\n",
        id="whole-line",
    ),
    pytest.param(
        "if x: print(1)  # c\nelse: y\n",
        [("gate", "print(1)", MAIN)],
        "if x:\n    if is_main():\n        print(1)  # c\nelse: y\n",
        id="one-line-suite",
    ),
    pytest.param(
        "for i in x: a; print(i)\n",
        [("gate", "print(i)", MAIN)],
        "for i in x:\n    a\n    if is_main():\n        print(i)\n",
        id="one-line-suite-of-two",
    ),
    pytest.param(
        "def f():\n    print('''a\n  b\n\n''' % (\n        1,\n    ))\n",
        [("gate", "print(…", MAIN)],
        "def f():\n    if is_main():\n"
        "        print('''a\n  b\n\n''' % (\n            1,\n        ))\n",
        id="strings-keep-their-lines",
    ),
    pytest.param(
        "x = 1 + \\\n    2\nprint(1, \\\n  2)\n",
        [("gate", "print(…", MAIN)],
        "x = 1 + \\\n    2\nif is_main():\n    print(1, \\\n  2)\n",
        id="backslashes",
    ),
    pytest.param(
        "print(\n    1,\n\n    # two\n    2)\n",
        [("gate", "print(…", MAIN)],
        "if is_main():\n    print(\n        1,\n\n        # two\n        2)\n",
        id="continuations-shift-blank-lines-stay-blank",
    ),
    pytest.param(
        "for i in x:\n    a\n\n    b\nc\n",
        [("gate", "for i in x…", MAIN)],
        "if is_main():\n    for i in x:\n        a\n\n        b\nc\n",
        id="compound",
    ),
    pytest.param(
        "# c\n@d\n# e\ndef f():\n    pass\n",
        [("gate", "def f…", MAIN)],
        "# c\nif is_main():\n    @d\n    # e\n    def f():\n        pass\n",
        id="decorated",
    ),
    pytest.param(
        "for i in x:\n    print(i)\n",
        [("gate", "for i in x…", "a()"), ("gate", "print(i)", "b()")],
        "if a():\n    for i in x:\n        if b():\n            print(i)\n",
        id="nested",
    ),
    pytest.param(
        "if a:\n    pass\nelif b:\n    print(1)\nelse:\n    print(2)\n",
        [("gate", "print(1)", MAIN), ("gate", "print(2)", MAIN)],
        "if a:\n    pass\nelif b:\n    if is_main():\n        print(1)\n"
        "else:\n    if is_main():\n        print(2)\n",
        id="elif-and-else",
    ),
]

LONG = "call(argument_number_one, argument_number_two, argument_number_3, 1234567, 67890)"
INSERT = [
    pytest.param(
        "x\n\n# far\n\n# near\ny\n",
        [("before", "y", "z = 1")],
        "x\n\n# far\n\nz = 1\n# near\ny\n",
        id="before-goes-above-the-comment-that-touches",
    ),
    pytest.param(
        "#!/usr/bin/env python\n# coding: utf-8\nx\n",
        [("before", "x", "z = 1")],
        "#!/usr/bin/env python\n# coding: utf-8\nz = 1\nx\n",
        id="before-the-first-but-below-shebang-and-cookie",
    ),
    pytest.param(
        "# License\n\n# near\nx\n",
        [("before", "x", "z = 1")],
        "# License\n\nz = 1\n# near\nx\n",
        id="before-the-first-below-the-head",
    ),
    pytest.param(
        "y\n",
        [("before", "y", "b = 1"), ("before", "y", "a = {}"), ("after", "y", "c = {1:'x'}")],
        'a = {}\nb = 1\ny\nc = {1: "x"}\n',
        id="several-in-plan-order-formatted-and-braces-kept",
    ),
    pytest.param(
        "def f():\n    return x; y\n",
        [("before", "return x", "a = 1"), ("after", "y", "b = 1")],
        "def f():\n    a = 1\n    return x; y\n    b = 1\n",
        id="split-line",
    ),
    pytest.param(
        "a; b\n",
        [("before", "a", "x = 1"), ("after", "b", "y = 1")],
        "x = 1\na; b\ny = 1\n",
        id="around-a-line",
    ),
    pytest.param(
        "a; b; c\n",
        [("before", "b", "x = 1"), ("after", "b", "y = 1")],
        "a\nx = 1\nb\ny = 1\nc\n",
        id="within-a-line",
    ),
    pytest.param(
        "x\n# c\ny\n",
        [("after", "x", "# note\nz = 1")],
        "x\n# note\nz = 1\n# c\ny\n",
        id="after-with-comment",
    ),
    pytest.param(
        "for i in x:\n    y\n    # foot\nz\n",
        [("after", "for i in x…", "a"), ("after", "y", "b")],
        "for i in x:\n    y\n    b\n    # foot\na\nz\n",
        id="after-blocks",
    ),
    pytest.param(
        "import os\nx\n",
        [("after", "import os", "setup()")],
        "import os\n\nsetup()\nx\n",
        id="code-after-an-import-is-set-off",
    ),
    pytest.param(
        "x\ny\n",
        [("after", "x", "def f():\n    pass")],
        "x\n\n\ndef f():\n    pass\n\n\ny\n",
        id="definitions-are-set-off",
    ),
    pytest.param(
        "def g():\n    x\n    y\n",
        [("before", "x", "def f():\n    pass")],
        "def g():\n    def f():\n        pass\n\n    x\n    y\n",
        id="nested-definition-first",
    ),
    pytest.param(
        "def f():\n    if x: y\n",
        [("before", "y", LONG)],
        "def f():\n    if x:\n        call(\n            argument_number_one, argument_number_two, "
        "argument_number_3, 1234567, 67890\n"
        "        )\n        y\n",
        id="new-code-fits-its-depth",
    ),
]

AROUND = [
    pytest.param(
        "if __name__ == '__main__':\n    main()\n",
        [("indent", "main()", "with session():")],
        "if __name__ == '__main__':\n    with session():\n        main()\n",
        id="indent",
    ),
    pytest.param(
        "if __name__ == '__main__': main()\n",
        [("indent", "main()", "with session():")],
        "if __name__ == '__main__':\n    with session():\n        main()\n",
        id="indent-one-line-suite",
    ),
    pytest.param(
        "a()\nb()\nc()\n",
        [
            ("indent", "a()", "with s():"),
            ("indent", "b()", "with s():"),
            ("indent", "c()", "with t():"),
        ],
        "with s():\n    a()\n    b()\nwith t():\n    c()\n",
        id="neighbours-share-an-indent",
    ),
    pytest.param(
        "# c\na()\n",
        [
            ("indent", "a()", "with s():"),
            ("gate", "a()", MAIN),
            ("before", "a()", "x = 1"),
            ("after", "a()", "y = 1"),
        ],
        "x = 1\n# c\nwith s():\n    if is_main():\n        a()\ny = 1\n",
        id="before-indent-gate-after",
    ),
    pytest.param(
        "a()\nb()\n",
        [("indent", "a()", "with s():"), ("gate", "b()", MAIN)],
        "with s():\n    a()\nif is_main():\n    b()\n",
        id="indent-next-to-gate",
    ),
]

DELETE = [
    pytest.param("a\nb\nc\n", [("delete", "b")], "a\nc\n", id="one"),
    pytest.param("a\n\n# c\nb\n\nd\n", [("delete", "b")], "a\n\n# c\n\nd\n", id="comment-stays"),
    pytest.param("a\n\nb\n\nd\n", [("delete", "b")], "a\n\nd\n", id="one-blank-line-is-enough"),
    pytest.param("a; b  # c\n", [("delete", "a")], "b  # c\n", id="of-a-line"),
    pytest.param("if x:\n    a\nb\n", [("delete", "a")], "if x:\n    pass\nb\n", id="emptied"),
    pytest.param("if x: a\n", [("delete", "a")], "if x:\n    pass\n", id="emptied-suite"),
    pytest.param(
        "if x:\n    y\n    # why\n    a\n    # foot\nb\n",
        [("delete", "a")],
        "if x:\n    y\n    # why\n    # foot\nb\n",
        id="last-leaves-its-comment",
    ),
    pytest.param("# why\nx\n", [("delete", "x")], "# why\npass\n", id="emptied-module"),
    pytest.param(
        "# why\nwith x:  # how\n    a\n    # then\n    b(\n        c\n    )\n\nd\n",
        [("body", "with x…")],
        "# why\n# how\na\n# then\nb(\n    c\n)\n\nd\n",
        id="what-is-around",
    ),
    pytest.param(
        "with x: a; b\nc\n", [("body", "with x…")], "a; b\nc\n", id="what-is-around-a-line"
    ),
    pytest.param(
        "if y:\n    with x:\n        a\n        # end\n    c\n",
        [("body", "with x…"), ("before", "with x…", "f()"), ("after", "with x…", "g()")],
        "if y:\n    f()\n    # end\n    a\n    g()\n    c\n",
        id="what-is-around-between-others",
    ),
    pytest.param(
        "a\n\nb\nc\n",
        [("delete", "b"), ("before", "b", "x = 1"), ("after", "b", "y = 1")],
        "a\n\nx = 1\ny = 1\nc\n",
        id="in-favour-of-others",
    ),
]

REPLACE = [
    pytest.param(
        "# c\nx = 1  # d\n",
        [("replace", "x = 1", "x = 2\ny = 3")],
        "# c\nx = 2\ny = 3  # d\n",
        id="statement-by-two",
    ),
    pytest.param(
        "a; x = 1; b\n", [("replace", "x = 1", "del x")], "a\ndel x\nb\n", id="statement-of-a-line"
    ),
    pytest.param(
        "f(  # c\n  1)\n",
        [("replace", "f(  # c\n  1)", "x = {}")],
        "x = f(  # c\n  1)\n",
        id="value-of-an-expression-statement",
    ),
    pytest.param(
        "# c\nx = 1  # d\n",
        [("replace", "x = 1", "try:\n    {}\nfinally:\n    y()")],
        "# c\ntry:\n    x = 1  # d\nfinally:\n    y()\n",
        id="statement-within",
    ),
    pytest.param(
        "for i in x:\n    y = i\n",
        [("replace", "y = i", "y = j"), ("gate", "y = i", MAIN)],
        "for i in x:\n    if is_main():\n        y = j\n",
        id="and-gated",
    ),
]

STATEMENTS = GATE + INSERT + AROUND + DELETE + REPLACE
