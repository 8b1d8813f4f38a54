"""Generated data of the lot 16 recipes (nothing is downloaded)."""

import gzip
import json
import pickle
from pathlib import Path

import numpy as np
from lot_common import import_h5py, picture, samples_of, text


def _rng(i):
    return np.random.RandomState(1600 + i)


def birds(repo, recipe):
    """Four classes to train on, four others of three pictures each to evaluate, and the settings for them (the root has
    to be absolute)."""
    root = Path(repo) / "data/cub"
    per = samples_of(recipe) // 4
    for c in range(8):
        for i in range(per if c < 4 else 3):
            where = root / "images" / ("%03d.Bird" % c) / ("bird_%d.jpg" % i)
            picture(where, _rng(10 * c + i), (80, 70))
    config = json.loads((Path(repo) / "config.json").read_text())
    config["dataset"]["cub"] = {
        "classes": {"train": "range(0, 4)", "eval": "range(4, 8)"},
        "root": "str(%r)" % str(root),
    }
    text(Path(repo) / "acceptance.json", json.dumps(config, indent=1))


def two_digits(repo, recipe):
    """USPS as a pickle, MNIST as a MATLAB file."""
    from scipy.io import savemat

    n, m = samples_of(recipe), 6
    here, rng = Path(repo) / recipe["cwd"], _rng(0)
    (here / "data").mkdir(exist_ok=True)
    (Path(repo) / "data").mkdir(exist_ok=True)
    usps = [(rng.rand(k, 1, 28, 28).astype("float32"), np.arange(k) % 10) for k in (n, m)]
    with gzip.open(here / "data/usps_28x28.pkl", "wb") as f:
        pickle.dump(usps, f)
    mnist = {}
    for part, k in (("train", n), ("test", m)):
        mnist[part + "_28"] = rng.randint(0, 256, (k, 28, 28, 1)).astype("uint8")
        mnist["label_" + part] = np.eye(10)[(3 * np.arange(k)) % 10]
    savemat(Path(repo) / "data/mnist_data.mat", mnist)


def power(repo, recipe):
    """As many rows that the training part (without a tenth, and a tenth of the rest) is what is wanted."""
    want, n = samples_of(recipe), samples_of(recipe)
    while n - int(0.1 * n) - int(0.1 * (n - int(0.1 * n))) < want:
        n += 1
    (Path(repo) / "data/power").mkdir(parents=True)
    np.save(Path(repo) / "data/power/data.npy", _rng(1).randn(n, 8))


def two_kinds(repo, recipe):
    """Pictures of two domains and the folder for the networks."""
    for k, kind in enumerate("AB"):
        for i in range(samples_of(recipe)):
            where = Path(repo) / "data/train" / kind / ("%02d.png" % i)
            picture(where, _rng(100 * k + i), (40, 40))
    (Path(repo) / "output").mkdir(exist_ok=True)


def dark_and_bright(repo, recipe):
    """Twice as many pictures as an epoch takes, of two groups."""
    from PIL import Image

    for i in range(2 * samples_of(recipe)):
        rng = _rng(i)
        small = rng.randint(0, 40, (6, 6, 3)) + (0 if i % 2 else 200)
        if not i % 2:
            small[::2] -= 150
        where = Path(repo) / "data/train" / ("c%d" % (i % 3)) / ("%02d.png" % i)
        where.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(small.astype("uint8")).resize((260, 260), Image.BILINEAR).save(where)


def enlargements(repo, recipe):
    """Small pictures and those four times as large."""
    h5py = import_h5py()
    (Path(repo) / "data").mkdir(exist_ok=True)
    n, rng = samples_of(recipe), _rng(2)
    with h5py.File(Path(repo) / "data/train.h5", "w") as f:
        f["data"] = rng.rand(n, 3, 8, 8).astype("float32")
        f["label"] = rng.rand(n, 3, 32, 32).astype("float32")


def grey(repo, recipe):
    """Pictures of 48 by 48: two patches each."""
    for i in range(samples_of(recipe) // 2):
        where = Path(repo) / recipe["cwd"] / "data/Train400" / ("test_%03d.png" % i)
        picture(where, _rng(i), (48, 48), "L")


def poses(repo, recipe):
    """One action to train on: four cameras and the mirrored pose of every frame; two actions to test."""
    frames = samples_of(recipe) // 8
    root, rng = Path(repo) / "data", _rng(3)
    root.mkdir(exist_ok=True)
    size = {"S1": {"Walking": frames}, "S9": {"Walking": 5, "Eating 1": 6}}
    three = {
        s: {a: rng.randn(t, 32, 3).astype("float32") for a, t in actions.items()}
        for s, actions in size.items()
    }
    two = {
        s: {
            a: [rng.uniform(100, 900, (t, 17, 2)).astype("float32") for _ in range(4)]
            for a, t in actions.items()
        }
        for s, actions in size.items()
    }
    symmetry = [[4, 5, 6, 11, 12, 13], [1, 2, 3, 14, 15, 16]]
    about = {"layout_name": "h36m", "num_joints": 17, "keypoints_symmetry": symmetry}
    np.savez(root / "data_3d_h36m.npz", positions_3d=np.array(three, dtype=object))
    np.savez(
        root / "data_2d_h36m_gt.npz",
        positions_2d=np.array(two, dtype=object),
        metadata=np.array(about, dtype=object),
    )


def faces(repo, recipe):
    """Pictures of two domains."""
    for k, kind in enumerate("AB"):
        for i in range(samples_of(recipe)):
            where = Path(repo) / "data/faces" / kind / ("%02d.png" % i)
            picture(where, _rng(300 + 100 * k + i), (64, 64))
