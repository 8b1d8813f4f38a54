"""Data files of the lot 8 recipes, written into the copy of a repository."""

import gzip
import json
import pickle
from pathlib import Path

import numpy as np
from lot_common import picture, samples_of, text


def _rng(key):
    return np.random.RandomState(11000 + key)


def _and_two(recipe):
    """Two samples more than full batches (none where one batch an epoch is asked for)."""
    return samples_of(recipe) + (2 if recipe["batches"] > 1 else 0)


def pixelcnn(repo, recipe):
    """The folders the script writes to."""
    for folder in ("models", "images"):
        (Path(repo) / folder).mkdir(exist_ok=True)


def human36m(repo, recipe):
    """Poses of two subjects, flat and in space, and their statistics."""
    import torch

    root = Path(repo) / "data"
    root.mkdir(exist_ok=True)
    acts = ("Directions", "Walking")
    for at, (part, count) in enumerate(
        (("train", _and_two(recipe)), ("test", recipe["test_size"]))
    ):
        flat, space = {}, {}
        for i, act in enumerate(acts):
            n = count // 2 if i else count - count // 2
            key, rng = (9 if at else 1, act, act + ".54138969.h5"), _rng(10 * at + i)
            flat[key] = rng.randn(n, 32)
            space[key] = rng.randn(n, 48)
        torch.save(flat, root / (part + "_2d.pth.tar"))
        torch.save(space, root / (part + "_3d.pth.tar"))
    rng = _rng(99)
    torch.save(
        {"mean": rng.randn(96) * 100, "std": 50 + 50 * rng.rand(96), "dim_use": np.arange(3, 51)},
        root / "stat_3d.pth.tar",
    )


def shapes(repo, recipe):
    """Pictures of one to three bright boxes, notes in COCO's form."""
    from PIL import Image, ImageDraw

    root = Path(repo) / "datasets/shape"
    for at, (part, count) in enumerate((("train", _and_two(recipe)), ("val", recipe["test_size"]))):
        images, notes = [], []
        for i in range(count):
            rng, name = _rng(100 * at + i), "%012d.jpg" % (1000 * at + i)
            picture(root / part / name, rng, (96, 96))
            image = Image.open(root / part / name)
            draw = ImageDraw.Draw(image)
            images.append({"id": i + 1, "file_name": name, "width": 96, "height": 96})
            for _k in range(1 + i % 3):
                w, h = (int(v) for v in rng.randint(24, 44, 2))
                x, y = (int(v) for v in rng.randint(0, 50, 2))
                kind = 1 + int(rng.randint(2))
                draw.rectangle(
                    [x, y, x + w, y + h], fill=(250, 40, 40) if kind == 1 else (40, 40, 250)
                )
                notes.append(
                    {
                        "id": len(notes) + 1,
                        "image_id": i + 1,
                        "category_id": kind,
                        "iscrowd": 0,
                        "bbox": [x, y, w, h],
                        "area": w * h,
                    }
                )
            image.save(root / part / name)
        text(
            root / "annotations" / ("instances_%s.json" % part),
            json.dumps(
                {
                    "images": images,
                    "annotations": notes,
                    "categories": [{"id": 1, "name": "rectangle"}, {"id": 2, "name": "circle"}],
                }
            ),
        )


def videos(repo, recipe):
    """Folders of frames and the two lists."""
    root = Path(repo) / "data/HMDB51"
    for at, (part, count) in enumerate((("train", _and_two(recipe)), ("val", recipe["test_size"]))):
        lines = []
        for i in range(count):
            name, frames = "clip_%s_%02d" % (part, i), 5 + i % 4
            for k in range(frames):
                picture(
                    root / "images" / name / ("img_%05d.jpg" % (k + 1)),
                    _rng(1000 * at + 20 * i + k),
                    (48, 40),
                )
            lines.append("%s %d %d\n" % (name, frames, int(_rng(5000 + 100 * at + i).randint(51))))
        text(root / "splits" / ("hmdb51_rgb_%s_split_1.txt" % part), "".join(lines))


def ljspeech(repo, recipe):
    """Utterances of phones and their spectra; lengths differ, the longest are in every part of a batch
    (so that padding to the longest is the same wherever the batch is cut)."""
    root = Path(repo) / "data/LJSpeech-1.1"
    (root / "wavs").mkdir(parents=True, exist_ok=True)
    (Path(repo) / "checkpoint").mkdir(exist_ok=True)
    phones = ["AA1", "B", "D", "EH1", "K", "L", "M", "N", "OW0", "S", "T", "Z"]
    lines = []
    for i in range(samples_of(recipe)):
        rng, name = _rng(i), "LJ001-%04d" % i
        longest = i % recipe["batch"] in (0, 1, recipe["batch"] - 2, recipe["batch"] - 1)
        n = 9 if longest else 4 + int(rng.randint(5))
        frames = 14 if longest else 8 + int(rng.randint(6))
        said = " ".join(phones[int(k)] for k in rng.randint(0, len(phones), n))
        lines.append("%s|{%s}|words of %s\n" % (name, said, name))
        np.save(root / "wavs" / (name + ".pt.npy"), rng.rand(frames, 80).astype("float32"))
    text(root / "metadata.csv", "".join(lines))


