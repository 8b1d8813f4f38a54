"""Libraries that are known: what may be handed to them without asking what they do with it.

A library that is known here computes, reads, shows or optimizes: given a model it does not train,
wrap or save it behind the program's back. Whatever is neither here, nor in the standard library,
nor in the project is *unread*.
"""

from __future__ import annotations

import builtins
import sys
from typing import Final

# By top package. Left out on purpose: frameworks that run the loop themselves (ignite, fastai,
# skorch) and libraries that keep or wrap a model (accelerate, deepspeed, torch_ema).
_TORCH: Final = """torch torchvision torchaudio torchtext torchdata torch_xla timm ddpify apex
    torchmetrics functorch"""
_NUMBERS: Final = """numpy scipy pandas sklearn numba cupy jax tensorflow tensorflow_datasets
    tensorflow_probability keras pywt pyarrow polars xarray dask networkx sympy statsmodels
    xgboost lightgbm faiss umap hdbscan einops einops_exts opt_einsum torch_scatter torch_sparse
    torch_cluster torch_spline_conv torch_geometric dgl ogb pykeops e3nn ase rdkit Bio gym
    gymnasium baselines"""
_MEDIA: Final = """PIL cv2 skimage imageio imageio_ffmpeg matplotlib mpl_toolkits pylab seaborn
    plotly bokeh albumentations imgaug kornia kornia_moons Augmentor randaugment pycocotools lvis
    cityscapesscripts SimpleITK nibabel pydicom monai torchio medpy openslide tifffile lmdb h5py
    zarr tables librosa soundfile sox audioread pydub python_speech_features resampy pyworld
    pesq pystoi jiwer Levenshtein editdistance decord av moviepy skvideo open3d trimesh plyfile
    pyrender shapely rasterio xmltodict lxml bs4 msgpack orjson ujson simplejson svgwrite accimage
    turbojpeg nvjpeg jpeg4py webdataset datasets evaluate tfrecord petastorm pyramid_dct jpegio
    dlib face_alignment mediapipe insightface bcolz mxnet caffe caffe2"""
_TEXT: Final = """transformers tokenizers sentencepiece spacy nltk gensim jieba sacrebleu sacremoses
    subword_nmt fasttext rouge rouge_score bert_score pycocoevalcap seqeval conllu pypinyin
    opencc unidecode inflect ftfy regex tiktoken stanza huggingface_hub sentence_transformers clip
    open_clip pytorch_transformers pytorch_pretrained_bert allennlp fairseq"""
_MODELS: Final = """efficientnet_pytorch geffnet pretrainedmodels segmentation_models_pytorch
    resnest facenet_pytorch torchreid mmcv mmseg mmdet mmengine detectron2 fvcore iopath lpips
    pytorch_msssim pytorch_ssim piq pytorch_fid torch_fidelity cleanfid ptwt torchdiffeq torchsde
    mamba_ssm flash_attn xformers causal_conv1d vit_pytorch x_transformers perceiver_pytorch
    linformer performer_pytorch rotary_embedding_torch timm_vis torchcrf pytorch_metric_learning
    gpytorch botorch pyro escnn inplace_abn encoding spconv MinkowskiEngine pointnet2_ops
    pytorch3d nerfacc tinycudann kaolin diffusers peft vector_quantize_pytorch info_nce
    focal_loss warprnnt_pytorch warpctc_pytorch ctcdecode torch_stft"""
_OPTIMIZERS: Final = """torch_optimizer pytorch_optimizer adabelief_pytorch lion_pytorch madgrad
    adamp ranger ranger21 radam adabound bitsandbytes prodigyopt dadaptation schedulefree
    warmup_scheduler pytorch_warmup cosine_annealing_warmup timm_optim adan_pytorch sophia
    torchcontrib"""
_INSPECTS: Final = """torchsummary torchsummaryX torchinfo torchviz pytorch_model_summary thop
    ptflops flopth pthflops torchstat hiddenlayer graphviz netron captum pytorch_grad_cam gradcam
    onnx onnxruntime onnxsim onnxoptimizer torchprofile calflops deepspeed_flops pytorch_memlab
    gpustat pynvml py3nvml nvidia_smi psutil memory_profiler line_profiler humanize
    torch_tb_profiler nvtx torchlens modelsummary"""
_PYTHON_2: Final = """StringIO cStringIO cPickle urllib2 urlparse Queue ConfigParser commands
    httplib __builtin__ HTMLParser Tkinter"""
_TOOLS: Final = """tqdm rich click fire hydra omegaconf yaml ruamel toml tomli absl gin munch addict
    easydict attr attrs yacs docopt plac configargparse jsonargparse tyro typer simple_parsing
    prettytable tabulate termcolor colorama colorlog loguru coloredlogs logzero progress
    progressbar alive_progress setproctitle gdown wget requests boto3 botocore google pooch
    kaggle filelock joblib cloudpickle dill six future past attrdict box typing_extensions
    pydantic dotenv natsort sortedcontainers more_itertools toolz funcy cytoolz boltons blessed
    blessings IPython ipywidgets pytest nose pkg_resources setuptools packaging distutils
    visdom wandb mlflow neptune comet_ml tensorboard tensorboardX tensorboard_logger clearml aim
    dvclive swanlab sacred optuna hyperopt bayes_opt crayon hyperdash telegram slack_sdk
    prefetch_generator line_notify knockknock logger_tt path pathlib2 slugify dateutil pytz arrow
    git psycopg2 pymongo sqlalchemy redis flask cvbase terminaltables fasteners zmq kafka"""
_ALL: Final = (_TORCH, _NUMBERS, _MEDIA, _TEXT, _MODELS, _OPTIMIZERS, _INSPECTS, _TOOLS, _PYTHON_2)
KNOWN: Final = frozenset(" ".join(_ALL).split())
# What a constructor calls of these is no layer that trains, and has no statistics.
_NO_LAYERS: Final = """numpy scipy pandas sklearn numba polars xarray networkx sympy statsmodels
    einops opt_einsum PIL cv2 skimage imageio matplotlib seaborn plotly h5py lmdb librosa soundfile
    nltk gensim jieba fasttext"""
WITHOUT_LAYERS: Final = frozenset(" ".join((_NO_LAYERS, _TOOLS, _PYTHON_2)).split())
# In what is known otherwise: what takes a model, an optimizer or a loader out of sight, to call,
# change, copy or hold it somewhere else.
TAKES_AWAY: Final = (
    "torch.func.functional_call",
    "torch.func.stack_module_state",
    "torch.nn.utils.stateless.",
    "functorch.make_functional",
    "functorch.combine_state_for_ensemble",
    "torch.multiprocessing.",
    "torch.nn.parallel.data_parallel",
    "torch.nn.parallel.replicate",
    "torch.nn.parallel.parallel_apply",
    "torch.nn.utils.prune.",
    "threading.",
    "multiprocessing.",
    "concurrent.",
    "weakref.",
    "contextvars.",
    "transformers.Seq2SeqTrainer",
    "huggingface_hub.PyTorchModelHubMixin",
)


def is_known(name: str) -> bool:
    """Whether a qualified name is of a library that is known, or of Python itself."""
    top, _, rest = name.partition(".")
    if top == "builtins":
        return hasattr(builtins, rest.partition(".")[0])
    return top in KNOWN or top in sys.stdlib_module_names


def takes_away(name: str) -> bool:
    """Whether a known function keeps what it is given out of sight."""
    return name.startswith(TAKES_AWAY)
