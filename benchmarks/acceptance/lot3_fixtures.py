"""Data files of the lot 3 recipes, written into the copy of a repository."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from lot_common import import_h5py, picture, samples_of, text


def _rng(key):
    return np.random.RandomState(5000 + key)


def _picture(path, key, *args, **kwargs):
    picture(path, _rng(key), *args, **kwargs)


def _sound(path, key, samples, rate):
    from scipy.io import wavfile

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    t = np.arange(samples) / rate
    rng = _rng(key)
    wave = sum(rng.rand() * np.sin(2 * np.pi * f * t) for f in rng.randint(50, rate // 3, 5))
    wave = wave / 5 + 0.02 * rng.randn(samples)
    wavfile.write(path, rate, (np.clip(wave, -1, 1) * 32000).astype("int16"))


def flowers(repo, recipe):
    """The folder the script asserts, and `pretrained` weights: those of its own network, drawn once."""
    (repo / "data_set/flower_data").mkdir(parents=True)
    code = (
        "import torch; torch.manual_seed(3); from model import resnet34;"
        "torch.save(resnet34().state_dict(), 'resnet34-pre.pth')"
    )
    subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=repo / "pytorch_classification/Test5_resnet",
        check=True,
    )


def cells(repo, recipe):
    """A fifth of the pictures goes to validation."""
    for i in range(samples_of(recipe) + recipe["test_size"]):
        _picture(repo / "inputs/tiny/images" / ("cell%03d.png" % i), i, (32, 32))
        from PIL import Image

        mask = np.zeros((32, 32), "uint8")
        x, y = _rng(200 + i).randint(2, 18, 2)
        mask[y // 4 : y // 4 + 26, x // 4 : x // 4 + 27] = 255
        folder = repo / "inputs/tiny/masks/0"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask).save(folder / ("cell%03d.png" % i))


def speech(repo, recipe):
    """Seconds of sound: yes, no and an unknown word, and the noise; a tenth more is silence."""
    root = repo / "datasets/speech_commands"
    words = ("yes", "yes", "no", "bed", "yes")
    for at, (split, count) in enumerate(
        (("train", samples_of(recipe) - 1), ("valid", recipe["test_size"]))
    ):
        for i in range(count):
            _sound(
                root / split / words[i % 5] / ("%03d.wav" % i), 300 * at + i, 15000 + 100 * i, 16000
            )
    _sound(root / "train/_background_noise_/pink.wav", 999, 40000, 16000)
    (repo / "checkpoints").mkdir(exist_ok=True)


def ncf(repo, recipe):
    """Four users; each positive comes with four negatives."""
    rng, users, items = _rng(7), 4, 40
    seen, rows = {}, []
    for i in range(samples_of(recipe) // 5):
        user = i % users
        item = items - 1 if i == 0 else int(rng.randint(items - 1))
        seen.setdefault(user, set()).add(item)
        rows.append("%d\t%d\t5\t%d\n" % (user, item, i))
    text(repo / "data/ml-1m.train.rating", "".join(rows))
    lines = []
    for user in range(users):
        others = [i for i in rng.permutation(items) if i not in seen[user]][:10]
        lines.append("(%d,%d)\t" % (user, others[0]) + "\t".join(str(i) for i in others[1:]) + "\n")
    text(repo / "data/ml-1m.test.negative", "".join(lines))


def wsj0(repo, recipe):
    """Mixtures of two sounds: training ones of exactly one segment, longer ones for validation."""
    for at, (part, count, samples) in enumerate(
        (("tr", samples_of(recipe), 400), ("cv", recipe["test_size"], 640))
    ):
        lists = {"mix": [], "s1": [], "s2": []}
        for i in range(count):
            for j, kind in enumerate(lists):
                path = "data/%s/%s/u%02d.wav" % (part, kind, i)
                _sound(repo / path, 4000 + 500 * at + 3 * i + j, samples, 8000)
                lists[kind].append([path, samples])
        for kind, rows in lists.items():
            text(repo / "data" / part / (kind + ".json"), json.dumps(rows))


def faces(repo, recipe):
    lines = []
    for i in range(samples_of(recipe)):
        _picture(repo / "webface" / ("f%02d.png" % i), 800 + i, (40, 40), "L")
        lines.append("f%02d.png %d\n" % (i, i % 6))
    text(repo / "webface/train_data.txt", "".join(lines))
    for i in range(recipe["test_size"]):
        _picture(repo / "lfw" / ("p%d.png" % i), 900 + i, (32, 32), "L")
    n = recipe["test_size"]
    text(
        repo / "lfw/lfw_test_pair.txt",
        "".join("p%d.png p%d.png %d\n" % (i, (i + 1) % n, i % 2) for i in range(n)),
    )
    (repo / "checkpoints").mkdir(exist_ok=True)


def signs(repo, recipe):
    root = repo / "pytorch/vision"
    for at, (split, count) in enumerate(
        (("train", samples_of(recipe)), ("val", recipe["test_size"]))
    ):
        for i in range(count):
            _picture(
                root / "data/64x64_SIGNS" / (split + "_signs") / ("%d_IMG_%04d.jpg" % (i % 6, i)),
                1200 + 100 * at + i,
                (64, 64),
            )
    text(
        root / "experiments/base_model/params.json",
        json.dumps(
            {
                "learning_rate": 1e-3,
                "batch_size": recipe["batch"],
                "num_epochs": 2,
                "dropout_rate": 0.8,
                "num_channels": 4,
                "save_summary_steps": 1,
                "num_workers": 4,
            },
            indent=4,
        ),
    )


def dncnn(repo, recipe):
    """What prepare_data writes: patches and whole pictures under numbers."""
    h5py = import_h5py()
    for name, count, size in (
        ("train.h5", samples_of(recipe), (1, 16, 16)),
        ("val.h5", recipe["test_size"], (1, 20, 24)),
    ):
        with h5py.File(repo / name, "w") as h:
            for i in range(count):
                small = _rng(1500 + i).rand(1, 4, 4).astype("float32")
                h.create_dataset(str(i), data=small.repeat(size[1] // 4, 1).repeat(size[2] // 4, 2))
    (repo / "logs").mkdir(exist_ok=True)
