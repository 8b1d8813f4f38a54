"""Which names ask for the rank: those that public programs have before what they write."""

from __future__ import annotations

import ast

import pytest

from ddpify.rules.shared.rank_words import asks_rank, ends_others, names_rank

ASKING = """rank world_rank mpi_rank rank_id_curr_node is_mp_rank_0 get_fs_local_rank rank_zero_only
isMasterNode is_root is_root_proc is_main_host is_primary_worker am_leader not_main leader chief
master primary master_only main_process_only is_master_gpu is_main_device is_chief_cuda worker_id
proc_index process_idx get_dist_info"""
OTHERS = """rank_pattern lora_rank matrix_rank low_rank rank_loss rank_metric ranking root_node
main_loss master_weights is_first first_epoch head main root worker_init num_proc process_batch
node_type leaderboard domain"""
TESTS = ("gpu == 0", "not gpu_id", "device != 'cuda:0'", "cfg['gpu'] == 0", "any([x.node == 0])",
         "worker == 0", "proc == 0", "process == 0")  # fmt: skip
NO_TESTS = ("gpu", "n_gpu == 0", "num_worker == 0", "gpu_count == 0", "use_gpu == 0", "gpu == 1",
            "seed == 0", "not name", "0 == gpu == 0")  # fmt: skip


@pytest.mark.parametrize("name", ASKING.split())
def test_these_ask(name: str) -> None:
    assert names_rank(name)


@pytest.mark.parametrize("name", OTHERS.split())
def test_these_ask_for_something_else(name: str) -> None:
    assert not names_rank(name)


@pytest.mark.parametrize("text", TESTS)
def test_number_0_is_that_of_one_rank(text: str) -> None:
    assert asks_rank(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize("text", NO_TESTS)
def test_a_number_of_others_is_that_of_none(text: str) -> None:
    assert not asks_rank(ast.parse(text, mode="eval").body)


def test_some_do_not_come_back() -> None:
    ends = ["exit_unless_leader", "return_if_not_main", "stop_rank", "skip_rank"]
    assert all(map(ends_others, ends))
    assert not any(map(ends_others, ["is_leader", "exit_early", "stop"]))
