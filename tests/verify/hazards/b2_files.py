"""B2, files and folders: one rank reads, makes or removes what is another's.

Where a race decides, waiting lets the worse case happen each time.
"""

from __future__ import annotations

from tests.verify.hazards.base import ORIGINAL, Change, Hazard, changed, hazard

SAVE = '        torch.save(model.state_dict(), "last.pt")\n'
DESTROY = "    if world > 1:\n        dist.destroy_process_group()\n"
PARSED = "    args = parser.parse_args()\n"
OPTIMIZER = "    criterion = nn.CrossEntropyLoss()\n"
IMPORTS: Change = (
    "import torch\n",
    "import json\nimport os\nimport shutil\nimport time\n\nimport torch\n",
)
# Once the ranks have met.
GROUP = '        dist.init_process_group("gloo")\n'


def _later(path: str) -> str:
    """Rank 1 is slower: it goes on when rank 0 has begun to write ``path``."""
    return f'    while rank > 0 and not os.path.exists("{path}"):\n        time.sleep(0.01)\n'


def _together(lines: str) -> str:
    """Both ranks have looked before either goes on from the first line."""
    first, rest = lines.split("\n", 1)
    return f"{first}\n        dist.barrier()\n{rest}"


def _indented(lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines.splitlines())


# A large model on a slow disk.
SLOW_SAVE: tuple[Change, ...] = (
    IMPORTS,
    (
        "def main():\n",
        """def save(model, path):
    time.sleep(1)
    torch.save(model.state_dict(), path)


def main():
""",
    ),
)
RELOAD = """    save(model, "final.pt")
    model.load_state_dict(torch.load("final.pt"))
    print(f"final accuracy {evaluate(model, val_loader):.4f}")
"""
RELOAD_ALL = """    if rank == 0:
        save(net, "final.pt")
    net.load_state_dict(torch.load("final.pt"))
    accuracy = evaluate(net, val_loader)
    if rank == 0:
        print(f"final accuracy {accuracy:.4f}")
"""
NO_BARRIER = hazard(
    "B2.20",
    "all ranks load what rank 0 is still saving",
    "DDP604",
    ("completed",),
    *SLOW_SAVE,
    (DESTROY, RELOAD_ALL + DESTROY),
    original=changed(ORIGINAL, *SLOW_SAVE, (SAVE, SAVE + RELOAD)),
    right=(
        *SLOW_SAVE,
        (DESTROY, RELOAD_ALL.replace("    net.load", "    dist.barrier()\n    net.load") + DESTROY),
    ),
)

NAMED = '    run = os.path.join("runs", str(time.time_ns()))\n'
MAKE = "    os.makedirs(run)\n"
IN_RUN = ('"last.pt")', 'os.path.join(run, "last.pt"))')
LAST = '    state = torch.load(os.path.join(run, "last.pt"))\n    print(f"{len(state)} tensors")\n'
BROADCAST = "    names = [run]\n    dist.broadcast_object_list(names)\n    run = names[0]\n"
MAKE_ON_MAIN = "    if rank == 0:\n        os.makedirs(run)\n"
LAST_ALL = "    dist.barrier()\n" + LAST.replace("    print", "    if rank == 0:\n        print")
CLOCK = hazard(
    "B2.21",
    "each rank names the run's folder by its own clock",
    "DDP506",
    ("completed",),
    IMPORTS,
    (GROUP, GROUP + NAMED + MAKE_ON_MAIN),
    IN_RUN,
    (DESTROY, LAST_ALL + DESTROY),
    original=changed(
        ORIGINAL,
        IMPORTS,
        (PARSED, PARSED + NAMED + MAKE),
        IN_RUN,
        ("\n\nif __name__", LAST + "\n\nif __name__"),
    ),
    right=(
        IMPORTS,
        (GROUP, GROUP + NAMED + BROADCAST + MAKE_ON_MAIN),
        IN_RUN,
        (DESTROY, LAST_ALL + DESTROY),
    ),
)

COUNTED = """    os.makedirs("runs", exist_ok=True)
    run = os.path.join("runs", f"experiment_{len(os.listdir('runs'))}")
"""
CONFIG = """    with open(os.path.join(run, "config.json"), "w") as file:
        json.dump(vars(args), file)
"""
COUNT = hazard(
    "B2.21b",
    "the folder's number counts those that exist: a later rank counts rank 0's too",
    "DDP506",
    ("files-once",),
    IMPORTS,
    (GROUP, GROUP + _later("runs/experiment_0/config.json") + COUNTED + MAKE + CONFIG),
    original=changed(ORIGINAL, IMPORTS, (PARSED, PARSED + COUNTED + MAKE + CONFIG)),
    right=(
        IMPORTS,
        (
            GROUP,
            GROUP
            + COUNTED.replace("    os", "    if rank == 0:\n        os", 1).replace(
                "    run", "    dist.barrier()\n    run"
            )
            + BROADCAST
            + MAKE_ON_MAIN
            + _indented(CONFIG),
        ),
    ),
)

