"""The words of the field: which calls communicate, which say the rank, which make what.

Names are canonical: ``canonical`` maps the places from which torch exports one object to one name.
"""

from __future__ import annotations

from typing import Final

from ddpify.python import words
from ddpify.python.words import CLIPS as CLIPS
from ddpify.python.words import CUDA as CUDA
from ddpify.python.words import DATA_PARALLEL as DATA_PARALLEL
from ddpify.python.words import DDP as DDP
from ddpify.python.words import DIST as DIST
from ddpify.python.words import DRAWS as DRAWS
from ddpify.python.words import FILE_TESTS as FILE_TESTS
from ddpify.python.words import FSDP as FSDP
from ddpify.python.words import FULLY_SHARD as FULLY_SHARD
from ddpify.python.words import GENERATORS as GENERATORS
from ddpify.python.words import LOADER as LOADER
from ddpify.python.words import LOCAL_RANK_CALLS as LOCAL_RANK_CALLS
from ddpify.python.words import MPI_RANKS as MPI_RANKS
from ddpify.python.words import NUMPY as NUMPY
from ddpify.python.words import OWN_FILES as OWN_FILES
from ddpify.python.words import PATH_TESTS as PATH_TESTS
from ddpify.python.words import PYTHON as PYTHON
from ddpify.python.words import RANK_VARIABLES as RANK_VARIABLES
from ddpify.python.words import SAMPLER as SAMPLER
from ddpify.python.words import STREAMS as STREAMS
from ddpify.python.words import TORCH as TORCH
from ddpify.python.words import UNSET_VARIABLES as UNSET_VARIABLES
from ddpify.ranks import other_libraries

WRAPPERS: Final = frozenset({DDP, FSDP})

_EXACT: Final = {
    "torch.nn.parallel.distributed.DistributedDataParallel": DDP,
    "apex.parallel.DistributedDataParallel": DDP,
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": FSDP,
    "torch.distributed._composable.fsdp.fully_shard": FULLY_SHARD,
    "torch.distributed._composable.fully_shard": FULLY_SHARD,
    "torch.nn.parallel.DataParallel": DATA_PARALLEL,
    "torch.nn.parallel.data_parallel.DataParallel": DATA_PARALLEL,
    "torch.utils.data.distributed.DistributedSampler": SAMPLER,
    "torch.utils.data.dataloader.DataLoader": LOADER,
    "torch_geometric.loader.DataLoader": LOADER,
    "torch.multiprocessing.spawn.spawn": words.SPAWN,
    "torch.multiprocessing.spawn.start_processes": words.SPAWN,
    "torch.multiprocessing.start_processes": words.SPAWN,
    "accelerate.accelerator.Accelerator": "accelerate.Accelerator",
    # as it was made until Lightning 2: of the arguments of a command line
    "lightning.pytorch.Trainer.from_argparse_args": "lightning.pytorch.Trainer",
    "lightning.pytorch.trainer.Trainer.from_argparse_args": "lightning.pytorch.Trainer",
    "lightning.pytorch.trainer.Trainer": "lightning.pytorch.Trainer",
    **dict.fromkeys(
        (
            "transformers.trainer.Trainer",
            "transformers.Seq2SeqTrainer",
            "transformers.trainer_seq2seq.Seq2SeqTrainer",
            *(f"trl.{kind}Trainer" for kind in "SFT DPO KTO ORPO CPO Reward GRPO".split()),
        ),
        "transformers.Trainer",
    ),
    **dict.fromkeys(
        (
            "transformers.training_args.TrainingArguments",
            "transformers.Seq2SeqTrainingArguments",
            "transformers.training_args_seq2seq.Seq2SeqTrainingArguments",
            *(f"trl.{kind}Config" for kind in "SFT DPO KTO ORPO CPO Reward GRPO".split()),
        ),
        "transformers.TrainingArguments",
    ),
}
_PREFIXES: Final = (
    ("deepspeed.comm.comm.", DIST),
    ("deepspeed.comm.", DIST),
    ("torch.distributed.distributed_c10d.", DIST),
    ("torch.distributed.nn.functional.", f"{DIST}nn."),
    ("accelerate.utils.operations.", "accelerate.utils."),
    ("pytorch_lightning.", "lightning.pytorch."),
    ("lightning_fabric.", "lightning.fabric."),
    ("torch.utils.data.sampler.", "torch.utils.data."),
    ("torch.utils.data.dataset.", "torch.utils.data."),
)

