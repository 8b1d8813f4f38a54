"""Data files of the lot 14 recipes, written into the copy of a repository."""

import importlib.util
import json
import pickle
import sys
import wave
from pathlib import Path

import numpy as np
from lot_common import import_h5py, picture, samples_of, text


def _rng(key):
    return np.random.RandomState(15000 + key)


def _and_two(recipe):
    """Two samples more than full batches (none where one batch an epoch is asked for)."""
    return samples_of(recipe) + (2 if recipe["batches"] > 1 else 0)


def _even(i):
    """0 for the outer two of four samples, 1 for the inner two: halves of a batch have as many of either kind,
    wherever it is cut."""
    return int(i % 4 in (1, 2))


def gowalla(repo, recipe):
    """Users with the items they liked, and six of them with items to find."""
    rng, left, lines = _rng(0), _and_two(recipe), []
    for _ in range(60):
        liked = sorted(set(int(v) for v in rng.randint(0, 80, 3)))[: min(3, left)]
        left -= len(liked)
        if liked:
            lines.append(" ".join(map(str, [len(lines), *liked])))
    text(Path(repo) / "data/gowalla/train.txt", "\n".join(lines) + "\n")
    users = range(min(6, len(lines)))
    lines = ["%d %d %d" % (u, *rng.choice(80, 2, replace=False)) for u in users]
    text(Path(repo) / "data/gowalla/test.txt", "\n".join(lines) + "\n")


def series(repo, recipe):
    """Series of three kinds with their label in front."""
    for part, count in (("TRAIN", _and_two(recipe)), ("TEST", recipe["test_size"])):
        lines = []
        for i in range(count):
            wave_ = np.sin(np.arange(24) * (0.3 + 0.2 * (i % 3))) + 0.3 * _rng(100 + i).randn(24)
            lines.append("\t".join([str(1 + i % 3), *("%.5f" % v for v in wave_)]))
        path = Path(repo) / "datasets/UCR/acceptance" / ("acceptance_%s.tsv" % part)
        text(path, "\n".join(lines) + "\n")


def shapes(repo, recipe):
    """Points on boxes with their normals, of the first categories of the list."""
    h5py = import_h5py()
    root = Path(repo) / "datasets/modelnet40_ply_hdf5_2048"
    names = (Path(repo) / "src/data_loader/modelnet40_all.txt").read_text()
    text(root / "shape_names.txt", names)
    kept = (Path(repo) / "src/data_loader/modelnet40_half1.txt").read_text().split()
    for part, count in (("train", samples_of(recipe)), ("test", recipe["test_size"])):
        text(root / (part + "_files.txt"), "data/%s/%s0.h5\n" % (root.name, part))
        points, normals = np.empty((2, count, 96, 3), "float32")
        for i in range(count):
            rng = _rng(200 + 50 * (part == "test") + i)
            axis, side = rng.randint(0, 3, 96), rng.choice([-1.0, 1.0], 96)
            points[i] = rng.uniform(-0.6, 0.6, (96, 3)) * rng.uniform(0.5, 1, 3)
            points[i, np.arange(96), axis] = 0.6 * side
            normals[i] = 0.05 * rng.randn(96, 3)
            normals[i, np.arange(96), axis] = side
        normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
        with h5py.File(root / (part + "0.h5"), "w") as f:
            f["data"], f["normal"] = points, normals
            f["label"] = [[names.split().index(kept[i % 5])] for i in range(count)]


def formulas(repo, recipe):
    """Pictures of formulas, the formulas, and the pickled signs (an object of the repository's class).  The loss is a
    mean over signs: halves of a batch have as many."""
    import torch

    root, signs = Path(repo) / "data", [r"\alpha", "x", "y", "+", "=", "{", "}", "^", "_", "2"]
    root.mkdir(exist_ok=True)
    for part, count in (("train", _and_two(recipe)), ("validate", recipe["test_size"])):
        pairs = []
        for i in range(count):
            rng = _rng(300 + 50 * (part == "validate") + i)
            length = 3 + 2 * _even(i) if part == "train" and i < samples_of(recipe) else 4
            formula = " ".join(signs[int(k)] for k in rng.randint(0, len(signs), length))
            pairs.append((torch.from_numpy(rng.rand(3, 32, 48).astype("float32")), formula))
        torch.save(pairs, root / (part + ".pkl"))
    spec = importlib.util.spec_from_file_location("build_vocab", Path(repo) / "build_vocab.py")
    module = sys.modules["build_vocab"] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(repo))  # as for the script: what a migration adds is found there
    spec.loader.exec_module(module)
    sys.path.remove(str(repo))
    vocab = module.Vocab()
    for sign in signs:
        vocab.add_sign(sign)
    (root / "vocab.pkl").write_bytes(pickle.dumps(vocab))
    del sys.modules["build_vocab"]