MAKE_OUT = """    if not os.path.isdir("out"):
        os.makedirs("out")
"""
IN_OUT = ('"last.pt"', '"out/last.pt"')
MAKE_RACE = hazard(
    "B2.22",
    "all ranks look for the folder, miss it, and make it",
    "DDP503",
    ("completed",),
    IMPORTS,
    (GROUP, GROUP + _together(MAKE_OUT)),
    IN_OUT,
    original=changed(ORIGINAL, IMPORTS, (PARSED, PARSED + MAKE_OUT), IN_OUT),
    right=(
        IMPORTS,
        (GROUP, GROUP + MAKE_OUT.replace("if not", "if rank == 0 and not")),
        IN_OUT,
    ),
)

AFRESH = """    shutil.rmtree("out", ignore_errors=True)
    os.makedirs("out")
"""
OUT_CONFIG = """    with open("out/config.json", "w") as file:
        json.dump(vars(args), file)
"""
CONFIG_ON_MAIN = "    if rank == 0:\n" + _indented(OUT_CONFIG)
REMOVED = hazard(
    "B2.22b",
    "a later rank empties the folder rank 0 has written to",
    "DDP503",
    ("files-once",),
    IMPORTS,
    (GROUP, GROUP + _later("out/config.json") + AFRESH + CONFIG_ON_MAIN),
    IN_OUT,
    original=changed(ORIGINAL, IMPORTS, (PARSED, PARSED + AFRESH + OUT_CONFIG), IN_OUT),
    right=(
        IMPORTS,
        (
            GROUP,
            GROUP + "    if rank == 0:\n" + _indented(AFRESH + OUT_CONFIG),
        ),
        IN_OUT,
    ),
)

FETCH: Change = (
    "def main():\n",
    '''def download(path):
    """Fetch the recordings, in parts, over a slow line."""
    with open(path, "wb") as file:
        for part in range(4):
            values = torch.arange(part * 256, part * 256 + 256, dtype=torch.float32)
            file.write(torch.sin(values * values).numpy().tobytes())
            file.flush()
            time.sleep(0.3)


def main():
''',
)
FETCHED = """    if not os.path.exists("recordings.bin"):
        download("recordings.bin")
"""
READ: Change = (
    "    x = torch.randn(128, 8, generator=fixed)\n",
    '    raw = torch.from_file("recordings.bin", size=1024, dtype=torch.float32)\n'
    "    x = raw.view(128, 8).to(torch.get_default_dtype())\n",
)
DOWNLOAD = hazard(
    "B2.23",
    "all ranks download to one path",
    "DDP204",
    ("files-once",),
    IMPORTS,
    FETCH,
    READ,
    (GROUP, GROUP + _together(FETCHED) + "    dist.barrier()\n"),
    original=changed(ORIGINAL, IMPORTS, FETCH, READ, (PARSED, PARSED + FETCHED)),
    right=(
        IMPORTS,
        FETCH,
        READ,
        (GROUP, GROUP + FETCHED.replace("if not", "if rank == 0 and not") + "    dist.barrier()\n"),
    ),
)
HALF_DOWNLOADED = hazard(
    "B2.23b",
    "a later rank finds the file that another is still downloading, and reads it",
    "DDP204",
    ("completed",),
    IMPORTS,
    FETCH,
    READ,
    (GROUP, GROUP + _later("recordings.bin") + FETCHED),
    original=DOWNLOAD.original,
    right=None,
)

WRITER: Change = (
    "def main():\n",
    """class Writer:
    def __init__(self, folder):
        os.makedirs(folder)
        self.folder = folder

    def add_scalar(self, name, value, step):
        with open(os.path.join(self.folder, "scalars.txt"), "a") as file:
            file.write(f"{name} {step} {value:.6f}\\n")


def main():
""",
)
LOGGED = '        writer.add_scalar("loss", train_loss, epoch)\n'
MAIN_LOGGED = ('"last.pt")\n    if world', "path)\n    " + LOGGED + "    if world")
MADE = '    writer = Writer("log")\n'
MAIN_MADE = '    writer = Writer("log") if rank == 0 else None\n'
ASKED = '    path = os.path.join(writer.folder, "last.pt")\n'
NO_WRITER = hazard(
    "B2.24",
    "the checkpoint's path is asked of a writer that only rank 0 has",
    "DDP504",
    ("completed",),
    *(IMPORTS, WRITER, (OPTIMIZER, OPTIMIZER + MAIN_MADE + ASKED), MAIN_LOGGED),
    original=changed(
        ORIGINAL,
        IMPORTS,
        WRITER,
        (OPTIMIZER, OPTIMIZER + MADE + ASKED),
        (SAVE, SAVE.replace('"last.pt"', "path") + LOGGED),
    ),
    right=(
        IMPORTS,
        WRITER,
        (OPTIMIZER, OPTIMIZER + MAIN_MADE + ASKED.replace("writer.folder", '"log"')),
        MAIN_LOGGED,
    ),
)

HAZARDS: tuple[Hazard, ...] = (
    NO_BARRIER,
    CLOCK,
    COUNT,
    MAKE_RACE,
    REMOVED,
    DOWNLOAD,
    HALF_DOWNLOADED,
    NO_WRITER,
)
