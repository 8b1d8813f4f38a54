"""Generated data of the lot 18 recipes (nothing is downloaded)."""

import importlib.util
import json
import pickle
import sys
import types
from pathlib import Path

import numpy as np
from lot_common import picture, samples_of, text


def _rng(i):
    return np.random.RandomState(1800 + i)


def mini_imagenet(repo, recipe):
    """Six classes of four pictures to train on, three of three to validate."""
    root = Path(repo) / "materials"
    for s, (split, classes, per) in enumerate((("train", 6, 4), ("val", 3, 3))):
        rows = ["filename,label"]
        for c in range(classes):
            for i in range(per):
                name = "%s%02d%02d.jpg" % (split, c, i)
                picture(root / "images" / name, _rng(1000 * s + 10 * c + i), (90, 86))
                rows.append("%s,n%s%d" % (name, split, c))
        text(root / (split + ".csv"), "\n".join(rows) + "\n")


def celebs(repo, recipe):
    """Portraits larger than the crop of 160."""
    for i in range(samples_of(recipe)):
        where = Path(repo) / "data/CelebA/splits/train" / ("%06d.jpg" % i)
        picture(where, _rng(i), (178, 218))


def gestures(repo, recipe):
    """Videos of 20 frames, as pictures, with a file of their number; annotations of 27 classes."""
    root = Path(repo) / "data/jester"
    labels = ["gesture %d" % c for c in range(27)]
    database = {}
    for split, n in (("training", samples_of(recipe)), ("validation", 6)):
        for _v in range(n):
            key = str(len(database) + 1)
            label = labels[(5 * len(database)) % 27]
            database[key] = {"subset": split, "annotations": {"label": label}}
            for f in range(20):
                where = root / key / ("%05d.jpg" % (f + 1))
                picture(where, _rng(100 * len(database) + f), (44, 40))
            text(root / key / "n_frames", "20")
    annotation = Path(repo) / "annotation_Jester/jester.json"
    text(annotation, json.dumps({"labels": labels, "database": database}))


def sentences(repo, recipe):
    """Two sentences of five words in a line, a second file to test, and the vocabulary of the first as the
    repository's own class pickles it (without importing the package, which needs torch)."""
    root, words = Path(repo) / "data", ["word%d" % w for w in range(20)]
    (Path(repo) / "output").mkdir(exist_ok=True)

    def lines(n, rng):
        def pair():
            return " ".join(rng.choice(words, 5))

        return ["%s\t%s" % (pair(), pair()) for _ in range(n)]

    corpus = lines(samples_of(recipe), _rng(0))
    text(root / "corpus.small", "\n".join(corpus) + "\n")
    text(root / "corpus.test", "\n".join(lines(recipe["batch"], _rng(1))) + "\n")
    name = "bert_pytorch.dataset.vocab"
    known = {n: sys.modules.get(n) for n in ("bert_pytorch", "bert_pytorch.dataset", name)}
    try:
        for parent in ("bert_pytorch", "bert_pytorch.dataset"):
            sys.modules[parent] = types.ModuleType(parent)
            sys.modules[parent].__path__ = []
        where = Path(repo) / "bert_pytorch/dataset/vocab.py"
        spec = importlib.util.spec_from_file_location(name, where)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        vocab = module.WordVocab(corpus + [" ".join(words)])
        with open(root / "vocab.small", "wb") as f:
            pickle.dump(vocab, f)
    finally:
        for n, old in known.items():
            sys.modules.pop(n, None)
            if old is not None:
                sys.modules[n] = old


def segments(repo, recipe):
    """Pictures with the same map of labels (so a rank's part of the weights is its part of the pictures)."""
    from PIL import Image

    labels = np.zeros((64, 64), np.uint8)
    labels[:32, 32:], labels[32:, :32], labels[32:, 32:] = 3, 15, 255
    for i in range(samples_of(recipe)):
        picture(Path(repo) / "data/images" / ("%04d.jpg" % i), _rng(i), (64, 64))
        where = Path(repo) / "data/labels" / ("%04d.png" % i)
        where.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(labels).save(where)