# c10d calls that every rank of the group must make, in the same order, and their parameters: first
# what they fill in. After these that is the same on all ranks.
_AGREEING: Final = {
    "all_reduce": "tensor op group async_op",
    "all_reduce_coalesced": "tensors op group async_op",
    "all_gather": "tensor_list tensor group async_op",
    "all_gather_coalesced": "output_tensor_lists input_tensor_list group async_op",
    "all_gather_into_tensor": "output_tensor input_tensor group async_op",
    "all_gather_single": "output_tensor input_tensor group async_op",
    "all_gather_object": "object_list obj group",
    "broadcast": "tensor src group async_op group_src",
    "broadcast_object_list": "object_list src group device group_src",
}
COLLECTIVES: Final = {
    **_AGREEING,
    "all_to_all": "output_tensor_list input_tensor_list group async_op",
    "all_to_all_single": "output input output_split_sizes input_split_sizes group async_op",
    "barrier": "group async_op device_ids timeout",
    "monitored_barrier": "group timeout wait_all_ranks",
    "reduce": "tensor dst op group async_op group_dst",
    "reduce_scatter": "output input_list op group async_op",
    "reduce_scatter_tensor": "output input op group async_op",
    "reduce_scatter_single": "output input op group async_op",
    "gather": "tensor gather_list dst group async_op group_dst",
    "gather_object": "obj object_gather_list dst group group_dst",
    "scatter": "tensor scatter_list src group async_op group_src",
    "scatter_object_list": "scatter_object_output_list scatter_object_input_list src group"
    " group_src",
    "new_group": "ranks timeout backend pg_options use_local_synchronization",
    "new_subgroups": "group_size group",
    "new_subgroups_by_enumeration": "ranks_per_subgroup_list",
    "split_group": "parent_pg split_ranks",
    "init_device_mesh": "device_type mesh_shape",
    "init_process_group": "backend init_method timeout world_size rank",
    "destroy_process_group": "group",
}
# The same as functions that give what they make, by full name.
_NN, _FUNCOL = f"{DIST}nn.", f"{DIST}_functional_collectives."
_AGREEING_FUNCTIONS: Final = {
    f"{_NN}all_reduce": "tensor op group",
    f"{_NN}all_gather": "tensor group",
    f"{_NN}broadcast": "tensor src group",
    f"{_FUNCOL}all_reduce": "self reduceOp group tag",
    f"{_FUNCOL}all_gather_tensor": "self gather_dim group tag",
    f"{_FUNCOL}broadcast": "self src group tag",
}
FUNCTIONS: Final = {
    **_AGREEING_FUNCTIONS,
    f"{_NN}reduce": "tensor dst op group",
    f"{_NN}gather": "tensor dst group",
    f"{_NN}scatter": "tensors src group",
    f"{_NN}reduce_scatter": "output input_list op group",
    f"{_NN}all_to_all": "output_tensor_list input_tensor_list group",
    f"{_NN}all_to_all_single": "output input output_split_sizes input_split_sizes group",
    f"{_FUNCOL}reduce_scatter_tensor": "self reduceOp scatter_dim group tag",
    f"{_FUNCOL}all_to_all_single": "self output_split_sizes input_split_sizes group tag",
}
COLLECTIVE_OPS: Final = frozenset(COLLECTIVES)
AGREEING_OPS: Final = frozenset(_AGREEING)
GROUP_OPS: Final = frozenset(
    "new_group new_subgroups new_subgroups_by_enumeration split_group".split()
)
SESSION_OPS: Final = frozenset({"init_process_group", "destroy_process_group"})

