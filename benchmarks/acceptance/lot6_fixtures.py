"""Data files of the lot 6 recipes, written into the copy of a repository."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from lot_common import picture, samples_of, text


def _rng(key):
    return np.random.RandomState(9000 + key)


def voc(repo, recipe):
    """Pictures and masks with a frame of 255 of different width; two pictures more than full batches."""
    from PIL import Image

    root = Path(repo) / "data/VOCdevkit/VOC2012"
    for at, (part, count) in enumerate(
        (("train", samples_of(recipe) + 2), ("val", recipe["test_size"]))
    ):
        names = ["%s%02d" % (part, i) for i in range(count)]
        for i, name in enumerate(names):
            picture(root / "JPEGImages" / (name + ".jpg"), _rng(100 * at + i), (60, 60))
            mask = np.full((60, 60), 255, "uint8")
            edge = 2 + i % 4
            inner = (
                _rng(300 + 100 * at + i)
                .randint(0, 21, (3, 3))
                .astype("uint8")
                .repeat(20, 0)
                .repeat(20, 1)
            )
            mask[edge:-edge, edge:-edge] = inner[edge:-edge, edge:-edge]
            (root / "SegmentationClass").mkdir(exist_ok=True)
            Image.fromarray(mask).save(root / "SegmentationClass" / (name + ".png"))
        text(root / "ImageSets/Segmentation" / (part + ".txt"), "".join(n + "\n" for n in names))


def speech(repo, recipe):
    """Prepared utterances of four to nine phones, statistics, settings and a small vocoder."""
    import yaml

    repo = Path(repo)
    root = repo / "preprocessed_data/LJSpeech"
    phones = ["AA1", "B", "D", "EH1", "K", "L", "M", "N", "OW0", "S", "T", "Z"]
    for kind in ("mel", "pitch", "energy", "duration"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    for at, (part, count) in enumerate(
        (("train", samples_of(recipe)), ("val", recipe["test_size"]))
    ):
        lines = []
        for i in range(count):
            rng, name = _rng(100 * at + i), "%s%02d" % (part, i)
            n = 4 + int(rng.randint(6))
            duration = rng.randint(1, 4, n)
            np.save(root / "duration" / ("LJSpeech-duration-%s.npy" % name), duration)
            np.save(
                root / "mel" / ("LJSpeech-mel-%s.npy" % name),
                rng.randn(int(duration.sum()), 80).astype("float32"),
            )
            for kind in ("pitch", "energy"):
                np.save(root / kind / ("LJSpeech-%s-%s.npy" % (kind, name)), rng.rand(n) * 4 - 2)
            said = " ".join(phones[int(k)] for k in rng.randint(0, len(phones), n))
            lines.append("%s|LJSpeech|{%s}|words of %s\n" % (name, said, name))
        text(root / (part + ".txt"), "".join(lines))
    text(root / "speakers.json", json.dumps({"LJSpeech": 0}))
    text(
        root / "stats.json",
        json.dumps({"pitch": [-2.0, 2.0, 200.0, 40.0], "energy": [-2.0, 2.0, 40.0, 10.0]}),
    )
    config = {
        k: yaml.safe_load((repo / "config/LJSpeech" / (k + ".yaml")).read_text())
        for k in ("preprocess", "model", "train")
    }
    config["model"]["transformer"].update(
        encoder_layer=1, decoder_layer=1, encoder_hidden=16, decoder_hidden=16, conv_filter_size=32
    )
    config["model"]["variance_predictor"]["filter_size"] = 16
    config["model"]["variance_embedding"]["n_bins"] = 16
    config["model"]["max_seq_len"] = 60
    config["train"]["optimizer"].update(batch_size=recipe["batch"], warm_up_step=10)
    config["train"]["step"].update(
        total_step=2 * recipe["batches"], log_step=1, synth_step=9, val_step=9, save_step=9
    )
    for k, content in config.items():
        text(repo / "acceptance" / (k + ".yaml"), yaml.safe_dump(content))
    vocoder = json.loads((repo / "hifigan/config.json").read_text())
    vocoder["upsample_initial_channel"] = 32
    text(repo / "hifigan/config.json", json.dumps(vocoder, indent=4))
    code = (
        "import json, torch, hifigan; torch.manual_seed(5)\n"
        "net = hifigan.Generator(hifigan.AttrDict(json.load(open('hifigan/config.json'))))\n"
        "torch.save({'generator': net.state_dict()}, 'hifigan/generator_LJSpeech.pth.tar')"
    )
    subprocess.run([sys.executable, "-B", "-c", code], cwd=repo, check=True)


def traffic(repo, recipe):
    """Speeds at the 207 stations of the graph that comes with the repository: 50 windows to train on."""
    rows, stations = 87, 207
    rng = _rng(1)
    base = 55 + 10 * np.sin(np.arange(rows) / 5.0)[:, None] + 4 * rng.randn(rows, stations)
    lines = [",".join(str(s) for s in range(stations))] + [
        ",".join("%.3f" % v for v in row) for row in base
    ]
    text(Path(repo) / "data/metr-la/vel.csv", "\n".join(lines) + "\n")


def ddim(repo, recipe):
    """Settings: a small network, an odd number of diffusion steps."""
    import yaml

    config = yaml.safe_load((Path(repo) / "configs/cifar10.yml").read_text())
    config["data"].update(image_size=16, num_workers=0)
    config["model"].update(
        ch=32, ch_mult=[1, 1], num_res_blocks=1, attn_resolutions=[8], ema_rate=0.9
    )
    config["diffusion"]["num_diffusion_timesteps"] = 11
    config["training"].update(batch_size=recipe["batch"], n_epochs=2, snapshot_freq=4)
    text(Path(repo) / "configs/acceptance.yml", yaml.safe_dump(config))


def liif(repo, recipe):
    """Pictures and settings."""
    import yaml

    repo = Path(repo)
    for at, (part, count) in enumerate(
        (("train", samples_of(recipe) // 2), ("valid", recipe["test_size"]))
    ):
        for i in range(count):
            picture(
                repo / ("load/div2k/DIV2K_%s_HR" % part) / ("%04d.png" % (i + 1)),
                _rng(100 * at + i),
                (40, 40),
            )
    config = yaml.safe_load(
        (repo / "configs/train-div2k/train_edsr-baseline-liif.yaml").read_text()
    )
    for part in ("train_dataset", "val_dataset"):
        config[part]["batch_size"] = recipe["batch"]
        config[part]["wrapper"]["args"].update(inp_size=8, sample_q=48)
    config["train_dataset"]["dataset"]["args"]["repeat"] = 2
    config["val_dataset"]["dataset"]["args"].update(first_k=recipe["test_size"], repeat=1)
    config["model"]["args"]["encoder_spec"]["args"].update(n_resblocks=1, n_feats=8)
    config["model"]["args"]["imnet_spec"]["args"]["hidden_list"] = [16, 16]
    config.update(
        epoch_max=2, epoch_save=2, eval_bsize=20, multi_step_lr={"milestones": [1], "gamma": 0.5}
    )
    text(repo / "configs/acceptance.yaml", yaml.safe_dump(config, sort_keys=False))


def distill(repo, recipe):
    """The trained teacher and the student's first weights: drawn."""
    (Path(repo) / "results/base").mkdir(parents=True, exist_ok=True)
    code = (
        "import torch; from network import define_tsnet\n"
        "for name, seed in (('t', 3), ('s', 4)):\n"
        "    torch.manual_seed(seed)\n"
        "    torch.save({'net': define_tsnet('resnet20', 10, False).state_dict()}, 'results/base/%s.pth.tar' % name)"
    )
    subprocess.run([sys.executable, "-B", "-c", code], cwd=repo, check=True)


