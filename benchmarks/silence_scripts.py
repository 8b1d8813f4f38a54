"""Public distributed training scripts for `benchmarks/silence.py`, chosen before the first run.

By kind (classification, self-supervised, detection, segmentation, language, vision and language,
diffusion, GANs, speech, recommendation) and by how they are written: one file, a loop in another
file, a trainer class, launched by spawn, by torchrun, by MPI or by SLURM.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Script:
    """A repository at a commit, the folder of the project in it, and the files of the training:
    the entry first, then those with the loop and the loaders."""

    repository: str
    commit: str
    folder: str
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        """For the table."""
        inner = self.folder.rpartition("/")[2]
        return f"{self.repository}{f' {inner}' if inner else ''} {self.files[0]}"


def _script(where: str, files: str, folder: str = "") -> Script:
    repository, _, commit = where.partition("@")
    return Script(repository, commit, folder, tuple(files.split()))


_DEEP = "NVIDIA/DeepLearningExamples@729963dd"
_EXAMPLES = "pytorch/examples@77f55b9"

SCRIPTS = (
    _script(_EXAMPLES, "main.py", "imagenet"),
    _script(_EXAMPLES, "multigpu_torchrun.py datautils.py", "distributed/ddp-tutorial-series"),
    _script(_EXAMPLES, "main.py trainer.py", "distributed/minGPT-ddp/mingpt"),
    _script(_EXAMPLES, "T5_training.py utils/train_utils.py", "distributed/FSDP"),
    _script("facebookresearch/simsiam@a7bc177", "main_simsiam.py"),
    _script("facebookresearch/deit@7e160fe", "main.py engine.py"),
    _script("facebookresearch/mae@efb2a80", "main_pretrain.py engine_pretrain.py"),
    _script("microsoft/Swin-Transformer@f82860b", "main.py data/build.py"),
    _script("facebookresearch/detr@29901c5", "main.py engine.py"),
    _script("facebookresearch/barlowtwins@8e8d284", "main.py"),
    _script("facebookresearch/swav@06b1b7c", "main_swav.py"),
    _script("facebookresearch/dino@7c446df", "main_dino.py"),
    _script("facebookresearch/ijepa@52c1ae9",
            "main_distributed.py src/train.py src/datasets/imagenet1k.py"),
    _script("HobbitLong/PyContrast@84f94ea",
            "main_contrast.py learning/contrast_trainer.py learning/base_trainer.py"
            " datasets/util.py", "pycontrast"),
    _script("huggingface/pytorch-image-models@aa4b5850", "train.py"),
    _script("NVIDIA/apex@6424da3b", "main_amp.py", "examples/imagenet"),
    _script(_DEEP, "main.py image_classification/training.py image_classification/dataloaders.py",
            "PyTorch/Classification/ConvNets"),
    _script("ultralytics/yolov5@5081342f0", "train.py utils/dataloaders.py"),
    _script("Megvii-BaseDetection/YOLOX@6ddff48",
            "tools/train.py yolox/core/trainer.py yolox/exp/yolox_base.py"),
    _script("HRNet/HRNet-Semantic-Segmentation@0bbb288", "tools/train.py lib/core/function.py"),
    _script("karpathy/nanoGPT@3adf61e1", "train.py"),
    _script("salesforce/BLIP@056a169", "pretrain.py data/__init__.py"),
    _script("mlfoundations/open_clip@89fb801",
            "open_clip_train/main.py open_clip_train/train.py open_clip_train/data.py", "src"),
    _script("openai/guided-diffusion@22e0df8",
            "scripts/image_train.py guided_diffusion/train_util.py"),
    _script("facebookresearch/DiT@ed81ce2", "train.py"),
    _script("rosinality/stylegan2-pytorch@bef283a", "train.py"),
    _script("NVIDIA/tacotron2@185cd24", "train.py"),
    _script("jik876/hifi-gan@4769534", "train.py"),
    _script("jaywalnut310/vits@2e561ba", "train.py"),
    _script(_DEEP, "train.py", "PyTorch/SpeechRecognition/Jasper"),
    _script(_DEEP, "train.py", "PyTorch/SpeechSynthesis/FastPitch"),
    _script(_DEEP, "ncf.py", "PyTorch/Recommendation/NCF"),
)  # fmt: skip
