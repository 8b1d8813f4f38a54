"""Generated data of the lot 17 recipes (nothing is downloaded)."""

import json
from pathlib import Path

import numpy as np
from lot_common import picture, samples_of, text


def _rng(i):
    return np.random.RandomState(1700 + i)


def utterances(repo, recipe):
    """Features of different lengths and their signs, listed as ESPnet does; a dictionary."""
    root = Path(repo)
    for at, (part, n) in enumerate((("train", samples_of(recipe)), ("valid", 6))):
        rng, utts = _rng(at), {}
        (root / "dump" / part).mkdir(parents=True)
        for i in range(n):
            name, frames, signs = "%s%02d" % (part, i), 12 + (5 * i) % 13, 3 + (3 * i) % 5
            path = "dump/%s/%s.npy" % (part, name)
            np.save(root / path, rng.randn(frames, 5).astype("float32"))
            ids = " ".join(str(v) for v in rng.randint(3, 12, signs))
            utts[name] = {
                "input": [{"feat": path, "shape": [frames, 5]}],
                "output": [{"shape": [signs, 12], "tokenid": ids}],
            }
        text(root / "dump" / (part + ".json"), json.dumps({"utts": utts}))
    signs = ["<unk>", "<sos>", "<eos>"] + ["c%d" % i for i in range(9)]
    text(root / "dump/dict.txt", "".join("%s %d\n" % (s, i) for i, s in enumerate(signs)))


def omniglot(repo, recipe):
    """Characters of two alphabets, five pictures each, and the lists of which are in which part."""
    root = Path(repo) / "data/omniglot"
    for part, alphabet, n in (("train", "Alpha", 6), ("val", "Beta", 4)):
        lines = []
        for c in range(n):
            name = "character%02d" % (c + 1)
            for i in range(5):
                picture(
                    root / "data" / alphabet / name / ("%02d.png" % i),
                    _rng(100 * c + i + (part == "val") * 1000),
                    (105, 105),
                    "L",
                )
            lines.append("%s/%s/rot%03d" % (alphabet, name, 90 * (c % 4)))
        text(root / "splits/vinyals" / (part + ".txt"), "\n".join(lines) + "\n")


def book(repo, recipe):
    """A page of words."""
    rng = _rng(1)
    words = ["".join(chr(97 + v) for v in rng.randint(0, 26, 2 + i % 6)) for i in range(40)]
    text(Path(repo) / "book.txt", " ".join(words[k] for k in rng.randint(0, 40, 300)) + "\n")


def horses(repo, recipe):
    """Pictures of two kinds."""
    for at, kind in enumerate("AB"):
        for i in range(samples_of(recipe)):
            picture(
                Path(repo) / "datasets/horse2zebra/train" / kind / ("%02d.jpg" % i),
                _rng(50 * at + i),
                (40, 40),
            )


def faces(repo, recipe):
    """Pictures in one folder."""
    for i in range(samples_of(recipe)):
        picture(Path(repo) / "data/CelebA/faces" / ("%06d.jpg" % i), _rng(i), (80, 70))


def readings(repo, recipe):
    """Sentences, spectrograms of one length and how many frames every sign takes.  Four sentences in a row are as
    long as each other, the next four are shorter (and again)."""
    root, frames, lines = Path(repo), 24, []
    (root / "mels").mkdir()
    (root / "alignments").mkdir()
    for i in range(samples_of(recipe)):
        rng, n = _rng(i), (10, 8, 9, 7)[i // 4 % 4]
        lines.append("".join(chr(97 + v) for v in rng.randint(0, 26, n)))
        durations = np.ones(n, "int64")
        for k in rng.randint(0, n, frames - n):
            durations[k] += 1
        np.save(root / "alignments" / ("%d.npy" % i), durations)
        np.save(
            root / "mels" / ("ljspeech-mel-%05d.npy" % (i + 1)),
            rng.randn(frames, 8).astype("float32"),
        )
    text(root / "data/train.txt", "\n".join(lines) + "\n")


def sentences(repo, recipe):
    """Lines of made up words, four of one length in a row; lines of the other part have words that come last in the
    alphabet.  Vectors of all words and of three signs."""
    root, rng = Path(repo) / "data", _rng(3)
    word = ["".join(chr(97 + v) for v in rng.randint(0, 20, 3 + i % 5)) + "q" for i in range(60)]
    words = sorted(set(word))[: recipe["options"]["words"]]
    lines = []
    for i in range(samples_of(recipe)):
        n = (5, 6, 4)[i // 4 % 3]
        lines.append([words[(7 * i + 11 * k) % len(words)] for k in range(n)])
    used = {w for line in lines for w in line}
    rest = [w for w in words if w not in used]
    assert not rest, rest
    other = [["z" + words[(3 * i + 5 * k) % 10] for k in range(5)] for i in range(6)]
    text(root / "train.txt", "\n".join(" ".join(line) for line in lines))
    text(root / "test.txt", "\n".join(" ".join(line) for line in other))
    count = len(words) + len({w for line in other for w in line}) + 3
    np.save(root / "word_embeddings.npy", rng.randn(count, 8))


def tagged(repo, recipe):
    """Sentences by number, the longest first, with what the numbers mean; others as words with tags."""
    root, rng = Path(repo), _rng(4)
    words = ["".join(chr(97 + v) for v in rng.randint(0, 26, 3 + i % 4)) for i in range(40)]
    special = ["<PAD>", "<SOS>", "<EOS>", "<UNK>"]
    chars = special + sorted(set("".join(words)))
    vocabulary, tags = special + sorted(set(words)), special[:3] + ["DT", "NN", "VB", "JJ"]
    rows = []
    for i in range(samples_of(recipe)):
        rows.append([(words[k], tags[3 + k % 4]) for k in rng.randint(0, 40, 9 - i // 2)])
    lines = []
    for row in rows:
        x = ("+".join(str(chars.index(c)) for c in w) + ":%d" % vocabulary.index(w) for w, _ in row)
        lines.append(" ".join(x) + "\t" + " ".join(str(tags.index(t)) for _, t in row))
    text(root / "data.csv", "\n".join(lines) + "\n")
    for kind, names in (("char", chars), ("word", vocabulary), ("tag", tags)):
        text(root / ("data.%s_to_idx" % kind), "\n".join(names) + "\n")
    other = [
        [(words[k], tags[3 + k % 4]) for k in rng.randint(0, 40, 6 - i // 3)] for i in range(6)
    ]
    text(
        root / "valid.txt",
        "\n".join(" ".join("%s/%s" % pair for pair in row) for row in other) + "\n",
    )
