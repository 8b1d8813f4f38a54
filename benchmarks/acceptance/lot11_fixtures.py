"""Data files of the lot 11 recipes, written into the copy of a repository."""

import importlib.util
import json
import pickle
import wave
from pathlib import Path

import numpy as np
from lot_common import picture, samples_of, text


def _rng(key):
    return np.random.RandomState(14000 + key)


def _and_two(recipe):
    """Two samples more than full batches (none where one batch an epoch is asked for)."""
    return samples_of(recipe) + (2 if recipe["batches"] > 1 else 0)


def duts(repo, recipe):
    """Pictures, masks of one or two boxes, and the folder the script saves to."""
    from PIL import Image, ImageDraw

    root = Path(repo) / "train_data/DUTS/DUTS-TR/DUTS-TR"
    (root / "gt_aug").mkdir(parents=True, exist_ok=True)
    (Path(repo) / "saved_models/u2netp").mkdir(parents=True, exist_ok=True)
    for i in range(_and_two(recipe)):
        rng, name = _rng(i), "ILSVRC2012_test_%08d" % (17 * i + 3)
        picture(root / "im_aug" / (name + ".jpg"), rng, (100, 80))
        mask = Image.new("L", (100, 80))
        for _k in range(1 + i % 2):
            x, y = int(rng.randint(0, 50)), int(rng.randint(0, 40))
            ImageDraw.Draw(mask).rectangle([x, y, x + 35, y + 30], fill=255)
        mask.save(root / "gt_aug" / (name + ".png"))


def chairs(repo, recipe):
    """Pairs of pictures, their flow, and which pairs are for training."""
    from PIL import Image

    root = Path(repo) / "datasets/FlyingChairs_release/data"
    root.mkdir(parents=True, exist_ok=True)
    (Path(repo) / "checkpoints").mkdir(exist_ok=True)
    kinds = [1] * _and_two(recipe)
    kinds.insert(3, 2)  # the one kept for validation lies among them
    width, height = 160, 144
    for i in range(len(kinds)):
        rng = _rng(100 + i)
        small = rng.randint(0, 256, (6, 6, 3)).astype("uint8")
        first = Image.fromarray(small).resize((width, height), Image.BILINEAR)
        dx, dy = (int(v) for v in rng.randint(-6, 7, 2))
        first.save(root / ("%05d_img1.ppm" % (i + 1)))
        Image.fromarray(np.roll(np.asarray(first), (dy, dx), (0, 1))).save(
            root / ("%05d_img2.ppm" % (i + 1))
        )
        flow = np.empty((height, width, 2), "<f4")
        flow[..., 0], flow[..., 1] = dx, dy
        with open(root / ("%05d_flow.flo" % (i + 1)), "wb") as f:
            f.write(np.array([202021.25], "<f4").tobytes())
            f.write(np.array([width, height], "<i4").tobytes())
            f.write(flow.tobytes())
    text(Path(repo) / "chairs_split.txt", "".join("%d\n" % k for k in kinds))


def dialogues(repo, recipe):
    """Dialogues as lists of token numbers (the first ones are for validation), a small vocabulary and a small network.
    The loss is a mean over tokens: the outer two of a batch are of the same length, and so are the inner two, so that
    its halves have as many wherever it is cut."""
    repo = Path(repo)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [chr(0x4E00 + k) for k in range(55)]
    text(repo / "vocab/acceptance.txt", "\n".join(words) + "\n")
    config = json.loads((repo / "config/config.json").read_text())
    config.update(n_embd=16, n_head=2, n_layer=2, n_positions=64, n_ctx=64, vocab_size=len(words))
    text(repo / "config/acceptance.json", json.dumps(config, indent=2))
    lists = []
    for i in range(4 + _and_two(recipe)):
        rng, ids = _rng(200 + i), [2]
        kind = i // 4 + 2 * (i % 4 in (1, 2))
        for k in range(2 + kind % 3):
            ids += [int(v) for v in rng.randint(5, len(words), 3 + (kind + k) % 4)] + [3]
        lists.append(ids)
    (repo / "data").mkdir(exist_ok=True)
    (repo / "data/train.pkl").write_bytes(pickle.dumps(lists, protocol=2))


def cifar(repo, recipe):
    """The five files of CIFAR10 with a part of a few pictures each."""
    root = Path(repo) / "data/cifar/cifar-10-batches-py"
    root.mkdir(parents=True, exist_ok=True)
    total = samples_of(recipe) * recipe.get("options", {}).get("times", 1)
    rng = _rng(300)
    data = rng.randint(0, 256, (total, 3072)).astype("uint8")
    labels = [int(v) for v in rng.randint(0, 10, total)]
    for k, part in enumerate(np.array_split(np.arange(total), 5)):
        (root / ("data_batch_%d" % (k + 1))).write_bytes(
            pickle.dumps({"data": data[part], "labels": [labels[int(i)] for i in part]}, protocol=2)
        )


def sessions(repo, recipe):
    """Sessions of items and the item that follows; no two sessions have the same set of items."""
    root = Path(repo) / "datasets/sample"
    for at, (part, count) in enumerate(
        (("train", _and_two(recipe)), ("test", recipe["test_size"]))
    ):
        inputs, targets = [], []
        for i in range(count):
            rng = _rng(400 + 100 * at + i)
            items = [1 + i] + [int(v) for v in rng.randint(60, 310, 1 + i % 5)]
            if i % 3 == 2:
                items.append(items[-2])
            inputs.append(items)
            targets.append(1 + int(rng.randint(309)))
        root.mkdir(parents=True, exist_ok=True)
        (root / (part + ".txt")).write_bytes(pickle.dumps((inputs, targets), protocol=2))


