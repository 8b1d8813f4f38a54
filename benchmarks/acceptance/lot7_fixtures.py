"""Data files of the lot 7 recipes, written into the copy of a repository."""

import csv
import io
import json
import pickle
import random
import re
import zipfile
from pathlib import Path

import numpy as np
from lot_common import import_h5py, picture, samples_of, text


def _rng(key):
    return np.random.RandomState(11000 + key)


def sequences(repo, recipe):
    """Two scenes to train on, one to validate: a picture is used with the one before and the one after."""
    root = Path(repo) / "data/kitti"
    scenes = {"train": [samples_of(recipe) // 2 + 1] * 2, "val": [recipe["test_size"]]}
    for at, part in enumerate(scenes):
        names = []
        for s, count in enumerate(scenes[part]):
            names.append("%s_%d" % (part, s))
            for i in range(count + 2):
                picture(
                    root / names[-1] / ("%07d.jpg" % i), _rng(1000 * at + 100 * s + i), (96, 64)
                )
            text(root / names[-1] / "cam.txt", "70 0 48\n0 70 32\n0 0 1\n")
        text(root / (part + ".txt"), "".join(n + "\n" for n in names))


def vocoder(repo, recipe):
    """Prepared sounds and settings of a small network.  A sound is as long as leaves one place to cut."""
    repo = Path(repo)
    lines = (repo / "hparams.py").read_text().split("\n")
    small = {
        "num_mels": 6,
        "hop_length": 12,
        "voc_upsample_factors": (2, 2, 3),
        "voc_rnn_dims": 16,
        "voc_fc_dims": 16,
        "voc_compute_dims": 8,
        "voc_res_out_dims": 8,
        "voc_res_blocks": 2,
        "voc_batch_size": recipe["batch"],
        "voc_checkpoint_every": 5,
        "voc_gen_at_checkpoint": 1,
        "voc_total_steps": 7,
        "voc_test_samples": recipe["test_size"],
        "voc_gen_batched": False,
        "voc_seq_len": 36,
        "tts_bin_lengths": True,
    }
    done = []
    for i, line in enumerate(lines):
        name = line.partition("=")[0].strip()
        if name in small and not line.startswith("#"):
            lines[i] = "%s = %r" % (name, small[name])
            done.append(name)
    assert set(small) - set(done) <= {"tts_bin_lengths"}, done
    text(repo / "acceptance/hparams.py", "\n".join(lines))
    data, frames = repo / "data", 36 // 12 + 2 * 2 + 2 + 2 * 2 + 1
    total = samples_of(recipe) + 2 + recipe["test_size"]
    order = ["sound%03d" % i for i in range(total)]
    random.Random(1234).shuffle(
        order
    )  # as the script does; the last ones are kept for sounds at checkpoints
    names = []
    for i in range(total):
        rng = _rng(i)
        names.append(("sound%03d" % i, frames))
        for folder in ("mel", "quant", "gta"):
            (data / folder).mkdir(parents=True, exist_ok=True)
        count = 30 if names[-1][0] in order[-recipe["test_size"] :] else frames
        np.save(data / "mel" / (names[-1][0] + ".npy"), rng.rand(6, count).astype("float32"))
        np.save(
            data / "quant" / (names[-1][0] + ".npy"),
            rng.randint(0, 2**16, count * 12).astype("int64"),
        )
    (data / "dataset.pkl").write_bytes(pickle.dumps(names))


def depths(repo, recipe):
    """nyu_data.zip: pictures, their depths and the list of both."""
    from PIL import Image

    with zipfile.ZipFile(Path(repo) / "PyTorch/nyu_data.zip", "w") as archive:
        rows = []
        for i in range(samples_of(recipe) + 2):
            names = ["data/nyu2_train/scene/%d.%s" % (i, end) for end in ("jpg", "png")]
            for name, mode in zip(names, ("RGB", "L"), strict=False):
                shape = (6, 8, 3) if mode == "RGB" else (6, 8)
                small = _rng(i).randint(20, 256, shape).astype("uint8")
                file = io.BytesIO()
                Image.fromarray(small).resize((128, 96), Image.BILINEAR).save(
                    file, "JPEG" if mode == "RGB" else "PNG"
                )
                archive.writestr(name, file.getvalue())
            rows.append(",".join(names))
        archive.writestr("data/nyu2_train.csv", "\n".join(rows) + "\n")


def questions(repo, recipe):
    """Questions with ten answers each, the vocabulary and features of the pictures; one question without a known answer."""
    h5py = import_h5py()
    repo = Path(repo)
    words = [
        "what",
        "is",
        "the",
        "colour",
        "of",
        "this",
        "cat",
        "how",
        "many",
        "dogs",
        "are",
        "there",
    ]
    answers = ["yes", "no", "red", "blue", "two", "three", "left", "right"]
    ids = []
    for at, (part, count) in enumerate(
        (("train2014", samples_of(recipe) + 3), ("val2014", recipe["test_size"]))
    ):
        asked, said = [], []
        for i in range(count):
            rng = _rng(100 * at + i)
            image, question = 1000 * at + i, 5000 + 1000 * at + i
            ids.append(image)
            n = 3 + int(rng.randint(6))
            asked.append(
                {
                    "image_id": image,
                    "question_id": question,
                    "question": " ".join(words[int(k)] for k in rng.randint(0, len(words), n))
                    + "?",
                }
            )
            unknown = part == "train2014" and i == 5
            said.append(
                {
                    "image_id": image,
                    "question_id": question,
                    "answers": [
                        {"answer": "nobody knows" if unknown else answers[int(k)]}
                        for k in rng.randint(0, len(answers), 10)
                    ],
                }
            )
        kind = {"data_type": "mscoco", "data_subtype": part}
        text(
            repo / "vqa" / ("OpenEnded_mscoco_%s_questions.json" % part),
            json.dumps({"questions": asked, **kind}),
        )
        text(
            repo / "vqa" / ("mscoco_%s_annotations.json" % part),
            json.dumps({"annotations": said, **kind}),
        )
    text(
        repo / "vocab.json",
        json.dumps(
            {
                "question": {w: i + 1 for i, w in enumerate(words)},
                "answer": {a: i for i, a in enumerate(answers)},
            }
        ),
    )
    with h5py.File(repo / "resnet-14x14.h5", "w") as f:
        f.create_dataset("ids", data=np.array(ids, "int32"))
        f.create_dataset(
            "features",
            data=np.stack([_rng(300 + i).rand(16, 4, 4) for i in range(len(ids))]).astype(
                "float16"
            ),
        )
    (repo / "logs").mkdir(exist_ok=True)


def sentences(repo, recipe):
    """The first sentences of the sample data, and the settings of the demonstration with a small network."""
    repo = Path(repo)
    for part, count in (("train", samples_of(recipe) + 2), ("dev", 10), ("test", 6)):
        whole = (
            (repo / "sample_data" / (part + ".bmes"))
            .read_text(encoding="utf-8")
            .strip()
            .split("\n\n")
        )
        alike = {
            re.sub(r"\d", "0", s): s for s in reversed(whole) if s.count("\n") < 20
        }  # no sentence twice
        short = list(alike.values())[::-1][:count]
        text(repo / "acceptance" / (part + ".bmes"), "\n\n".join(short) + "\n\n")
    new = {
        "train_dir": "acceptance/train.bmes",
        "dev_dir": "acceptance/dev.bmes",
        "test_dir": "acceptance/test.bmes",
        "model_dir": "acceptance/lstmcrf",
        "word_emb_dim": "12",
        "char_emb_dim": "6",
        "char_seq_feature": "LSTM",
        "iteration": "2",
        "batch_size": str(recipe["batch"]),
        "char_hidden_dim": "6",
        "hidden_dim": "12",
    }
    lines = []
    for line in (repo / "demo.train.config").read_text().split("\n"):
        name = line.partition("=")[0]
        if name != "word_emb_dir":
            lines.append("%s=%s" % (name, new[name]) if name in new else line)
    text(repo / "acceptance/train.config", "\n".join(lines))


def boxes(repo, recipe):
    """Pictures with one to three boxes; two and two of one shape."""
    root = Path(repo) / "data"
    shapes = [(64, 64), (80, 64), (96, 64), (64, 80)]
    text(root / "classes.csv", "cat,0\ndog,1\nbird,2\n")
    for at, (part, count) in enumerate(
        (("train", samples_of(recipe)), ("val", recipe["test_size"]))
    ):
        rows = io.StringIO()
        writer = csv.writer(rows, lineterminator="\n")
        for i in range(count):
            rng = _rng(100 * at + i)
            width, height = shapes[(i // 2) % len(shapes)]
            name = "data/%s/%02d.jpg" % (part, i)
            picture(Path(repo) / name, rng, (width, height))
            for _ in range(1 + int(rng.randint(3))):
                w, h = int(rng.randint(16, 40)), int(rng.randint(16, 40))
                x, y = int(rng.randint(0, width - w)), int(rng.randint(0, height - h))
                writer.writerow(
                    [name, x, y, x + w, y + h, ("cat", "dog", "bird")[int(rng.randint(3))]]
                )
        text(root / (part + ".csv"), rows.getvalue())
