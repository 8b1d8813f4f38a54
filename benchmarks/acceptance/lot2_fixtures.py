"""Data files of the lot 2 recipes, written into the copy of a repository."""

import json
import os
import pickle
import sys

import numpy as np
from lot_common import picture, samples_of, text


def _rng(key):
    return np.random.RandomState(3000 + key)


def _picture(path, key, *args, **kwargs):
    picture(path, _rng(key), *args, **kwargs)


def captions(repo, recipe):
    """Pictures in HDF5 and captions (all of one length) in JSON, as create_input_files.py makes them."""
    sys.path += [
        p for p in os.environ.get("ACCEPT_SITE", "").split(os.pathsep) if p and p not in sys.path
    ]
    import h5py

    folder, name, per_image = repo / "caption data", "tiny_2_cap_per_img", 2
    folder.mkdir()
    words = {"w%02d" % i: i + 1 for i in range(20)}
    words.update({"<unk>": 21, "<start>": 22, "<end>": 23, "<pad>": 0})
    text(folder / ("WORDMAP_%s.json" % name), json.dumps(words))
    for key, (split, count) in enumerate(
        (("TRAIN", samples_of(recipe)), ("VAL", recipe["test_size"]))
    ):
        rng = _rng(10 + key)
        with h5py.File(folder / ("%s_IMAGES_%s.hdf5" % (split, name)), "w") as h:
            h.attrs["captions_per_image"] = per_image
            h.create_dataset(
                "images", data=rng.randint(0, 256, (count // per_image, 3, 64, 64)).astype("uint8")
            )
        caps = [[22] + rng.randint(1, 21, 6).tolist() + [23, 0, 0] for _ in range(count)]
        text(folder / ("%s_CAPTIONS_%s.json" % (split, name)), json.dumps(caps))
        text(folder / ("%s_CAPLENS_%s.json" % (split, name)), json.dumps([8] * count))


def camvid(repo, recipe):
    """Street pictures; the same label map (twelve stripes of equal area) in each."""
    from PIL import Image

    label = np.repeat(np.arange(12, dtype="uint8"), 4)[:, None].repeat(48, 1)
    for at, (split, count) in enumerate(
        (("train", samples_of(recipe)), ("val", recipe["test_size"]), ("test", recipe["test_size"]))
    ):
        for i in range(count):
            _picture(repo / "camvid" / split / ("%04d.png" % i), 100 * at + i, (48, 48))
            folder = repo / "camvid" / (split + "annot")
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(label).save(folder / ("%04d.png" % i))
    (repo / "acceptance_save").mkdir()


def siamese(repo, recipe):
    """Two alphabets of three characters in each folder, four drawings of 105 x 105 each."""
    for at, part in enumerate(("background", "evaluation")):
        for c in range(6):
            for i in range(4):
                _picture(
                    repo
                    / "omniglot"
                    / part
                    / ("alphabet%d" % (c % 2))
                    / ("character%02d" % c)
                    / ("%04d.png" % i),
                    700 + 50 * at + 4 * c + i,
                    (105, 105),
                    "L",
                )
    (repo / "siamese_models").mkdir()


def laptop(repo, recipe):
    """Reviews of ten words with an aspect of two and a polarity, dependency graphs, word vectors of 16."""
    words = ["word%02d" % i for i in range(30)]
    train = samples_of(recipe) * 4 // 3  # a quarter is for validation
    for key, (name, count) in enumerate(
        (("Laptops_Train.xml.seg", train), ("Laptops_Test_Gold.xml.seg", recipe["test_size"]))
    ):
        rng = _rng(40 + key)
        lines, graphs = [], {}
        for i in range(count):
            picked = [words[j] for j in rng.randint(0, 30, 12)]
            lines += [
                " ".join(picked[:5]) + " $T$ " + " ".join(picked[5:10]),
                " ".join(picked[10:]),
                str(int(rng.randint(-1, 2))),
            ]
            graphs[3 * i] = np.eye(12, dtype="float32")
        path = repo / "datasets/semeval14" / name
        text(path, "\n".join(lines) + "\n")
        with open(str(path) + ".graph", "wb") as f:
            pickle.dump(graphs, f)
    rng = _rng(50)
    text(
        repo / "glove.twitter.27B/glove.twitter.27B.16d.txt",
        "".join("%s %s\n" % (w, " ".join("%.4f" % v for v in rng.randn(16))) for w in words),
    )


def omniglot(repo, recipe):
    """Six characters of two alphabets, twelve drawings each, and class lists by split."""
    root = repo / "dataset"
    names = []
    for c in range(6):
        name = "Alphabet%d/character%02d" % (c % 2, c)
        names.append(name)
        for i in range(12):
            _picture(root / "data" / name / ("%04d_%02d.png" % (c, i)), 20 * c + i, (28, 28), "L")
    for split, chosen in (
        ("train", names[:4]),
        ("val", names[4:]),
        ("test", names[4:]),
        ("trainval", names),
    ):
        text(
            root / "splits/vinyals" / (split + ".txt"),
            "".join("%s/%s\n" % (n, r) for n in chosen for r in ("rot000", "rot090")),
        )


def project_template(repo, recipe):
    """A configuration of our own: a shallow CondenseNet."""
    config = json.loads((repo / "configs/condensenet_exp_0.json").read_text())
    config.update(
        exp_name="acceptance",
        stages=[2, 2, 2],
        growth_rate=[8, 8, 8],
        batch_size=recipe["batch"],
        max_epoch=100,
        data_loader_workers=0,
    )
    text(repo / "configs/acceptance.json", json.dumps(config, indent=1))
    (repo / "data").mkdir(exist_ok=True)


def div2k(repo, recipe):
    for i in range(samples_of(recipe)):
        _picture(repo / "data/DIV2K_train_HR" / ("%04d.png" % i), i, (48, 40))
    for i in range(recipe["test_size"]):
        _picture(repo / "data/DIV2K_valid_HR" / ("%04d.png" % i), 600 + i, (40, 44))
    for folder in ("epochs", "statistics", "training_results"):
        (repo / folder).mkdir(exist_ok=True)


def cutout(repo, recipe):
    for folder in ("logs", "checkpoints"):
        (repo / folder).mkdir(exist_ok=True)
