"""PATTERNS B1.9 to B1.11: ranks draw the same where they must not, or not where they must."""

from __future__ import annotations

from tests.verify.hazards.base import Change, define, hazard

TARGETS = "y = (x @ torch.randn(8, 4, generator=fixed)).argmax(1)"
SEED = "torch.manual_seed(0)"
LOADER = "DataLoader(train_set, batch_size=batch_size, sampler=sampler)"
SAMPLER = "    sampler = DistributedSampler(train_set, world, rank, shuffle=True)\n"
SET_EPOCH: Change = ("        sampler.set_epoch(epoch)\n", "")

REPLACEMENT = "RandomSampler(train_set, replacement=True, num_samples=96{share})"

SAME = (
    hazard(
        "B1.9",
        "every rank draws with replacement, from the same seed",
        "DDP202",
        ("samples", "trajectory"),
        ("DataLoader, Subset", "DataLoader, RandomSampler, Subset"),
        (SAMPLER, SAMPLER.split("Dist")[0] + REPLACEMENT.format(share=" // world") + "\n"),
        SET_EPOCH,
        alone=(
            ("DataLoader, Tensor", "DataLoader, RandomSampler, Tensor"),
            (
                "train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)",
                f"sampler = {REPLACEMENT.format(share='')}\n"
                "    train_loader = DataLoader("
                "train_set, batch_size=args.batch_size, sampler=sampler)",
            ),
        ),
        right=None,
    ),
    hazard(
        "B1.9b",
        "the loader shuffles on every rank as in one process",
        "DDP202",
        ("samples", "steps"),
        (SAMPLER, ""),
        (LOADER, "DataLoader(train_set, batch_size=batch_size, shuffle=True)"),
        SET_EPOCH,
    ),
    hazard(
        "B1.9c",
        "the data set draws noise, and every rank draws the same",
        "DDP111",
        ("contents",),
        program=(
            define("""\
                class Noisy(torch.utils.data.Dataset):
                    def __init__(self, data):
                        self.data = data

                    def __len__(self):
                        return len(self.data)

                    def __getitem__(self, index):
                        x, y = self.data[index]
                        return x + 0.1 * torch.randn(8), y
            """),
            ("[96, 32])\n", "[96, 32])\n    train_set = Noisy(train_set)\n"),
        ),
        right=None,
    ),
)

WORDS: Change = (
    TARGETS + "\n",
    TARGETS + """
    texts = [[f"word{int(10 * value)}" for value in row] for row in x]
    vocabulary = list(set(word for text in texts for word in text))
    index = {word: number for number, word in enumerate(vocabulary)}
    x = torch.tensor([[index[word] for word in text] for text in texts]) / len(vocabulary)
""",
)

OTHER = (
    hazard(
        "B1.10",
        "the seed of the unseeded split is another on every rank",
        "DDP111",
        ("samples", "trajectory"),
        (SEED, "torch.manual_seed(rank)"),
    ),
    hazard(
        "B1.10b",
        "each process draws a target of its own to learn",
        "DDP111",
        ("contents", "trajectory"),
        (SEED, "torch.manual_seed(rank)"),
        program=(
            (TARGETS, "y = (x @ torch.randn(8, 4)).argmax(1)"),
            ("[96, 32])", "[96, 32], fixed)"),
        ),
    ),
    hazard(
        "B1.11",
        "words are numbered in the order of a set, which every process has its own of",
        "DDP111",
        ("contents", "trajectory"),
        program=(WORDS,),
        right=None,
    ),
)

HAZARDS = (*SAME, *OTHER)
