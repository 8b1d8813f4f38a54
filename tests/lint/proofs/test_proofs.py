"""Labels of the suite, proven: bad cases are run on two gloo ranks, and their correct fellows, too.

A correct program has to end well, with the same weights on both ranks and, where the proof names
one, the right number; one with the error has to end as its proof says.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.lint.cases import FOLDER, Case, all_cases, parse
from tests.support.torchrun import ATTEMPTS, EXIT_RACE

SERVER = Path(__file__).with_name("server.py")
# How it ends with gloo when a collective meets nobody, or one that is not alike.
BROKEN = r"Timed out waiting|wait timeout|[Cc]onnection (reset|closed) by peer|EnforceNotMet"
UNFINISHED = "Expected to have finished reduction"
APART = "the weights differ"
# What this machine does not have: data files, other libraries, a GPU.
ABSENT = (
    r"ModuleNotFoundError|FileNotFoundError|URLError|Parent directory"
    r"|non-empty list|CUDA|NCCL|nccl|No accelerator|_cuda_setDevice|No supported gpu backend"
)
# Correct where they are at home, and not to be run as two ranks without arguments.
ELSEWHERE = {
    "accelerate/g05_near_nothing_to_train": "is wrapped all the same on CPUs",
    "accelerate/g05_near_relu_given_to_it": "is wrapped all the same on CPUs",
    "accelerate/k05_near_frozen_in_a_loop": "is wrapped all the same on CPUs",
    "accelerate/k05_near_frozen_teacher": "is wrapped all the same on CPUs",
    "accelerate/l15_near_clips_shards": "shards on a GPU alone",
    "collectives/c01_near_file_before_training": "waits for a file that somebody makes",
    "collectives/c01_near_hook_of_old_lightning": "is of Lightning 1",
    "collectives/c01_near_trainer_with_gpus": "is of Lightning 1",
    "collectives/c01_near_wrapped_for_a_group": "has its model in a group of one",
    "collectives/c03_near_for_else": "wants arguments",
    "collectives/c05_near_names_in_a_config": "starts its ranks itself",
    "collectives/c11_near_rows_made_equal": "wants arguments",
    "collectives/c18_near_worker_ends_by_itself": "starts its ranks itself",
    "collectives/c14_near_miss_best_of_rank_0": "leaves rank 0 with its best weights",
    "data/d11_near_seed_before_spawn": "starts its ranks itself",
    "devices/l01_near_other_trainer": "wants arguments, and a GPU each",
    "files/k01_near_after_the_processes": "starts its ranks itself",
    "files/k01_near_name_is_none_known": "wants a checkpoint",
    "files/k01_near_rank_of_the_only_one": "is one process",
    "files/k01_near_workers_of_another_class": "starts its ranks itself",
    "files/k02_near_folder_of_the_node": "wants a variable of the environment",
    "files/k03_near_one_of_two": "wants arguments",
    "files/k07_near_log_in_it": "wants arguments",
    "files/k07_near_read_after_the_join": "starts its ranks itself",
    "files/k07_near_says_rank_0": "is one process",
    "files/k07_near_set_while_waiting": "waits for a file that somebody makes",
    "files/spawned_near_miss_rank_is_set": "starts its ranks itself",
    "gradients/c17_near_other_hook": "has a model of its own on each rank",
    "held_out/clock_of_the_chief": "ends after ten minutes",
    "launch/l07_near_function_of_the_file": "starts its ranks itself",
    "launch/l07_near_not_all_join": "starts its ranks itself",
    "launch/l07_near_other_nodes": "wants arguments",
    "launch/l07_near_spawned_without_rank": "starts its ranks itself",
    "launch/l08_near_asks_for_four": "wants four ranks",
    "launch/p01_near_one_process": "is one process",
    "lightning/c08_near_fabric_of_a_group": "has no model on rank 0",
    "lightning/m04_good_cli": "wants arguments",
    "lightning/m04_near_cli_one_device": "wants arguments",
    "messages/order_near_no_members": "wants four ranks",
    "messages/peers_near_role_of_the_command_line": "wants arguments",
    "messages/ring_near_two_spawned": "starts its ranks itself",
    "messages/server_near_two_processes": "starts its ranks itself",
    "metrics/m01_near_parts_in_files": "wants a variable of the environment",
}


@dataclass(frozen=True)
class Proof:
    """``wrong``: what the bad case prints or fails with, or APART; ``right``: what is printed else.

    ``good`` is the correct program to compare with.
    """

    bad: str
    good: str
    wrong: str
    right: str = ""


@dataclass(frozen=True)
class Ended:
    """How the two ranks ended, what they wrote, and their weights."""

    codes: tuple[int, ...]
    out: str
    err: str
    weights: tuple[str, str]

    @property
    def apart(self) -> bool:
        return self.weights[0] != self.weights[1]

    @property
    def well(self) -> bool:
        return self.codes == (0, 0) and not self.apart


@dataclass
class Ranks:
    """The process that runs programs on two ranks."""

    asked: IO[str]
    answers: IO[str]
    folder: Path

    def run(self, case: Case) -> Ended:
        for _ in range(ATTEMPTS):
            ended = self._once(case)
            if EXIT_RACE not in ended.err:
                break
        return ended

    def _once(self, case: Case) -> Ended:
        folder = self.folder / str(len(list(self.folder.iterdir())))
        script = case.put(folder) / case.files[0][0]
        self.asked.write(json.dumps({"script": str(script)}) + "\n")
        self.asked.flush()
        answer = json.loads(self.answers.readline())
        first, second = answer["weights"]
        out, err = "".join(answer["out"]), "".join(answer["err"])
        return Ended(tuple(answer["codes"]), out, err, (first, second))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(SERVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield Ranks(server.stdin, server.stdout, tmp_path_factory.mktemp("proofs"))
        server.stdin.close()


def collective(bad: str, good: str, wrong: str, right: str = "") -> Proof:
    return Proof(f"collectives/{bad}", f"collectives/{good}", wrong, right)


def messages(bad: str, good: str, wrong: str, right: str = "") -> Proof:
    return Proof(f"messages/{bad}", f"messages/{good}", wrong, right)


def gradients(bad: str, good: str, wrong: str = APART) -> Proof:
    return Proof(f"gradients/{bad}", f"gradients/{good}", wrong)


PROOFS = (
    collective("c01_renamed", "c01_good", "tally 110.0", "tally 21.0"),
    collective("c02_if_else_barrier", "c02_good", BROKEN, "total 90"),
    collective("c03_continue_renamed", "c03_good", "gradient 5.0\ngradient 6.5", "gradient 7.0"),
    collective("c06_evaluate_function", "c06_near_module_no_grad", BROKEN, "error"),
    collective("c09_fstring", "c09_near_order", "loss: 50.5", "good enough"),
    collective("c11_strided_subset", "c11_near_equal_lengths", BROKEN),
    collective("c12_random_depth", "c12_good_same_seed", UNFINISHED),
    collective("c14_load_after_wrap", "c14_good", r"mean weight (?!3\.0)", r"mean weight 3\.0"),
    collective("l10_inline_list", "l10_good", "length 2.5", "length 5.0"),
    collective("l11_same_tensor", "l11_good", r"\[2\.0, 2\.0\]", r"\[1\.0, 2\.0\]"),
    gradients("g01_renamed", "g01_good"),
    gradients("g04_renamed", "g04_near_rewrap"),
    gradients("g08_class", "g08_near_from_one"),
    gradients("g13_two_losses", "g13_near_sum"),
)
MORE = (
    collective("c01_across_files", "c01_near_world_size", "score 55.0"),
    collective("c01_class_method", "c01_near_subgroup", BROKEN, "all 1.0"),
    collective("c02_class_setup", "c02_near_two_arms", BROKEN),
    collective("c02_across_files", "c02_near_contextmanager", BROKEN),
    collective("c02_renamed_ternary_flag", "c02_near_rank0_first", BROKEN),
    collective("c03_break_function", "c03_near_uniform_break", BROKEN),
    collective("c03_class_return", "c03_near_after_last", BROKEN),
    collective("c03_exit_across_files", "c03_near_raise", BROKEN),
    collective("c04_nan_continue_renamed", "c04_good", "gradient 6.0\ngradient 7.5"),
    collective("c04_while_random", "c04_near_broadcast_decision", BROKEN),
    collective("c06_class_validate", "c06_near_no_buffers", BROKEN),
    collective("c06_across_files", "c06_good_all_ranks", BROKEN),
    collective("c07_full_tensor", "c07_near_gathered_first", BROKEN),
    collective("c07_class_state_dict", "c07_good", BROKEN),
    collective("c07_dcp_across_files", "c07_near_ddp_state_dict", BROKEN),
    collective("c09_short_circuit", "c09_near_order", BROKEN, "good enough"),
    collective("c10_return_before_barrier", "c10_good", BROKEN, "total 90"),
    collective("c10_class_lazy_cache", "c10_near_return_after_own_barrier", BROKEN),
    collective("c13_classes_of_own_shard", "c13_good_before_sharding", "appears not to match"),
    collective("c15_function", "c15_near_local_synchronization", BROKEN),
    collective("c15_class", "c15_good", BROKEN),
    collective("c16_recv_first", "c16_good_parity", BROKEN),
    collective("c17_dtype_class", "c17_near_float_both", BROKEN, "total 3.0"),
    collective("c17_masked_gather", "c17_good_padded", BROKEN),
    collective("c18_continue", "c18_good_reraise", "gradient 6.0\ngradient 7.5"),
    collective("l09_assigned", "l09_good", "unsupported operand"),
    collective("l10_length_differs", "l10_near_unpacked_after", BROKEN),
    messages("counts_bad_1", "counts_near_4", BROKEN),
    messages("dtype_bad_3", "dtype_near_4", "4611686019509518336", r"0\.1000, 0\.2000"),
    messages("group_bad_2", "group_near_4", "is not part of group"),
    messages("lists_bad_1", "lists_near_4", "Incorrect input list size"),
    messages("lists_bad_2", "lists_near_5", "must NOT be specified"),
    messages("result_bad_1", "result_near_4", "'NoneType' object is not iterable", r"0\.5"),
    messages("tags_bad_1", "tags_near_4", BROKEN),
    gradients("g01_files", "g01_near_eager"),
    gradients("g03_class", "g01_good", UNFINISHED),
    gradients("g08_attribute", "g08_near_early"),
    gradients("g14_update", "g14_near_averaged"),
    gradients("g17_half", "g01_good"),
)


def proofs() -> list[object]:
    thorough = [pytest.param(p, id=p.bad, marks=pytest.mark.thorough) for p in MORE]
    return [*(pytest.param(p, id=p.bad) for p in PROOFS), *thorough]


@pytest.mark.training
@pytest.mark.parametrize("proof", proofs())
def test_the_bad_program_goes_wrong_and_the_good_one_does_not(proof: Proof, ranks: Ranks) -> None:
    bad, good = (parse(FOLDER / f"{name}.case") for name in (proof.bad, proof.good))
    assert (bad.label, good.label == "bad") == ("bad", False)
    wrong = ranks.run(bad)
    if proof.wrong is APART:
        assert wrong.codes == (0, 0), wrong.err
        assert wrong.apart
    else:
        assert re.search(proof.wrong, wrong.out + wrong.err), (wrong.codes, wrong.out, wrong.err)
    right = ranks.run(good)
    assert right.well, (right.codes, right.err, right.weights)
    assert re.search(proof.right, right.out), right.out


def is_correct(case: Case) -> bool:
    return case.label != "bad" and case.name not in ELSEWHERE


@pytest.mark.training
@pytest.mark.thorough
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in all_cases() if is_correct(c)])
def test_what_is_called_correct_ends_well_with_equal_weights(case: Case, ranks: Ranks) -> None:
    """As far as it can be run here."""
    if case.files[0][0].endswith(".py"):
        ended = ranks.run(case)
        assert ended.well or re.search(ABSENT, ended.err), (ended.codes, ended.err, ended.weights)
