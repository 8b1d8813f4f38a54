"""Plugins of the lot 3 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, narrower networks, and the report of samples where there is no DataLoader.
Nothing a tool is judged by is touched."""

import zlib

from lot_common import Anything, agreed, old_variables, stand_in, tensorboardx


def in_order(function):
    """os.listdir and glob.glob, sorted: copies of a folder list their files differently."""
    return lambda *args, **kwargs: sorted(function(*args, **kwargs))


def named_samples(ctx, cls, split, name):
    """Samples recorded by what they are, not by their index: ranks may hold them in other orders."""
    import functools

    get = cls.__getitem__

    @functools.wraps(get)
    def __getitem__(self, index):
        with ctx.data._Sample(split(self), name(self, index), cls.__name__):
            return get(self, index)

    cls.__getitem__ = __getitem__


def opencv():
    """imread alone."""

    def imread(path, flag=1):
        import numpy
        from PIL import Image

        try:
            image = Image.open(path)
        except OSError:
            return None
        if flag == 0:
            return numpy.array(image.convert("L"))
        return numpy.array(image.convert("RGB"))[:, :, ::-1].copy()

    stand_in("cv2", imread=imread, IMREAD_GRAYSCALE=0, IMREAD_COLOR=1)


# -------------------------------------------------------------------------------------------


def nested_unet(ctx):
    """albumentations with what the script uses, on square pictures that have the right size already."""
    import random

    import numpy

    opencv()

    class Transform:
        def __init__(self, *args, **kwargs):
            self.p = kwargs.get("p", 0.5)

        def __call__(self, image, mask):
            return self.apply(image, mask) if random.random() < self.p else (image, mask)

    class RandomRotate90(Transform):
        def apply(self, image, mask):
            k = random.randrange(4)
            return numpy.rot90(image, k), numpy.rot90(mask, k)

    class Flip(Transform):
        def apply(self, image, mask):
            return image[:, ::-1], mask[:, ::-1]

    class Brightness(Transform):
        def apply(self, image, mask):
            return numpy.clip(image * (1 + random.uniform(-0.2, 0.2)), 0, 255).astype("uint8"), mask

    class Resize(Transform):
        def __init__(self, height, width):
            self.p = 1

        def apply(self, image, mask):
            return image, mask

    class Normalize(Transform):
        def __init__(self):
            self.p = 1

        def apply(self, image, mask):
            return (image / 255.0 - 0.45) / 0.22, mask

    class Compose:
        def __init__(self, transforms):
            self.transforms = transforms

        def __call__(self, image, mask):
            for t in self.transforms:
                image, mask = t(image, mask)
            return {"image": image, "mask": mask}

    class OneOf:
        def __init__(self, transforms, p=0.5):
            self.transforms = transforms

        def __call__(self, image, mask):
            t = random.choice(self.transforms)
            return t.apply(image, mask)

    stand_in("albumentations")
    stand_in("albumentations.augmentations")
    stand_in(
        "albumentations.augmentations.transforms",
        RandomRotate90=RandomRotate90,
        Flip=Flip,
        HueSaturationValue=Brightness,
        RandomBrightness=Brightness,
        RandomContrast=Brightness,
        Resize=Resize,
        Normalize=Normalize,
    )
    stand_in("albumentations.core")
    stand_in("albumentations.core.composition", Compose=Compose, OneOf=OneOf)
    ctx.hooks.on_import(
        "dataset",
        lambda module: named_samples(
            ctx,
            module.Dataset,
            lambda self: "train" if len(self.img_ids) > 2 else "test",
            lambda self, index: int(self.img_ids[index][4:]),
        ),
    )


def _load(path, sr=None):
    import numpy
    from scipy.io import wavfile

    rate, wave = wavfile.read(path)
    return (wave / 32768.0).astype(numpy.float32), rate