def windows(repo, recipe):
    """Windows of six series (value before, covariates, number of the series), their scale, and the settings."""
    repo = Path(repo)
    root = repo / "data/elect"
    root.mkdir(parents=True, exist_ok=True)
    settings = json.loads((repo / "experiments/base_model/params.json").read_text())
    settings.update(
        batch_size=recipe["batch"],
        num_epochs=2,
        num_class=6,
        lstm_layers=2,
        lstm_hidden_dim=8,
        embedding_dim=4,
        train_window=12,
        test_window=12,
        predict_start=8,
        test_predict_start=8,
        predict_steps=4,
        predict_batch=10,
    )
    text(repo / "experiments/acceptance/params.json", json.dumps(settings, indent=4))
    for part, count in (("train", samples_of(recipe)), ("test", 24)):
        data, label = np.zeros((count, 12, 6), "float32"), np.zeros((count, 12), "float32")
        v = np.zeros((count, 2), "float32")
        for i in range(count):
            rng = _rng(400 + 50 * (part == "test") + i)
            values = 1 + 0.5 * np.sin(np.arange(13) * 0.5 + i) + 0.1 * rng.rand(13)
            v[i, 0] = 5 + i % 6
            data[i, 1:, 0] = values[:11]
            data[i, :, 1:5] = rng.randn(12, 4)
            data[i, :, 5] = i % 6
            label[i] = values[:12] if part == "train" else values[:12] * v[i, 0]
        for name, array in (("data", data), ("label", label), ("v", v)):
            np.save(root / ("%s_%s_elect.npy" % (part, name)), array)


def heart(repo, recipe):
    """31 recordings; the split puts four aside (one of each kind), some of the others are too short to count."""
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(np.arange(31), test_size=0.1, random_state=0)
    labels, lengths = ["N"] * 31, [40] * 31
    for k, i in enumerate(test):
        labels[i], lengths[i] = "NAO~"[k], 207
    for k, i in enumerate(train[: _and_two(recipe)]):
        labels[i], lengths[i] = "NAO~"[k % 4], 201
    data = np.empty(31, object)
    for i in range(31):
        data[i] = _rng(500 + i).randn(lengths[i]).cumsum()
    root = Path(repo) / "data/challenge2017"
    root.mkdir(parents=True, exist_ok=True)
    (root / "challenge2017.pkl").write_bytes(pickle.dumps({"data": data, "label": labels}))


def tracks(repo, recipe):
    """Stereo mixtures and the voices in them, a folder each."""
    for part, count in (("train", _and_two(recipe)), ("valid", 3)):
        for i in range(count):
            rng, t = _rng(600 + 50 * (part == "valid") + i), np.arange(6000) / 44100.0
            voice = 0.3 * np.sin(2 * np.pi * (300 + 40 * i) * t)[:, None] * [1.0, 0.7]
            for name, sound in (("vocals", voice), ("mixture", voice + 0.1 * rng.randn(6000, 2))):
                path = Path(repo) / "data" / part / ("%02d" % i) / (name + ".wav")
                path.parent.mkdir(parents=True, exist_ok=True)
                with wave.open(str(path), "wb") as f:
                    f.setnchannels(2)
                    f.setsampwidth(2)
                    f.setframerate(44100)
                    f.writeframes((np.clip(sound, -1, 1) * 32000).astype("<i2").tobytes())


def visits(repo, recipe):
    """Users with eight items or nine (one sequence or two of five and three), and two more items each to find."""
    rng, total = _rng(700), samples_of(recipe)
    users = range(total - total // 3)
    seen = [rng.choice(40, 9 if user < total // 3 else 8, replace=False) for user in users]
    known = list(dict.fromkeys(int(i) for items in seen for i in items))[
        :-1
    ]  # the last one has no row
    found = [rng.choice(known, 2, replace=False) for user in users]
    for part, lines in (("train", seen), ("test", found)):
        rows = ["u%d i%d 1" % (user, i) for user in users for i in lines[user]]
        text(Path(repo) / ("datasets/ml1m/test/%s.txt" % part), "\n".join(rows) + "\n")


def sentences(repo, recipe):
    """Sentences with names of people and places, a word and its label a line."""
    words = "the a saw left near with old river house quiet 7 went".split()
    names = {"PER": "Anna Bela Carl Dora".split(), "LOC": "Oslo Rome Bern Lima".split()}
    for part, count in (("train", _and_two(recipe)), ("dev", 6), ("test", 6)):
        out = []
        for i in range(count):
            rng = _rng(800 + 50 * len(part) + i)
            for k in range(3 + int(rng.randint(5))):
                out.append("%s O" % words[int(rng.randint(len(words)))])
                if k % 3 == i % 3:
                    kind = "LOC" if rng.rand() < 0.5 else "PER"
                    out.append("%s B-%s" % (names[kind][int(rng.randint(4))], kind))
                    if k % 2:
                        out.append("%s I-%s" % (names[kind][int(rng.randint(4))], kind))
            out.append("")
        text(Path(repo) / ("data/acceptance/%s.txt" % part), "\n".join(out) + "\n")


def questions(repo, recipe):
    """Pictures, questions about them with up to three answers, and the two lists of words."""
    root = Path(repo) / "datasets"
    asked = "what color is the cat dog how many birds are there".split()
    answers = "red blue green one two three yes no".split()
    for part, count in (("train", _and_two(recipe)), ("valid", 6)):
        entries = []
        for i in range(count):
            rng, path = _rng(900 + 50 * (part == "valid") + i), "datasets/%s/%03d.png" % (part, i)
            picture(Path(repo) / path, rng, (32, 32))
            tokens = [asked[int(k)] for k in rng.randint(0, len(asked), 3 + i % 4)]
            valid = [answers[int(k)] for k in rng.randint(0, len(answers), 1 + i % 3)]
            entries.append({"image_path": path, "question_tokens": tokens, "valid_answers": valid})
        root.mkdir(exist_ok=True)
        np.save(root / (part + ".npy"), np.array(entries))
    text(root / "vocab_questions.txt", "\n".join(["<pad>", "<unk>", *asked]) + "\n")
    text(root / "vocab_answers.txt", "\n".join(["<unk>", *answers]) + "\n")