# Other calls that communicate, by full name; after these the result is the same on all ranks.
_AGREEING_CALLS: Final = frozenset(
    {
        "accelerate.Accelerator.gather",
        "accelerate.Accelerator.gather_for_metrics",
        "accelerate.Accelerator.reduce",
        "accelerate.utils.gather",
        "accelerate.utils.reduce",
        "accelerate.utils.broadcast",
        "accelerate.utils.gather_object",
        "accelerate.utils.broadcast_object_list",
        "lightning.fabric.Fabric.all_gather",
        "lightning.fabric.Fabric.all_reduce",
        "lightning.fabric.Fabric.broadcast",
        "lightning.pytorch.LightningModule.all_gather",
        "lightning.pytorch.Trainer.strategy.broadcast",
        "lightning.pytorch.Trainer.strategy.reduce",
        *other_libraries.AGREEING,
    }
)
COLLECTIVE_CALLS: Final = _AGREEING_CALLS | frozenset(
    {
        "torch.distributed.checkpoint.save",
        "torch.distributed.checkpoint.load",
        "torch.distributed.checkpoint.save_state_dict",
        "torch.distributed.checkpoint.load_state_dict",
        "torch.distributed.checkpoint.async_save",
        "torch.distributed.checkpoint.state_dict.get_model_state_dict",
        "torch.distributed.checkpoint.state_dict.get_optimizer_state_dict",
        "torch.distributed.checkpoint.state_dict.get_state_dict",
        "torch.distributed.checkpoint.state_dict.set_model_state_dict",
        "torch.distributed.checkpoint.state_dict.set_optimizer_state_dict",
        "torch.distributed.checkpoint.state_dict.set_state_dict",
        f"{FSDP}.optim_state_dict",
        f"{FSDP}.full_optim_state_dict",
        f"{FSDP}.state_dict",
        f"{FSDP}.summon_full_params",
        f"{FSDP}.clip_grad_norm_",
        "torch.distributed.optim.ZeroRedundancyOptimizer.consolidate_state_dict",
        "torch.distributed.optim.ZeroRedundancyOptimizer.step",
        "torch.distributed.tensor.distribute_tensor",
        "torch.distributed.tensor.distribute_module",
        "accelerate.Accelerator.pad_across_processes",
        "accelerate.utils.pad_across_processes",
        "accelerate.utils.wait_for_everyone",
        "accelerate.Accelerator.wait_for_everyone",
        "accelerate.Accelerator.get_state_dict",
        "accelerate.Accelerator.save_state",
        "accelerate.Accelerator.backward",
        "accelerate.Accelerator.prepare_model",
        "accelerate.Accelerator.check_trigger",
        "lightning.fabric.Fabric.barrier",
        "lightning.fabric.Fabric.save",
        "lightning.fabric.Fabric.load",
        "lightning.fabric.Fabric.setup",
        "lightning.fabric.Fabric.setup_module",
        "lightning.fabric.Fabric.backward",
        "lightning.pytorch.Trainer.save_checkpoint",
        "lightning.pytorch.Trainer.strategy.barrier",
        "lightning.pytorch.Trainer.fit",
        "lightning.pytorch.Trainer.test",
        "lightning.pytorch.Trainer.validate",
        "lightning.pytorch.Trainer.predict",
        "transformers.Trainer.train",
        "transformers.Trainer.evaluate",
        "transformers.Trainer.predict",
        *other_libraries.CALLS,
        "transformers.Trainer.save_model",
    }
)
# Calls of Accelerate and of the Trainer in which ranks meet only if something is sharded, or if
# checkpoints are numbered.
NUMBERING: Final = frozenset({"accelerate.Accelerator.save_state"})
MEETING_IF_SHARDED: Final = NUMBERING | {
    "accelerate.Accelerator.get_state_dict",
    "transformers.Trainer.save_model",
}
SPLITS: Final = tuple(
    f"accelerate.{one}.split_between_processes" for one in ("Accelerator", "PartialState")
)
PREPARE: Final = "accelerate.Accelerator.prepare"  # of a model: it makes a wrapper
TRAINER: Final = "lightning.pytorch.Trainer"
SAVE_CHECKPOINT: Final = f"{TRAINER}.save_checkpoint"
# What a Trainer is asked to do, in as many processes as it has.
LOOPS: Final = ("fit", "validate", "test", "predict")
# What begins the processes of a program, or joins them, beside init_process_group.
STARTERS: Final = (
    "accelerate.Accelerator",
    "lightning.fabric.Fabric",
    TRAINER,
    "deepspeed.initialize",
    "horovod.torch.init",
    "mpi4py.MPI.COMM_WORLD.Get_rank",
)
COMMANDLINES: Final = (
    "lightning.pytorch.cli.LightningCLI",
    "lightning.pytorch.utilities.cli.LightningCLI",  # until Lightning 2
)
HF_TRAINER: Final = "transformers.Trainer"
HF_CALLBACK: Final = "transformers.TrainerCallback"
HF_ARGUMENTS: Final = "transformers.TrainingArguments"
LOG_DIR: Final = f"{TRAINER}.log_dir"  # a property that broadcasts
VERSIONED: Final = ("loggers.TensorBoardLogger", "loggers.CSVLogger")  # count their folders
FRAMEWORK_CALLS: Final = frozenset(
    name
    for name in (*COLLECTIVE_CALLS, PREPARE, LOG_DIR)
    if name.startswith(("accelerate.", "lightning.", "transformers.", *other_libraries.LAUNCHERS))
)
# Calls of these methods communicate whatever the receiver is.
COLLECTIVE_METHODS: Final = frozenset({"full_tensor", "redistribute", "consolidate_state_dict"})
AGREEING_CALLS: Final = _AGREEING_CALLS | _AGREEING_FUNCTIONS.keys()

