"""Data files of the lot 4 recipes, written into the copy of a repository."""

import random
import subprocess
import sys

import numpy as np
from lot_common import import_h5py, picture, samples_of, text


def _rng(key):
    return np.random.RandomState(7000 + key)


def _picture(path, key, *args, **kwargs):
    picture(path, _rng(key), *args, **kwargs)


def brain(repo, recipe):
    """Twelve patients; the ten that the data set draws for validation have one slice (first and last are cut)."""
    from PIL import Image

    names = ["TCGA_CS_%04d_19960909" % (4900 + i) for i in range(recipe["test_size"] + 2)]
    validation = random.Random(42).sample(sorted(names), k=10)
    for p, name in enumerate(names):
        slices = 1 if name in validation else samples_of(recipe) // 2
        for s in range(slices + 2):
            stem = repo / "kaggle_3m" / name / ("%s_%d" % (name, s + 1))
            stem.parent.mkdir(parents=True, exist_ok=True)
            small = _rng(100 * p + s).randint(60, 256, (6, 6, 3)).astype("uint8")
            image = np.zeros((36, 36, 3), "uint8")
            image[2:34, 2:34] = np.array(Image.fromarray(small).resize((32, 32), Image.BILINEAR))
            mask = np.zeros((36, 36), "uint8")
            y, x = _rng(5000 + 100 * p + s).randint(4, 16, 2)
            mask[y : y + 12, x : x + 14] = 255
            Image.fromarray(image).save(str(stem) + ".tif")
            Image.fromarray(mask).save(str(stem) + "_mask.tif")


def voc(repo, recipe):
    """Pictures with one to three boxes, and the `pretrained` weights: drawn once, as scripts/get_state_dict.py
    draws the head."""
    for at, (part, count) in enumerate(
        (("train", samples_of(recipe)), ("val", recipe["test_size"]))
    ):
        lines = []
        for i in range(count):
            name = "%s%02d.jpg" % (part, i)
            _picture(repo / "data/voc_all_images" / name, 100 * at + i, (80, 72))
            rng, row = _rng(500 + 100 * at + i), [name]
            for _ in range(1 + i % 3):
                x, y = rng.randint(4, 30, 2)
                w, h = rng.randint(28, 42, 2)
                row += [str(v) for v in (x, y, min(x + w, 79), min(y + h, 71), rng.randint(20))]
            lines.append(" ".join(row) + "\n")
        text(repo / "data" / ("voc12_%s.txt" % part), "".join(lines))
    (repo / "model").mkdir(exist_ok=True)
    code = (
        "import math, torch; torch.manual_seed(3); from retinanet import RetinaNet; net = RetinaNet()\n"
        "for head in (net.loc_head, net.cls_head):\n"
        "    for m in head:\n"
        "        if hasattr(m, 'weight'): m.weight.data.normal_(0, 0.01); m.bias.data.zero_()\n"
        "net.cls_head[-1].bias.data.fill_(-math.log(99))\n"
        "torch.save(net.state_dict(), 'model/net.pth')"
    )
    subprocess.run([sys.executable, "-B", "-c", code], cwd=repo, check=True)


_WORDS = "good bad film plot actor scene music long short very never always great poor the a it was is".split()


def reviews(repo, recipe):
    """Label, title and text of a few sentences; vectors of eight numbers for most of the words."""
    for at, (part, count) in enumerate(
        (("train", samples_of(recipe)), ("test", recipe["test_size"]))
    ):
        rows = []
        for i in range(count):
            rng = _rng(300 * at + i)
            label = 1 + i % 3
            sentences = []
            for _ in range(2 + int(rng.randint(3))):
                words = [
                    _WORDS[int(w)] for w in rng.randint(len(_WORDS), size=3 + int(rng.randint(5)))
                ]
                words[0] = _WORDS[label - 1]
                sentences.append(" ".join(words) + ".")
            rows.append('"%d","a title %d.","%s"\n' % (label, i, " ".join(sentences)))
        text(repo / "data" / (part + ".csv"), "".join(rows))
    vectors = _rng(900).randn(len(_WORDS) - 2, 8)
    text(
        repo / "data/glove.6B.50d.txt",
        "".join(
            word + " " + " ".join("%.4f" % v for v in row) + "\n"
            for word, row in zip(_WORDS, vectors, strict=False)
        ),
    )
    (repo / "trained_models").mkdir(exist_ok=True)