def kitti(repo, recipe):
    """Drives of seven frames, no laser, and the lists of the split."""
    repo = Path(repo)
    for at, (part, count) in enumerate((("train", _and_two(recipe)), ("val", recipe["test_size"]))):
        lines = []
        for i in range(count):
            folder = "2011_09_26/2011_09_26_drive_%04d_sync" % (10 * at + i // 5)
            frame, side = 1 + i % 5, "lr"[i % 2]
            lines.append("%s %d %s\n" % (folder, frame, side))
            for k in (frame - 1, frame, frame + 1):
                path = repo / "kitti_data" / folder / ("image_0%d/data/%010d.png" % (2 + i % 2, k))
                if not path.exists():
                    picture(path, _rng(600 + 200 * at + 10 * (i // 5) + k), (124, 80))
        text(repo / "splits/eigen_zhou" / (part + "_files.txt"), "".join(lines))


def speakers(repo, recipe):
    """Wave files of four speakers, the lists, the labels and a small configuration."""
    import configparser

    repo = Path(repo)
    labels = {}
    for at, (part, count) in enumerate((("train", 8), ("test", 4))):
        names = []
        for i in range(count):
            name = "%s/dr%d/spk%d/s%02d.wav" % (part, 1 + i % 2, i % 4, i)
            path = repo / "corpus" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            rng, n = _rng(800 + 50 * at + i), 2000 + 100 * (i % 3)
            t = np.arange(n) / 16000.0
            sound = 0.4 * np.sin(2 * np.pi * (200 + 150 * (i % 4)) * t) + 0.1 * rng.randn(n)
            with wave.open(str(path), "wb") as f:
                f.setnchannels(1)
                f.setsampwidth(2)
                f.setframerate(16000)
                f.writeframes((np.clip(sound, -1, 1) * 32000).astype("<i2").tobytes())
            labels[name] = i % 4
            names.append(name)
        text(repo / "data_lists" / ("acceptance_%s.scp" % part), "\n".join(names) + "\n")
    np.save(repo / "data_lists/acceptance_labels.npy", labels)
    config = configparser.ConfigParser()
    config.optionxform = str
    config.read(repo / "cfg/SincNet_TIMIT.cfg")
    for part, values in {
        "data": {
            "tr_lst": "data_lists/acceptance_train.scp",
            "te_lst": "data_lists/acceptance_test.scp",
            "lab_dict": "data_lists/acceptance_labels.npy",
            "data_folder": "corpus",
            "output_folder": "exp/acceptance/",
        },
        "windowing": {"cw_len": "50"},
        "cnn": {"cnn_N_filt": "8,6,6"},
        "dnn": {"fc_lay": "16,16,16"},
        "class": {"class_lay": "4"},
        "optimization": {
            "batch_size": recipe["batch"],
            "N_epochs": 3,
            "N_batches": recipe["batches"],
            "N_eval_epoch": 2,
        },
    }.items():
        for key, value in values.items():
            config[part][key] = str(value)
    with open(repo / "cfg/acceptance.cfg", "w") as f:
        config.write(f)


def styles(repo, recipe):
    """Pictures of content and of style, and the fixed encoder's weights (random ones that keep the scale)."""
    import torch

    repo = Path(repo)
    for at, kind in enumerate(("content", "style")):
        for i in range(samples_of(recipe)):
            picture(
                repo / "input_train" / kind / ("%s_%02d.jpg" % (kind, i)),
                _rng(900 + 50 * at + i),
                (80, 72),
            )
    make = torch.Generator().manual_seed(5)
    net, at = {}, 0
    widths = [(3, 3, 1), (3, 64, 3), (64, 64, 3), (64, 128, 3), (128, 128, 3), (128, 256, 3)]
    widths += [(256, 256, 3)] * 3 + [(256, 512, 3)] + [(512, 512, 3)] * 7
    places = [0, 2, 5, 9, 12, 16, 19, 22, 25, 29, 32, 35, 38, 42, 45, 48, 51]
    for place, (a, b, k) in zip(places, widths, strict=True):
        scale = (2.0 / (a * k * k)) ** 0.5 if k > 1 else 1.0
        shape = (b, a, k, k)
        w = torch.randn(shape, generator=make, dtype=torch.float32) * scale
        net["%d.weight" % place] = w.half().float()
        net["%d.bias" % place] = torch.zeros(b, dtype=torch.float32)
    (repo / "models").mkdir(exist_ok=True)
    torch.save(net, repo / "models/vgg_normalised.pth")


def teacher(repo, recipe):
    """The settings of an experiment and a teacher's checkpoint (random weights)."""
    import torch

    repo = Path(repo)
    params = json.loads((repo / "experiments/cnn_distill/params.json").read_text())
    params.update(
        batch_size=recipe["batch"],
        num_epochs=2,
        num_channels=4,
        save_summary_steps=2,
        num_workers=0,
    )
    text(repo / "experiments/acceptance/params.json", json.dumps(params, indent=4))
    spec = importlib.util.spec_from_file_location("l11_teacher", repo / "model/resnet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    state = torch.random.get_rng_state()
    torch.manual_seed(7)
    weights = module.ResNet18().state_dict()
    torch.random.set_rng_state(state)
    torch.save({"epoch": 1, "state_dict": weights}, repo / "experiments/base_resnet18/best.pth.tar")
