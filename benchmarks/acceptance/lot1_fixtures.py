"""Data files of the lot 1 recipes, written into the copy of a repository."""

import numpy as np
from lot_common import picture, samples_of, text


def _rng(key):
    return np.random.RandomState(1000 + key)


def _picture(path, key, *args, **kwargs):
    picture(path, _rng(key), *args, **kwargs)


def cifar_zoo(repo, recipe):
    """An experiment folder of our own: three epochs, cosine rate, every augmentation but mixup."""
    text(
        repo / "acceptance/config.yaml",
        """
architecture: resnet20
data_path: ./data
ckpt_path: ./
ckpt_name: resnet20
num_classes: 10
dataset: cifar10
use_gpu: True
input_size: 32
epochs: 3
batch_size: %d
test_batch: 4
eval_freq: 2
workers: 4
optimize: {momentum: 0.9, weight_decay: 0.0001, nesterov: True}
mixup: False
mixup_alpha: 0.4
augmentation: {normalize: True, random_crop: True, random_horizontal_filp: True, cutout: True, holes: 1, length: 8}
lr_scheduler: {type: COSINE, base_lr: 0.1, lr_epochs: [100], lr_mults: 0.1, min_lr: 0.0, lower_bound: -6.0, upper_bound: 3.0}
""" % recipe["batch"],
    )


def isic(repo, recipe):
    """Skin pictures and masks under the names of the ISIC 2018 task."""
    from PIL import Image

    for at, (split, count) in enumerate(
        (("train", samples_of(recipe)), ("valid", recipe["test_size"]), ("test", 2))
    ):
        for i in range(count):
            number = "%07d" % (1000 * at + i)
            _picture(repo / "dataset" / split / ("ISIC_%s.jpg" % number), 1000 * at + i, (96, 96))
            mask = np.zeros((96, 96), "uint8")
            mask[20:70, 10 + i : 60 + i] = 255
            folder = repo / "dataset" / (split + "_GT")
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(mask).save(folder / ("ISIC_%s_segmentation.png" % number))


def thucnews(repo, recipe):
    """Lines of 32 to 40 letters, a tab, a class: train, dev, test; no vocabulary file (it is built)."""
    data = repo / "THUCNews/data"
    letters = [chr(0x4E00 + i) for i in range(60)]
    data.mkdir(parents=True, exist_ok=True)
    (repo / "THUCNews/saved_dict").mkdir(parents=True, exist_ok=True)
    if (data / "vocab.pkl").exists():
        (data / "vocab.pkl").unlink()
    for key, (split, count) in enumerate(
        (("train", samples_of(recipe)), ("dev", 2 * recipe["batch"]), ("test", 2 * recipe["batch"]))
    ):
        rng = _rng(key)
        lines = [
            "".join(letters[j] for j in rng.randint(0, 60, rng.randint(32, 40))) + "\t%d" % (i % 10)
            for i in range(count)
        ]
        text(data / (split + ".txt"), "\n".join(lines) + "\n")
    text(data / "class.txt", "".join("topic%d\n" % i for i in range(10)))


def mnist_m(repo, recipe):
    """Colour digits: a folder of pictures and a list 'NAME LABEL' for each split."""
    root = repo / "dataset/mnist_m"
    for at, (split, count) in enumerate(
        (("train", samples_of(recipe)), ("test", recipe["test_size"]))
    ):
        lines = []
        for i in range(count):
            name = "%08d.png" % i
            _picture(root / ("mnist_m_" + split) / name, 5000 * at + i, (28, 28))
            lines.append("%s %d\n" % (name, i % 10))
        text(root / ("mnist_m_%s_labels.txt" % split), "".join(lines))


def srcnn(repo, recipe):
    """Two HDF5 files of grey patches: arrays for training, numbered data sets for evaluation."""
    import os
    import sys

    sys.path += [
        p for p in os.environ.get("ACCEPT_SITE", "").split(os.pathsep) if p and p not in sys.path
    ]
    import h5py

    rng = _rng(7)
    n = samples_of(recipe) + 3  # the rest is dropped by drop_last
    hr = rng.randint(0, 256, (n, 33, 33)).astype("float32")
    with h5py.File(repo / "train_x3.h5", "w") as f:
        f.create_dataset("hr", data=hr)
        f.create_dataset("lr", data=0.8 * hr + 10)
    with h5py.File(repo / "eval_x3.h5", "w") as f:
        for name, scale in (("hr", 1.0), ("lr", 0.8)):
            group = f.create_group(name)
            for i in range(recipe["test_size"]):
                group.create_dataset(
                    str(i),
                    data=scale * _rng(50 + i).randint(0, 256, (40 + i, 36)).astype("float32"),
                )


def reid(repo, recipe):
    """The script makes ./model/NAME but not ./model."""
    (repo / "model").mkdir(exist_ok=True)


def movielens(repo, recipe):
    """ratings.dat, 10 lines for 8 training lines."""
    rng = _rng(9)
    n = samples_of(recipe) * 10 // 8
    lines = [
        "%d::%d::%d::%d"
        % (rng.randint(1, 13), rng.randint(1, 21), 5 if (i * 7) % 3 else 1, 978300000 + i)
        for i in range(n - 1)
    ] + ["12::20::4::978400000"]
    text(repo / "ml-1m/ratings.dat", "\n".join(lines) + "\n")
    (repo / "chkpt").mkdir(exist_ok=True)


def vit_weights(repo, recipe):
    """The file of pretrained weights; nothing is taken from it."""
    (repo / "checkpoint").mkdir()
    np.savez(repo / "checkpoint/ViT-B_16.npz", empty=np.zeros(1))