def reviews(repo, recipe):
    """Thirty-two reviews, of which the script keeps seven for validation."""
    good, bad = ["great", "lovely", "superb", "fine"], ["awful", "dull", "broken", "poor"]
    lines = ["Sentiment,SentimentText\n"]
    for i in range(32):
        rng = _rng(i)
        words = (good if i % 2 else bad) + ["movie", "phone", "book", "it", "was", "very"]
        said = " ".join(words[int(k)] for k in rng.randint(0, len(words), 6 + int(rng.randint(8))))
        lines.append("%d,%s number %d\n" % ((1, 5, 2, 4)[i % 4], said, i))
    text(Path(repo) / "data/train.csv", "".join(lines))
    for folder in ("logs", "models"):
        (Path(repo) / folder).mkdir(exist_ok=True)


def words(repo, recipe):
    """What the two databases hold: pictures of words as files of bytes, see the stand-in for lmdb."""
    import io
    import pickle

    from PIL import Image

    for at, (part, count) in enumerate(
        (("train", samples_of(recipe)), ("val", recipe["test_size"]))
    ):
        content = {"num-samples": str(count)}
        for i in range(count):
            rng = _rng(100 * at + i)
            small = Image.fromarray(rng.randint(0, 256, (5, 9)).astype("uint8")).resize(
                (60, 24), Image.BILINEAR
            )
            file = io.BytesIO()
            small.save(file, "PNG")
            content["image-%09d" % (i + 1)] = file.getvalue()
            content["label-%09d" % (i + 1)] = "".join(
                "abcdef0123"[int(c)] for c in rng.randint(0, 10, 2 + int(rng.randint(2)))
            )
        folder = Path(repo) / "data" / part
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data.pkl").write_bytes(pickle.dumps(content))


def criteo(repo, recipe):
    """Prepared clicks: thirteen numbers, twenty-six categories, the label."""
    sizes = [1] * 13 + [5] * 26
    lines = [",".join("f%d" % i for i in range(39)) + ",label\n"]
    for i in range(samples_of(recipe) + recipe["test_size"]):
        rng = _rng(i)
        row = list(rng.randint(0, 4, 13)) + list(rng.randint(0, 5, 26)) + [int(rng.rand() < 0.5)]
        lines.append(",".join(str(int(v)) for v in row) + "\n")
    text(Path(repo) / "data/train.txt", "".join(lines))
    text(Path(repo) / "data/feature_sizes.txt", ",".join(map(str, sizes)) + "\n")
