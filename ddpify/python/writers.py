"""What writes files: one table, which both readers ask.

Of a function the place and name of the argument that says where it writes; None where that is no
path of its own (a file that is open already, a command, a window). `tests/python/test_writers.py`
has both readers report each entry.
"""

from __future__ import annotations

from typing import Final

Place = tuple[int, str]

_IMAGES: Final[dict[str, Place | None]] = {
    "cv2.imwrite": (0, "filename"),
    "imageio.imsave": (0, "uri"),
    "imageio.imwrite": (0, "uri"),
    "imageio.mimsave": (0, "uri"),
    "imageio.mimwrite": (0, "uri"),
    "imageio.v2.imsave": (0, "uri"),
    "imageio.v2.imwrite": (0, "uri"),
    "imageio.v2.mimsave": (0, "uri"),
    "imageio.v3.imwrite": (0, "uri"),
    "matplotlib.image.imsave": (0, "fname"),
    "matplotlib.pyplot.close": None,
    "matplotlib.pyplot.imsave": (0, "fname"),
    "matplotlib.pyplot.savefig": (0, "fname"),
    "matplotlib.pyplot.show": None,
    "scipy.misc.imsave": (0, "name"),
    "skimage.io.imsave": (0, "fname"),
    "torchvision.io.write_jpeg": (1, "filename"),
    "torchvision.io.write_png": (1, "filename"),
    "torchvision.io.write_video": (0, "filename"),
    "torchvision.utils.save_image": (1, "fp"),
}
_ARRAYS: Final[dict[str, Place | None]] = {
    "joblib.dump": (1, "filename"),
    "json.dump": None,
    "numpy.save": (0, "file"),
    "numpy.savetxt": (0, "fname"),
    "numpy.savez": (0, "file"),
    "numpy.savez_compressed": (0, "file"),
    "pickle.dump": None,
    "scipy.io.savemat": (0, "file_name"),
    "scipy.io.wavfile.write": (0, "filename"),
    "scipy.sparse.save_npz": (0, "file"),
    "soundfile.write": (0, "file"),
    "torch.jit.save": None,
    "torch.onnx.export": None,
    "torchaudio.save": (0, "uri"),
    "yaml.dump": None,
    "yaml.safe_dump": None,
}
_DISK: Final[dict[str, Place | None]] = {
    "os.remove": None,
    "os.rename": (1, "dst"),
    "os.replace": (1, "dst"),
    "os.symlink": (1, "dst"),
    "os.system": None,
    "os.unlink": None,
    "shutil.copy": (1, "dst"),
    "shutil.copy2": (1, "dst"),
    "shutil.copyfile": (1, "dst"),
    "shutil.copytree": (1, "dst"),
    "shutil.make_archive": (0, "base_name"),
    "shutil.move": (1, "dst"),
    "shutil.rmtree": None,
    "subprocess.Popen": None,
    "subprocess.call": None,
    "subprocess.check_call": None,
    "subprocess.run": None,
}
FUNCTIONS: Final[dict[str, Place | None]] = {**_IMAGES, **_ARRAYS, **_DISK}

# Those that are given an open file, and where it is among the arguments.
INTO_FILES: Final[dict[str, Place]] = {
    "json.dump": (1, "fp"),
    "pickle.dump": (1, "file"),
    "yaml.dump": (1, "stream"),
    "yaml.safe_dump": (1, "stream"),
}

# Methods, whatever they are asked of; of pandas those that are given a path.
METHODS: Final[dict[str, Place]] = {
    "save_word2vec_format": (0, "fname"),
    "savefig": (0, "fname"),
    "to_csv": (0, "path_or_buf"),
    "to_excel": (0, "excel_writer"),
    "to_hdf": (0, "path_or_buf"),
    "to_json": (0, "path_or_buf"),
    "to_msgpack": (0, "path_or_buf"),  # before pandas 1
    "to_parquet": (0, "path"),
    "to_pickle": (0, "path"),
    "tofile": (0, "fid"),
}
# Those of a path, and `picture.save(path)` of what these made.
OF_PATHS: Final = frozenset({"write_text", "write_bytes"})
SAVES: Final[Place] = (0, "fp")
PICTURES: Final = ("PIL.", "scipy.misc.toimage", "torchvision.transforms.")

# What opens a file: the mode where none is given, "" where there is no mode and it always writes.
OPENS: Final[dict[str, str]] = {
    "builtins.open": "r",
    "bz2.open": "r",
    "codecs.open": "r",
    "cv2.VideoWriter": "",
    "gzip.open": "r",
    "h5py.File": "r",
    "imageio.get_writer": "",
    "imageio.v2.get_writer": "",
    "io.open": "r",
    "lzma.open": "r",
    "matplotlib.backends.backend_pdf.PdfPages": "",
    "pandas.ExcelWriter": "",
    "tarfile.open": "r",
    "zipfile.ZipFile": "r",
}

# Trackers: objects, made by rank 0 alone, that write event files or send what they are told.
TRACKERS: Final = frozenset(
    """aim.Run comet_ml.Experiment mlflow.start_run neptune.init neptune.init_run swanlab.init
    tensorboard_logger.Logger tensorboardX.FileWriter tensorboardX.SummaryWriter
    tensorflow.compat.v1.summary.FileWriter tensorflow.contrib.summary.create_file_writer
    tensorflow.summary.FileWriter tensorflow.summary.create_file_writer
    tensorflow.train.SummaryWriter torch.utils.tensorboard.SummaryWriter
    torch.utils.tensorboard.writer.SummaryWriter visdom.Visdom clearml.Task.init
    wandb.init""".split()
)


def is_mode(text: object) -> bool:
    """Whether a text is the mode of a file: ``path.open("wb")``."""
    return isinstance(text, str) and text != "" and set(text) <= set("rwxabtU+")


def opens_to_write(name: str, mode: str | None) -> bool:
    """Whether what is opened so may be written to; ``mode`` is None where it is not known."""
    always = OPENS.get(name) == ""
    return always or mode is None or any(letter in mode for letter in "wax+")