def chairs(repo, recipe):
    """Pairs of pictures and a smooth flow; the plugin says which go to training."""
    from PIL import Image

    for i in range(samples_of(recipe) + recipe["test_size"]):
        stem = str(repo / "chairs" / ("%05d" % (i + 1)))
        for k in (1, 2):
            _picture(stem + "_img%d.ppm" % k, 2 * i + k, (80, 80))
        small = _rng(800 + i).randn(2, 5, 5) * 4
        flow = np.stack(
            [
                np.array(Image.fromarray(f.astype("float32")).resize((80, 80), Image.BILINEAR))
                for f in small
            ],
            2,
        )
        with open(stem + "_flow.flo", "wb") as f:
            np.array([202021.25], "float32").tofile(f)
            np.array([80, 80], "int32").tofile(f)
            flow.astype("float32").tofile(f)


def triplets(repo, recipe):
    """The processed files, without the lists of triplets."""
    import torch

    folder = repo.parent / "data/processed"
    folder.mkdir(parents=True, exist_ok=True)
    for at, part in enumerate(("training", "test")):
        labels = np.arange(120) % 10
        base = _rng(50).randint(0, 256, (10, 28, 28))
        images = (base[labels] * 0.6 + _rng(60 + at).randint(0, 256, (120, 28, 28)) * 0.4).astype(
            "uint8"
        )
        torch.save((torch.from_numpy(images), torch.from_numpy(labels)), folder / (part + ".pt"))


def series(repo, recipe):
    """Five waves with noise; 0.6 of the rows give the training windows."""
    rows = next(n for n in range(40, 10000) if int(0.6 * n) == 30 + 3 - 1 + samples_of(recipe))
    t = np.arange(rows)[:, None]
    waves = (
        3
        + np.sin(2 * np.pi * t / np.array([24, 12, 8, 24, 6]) + np.arange(5))
        + 0.2 * _rng(1).randn(rows, 5)
    )
    text(
        repo / "data/series.txt", "".join(",".join("%.5f" % v for v in row) + "\n" for row in waves)
    )
    (repo / "save").mkdir(exist_ok=True)


def movies(repo, recipe):
    """Each user's last film is for the test; the others come with four negatives each."""
    users = 4
    lines = [
        "%d::%d::1::%d\n" % (i % users + 1, i * 7 % 31 + 1, 978300000 + i)
        for i in range(samples_of(recipe) // 5 + users)
    ]
    text(repo / "src/data/ml-1m/ratings.dat", "".join(lines))
    (repo / "src/checkpoints").mkdir(exist_ok=True)


def modelnet(repo, recipe):
    h5py = import_h5py()
    folder = repo / "pytorch/data/modelnet40_ply_hdf5_2048"
    folder.mkdir(parents=True, exist_ok=True)
    for at, (part, count) in enumerate(
        (("train", samples_of(recipe)), ("test", recipe["test_size"]))
    ):
        rng = _rng(40 + at)
        with h5py.File(folder / ("ply_data_%s0.h5" % part), "w") as h:
            h["data"] = rng.uniform(-1, 1, (count, 32, 3)).astype("float32")
            h["label"] = (np.arange(count) % 5).astype("uint8")[:, None]


def cora(repo, recipe):
    """150 papers of seven kinds with 20 words; each cites three others."""
    rng = _rng(3)
    rows, cites = [], []
    for i in range(150):
        words = (rng.rand(20) < 0.25).astype(int)
        words[i % 20] = 1
        rows.append(
            "\t".join([str(1000 + i)] + [str(w) for w in words] + ["kind%d" % (i % 7)]) + "\n"
        )
        cites += [
            "%d\t%d\n" % (1000 + i, 1000 + int(j))
            for j in rng.choice(150, 3, replace=False)
            if j != i
        ]
    text(repo / "data/cora/cora.content", "".join(rows))
    text(repo / "data/cora/cora.cites", "".join(cites))
