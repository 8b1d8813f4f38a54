"""Generated data of the lot 15 recipes (nothing is downloaded)."""

import pickle
from pathlib import Path

import numpy as np
from lot_common import import_h5py, picture, samples_of, text


def _rng(i):
    return np.random.RandomState(1500 + i)


def shapes(repo, recipe):
    """Clouds of 2048 points in the three parts of a set, which are all trained on."""
    h5py = import_h5py()
    root = Path(repo) / "data/shapenetcorev2_hdf5_2048"
    root.mkdir(parents=True)
    count, at = samples_of(recipe), 0
    for part, n in (
        ("train", count // 2),
        ("val", count // 4),
        ("test", count - count // 2 - count // 4),
    ):
        with h5py.File(root / (part + "0.h5"), "w") as f:
            f["data"] = _rng(at).uniform(-1, 1, (n, 2048, 3)).astype("float32")
            f["label"] = np.arange(n)[:, None] % 5
        at += 1


def celeba(repo, recipe):
    """Faces and the list of which part each is in."""
    root, rows = Path(repo) / "data/CelebA", []
    for i in range(samples_of(recipe)):
        name = "%06d.jpg" % i
        picture(root / "faces" / name, _rng(i), (44, 54))
        rows.append("%s,0" % name)
    text(root / "parts.csv", "\n".join(["image_id,partition"] + rows) + "\n")


def speech_mixes(repo, recipe):
    """Two speakers' noise and their sum: every file one and a half pieces long (so two pieces each)."""
    import yaml
    from scipy.io import wavfile

    root = Path(repo) / recipe["cwd"]
    chunk, option = 800, root / "options/train/train.yml"
    for part, n in (("tr", samples_of(recipe) // 2), ("cv", 4)):
        lists = {"mix": [], "s1": [], "s2": []}
        for i in range(n):
            rng, name = _rng(i + (part == "cv") * 100), "%s_%02d.wav" % (part, i)
            one, two = (rng.randn(chunk * 3 // 2) * 3000 for _ in range(2))
            for kind, wave in (("mix", one + two), ("s1", one), ("s2", two)):
                path = root / "wav" / part / kind / name
                path.parent.mkdir(parents=True, exist_ok=True)
                wavfile.write(path, 8000, wave.clip(-30000, 30000).astype("int16"))
                lists[kind].append("%s %s" % (name, path.relative_to(root)))
        for kind, lines in lists.items():
            text(root / "scp" / ("%s_%s.scp" % (part, kind)), "\n".join(lines) + "\n")
    opt = yaml.safe_load(option.read_text())
    opt["gpu_ids"] = [0, 1]
    opt["datasets"].update(num_workers=0, batch_size=recipe["batch"], chunk_size=chunk)
    for part, short in (("train", "tr"), ("val", "cv")):
        opt["datasets"][part].update(
            mix_scp="scp/%s_mix.scp" % short,
            ref_scp=["scp/%s_s1.scp" % short, "scp/%s_s2.scp" % short],
        )
    opt["train"].update(num_epochs=2, logging_period=1)
    opt["net_conf"].update(N=16, L=16, B=8, H=16, P=3, X=2, R=2)
    opt["resume"]["path"] = "."
    text(option.parent / "acceptance.yml", yaml.safe_dump(opt, sort_keys=False))


def conll(repo, recipe):
    """Sentences of different lengths with tags, four columns, and vectors for half of the words."""
    words = ["w%c%c" % (97 + i // 26, 97 + i % 26) * (1 + i % 3) for i in range(40)]
    tags = ["O", "I-PER", "I-LOC", "I-ORG"]
    for at, (part, n) in enumerate((("train", samples_of(recipe)), ("testa", 6))):
        rng, lines = _rng(at), ["-DOCSTART- -X- O O", ""]
        for i in range(n):
            for k in rng.randint(0, 40, 4 + (3 * i) % 7):
                lines.append("%s NN I-NP %s" % (words[k], tags[k % 4]))
            lines.append("")
        text(Path(repo) / "datasets" / ("eng." + part), "\n".join(lines) + "\n")
    rng = _rng(9)
    vectors = [
        w + " " + " ".join("%.4f" % v for v in rng.randn(8)) for w in words[:20] + ["elsewhere"]
    ]
    text(Path(repo) / "embeddings/glove.6B.100d.txt", "\n".join(vectors) + "\n")


def piano(repo, recipe):
    """Pickled lists of events."""
    for at, (part, n) in enumerate((("train", samples_of(recipe)), ("val", 4), ("test", 6))):
        root = Path(repo) / "data" / part
        root.mkdir(parents=True)
        for i in range(n):
            events = _rng(100 * at + i).randint(0, 388, 30 + i).tolist()
            (root / ("piece_%02d.pickle" % i)).write_bytes(pickle.dumps(events))


def utterances(repo, recipe):
    """Spectrograms of eight utterances for every speaker, and a smaller network in the settings."""
    root = Path(repo)
    (root / "train_tisv").mkdir()
    for i in range(samples_of(recipe)):
        np.save(
            root / "train_tisv" / ("speaker%d.npy" % i), _rng(i).randn(8, 40, 180).astype("float32")
        )
    path = root / "config/config.yaml"
    content = path.read_text()
    for old, new in (
        ("hidden: 768", "hidden: 16"),
        ("num_layer: 3", "num_layer: 1"),
        ("proj: 256", "proj: 8"),
        ("epochs: 950", "epochs: 2"),
        ("log_interval: 30", "log_interval: 1"),
        ("checkpoint_interval: 120", "checkpoint_interval: 1"),
    ):
        assert old in content, old
        content = content.replace(old, new)
    text(path, content)


def archive(repo, recipe):
    """Series of three dimensions with one number to predict, in the archive's format."""
    root = Path(repo)
    (root / "experiments").mkdir()
    for at, (part, n) in enumerate((("TRAIN", samples_of(recipe)), ("TEST", 6))):
        rng = _rng(at)
        lines = [
            "@problemName Acceptance",
            "@timeStamps false",
            "@missing false",
            "@univariate false",
        ]
        lines += [
            "@dimensions 3",
            "@equalLength true",
            "@seriesLength 12",
            "@targetLabel true",
            "@data",
        ]
        for _ in range(n):
            series = [",".join("%.4f" % v for v in rng.randn(12)) for _ in range(3)]
            lines.append(":".join(series + ["%.4f" % rng.randn()]))
        text(root / "data" / ("Acceptance_%s.ts" % part), "\n".join(lines) + "\n")


def iemocap(repo, recipe):
    """Features of every utterance of dialogues of different lengths."""
    root = Path(repo) / recipe["cwd"]
    parts = {"train": samples_of(recipe), "test": 6, "valid": 4}
    ids = {part: ["%s%02d" % (part, i) for i in range(n)] for part, n in parts.items()}
    every, rng = [v for part in ids.values() for v in part], _rng(0)
    length = {v: 3 + (2 * i) % 5 for i, v in enumerate(every)}
    speakers = {v: ["M" if k % 2 else "F" for k in range(n)] for v, n in length.items()}
    labels = {v: rng.randint(0, 6, n).tolist() for v, n in length.items()}

    def features(width):
        return {v: rng.randn(n, width).astype("float32") for v, n in length.items()}

    roberta = [features(1024) for _ in range(4)]
    (root / "iemocap").mkdir(exist_ok=True)
    content = [speakers, labels, *roberta, {v: [""] * n for v, n in length.items()}]
    content += [ids["train"], ids["test"], ids["valid"]]
    for name, value in (("roberta", content), ("comet", [features(768) for _ in range(9)])):
        (root / "iemocap" / ("iemocap_features_%s.pkl" % name)).write_bytes(pickle.dumps(value))
