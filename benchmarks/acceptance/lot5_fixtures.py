"""Data files of the lot 5 recipes, written into the copy of a repository."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np


def _rng(key):
    return np.random.RandomState(8000 + key)


def _n(recipe):
    return recipe["batch"] * recipe["batches"]


def _text(path, content):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def _picture(path, key, size=(64, 64)):
    from PIL import Image

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    small = _rng(key).randint(0, 256, (6, 6, 3)).astype("uint8")
    Image.fromarray(small).resize(size, Image.BILINEAR).save(path)


def voc_masks(repo, recipe):
    """Pictures, masks with a frame of 255 of different width, and the settings."""
    from PIL import Image

    root = repo / "data/VOCdevkit/VOC2012"
    for at, (part, count) in enumerate((("train", _n(recipe)), ("val", recipe["test_size"]))):
        names = ["%s%02d" % (part, i) for i in range(count)]
        for i, name in enumerate(names):
            _picture(root / "JPEGImages" / (name + ".jpg"), 100 * at + i, (36, 36))
            mask = np.full((36, 36), 255, "uint8")
            edge = 2 + i % 4
            inner = (
                _rng(300 + 100 * at + i)
                .randint(0, 21, (3, 3))
                .astype("uint8")
                .repeat(12, 0)
                .repeat(12, 1)
            )
            mask[edge:-edge, edge:-edge] = inner[edge:-edge, edge:-edge]
            (root / "SegmentationClass").mkdir(exist_ok=True)
            Image.fromarray(mask).save(root / "SegmentationClass" / (name + ".png"))
        _text(root / "ImageSets/Segmentation" / (part + ".txt"), "".join(n + "\n" for n in names))
    config = json.loads((repo / "config.json").read_text())
    config["name"] = "UNet"
    config["arch"] = {"type": "UNet", "args": {"freeze_bn": False, "freeze_backbone": False}}
    shared = {
        "data_dir": "./data",
        "batch_size": recipe["batch"],
        "crop_size": 32,
        "num_workers": 8,
    }
    config["train_loader"] = {
        "type": "VOC",
        "args": dict(
            shared,
            base_size=None,
            augment=True,
            shuffle=True,
            scale=False,
            flip=True,
            rotate=False,
            blur=False,
            split="train",
        ),
    }
    config["val_loader"] = {"type": "VOC", "args": dict(shared, val=True, split="val")}
    config["trainer"].update(epochs=2, save_period=1, val_per_epochs=1, log_per_iter=4)
    _text(repo / "acceptance.json", json.dumps(config, indent=4))


def mpii(repo, recipe):
    """People with sixteen joints, the table that the evaluation reads, and the settings."""
    import yaml
    from scipy.io import savemat

    root = repo / "data/mpii"
    for at, (part, count) in enumerate((("train", _n(recipe)), ("valid", recipe["test_size"]))):
        people, points = [], []
        for i in range(count):
            name = "%s%02d.png" % (part, i)
            _picture(root / "images" / name, 100 * at + i, (96, 96))
            joints = _rng(500 + 100 * at + i).randint(15, 80, (16, 2)).astype(float)
            points.append(joints)
            seen = [int(v) for v in _rng(900 + 100 * at + i).rand(16) < 0.85]
            people.append(
                {
                    "image": name,
                    "center": [48.0, 42.0],
                    "scale": 0.42,
                    "joints": joints.tolist(),
                    "joints_vis": seen,
                }
            )
        _text(root / "annot" / (part + ".json"), json.dumps(people))
    names = [
        "rank",
        "rkne",
        "rhip",
        "lhip",
        "lkne",
        "lank",
        "pelv",
        "thor",
        "neck",
        "head",
        "rwri",
        "relb",
        "rsho",
        "lsho",
        "lelb",
        "lwri",
    ]
    count = len(points)
    boxes = np.zeros((2, 2, count))
    boxes[1] = 60.0
    savemat(
        root / "annot/gt_valid.mat",
        {
            "dataset_joints": np.array([names], dtype=object),
            "jnt_missing": np.zeros((16, count)),
            "pos_gt_src": np.transpose(np.stack(points), (1, 2, 0)),
            "headboxes_src": boxes,
        },
    )
    config = yaml.safe_load(
        (repo / "experiments/mpii/resnet50/256x256_d256x3_adam_lr1e-3.yaml").read_text()
    )
    config["PRINT_FREQ"] = 1
    config["MODEL"].update(INIT_WEIGHTS=False, PRETRAINED="", IMAGE_SIZE=[64, 64])
    config["MODEL"]["EXTRA"].update(
        HEATMAP_SIZE=[16, 16], NUM_LAYERS=18, NUM_DECONV_FILTERS=[8, 8, 8]
    )
    config["TRAIN"].update(BATCH_SIZE=recipe["batch"], END_EPOCH=2, LR_STEP=[1])
    config["TEST"].update(BATCH_SIZE=recipe["batch"], FLIP_TEST=True)
    _text(repo / "experiments/acceptance.yaml", yaml.safe_dump(config))


def celeba(repo, recipe):
    """Faces; which lines go to training is drawn by the data set."""
    names = ["5_o_Clock_Shadow", "Black_Hair", "Blond_Hair", "Brown_Hair", "Male", "Young"]
    rows = []
    for i in range(_n(recipe) + recipe["test_size"]):
        name = "%06d.jpg" % (i + 1)
        _picture(repo / "data/celeba/images" / name, i, (20, 24))
        values = np.where(_rng(700 + i).rand(len(names)) < 0.5, "1", "-1")
        rows.append(name + " " + " ".join(values) + "\n")
    _text(
        repo / "data/celeba/list_attr_celeba.txt",
        "%d\n%s\n%s" % (len(rows), " ".join(names), "".join(rows)),
    )


def chaconne(repo, recipe):
    """One piece of quantized sound, long enough for the training items with a test item every 20."""
    items = next(n for n in range(1, 10000) if n - n // 20 == _n(recipe))
    t = np.arange(items * 16 + 9)
    wave = 128 + 60 * np.sin(t / 3.0) + 30 * np.sin(t / 7.0) + _rng(1).randint(-9, 9, len(t))
    folder = repo / "train_samples/bach_chaconne"
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "dataset.npz", wave.astype("uint8"))
    (repo / "snapshots").mkdir(exist_ok=True)


def names(repo, recipe):
    """Made-up words of three to eight letters; a tenth is the test part."""
    words = []
    for i in range(_n(recipe) + recipe["test_size"]):
        rng = _rng(i)
        words.append(
            "".join("abcdefgh"[int(c)] for c in rng.randint(0, 8, 3 + int(rng.randint(6))))
        )
    _text(repo / "names.txt", "\n".join(words) + "\n")


def sensors(repo, recipe):
    """Readings of five sensors, some of them missing (zero), and the graph."""
    folder = repo / "data/METR-LA"
    folder.mkdir(parents=True, exist_ok=True)
    for at, (part, count) in enumerate(
        (("train", _n(recipe)), ("val", recipe["test_size"]), ("test", recipe["test_size"]))
    ):
        rng = _rng(20 + at)
        speed = 50 + 10 * rng.randn(count, 24, 5, 1)
        speed[rng.rand(*speed.shape) < 0.06] = 0
        both = np.concatenate([speed, rng.rand(count, 24, 5, 1)], 3)
        np.savez(folder / (part + ".npz"), x=both[:, :12], y=both[:, 12:])
    graph = np.eye(5, dtype="float32") + (_rng(9).rand(5, 5) < 0.4) * _rng(10).rand(5, 5).astype(
        "float32"
    )
    (repo / "data/sensor_graph").mkdir(exist_ok=True)
    with open(repo / "data/sensor_graph/adj_mx.pkl", "wb") as f:
        pickle.dump(
            (list("abcde"), {c: i for i, c in enumerate("abcde")}, graph.astype("float32")), f
        )
    (repo / "garage").mkdir(exist_ok=True)


def ratings(repo, recipe):
    """Every user has seen seven to twelve of sixty films."""
    rows = []
    for user in range(_n(recipe)):
        rng = _rng(user)
        seen = rng.permutation(60)[: 7 + int(rng.randint(6))]
        rows += [
            "%d::%d::%d::%d\n" % (user + 1, film + 1, 3 + film % 3, 978300000 + at)
            for at, film in enumerate(seen)
        ]
    rows += ["1::%d::4::%d\n" % (film + 1, 978200000 + film) for film in range(0, 60, 6)]
    rows = list({tuple(r.split("::")[:2]): r for r in rows}.values())
    _text(repo / "Data/ml-1m/ratings.dat", "".join(rows))
    for name in ("README", "movies.dat", "users.dat"):
        _text(repo / "Data/ml-1m" / name, "\n")


def teacher(repo, recipe):
    """The trained teacher: drawn weights."""
    (repo / "save/models/resnet14_vanilla").mkdir(parents=True, exist_ok=True)
    code = (
        "import torch; torch.manual_seed(3); from models import model_dict; net = model_dict['resnet14'](num_classes=100)\n"
        "torch.save({'model': net.state_dict()}, 'save/models/resnet14_vanilla/resnet14_best.pth')"
    )
    subprocess.run([sys.executable, "-B", "-c", code], cwd=repo, check=True)
