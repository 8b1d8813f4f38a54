"""Data files of the lot 12 recipes, written into the copy of a repository."""

import json
from pathlib import Path

import numpy as np
from lot_common import import_h5py, picture, samples_of, text


def _rng(key):
    return np.random.RandomState(12000 + key)


def _and_two(recipe):
    """Two samples more than full batches (none where one batch an epoch is asked for)."""
    return samples_of(recipe) + (2 if recipe["batches"] > 1 else 0)


def chinese(repo, recipe):
    """Six articles of Chinese signs (three for each of the two pieces, a little more than half of the
    batches each), the signs and the settings of a small network."""
    repo = Path(repo)
    signs = [chr(0x4E00 + 37 * k) for k in range(40)]
    samples = max(recipe["batch"], samples_of(recipe) // 2)  # of a piece of three articles
    each = samples * 16 // 3 + 5
    articles = []
    for i in range(6):
        rng = _rng(i)
        articles.append("".join(signs[int(k)] for k in rng.randint(0, len(signs), each - 2)))
    (repo / "data").mkdir(exist_ok=True)
    text(repo / "data/train.json", json.dumps(articles))
    text(
        repo / "cache/acceptance.txt",
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + signs) + "\n",
    )
    text(
        repo / "config/acceptance.json",
        json.dumps(
            {
                "initializer_range": 0.02,
                "layer_norm_epsilon": 1e-05,
                "n_ctx": 16,
                "n_embd": 16,
                "n_head": 2,
                "n_layer": 2,
                "n_positions": 16,
                "vocab_size": 5 + len(signs),
            }
        ),
    )


def graphs(repo, recipe):
    """Twenty-four graphs of two kinds: rings, and rings with a chord and a tail."""
    lines = ["24"]
    for i in range(24):
        rng = _rng(i)
        kind, n = i % 2, 5 + int(rng.randint(5))
        near = {j: {(j + 1) % n, (j - 1) % n} for j in range(n)}
        if kind:
            near[0].add(2)
            near[2].add(0)
            near[n] = {1}
            near[1].add(n)
            n += 1
        lines.append("%d %d" % (n, kind))
        for j in range(n):
            others = sorted(near[j])
            lines.append(" ".join(map(str, [int(rng.randint(3)), len(others), *others])))
    text(Path(repo) / "dataset/MUTAG/MUTAG.txt", "\n".join(lines) + "\n")


def faces(repo, recipe):
    """Pictures, points in the plane and angles in MATLAB's files, and the list of names."""
    from scipy.io import savemat

    root, names = Path(repo) / "faces", []
    for i in range(_and_two(recipe)):
        rng, name = _rng(i), "AFW/face_%03d" % i
        picture(root / (name + ".jpg"), rng, (120, 120))
        para = np.zeros((1, 7))
        para[0, :3] = rng.uniform(-1, 1, 3)
        savemat(root / (name + ".mat"), {"pt2d": rng.uniform(30, 90, (2, 21)), "Pose_Para": para})
        names.append(name)
    text(root / "list.txt", "\n".join(names) + "\n")


def dark(repo, recipe):
    """Dark pictures."""
    from PIL import Image

    root = Path(repo) / "Zero-DCE_code/data/dark"
    for i in range(_and_two(recipe)):
        path = root / ("%03d.jpg" % i)
        picture(path, _rng(i), (72, 72))
        Image.open(path).point(lambda v: v // 4).save(path)


def two_domains(repo, recipe):
    """Pictures of two domains, two more in the first."""
    root = Path(repo) / "datasets/acceptance"
    for at, (part, count) in enumerate(
        (("trainA", _and_two(recipe)), ("trainB", samples_of(recipe)))
    ):
        for i in range(count):
            picture(root / part / ("%03d.png" % i), _rng(100 * at + i), (40, 40))


def simsiam(repo, recipe):
    """The settings for CIFAR10, smaller."""
    import yaml

    repo = Path(repo)
    config = yaml.safe_load((repo / "configs/simsiam_cifar.yaml").read_text())
    config["name"] = "acceptance"
    config["dataset"].update(image_size=16, num_workers=0)
    config["train"].update(
        warmup_epochs=1, num_epochs=3, stop_at_epoch=2, batch_size=recipe["batch"], knn_k=4
    )
    config["eval"].update(batch_size=recipe["batch"], num_epochs=1)
    text(repo / "configs/acceptance.yaml", yaml.safe_dump(config, sort_keys=False))


def people(repo, recipe):
    """People seen by two cameras: half the pictures' number to train, four to validate, four to test."""
    root = Path(repo) / "data/viper"
    train = _and_two(recipe) // 2 + 4
    identities = []
    for pid in range(train + 4):
        names = ["%08d_%02d_%04d.jpg" % (pid, camera, 0) for camera in range(2)]
        for camera, name in enumerate(names):
            picture(root / "images" / name, _rng(10 * pid + camera), (48, 128))
        identities.append([[n] for n in names])
    test = list(range(train, train + 4))
    text(
        root / "meta.json",
        json.dumps({"name": "VIPeR", "shot": "single", "num_cameras": 2, "identities": identities}),
    )
    text(
        root / "splits.json",
        json.dumps([{"trainval": list(range(train)), "query": test, "gallery": test}]),
    )


def sounds(repo, recipe):
    """One short sound for each of the 527 classes, and six sounds each to evaluate by."""
    h5py = import_h5py()
    root = Path(repo) / "workspace/hdf5s"
    (root / "indexes").mkdir(parents=True, exist_ok=True)
    (root / "waveforms").mkdir(exist_ok=True)
    for at, (part, count) in enumerate((("full_train", 527), ("balanced_train", 6), ("eval", 6))):
        rng = _rng(at)
        waves = (rng.randn(count, 6400) * 3000).clip(-30000, 30000).astype("int16")
        target = np.zeros((count, 527), bool)
        target[np.arange(count), np.arange(count)] = True
        names = np.array([("Y%s%04d.wav" % (part, i)).encode() for i in range(count)], "S40")
        where = "workspace/hdf5s/waveforms/%s.h5" % part
        with h5py.File(Path(repo) / where, "w") as f:
            f["audio_name"], f["waveform"], f["target"] = names, waves, target
        with h5py.File(root / "indexes" / (part + ".h5"), "w") as f:
            f["audio_name"], f["target"] = names, target
            f["hdf5_path"] = np.array([where.encode()] * count, "S200")
            f["index_in_hdf5"] = np.arange(count, dtype="int32")


def sprites(repo, recipe):
    """White boxes on black."""
    images = np.zeros((_and_two(recipe), 64, 64), "uint8")
    for i, image in enumerate(images):
        y, x, h, w = (int(v) for v in _rng(i).randint(8, 28, 4))
        image[y : y + h, x : x + w] = 1
    path = Path(repo) / "data/dsprites-dataset/dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, imgs=images)


def corrupted(repo, recipe):
    """The fifteen corrupted test sets and their labels."""
    root = Path(repo) / "data/cifar/CIFAR-10-C"
    root.mkdir(parents=True, exist_ok=True)
    names = (
        "gaussian_noise shot_noise impulse_noise defocus_blur glass_blur motion_blur zoom_blur snow frost "
        "fog brightness contrast elastic_transform pixelate jpeg_compression"
    ).split()
    for i, name in enumerate(names):
        shape = (recipe["test_size"], 32, 32, 3)
        np.save(root / (name + ".npy"), _rng(i).randint(0, 256, shape).astype("uint8"))
    np.save(root / "labels.npy", _rng(99).randint(0, 10, recipe["test_size"]))
