"""Qualified names of libraries, said once: both readers ask for them here.

What a name means for samples or for ranks is said by the reader; here is only what it is.
"""

from __future__ import annotations

from typing import Final

DIST: Final = "torch.distributed."
DDP: Final = "torch.nn.parallel.DistributedDataParallel"
FSDP: Final = "torch.distributed.fsdp.FullyShardedDataParallel"
# What scales gradients down, and gives their norm.
CLIPS: Final = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")
FULLY_SHARD: Final = "torch.distributed.fsdp.fully_shard"
DATA_PARALLEL: Final = "torch.nn.DataParallel"
LOADER: Final = "torch.utils.data.DataLoader"
SAMPLER: Final = "torch.utils.data.DistributedSampler"
SPAWN: Final = "torch.multiprocessing.spawn"

# -- the process -----------------------------------------------------------------------------------

RANK_CALLS: Final = frozenset({f"{DIST}get_rank", "horovod.torch.rank"})
LOCAL_RANK_CALLS: Final = frozenset({f"{DIST}get_node_local_rank", "horovod.torch.local_rank"})
SIZE_CALLS: Final = frozenset({f"{DIST}get_world_size", "horovod.torch.size"})
# Variables that torchrun sets, and those by which other launchers number their processes: under
# torchrun these are not set (UNSET_VARIABLES); in a program that is not migrated they are ranks.
RANK_VARIABLES: Final = {"RANK": "rank", "LOCAL_RANK": "local-rank"}
OTHER_RANK_VARIABLES: Final = frozenset({"SLURM_PROCID", "SLURM_LOCALID", "NODE_RANK"})
UNSET_VARIABLES: Final = ("SLURM_", "OMPI_COMM_", "PMI_", "HOROVOD_", "XRT_")
# What mpiexec sets: the ranks of a program that uses mpi4py.
MPI_RANKS: Final = {
    "PMI_RANK": "rank",
    "OMPI_COMM_WORLD_RANK": "rank",
    "OMPI_COMM_WORLD_LOCAL_RANK": "local-rank",
}
EXITS: Final = frozenset({"sys.exit", "os._exit", "builtins.exit", "builtins.quit"})

# -- what no two processes have alike --------------------------------------------------------------

CLOCKS: Final = frozenset(
    """time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter
    time.perf_counter_ns time.process_time time.process_time_ns time.thread_time time.strftime
    time.localtime time.gmtime time.ctime time.asctime timeit.default_timer os.times
    datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today
    datetime.date.today""".split()
)
# Numbers of one process, which differ as a clock does.
OWN_NUMBERS: Final = frozenset("os.getpid uuid.uuid1 uuid.uuid4 socket.socket.getsockname".split())
# Files and folders that get a name which nobody else has.
OWN_FILES: Final = frozenset(
    f"tempfile.{name}"
    for name in "mkdtemp mkstemp mktemp NamedTemporaryFile TemporaryDirectory TemporaryFile".split()
)

# The streams of random numbers that a process has, and by how a name begins, from which it draws.
TORCH, NUMPY, PYTHON, CUDA = "torch", "numpy", "random", "cuda"
STREAMS: Final = (TORCH, NUMPY, PYTHON, CUDA)
DRAWS: Final = (
    ("random.", PYTHON),
    ("numpy.random.", NUMPY),
    ("torch.rand", TORCH),
    ("secrets.", "secrets"),
)
PERMUTES: Final = "numpy.random.permutation"
TORCH_GENERATOR: Final = "torch.Generator"
GENERATORS: Final = frozenset({TORCH_GENERATOR}) | frozenset(
    "random.Random random.SystemRandom numpy.random.default_rng"
    " numpy.random.RandomState numpy.random.Generator numpy.random.PCG64 numpy.random.PCG64DXSM"
    " numpy.random.MT19937 numpy.random.Philox numpy.random.SFC64"
    " numpy.random.SeedSequence".split()
)
# What a file system answers: another one on another machine, and later another thing.
FILE_TESTS: Final = frozenset(
    "os.path.exists os.path.isfile os.path.isdir os.listdir glob.glob os.path.getsize".split()
)
PATH_TESTS: Final = frozenset({"exists", "is_file", "is_dir"})  # methods of a path

# -- gradients, copies, iteration ------------------------------------------------------------------

NO_GRAD: Final = frozenset({"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad"})
SET_GRAD: Final = "torch.set_grad_enabled"
GRAD: Final = frozenset({"torch.enable_grad", "torch.autograd.enable_grad", SET_GRAD})  # or perhaps
COMPILERS: Final = frozenset({"torch.compile", "torch.jit.script"})
APEX_AMP: Final = "apex.amp."
DEEPCOPY: Final = "copy.deepcopy"
COPIES: Final = frozenset({DEEPCOPY, "copy.copy"})
CHAIN: Final = "itertools.chain"
ITERATES: Final = frozenset({CHAIN, "itertools.cycle", "itertools.islice"})
PARTIAL: Final = "functools.partial"
NAMESPACES: Final = frozenset({"types.SimpleNamespace", "argparse.Namespace"})
CACHED_PROPERTY: Final = "functools.cached_property"

# Methods that give the object itself: of modules, and of tensors where identity does not matter.
RETURNS_SELF: Final = frozenset(
    """to cuda cpu train eval float double half bfloat16 requires_grad_ apply share_memory type
    compile to_empty xpu""".split()
)
SAME_TENSOR: Final = frozenset({"contiguous", "numpy"})

# -- what is written -------------------------------------------------------------------------------

SAVE: Final = "torch.save"
PRINT: Final = "builtins.print"
WARNS: Final = "warnings.warn"
CONSOLE: Final = frozenset({WARNS}) | frozenset(
    """builtins.print sys.stdout.write sys.stdout.flush sys.stderr.write pprint.pprint
    builtins.input tqdm.tqdm.write tqdm.auto.tqdm.write tqdm.write torchsummary.summary
    torchinfo.summary click.echo rich.print""".split()
)
# Objects that print, and how: unless they are given a stream of their own.
PRINTERS: Final = frozenset({"pprint.PrettyPrinter", "rich.console.Console", "rich.get_console"})
PRINTS: Final = frozenset({"pprint", "print", "log", "rule"})
DIRECTORIES: Final = frozenset("os.mkdir os.makedirs os.removedirs os.rmdir".split())
TRACKED: Final = frozenset(
    """wandb.log wandb.save wandb.watch wandb.finish wandb.config.update wandb.run.log
    mlflow.log_metric mlflow.log_metrics mlflow.log_param mlflow.log_params mlflow.log_artifact
    mlflow.set_experiment mlflow.end_run tensorboard_logger.configure
    tensorboard_logger.log_value""".split()
)
