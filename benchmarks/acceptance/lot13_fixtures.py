"""Data files of the lot 13 recipes, written into the copy of a repository."""

import gzip
import pickle
from pathlib import Path

import numpy as np
from lot_common import import_h5py, picture, samples_of, text


def _rng(key):
    return np.random.RandomState(16000 + key)


def _smooth(rng, height, width, channels=3, low=0, high=256):
    """A picture of a few colours that flow into each other."""
    from PIL import Image

    planes = [
        Image.fromarray(rng.uniform(low, high, (5, 5)).astype("float32")).resize(
            (width, height), Image.BILINEAR
        )
        for _ in range(channels)
    ]
    return np.stack([np.asarray(p) for p in planes])


def patches(repo, recipe):
    """Pairs of patches, one blurred (VDSR's training file)."""
    h5py = import_h5py()
    rng, n = _rng(1), samples_of(recipe)
    sharp = np.stack([_smooth(rng, 16, 16, 1, 0, 1) for _ in range(n)])
    (Path(repo) / "data").mkdir(exist_ok=True)
    with h5py.File(Path(repo) / "data/train.h5", "w") as f:
        f["label"] = (sharp + 0.05 * rng.randn(*sharp.shape)).astype("float32")
        f["data"] = sharp.astype("float32")


def mattes(repo, recipe):
    """Foregrounds, one matte for all (so that the unknown region has one size), backgrounds, lists."""
    from PIL import Image, ImageDraw, ImageFilter

    repo = Path(repo)
    total = samples_of(recipe) + recipe["test_size"]
    names = ["fg%02d.jpg" % i for i in range(total)]
    matte = Image.new("L", (90, 80))
    ImageDraw.Draw(matte).ellipse([20, 15, 70, 65], fill=255)
    matte = matte.filter(ImageFilter.GaussianBlur(4))
    (repo / "data/mask").mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        picture(repo / "data/fg" / name, _rng(100 + i), (90, 80))
        matte.save(repo / "data/mask" / name, format="PNG")
        picture(repo / "data/bg" / ("bg%02d.jpg" % i), _rng(200 + i), (100, 100))
    lists = repo / "Combined_Dataset/Training_set"
    text(lists / "training_fg_names.txt", "\n".join(names))
    text(lists / "training_bg_names.txt", "\n".join("bg%02d.jpg" % i for i in range(total)))
    both = ["%d_%d.png" % (i, (7 * i + 3) % total) for i in range(total)]
    text(repo / "train_names.txt", "\n".join(both[: samples_of(recipe)]))
    text(repo / "valid_names.txt", "\n".join(both[samples_of(recipe) :]))


def rooms(repo, recipe):
    """Pictures and depth maps, one HDF5 file each."""
    h5py = import_h5py()
    for part, count in (("train", samples_of(recipe)), ("val", recipe["test_size"])):
        for i in range(count):
            rng = _rng(300 + i + (100 if part == "val" else 0))
            path = Path(repo) / "data/nyudepthv2" / part / ("room_%d" % (i % 2)) / ("%05d.h5" % i)
            path.parent.mkdir(parents=True, exist_ok=True)
            with h5py.File(path, "w") as f:
                f["rgb"] = _smooth(rng, 120, 160).astype("uint8")
                f["depth"] = _smooth(rng, 120, 160, 1, 1, 9)[0].astype("float32")


def digits(repo, recipe):
    """The file of MNIST's training pictures, with a few blots instead."""
    n = 12
    blots = np.stack([_smooth(_rng(500 + i), 28, 28, 1)[0] for i in range(n)]).astype("uint8")
    path = Path(repo) / "data/train-images-idx3-ubyte.gz"
    with gzip.open(path, "wb") as f:
        f.write(np.array([2051, n, 28, 28], ">i4").tobytes() + blots.tobytes())


def voices(repo, recipe):
    """Features of four speakers' sentences, of different lengths; half of them will be for validation."""
    for i in range(2 * samples_of(recipe)):
        rng, who = _rng(600 + i), "spk%03d" % (i % 4)
        feat = rng.randn(230 + 5 * (i % 7), 40) + np.linspace(0, 1 + i % 4, 40)
        path = Path(repo) / "feat_acceptance/train" / who / ("s%03d.p" % i)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps({"feat": feat, "label": who}, protocol=2))


def noisy_speech(repo, recipe):
    """Pairs of wave files, clean and noisy, of two slices each."""
    import wave

    for i in range(samples_of(recipe) // 2):
        rng, t = _rng(700 + i), np.arange(6144) / 16000.0
        clean = 0.4 * np.sin(2 * np.pi * (150 + 60 * i) * t)
        for part, sound in (("clean", clean), ("noisy", clean + 0.1 * rng.randn(len(t)))):
            path = Path(repo) / ("data/%s_trainset" % part) / ("p%03d.wav" % i)
            path.parent.mkdir(parents=True, exist_ok=True)
            with wave.open(str(path), "wb") as f:
                f.setnchannels(1)
                f.setsampwidth(2)
                f.setframerate(16000)
                f.writeframes((np.clip(sound, -1, 1) * 32000).astype("<i2").tobytes())


def raw_speech(repo, recipe):
    """Utterances in HDF5 files and the lists of them (one is too short to be used)."""
    h5py = import_h5py()
    repo = Path(repo)
    (repo / "LibriSpeech/list").mkdir(parents=True, exist_ok=True)
    (repo / "snapshot").mkdir(exist_ok=True)
    for at, (part, count) in enumerate(
        (("train", samples_of(recipe)), ("validation", recipe["test_size"]))
    ):
        names = ["%d-%d-%04d" % (100 + i % 3, at, i) for i in range(count + 1)]
        with h5py.File(repo / "LibriSpeech" / (part + ".h5"), "w") as f:
            for i, name in enumerate(names):
                length = 20000 if i == count else 20600 + 50 * i
                sound = 200 * _rng(800 + 50 * at + i).randn(length)
                f[name] = sound.astype("int16")
        text(repo / "LibriSpeech/list" / (part + ".txt"), "\n".join(names) + "\n")
