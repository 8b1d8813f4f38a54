"""Plugins of the lot 2 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, narrower networks, and the report of samples where there is no DataLoader.
Nothing a tool is judged by is touched."""

import sys
import types

from lot_common import Anything, EasyDict, no_grad_is_test, stand_in

# -------------------------------------------------------------------------------------------


def peeks_do_not_count(ctx):
    """What was fetched before the loop (a look at one batch, class weights over the whole set) is no
    training: each start of a loader before the first optimizer step forgets what came before."""
    from torch.optim import optimizer
    from torch.utils.data import DataLoader

    stepped = []
    optimizer.register_optimizer_step_pre_hook(
        lambda *args: stepped.append(1) if not stepped else None
    )
    iterate = DataLoader.__iter__

    def __iter__(self):
        if not stepped:
            ctx.data.take_samples()
        return iterate(self)

    DataLoader.__iter__ = __iter__


def captioning(ctx):
    def corpus_bleu(references, hypotheses, *args, **kwargs):
        """Not BLEU (0 after two epochs): another number of the whole set of predictions."""
        assert len(references) == len(hypotheses)
        words = [w for h in hypotheses for w in h]
        return sum(words) / max(len(words), 1) / 100

    stand_in("nltk")
    stand_in("nltk.translate")
    stand_in("nltk.translate.bleu_score", corpus_bleu=corpus_bleu)
    stand_in("scipy.misc")

    def old_names(misc):  # wanted at import, used elsewhere only
        misc.imread = misc.imresize = None

    ctx.hooks.on_import("scipy.misc", old_names)

    def narrow(models):  # one block a stage
        from torchvision.models.resnet import Bottleneck, ResNet

        models.resnet101 = lambda *args, **kwargs: ResNet(Bottleneck, [1, 1, 1, 1])

    ctx.hooks.on_import("torchvision.models", narrow)


def siamese(ctx):
    class Flags:
        kinds = {}

        def __call__(self, argv):
            for item in argv[1:]:
                name, _, value = item.lstrip("-").partition("=")
                kind = self.kinds[name]
                setattr(
                    self, name, value in ("", "true", "True", "1") if kind is bool else kind(value)
                )
            return argv[:1]

    flags = Flags()

    def define(kind):
        def put(name, default, help=""):
            # a number as the default of a string flag stays a number, as gflags has it
            flags.kinds[name] = int if isinstance(default, int) and kind is str else kind
            setattr(flags, name, default)

        return put

    stand_in(
        "gflags",
        FLAGS=flags,
        DEFINE_bool=define(bool),
        DEFINE_string=define(str),
        DEFINE_integer=define(int),
        DEFINE_float=define(float),
    )


def absa(ctx):
    no_grad_is_test(ctx)
    stand_in("transformers.modeling_bert", BertPooler=Anything, BertSelfAttention=Anything)
    from torch.utils import data

    split = data.random_split

    def random_split(*args, **kwargs):  # the first part is for training
        parts = split(*args, **kwargs)
        for i, part in enumerate(parts):
            part._acceptance_split = "train" if i == 0 else "test"
        return parts

    data.random_split = random_split


def vit_cifar(ctx):
    stand_in(
        "wandb",
        init=Anything(),
        config=Anything(),
        watch=Anything(),
        log=Anything(),
        save=Anything(),
    )
    stand_in("timm", create_model=Anything())
    import torch

    stand_in("timm.models")
    stand_in("timm.models.layers", LayerNorm2d=torch.nn.LayerNorm)


def protonet(ctx):
    stand_in("six")
    stand_in("six.moves", urllib=Anything())


def project_template(ctx):
    from PIL import Image

    Image.CUBIC = Image.BICUBIC
    stand_in("easydict", EasyDict=EasyDict)
    from torch.utils.tensorboard import SummaryWriter as Real

    class SummaryWriter(Real):
        def export_scalars_to_json(self, path):
            with open(path, "w") as f:
                f.write("{}")

    stand_in("tensorboardX", SummaryWriter=SummaryWriter)
    stand_in("imageio", imread=Anything(), mimsave=Anything())
    stand_in("gym", make=Anything(), spaces=Anything(), Env=object, logger=Anything())
    stand_in("gym.utils", seeding=Anything())
    stand_in("gym.spaces")


def rl(ctx):
    """Four environments of random numbers in the place of a2c_ppo_acktr.envs (gym, stable_baselines3)."""
    import numpy
    import torch

    generator = torch.Generator().manual_seed(5)
    draw = torch.Tensor.normal_

    class Discrete:
        n, shape = 3, (1,)

    class Space:
        shape = (5,)

    class VecNormalize:
        obs_rms = None

    class Envs(VecNormalize):
        observation_space, action_space, t = Space(), Discrete(), 0

        def look(self):
            self.t += 1
            ctx.data.note_sample("train", self.t, "env")
            return draw(torch.empty(4, 5), generator=generator)

        reset = look

        def step(self, action):
            done = numpy.array([self.t % 3 == 0] * 4)
            return (
                self.look(),
                torch.ones(4, 1),
                done,
                [{"episode": {"r": 1.0}} if d else {} for d in done],
            )

    module = types.ModuleType("a2c_ppo_acktr.envs")
    module.make_vec_envs, module.VecNormalize = (lambda *args, **kwargs: Envs()), VecNormalize
    sys.modules["a2c_ppo_acktr.envs"] = module
    stand_in("gym")
    stand_in("stable_baselines3")
    stand_in("stable_baselines3.common")
    stand_in("stable_baselines3.common.running_mean_std", RunningMeanStd=Anything)