RANK_CALLS: Final = words.RANK_CALLS | other_libraries.RANKS
SIZE_CALLS: Final = words.SIZE_CALLS | other_libraries.SIZES
MPI_NUMBERS: Final = frozenset(f"{other_libraries.MPI}{name}" for name in ("rank", "size"))
# These give both, the rank first.
RANK_AND_SIZE_CALLS: Final = frozenset(
    {"mmcv.runner.get_dist_info", "mmengine.dist.get_dist_info", "mmengine.get_dist_info"}
)
TRUE_CALLS: Final = frozenset(
    {
        "torch.distributed.is_available",
        "torch.distributed.is_torchelastic_launched",
        "torch.distributed.is_nccl_available",
        "torch.distributed.is_gloo_available",
    }
)
# After these there is a process group, opened in code that is not read.
OPENERS: Final = frozenset(
    {
        "accelerate.Accelerator",
        "accelerate.PartialState",
        "lightning.fabric.Fabric",
        "lightning.fabric.Fabric.launch",
        "transformers.TrainingArguments",
        "deepspeed.initialize",
        "deepspeed.init_distributed",
        "horovod.torch.init",
    }
)
# Variables that torchrun sets; only their presence is sure for the others.
SIZE_VARIABLES: Final = frozenset({"WORLD_SIZE", "LOCAL_WORLD_SIZE"})
# What other launchers set instead: a program that takes it for granted is started by them.
OTHER_RANK_VARIABLES: Final = {
    **dict.fromkeys(("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"), "rank"),
    **dict.fromkeys(("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"), "local-rank"),
}
OTHER_SIZE_VARIABLES: Final = frozenset({"SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
SET_VARIABLES: Final = frozenset(
    {"MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "TORCHELASTIC_RUN_ID"}
)
# Attributes of framework objects: (class prefix, attribute) gives the rank, or whether it is 0.
FRAMEWORK_RANKS: Final = frozenset(
    "process_index global_rank rank node_rank local_rank local_process_index".split()
)
FRAMEWORK_MAINS: Final = frozenset(
    "is_main_process is_local_main_process is_global_zero is_world_process_zero"
    " is_local_process_zero is_last_process should_save should_log"
    " is_world_master is_local_master".split()
)
# What an unknown attribute or parameter of a distributed program means when nothing else says it.
RANK_NAMES: Final = frozenset(
    "rank global_rank proc_rank process_index process_rank ddp_rank".split()
)
SIZE_NAMES: Final = frozenset("world_size ddp_world_size".split())
LOCAL_NAMES: Final = frozenset("local_rank ddp_local_rank local_process_index".split())
MAIN_NAMES: Final = frozenset(
    "is_main_process is_master is_main is_rank_zero is_rank0 is_global_zero main_process"
    " master_process is_master_process is_chief is_world_process_zero is_world_master"
    " is_main_proc is_master_proc is_master_ordinal is_root_process is_main_rank is_master_rank"
    " is_rank_0".split()
)
# What modules have of themselves, though a class of theirs has ``__getattr__``.
OWN_ATTRIBUTES: Final = frozenset("training parameters state_dict modules".split())
CLOCK_CALLS: Final = words.CLOCKS | words.OWN_NUMBERS | words.OWN_FILES
# Random numbers: what seeds which stream.
SEEDERS: Final = {
    "torch.manual_seed": (TORCH, CUDA),
    "torch.random.manual_seed": (TORCH, CUDA),
    "torch.seed": (TORCH, CUDA),
    "torch.cuda.manual_seed": (CUDA,),
    "torch.cuda.manual_seed_all": (CUDA,),
    "numpy.random.seed": (NUMPY,),
    "random.seed": (PYTHON,),
    # The state of a stream is its seed and what was drawn: equal states draw alike.
    "torch.set_rng_state": (TORCH,),
    "torch.random.set_rng_state": (TORCH,),
    "torch.cuda.set_rng_state": (CUDA,),
    "torch.cuda.set_rng_state_all": (CUDA,),
    "numpy.random.set_state": (NUMPY,),
    "random.setstate": (PYTHON,),
}
NO_GRAD: Final = words.NO_GRAD | {words.SET_GRAD}
FRAMEWORKS: Final = {
    "accelerate": "accelerate",
    "lightning": "lightning",
    "deepspeed": "deepspeed",
    "ray": "ray",
    "horovod": "horovod",
    "mpi4py": "mpi4py",
    "colossalai": "colossalai",
    "transformers": "transformers",
    "composer": "composer",
    "ignite": "ignite",
}


def canonical(name: str) -> str:
    """The one name of what torch exports from several places."""
    found = _EXACT.get(name)
    if found is not None:
        return found
    for prefix, place in _PREFIXES:
        if name.startswith(prefix):
            name = place + name[len(prefix) :]
    if name.startswith(("lightning.fabric.fabric.", "lightning.pytorch.trainer.trainer.")):
        name = name.replace(".fabric.fabric.", ".fabric.").replace(".trainer.trainer.", ".")
    if name.startswith("lightning.Fabric"):
        name = name.replace("lightning.", "lightning.fabric.", 1)
    if name.startswith(
        ("lightning.Trainer", "lightning.LightningModule", "lightning.LightningData")
    ):
        name = name.replace("lightning.", "lightning.pytorch.", 1)
    return _EXACT.get(name, name)


# Decorators of libraries, and the trait (of ``Traits``) that they give a function.
DECORATORS: Final = {
    "contextlib.contextmanager": "context",
    "contextlib.asynccontextmanager": "context",
    "builtins.property": "property",
    words.CACHED_PROPERTY: "property",
    "functools.cache": "cached",
    "functools.lru_cache": "cached",
    "builtins.staticmethod": "static",
    "builtins.classmethod": "of_class",
    **dict.fromkeys(words.NO_GRAD, "no_grad"),
}
RANK0_DECORATORS: Final = (".rank_zero_only", ".on_main_process")  # rank 0 alone runs it