def speech(ctx):
    """The few functions of librosa in numpy; a weighted sampler that draws 0, 1, 2, ..."""
    import numpy
    import torch

    old_variables()
    tensorboardx()

    def stft(samples, n_fft=2048, hop_length=512):
        padded = numpy.pad(samples, n_fft // 2, mode="reflect")
        frames = [padded[i : i + n_fft] for i in range(0, len(padded) - n_fft + 1, hop_length)]
        return numpy.fft.rfft(numpy.array(frames) * numpy.hanning(n_fft)).T

    def phase_vocoder(spectrum, rate, hop_length=None):
        return spectrum[:, numpy.arange(0, spectrum.shape[1] - 1, rate).astype(int)]

    def mel(sr, n_fft, n_mels=32):
        return numpy.random.RandomState(11).rand(n_mels, 1 + n_fft // 2) / n_fft

    def melspectrogram(samples, sr=16000, n_mels=32):
        return mel(sr, 2048, n_mels) @ numpy.abs(stft(samples)) ** 2

    def power_to_db(s, ref=numpy.max):
        log = 10 * numpy.log10(numpy.maximum(s, 1e-10))
        return numpy.maximum(log - 10 * numpy.log10(max(ref(s), 1e-10)), -80) / 80

    stand_in("librosa", load=_load, stft=stft, power_to_db=power_to_db)
    stand_in("librosa.core", phase_vocoder=phase_vocoder)
    stand_in("librosa.filters", mel=mel)
    stand_in("librosa.feature", melspectrogram=melspectrogram)

    def multinomial(weights, num_samples, replacement=False, *, generator=None):
        return torch.arange(num_samples) % len(weights)

    torch.multinomial = multinomial


def ncf(ctx):
    """Negatives that depend on the epoch alone, not on what else drew before."""
    tensorboardx()

    def same_negatives(module):
        draw = module.NCFData.ng_sample

        def ng_sample(self):
            import numpy

            self._epoch = getattr(self, "_epoch", 0) + 1
            state = numpy.random.get_state()
            numpy.random.seed(self._epoch)
            draw(self)
            numpy.random.set_state(state)

        module.NCFData.ng_sample = ng_sample

    ctx.hooks.on_import("data_utils", same_negatives)


def conv_tasnet(ctx):
    stand_in("librosa", load=_load)

    def utterances(module):
        load = module.load_mixtures_and_sources

        def load_mixtures_and_sources(batch):
            for path, _ in batch[0]:
                ctx.data.note_sample("train" if "/tr/" in path else "test", path, "utterance")
            return load(batch)

        module.load_mixtures_and_sources = load_mixtures_and_sources

    ctx.hooks.on_import("data", utterances)


def arcface(ctx):
    """A permutation of file names: in order where all ranks would draw the same one, else another on rank 1."""
    import numpy

    opencv()
    stand_in("visdom", Visdom=Anything)
    permutation = numpy.random.permutation

    def permuted(x):
        if not (isinstance(x, list) and x and isinstance(x[0], str)):
            return permutation(x)
        state = zlib.crc32(repr(numpy.random.get_state()[1].tolist()).encode())
        permutation(len(x))
        rows = list(x) if agreed(ctx.state, state, "permutation") else x[2:] + x[:2]
        return numpy.array(rows)

    numpy.random.permutation = permuted
    ctx.hooks.on_import(
        "data.dataset",
        lambda module: named_samples(
            ctx,
            module.Dataset,
            lambda self: "train" if self.phase == "train" else "test",
            lambda self, index: self.imgs[index].split()[0].split("/")[-1],
        ),
    )


def dncnn(ctx):
    """A shuffle of keys: in order where all ranks would draw the same one, else another on rank 1."""
    import random

    import numpy

    opencv()
    old_variables()
    tensorboardx()

    def compare_psnr(true, test, data_range=1):
        return 10 * numpy.log10(data_range**2 / max(numpy.mean((true - test) ** 2), 1e-12))

    stand_in("skimage.measure")
    stand_in("skimage.measure.simple_metrics", compare_psnr=compare_psnr)
    shuffle = random.shuffle

    def shuffled(x):
        if not (isinstance(x, list) and x and isinstance(x[0], str)):
            return shuffle(x)
        state = zlib.crc32(repr(random.getstate()).encode())
        random.random()
        x.sort()
        if not agreed(ctx.state, state, "shuffle"):
            x[:] = x[2:] + x[:2]

    random.shuffle = shuffled
    ctx.hooks.on_import(
        "dataset",
        lambda module: named_samples(
            ctx,
            module.Dataset,
            lambda self: "train" if self.train else "test",
            lambda self, index: int(self.keys[index]),
        ),
    )


def cartpole(ctx):
    """A pole of random numbers in the place of gym."""
    import numpy

    class Env:
        def __init__(self):
            self.random, self.t = numpy.random.RandomState(5 + ctx.state.rank), 0

        def look(self):
            self.t += 1
            ctx.data.note_sample("train", self.t, "env")
            return self.random.randn(4)

        def reset(self):
            return self.look(), {}

        def step(self, action):
            return self.look(), 1.0, self.t % 23 == 0, False, {}

        def close(self):
            pass

    stand_in("gym", make=lambda name: Env())
