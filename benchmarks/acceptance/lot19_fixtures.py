"""Generated data of the lot 19 recipes (nothing is downloaded)."""

import json
from pathlib import Path

import numpy as np
from lot_common import import_h5py, picture, samples_of, text


def _rng(i):
    return np.random.RandomState(1900 + i)


def voices(repo, recipe):
    """Recordings, spectrograms, small settings and the file of the network that is given."""
    import torch
    import yaml
    from scipy.io import wavfile

    root = Path(repo)
    docs = list(yaml.safe_load_all((root / "config/default.yaml").read_text()))
    new = {
        "audio": {"n_fft": 32, "num_freq": 17, "hop_length": 8, "win_length": 32},
        "model": {"lstm_dim": 8, "fc1_dim": 12, "fc2_dim": 17},
        "data": {"train_dir": "data/train", "test_dir": "data/test"},
        "train": {"batch_size": recipe["batch"], "num_workers": 0, "checkpoint_interval": 2},
        "embedder": {
            "num_mels": 8,
            "n_fft": 32,
            "emb_dim": 8,
            "lstm_hidden": 8,
            "lstm_layers": 2,
            "window": 8,
            "stride": 4,
        },
    }
    for doc in docs:
        for key, values in new.items():
            if key in doc:
                doc[key].update(values)
    text(root / "config/acceptance.yaml", yaml.safe_dump_all(docs))

    def wav(path, length, rng):
        wavfile.write(path, 16000, (rng.uniform(-0.5, 0.5, length) * 32767).astype("int16"))

    for part, count in (("train", samples_of(recipe)), ("test", 2)):
        where = root / "data" / part
        where.mkdir(parents=True)
        for i in range(count):
            rng, name = _rng(50 * (part == "test") + i), str(where / ("%06d" % i))
            wav(name + "-ref.wav", 200 + 8 * i, rng)
            text(name + "-dvec.txt", name + "-ref.wav\n")
            for kind in ("target", "mixed"):
                wav("%s-%s.wav" % (name, kind), 160, rng)
                torch.save(torch.from_numpy(rng.rand(12, 17)), "%s-%s.pt" % (name, kind))
    rng, state = _rng(99), {}
    for layer in range(2):
        for kind, shape in (
            ("weight_ih", (32, 8)),
            ("weight_hh", (32, 8)),
            ("bias_ih", (32,)),
            ("bias_hh", (32,)),
        ):
            state["lstm.%s_l%d" % (kind, layer)] = torch.from_numpy(0.3 * rng.randn(*shape))
    state["proj.linear_layer.weight"] = torch.from_numpy(rng.randn(8, 8))
    state["proj.linear_layer.bias"] = torch.from_numpy(rng.randn(8))
    torch.save(state, root / "embedder.pt")


def digits(repo, recipe):
    rng, root = _rng(1), Path(repo) / "data"
    root.mkdir(exist_ok=True)
    rows = np.unique(rng.randint(0, 2, (200, 20)), axis=0).astype("float64")
    rng.shuffle(rows)
    n = samples_of(recipe)
    np.savez(root / "binarized_mnist.npz", train_data=rows[:n], valid_data=rows[n : n + 8])


def celebrities(repo, recipe):
    for i in range(samples_of(recipe)):
        picture(Path(repo) / "data/celeba/img_align_celeba" / ("%06d.jpg" % i), _rng(i), (64, 64))


def inferences(repo, recipe):
    """Sentences of the same length (padding changes what the network gives)."""
    words = "a man woman dog runs sits red blue house tree plays eats with under near big".split()
    labels = ["entailment", "neutral", "contradiction"]
    for k, (part, count) in enumerate((("train", samples_of(recipe)), ("dev", 9), ("test", 9))):
        rng, lines = _rng(10 + k), []
        for i in range(count):
            one, two = (" ".join(rng.choice(words, 5)) for _ in range(2))
            lines.append(
                json.dumps({"sentence1": one, "sentence2": two, "gold_label": labels[i % 3]})
            )
        text(
            Path(repo) / ".data/snli/snli_1.0" / ("snli_1.0_%s.jsonl" % part),
            "\n".join(lines) + "\n",
        )


def attributes(repo, recipe):
    """Training, validation and test pictures in a row."""
    names = (
        "5_o_Clock_Shadow Bald Bangs Black_Hair Blond_Hair Brown_Hair Bushy_Eyebrows Eyeglasses Male "
        "Mouth_Slightly_Open Mustache No_Beard Pale_Skin Young"
    ).split()
    rng, n, lines = _rng(20), samples_of(recipe) + 6, []
    for i in range(n):
        picture(Path(repo) / "data/img_align_celeba" / ("%06d.jpg" % i), _rng(200 + i), (178, 218))
        lines.append("%06d.jpg " % i + " ".join("%2d" % v for v in rng.choice([-1, 1], len(names))))
    text(
        Path(repo) / "data/list_attr_celeba.txt",
        "%d\n%s\n%s\n" % (n, " ".join(names), "\n".join(lines)),
    )


def clouds(repo, recipe):
    h5py = import_h5py()
    root, rng = Path(repo) / "data/modelnet40_ply_hdf5_2048", _rng(3)
    root.mkdir(parents=True)
    for part, n in (("train", samples_of(recipe)), ("test", 8)):
        with h5py.File(root / ("ply_data_%s0.h5" % part), "w") as f:
            f["data"] = rng.randn(n, 20, 3).astype("float32")
            f["label"] = (np.arange(n) % 4).astype("uint8").reshape(n, 1)


def birds(repo, recipe):
    """Four classes to train on, three to evaluate."""
    for c in range(7):
        for i in range(4):
            where = (
                Path(repo) / "data/CUB_200_2011/images" / ("%03d.Bird" % c) / ("bird_%d.jpg" % i)
            )
            picture(where, _rng(300 + 10 * c + i), (80, 80))


def crowds(repo, recipe):
    """Pictures with one to three faces, the list, and the backbone's file."""
    import importlib.util

    import torch

    root, lines = Path(repo) / "data/widerface/train", []
    for i in range(samples_of(recipe)):
        rng = _rng(400 + i)
        picture(root / "images/0--Parade" / ("%d.jpg" % i), rng, (96, 80))
        lines.append("# 0--Parade/%d.jpg" % i)
        for _ in range(1 + i % 3):
            w, h = rng.randint(18, 40, 2)
            x, y = rng.randint(0, 96 - w), rng.randint(0, 80 - h)
            values = [x, y, w, h]
            for _k in range(5):
                values += (
                    [x + w * rng.rand(), y + h * rng.rand(), 0.0] if i % 4 else [-1.0, -1.0, -1.0]
                )
            lines.append(" ".join("%.3f" % v for v in values + [0.5]))
    text(root / "label.txt", "\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("_retina_net", Path(repo) / "models/net.py")
    net = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(net)
    rng, state = _rng(450), {}
    for key, value in net.MobileNetV1().state_dict().items():
        if value.dim() > 1:
            value = torch.from_numpy((2 / value[0].numel()) ** 0.5 * rng.randn(*value.shape))
        state["module." + key] = value
    (Path(repo) / "weights").mkdir(exist_ok=True)
    torch.save({"state_dict": state}, Path(repo) / "weights/mobilenetV1X0.25_pretrain.tar")