def polarity(repo, recipe):
    """Sentences of eight words; the script keeps a tenth for validation."""
    total = _and_two(recipe)
    total = max(10, total + total // 9)  # what is left after a tenth is taken off
    good, bad = ["great", "lovely", "superb", "fine"], ["awful", "dull", "broken", "poor"]
    for at, (part, own) in enumerate((("pos", good), ("neg", bad))):
        lines = []
        for i in range(total // 2 if at else total - total // 2):
            words = own + ["movie", "film", "plot", "it", "was", "very"]
            lines.append(
                " ".join(words[int(k)] for k in _rng(100 * at + i).randint(0, len(words), 8)) + "\n"
            )
        text(Path(repo) / "rt-polaritydata" / ("rt-polarity." + part), "".join(lines))


def metrla(repo, recipe):
    """Speeds at six stations, three steps in and three out, the graph and the settings."""
    import yaml

    repo = Path(repo)
    nodes, root = 6, repo / "data/acceptance"
    root.mkdir(parents=True, exist_ok=True)
    for at, (part, count) in enumerate((("train", samples_of(recipe)), ("val", 6), ("test", 6))):
        rng = _rng(at)
        parts = {}
        for k in ("x", "y"):
            a = np.empty((count, 3, nodes, 2))
            a[..., 0] = 55 + 8 * rng.randn(count, 3, nodes)
            a[..., 1] = rng.rand(count, 3, nodes)
            parts[k] = a
        np.savez(root / (part + ".npz"), **parts)
    near = np.exp(-(((np.arange(nodes)[:, None] - np.arange(nodes)[None]) / 2.0) ** 2))
    ids = [str(700 + i) for i in range(nodes)]
    (root / "adj_mx.pkl").write_bytes(
        pickle.dumps((ids, {s: i for i, s in enumerate(ids)}, near), protocol=2)
    )
    config = yaml.safe_load((repo / "data/model/dcrnn_la.yaml").read_text())
    config["data"].update(
        batch_size=recipe["batch"],
        dataset_dir="data/acceptance",
        test_batch_size=4,
        val_batch_size=4,
        graph_pkl_filename="data/acceptance/adj_mx.pkl",
    )
    config["model"].update(horizon=3, seq_len=3, num_nodes=nodes, rnn_units=4)
    config["train"].update(epochs=2, steps=[1], test_every_n_epochs=2)
    text(repo / "data/model/acceptance.yaml", yaml.safe_dump(config))


def interactions(repo, recipe):
    """What seven users chose among sixty things, nine to twelve each."""
    lines = []
    for user in range(1, samples_of(recipe)):
        rng = _rng(user)
        lines += [
            "%d %d\n" % (user, 1 + int(i)) for i in rng.permutation(60)[: 9 + int(rng.randint(4))]
        ]
    lines.append("1 60\n")
    text(Path(repo) / "python/data/acceptance.txt", "".join(lines))


def camvid(repo, recipe):
    """Pictures, coloured masks and the table of colours."""
    from PIL import Image

    root = Path(repo) / "CamVid"
    (Path(repo) / "checkpoints_18_sgd").mkdir(exist_ok=True)
    colours = [
        (int(20 + 17 * k), int((90 * k) % 256), int((200 * k + 30) % 256)) for k in range(14)
    ]
    text(
        root / "class_dict.csv",
        "name,r,g,b,class_11\n"
        + "".join("Class%02d,%d,%d,%d,%d\n" % (k, *c, k < 11) for k, c in enumerate(colours)),
    )
    total = _and_two(recipe)
    for at, (part, count) in enumerate(
        (("train", total - total // 4), ("val", total // 4), ("test", recipe["test_size"]))
    ):
        for i in range(count):
            name = "%04d_%s" % (i, part)
            picture(root / part / (name + ".png"), _rng(100 * at + i), (96, 64))
            kinds = _rng(500 + 100 * at + i).randint(0, 14, (4, 6)).repeat(16, 0).repeat(16, 1)
            (root / (part + "_labels")).mkdir(exist_ok=True)
            Image.fromarray(np.array(colours, "uint8")[kinds]).save(
                root / (part + "_labels") / (name + "_L.png")
            )


def usps(repo, recipe):
    """Digits of the post office in the form of the sample that is downloaded: one batch more than MNIST has here."""
    parts = []
    for at, count in enumerate((samples_of(recipe) + recipe["batch"], recipe["test_size"])):
        rng = _rng(at)
        parts.append([rng.rand(count, 1, 28, 28), rng.randint(0, 10, count)])
    path = Path(repo) / "data/usps_28x28.pkl"
    path.parent.mkdir(exist_ok=True)
    with gzip.open(path, "wb") as f:
        pickle.dump(parts, f, protocol=2)
