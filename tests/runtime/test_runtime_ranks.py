"""The runtime under torchrun: real processes, one launch per number of ranks for all checks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

from ddpify import vendor
from tests.support.torchrun import torchrun

SCRIPTS = Path(__file__).parent / "scripts"

pytestmark = pytest.mark.training


@dataclass(frozen=True)
class Job:
    """What each rank saw (see scripts/checks.py), and what it wrote to stderr."""

    seen: list[dict[str, Any]]
    stderr: tuple[str, ...]

    def __getitem__(self, check: str) -> list[Any]:
        return [rank[check] for rank in self.seen]

    @property
    def size(self) -> int:
        return len(self.seen)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((2, ()), id="2-ranks-unseeded"),
        pytest.param((3, ("--seeded",)), id="3-ranks-seeded"),
    ],
)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    nproc, arguments = request.param
    folder = project(tmp_path_factory.mktemp("project"))
    done = torchrun(
        SCRIPTS / "checks.py", nproc, *arguments, cwd=folder, env={"PYTHONPATH": str(folder)}
    )
    assert done.returncode == 0, done.stderr
    return Job([json.loads(text) for text in done.rank_stdout], done.rank_stderr)


def project(folder: Path) -> Path:
    """A folder with a vendored copy, and nothing of ours besides."""
    (folder / "ddp_utils.py").write_text(vendor.core_text())
    (folder / "ddp_metrics.py").write_text(vendor.metrics_text())
    return folder


def test_each_rank_knows_who_it_is(job: Job) -> None:
    for rank, seen in enumerate(job["identity"]):
        assert (seen["rank"], seen["local_rank"], seen["main"]) == (rank, rank, rank == 0)
        assert (seen["world_size"], seen["distributed"]) == (job.size, True)


def test_rank_is_known_outside_the_session_and_collectives_say_where_they_belong(job: Job) -> None:
    for rank, (before, after) in enumerate(zip(job["before"], job["after"], strict=True)):
        assert before[:2] == [rank, job.size]
        assert (after["main"], after["distributed"]) == (rank == 0, False)
        if job.size > 1:
            for said in (before[2], after["collective"]):
                assert "process group has not been initialized" in said


def test_all_ranks_draw_alike_after_setup(job: Job) -> None:
    assert all(draws == job["draws"][0] for draws in job["draws"])


def test_a_seed_set_before_setup_is_kept(job: Job) -> None:
    if job.size == 3:  # the seeded job: random.seed(7)
        assert job["draws"][0][0] == pytest.approx(0.32383276483316237)


def test_what_every_rank_says_is_shown_once(job: Job) -> None:
    for text in ("an info record", "UserWarning: a warning"):
        assert [text in stderr for stderr in job.stderr] == [True] + [False] * (job.size - 1)
    for rank, stderr in enumerate(job.stderr):
        assert f"an error record of rank {rank}" in stderr
    assert set(job["notices"]) == {"RuntimeWarning: made an error"}


def test_sums(job: Job) -> None:
    size, steps = job.size, sum(range(job.size))
    for seen in job["sums"]:
        assert seen["int"] == [size * 2**50 + steps, "int"]
        assert seen["bool"] == [size, "int"]
        assert seen["float"] == size / 2
        assert seen["tensor"] == [steps + size, 2 * (steps + size)]
        assert (seen["gradient"], seen["argument"]) == (False, True)
        assert seen["scalar"] == [steps, "torch.int64"]
        assert seen["flags"] == [[size], size]
        assert seen["strided"]
        assert (seen["no samples"], seen["no samples, tensor"], seen["nothing"]) == (1.5, 1.5, [])
        assert seen["list"] == [size]  # of each entry
        expected = "TypeError: only numbers, tensors, arrays can be reduced, not str"
        assert seen["text"] == expected


def test_sums_of_arrays(job: Job) -> None:
    for seen in job["arrays"]:
        assert (seen["small"], seen["argument"], seen["large"]) == (True, True, True)
        assert seen["half"] == [[job.size / 2], "float32"]
        assert seen["flags"] == [job.size, job.size - 1]
        assert seen["single"] == [sum(range(job.size)), []]
        assert seen["unsigned"] == [True, "uint8"]


def test_lists_of_the_ranks_become_those_of_one_process(job: Job) -> None:
    for seen in job["gathering"]:
        assert all(seen[name] for name in ("numbers", "boxes", "tensors", "numpys", "lists"))
        assert seen["dicts"] == ["10", [3, 3, 3], "int16"]
        assert seen["type"] == ["torch.float16", "int32"]
        assert (seen["few"], seen["one"], seen["none"]) == ([[0], [1]], [0], [[], []])
        if job.size > 1:
            total = sum(3 - rank for rank in range(job.size))
        if job.size == 3:
            assert (
                seen["unequal"]
                == f"ValueError: rank 0 has 3 of {total} entries, which is not its share"[:52]
            )


def test_a_short_last_batch_is_dealt_without_a_sample_twice(job: Job) -> None:
    if job.size == 1:
        return
    for number, samples in enumerate((10 * job.size + 1, 8 * job.size + 1, 8 * job.size)):
        ranks = [seen[number] for seen in job["unequal"]]
        dealt = sorted(sample for rank in ranks for part in rank["parts"] for sample in part)
        once = number != 1  # too few for each rank: they are filled up, as it is said
        assert (dealt == list(range(samples))) is once
        assert set(dealt) == set(range(samples))
        assert {rank["length"] for rank in ranks} == {2 if number == 2 else 3}
        for rank in ranks:
            last = len(rank["parts"][-1]) if number == 0 else 1
            weight = job.size * last / (2 * job.size + 1) if number == 0 else 1
            assert rank["weights"] == [1] * (rank["length"] - 1) + [weight]


def test_means(job: Job) -> None:
    mean = (job.size - 1) / 2
    assert job["means"] == [[mean, mean / 2, [mean, 1.0], "float", mean]] * job.size


def test_meters(job: Job) -> None:
    count, mean = sum(range(job.size)), (job.size - 1) / 2
    for seen in job["meters"]:
        assert seen["loss"] == [10.0 * count, count]
        assert seen["averages"] == [10.0 if count else 0.0, 0.0, 0.5, 1.5]
        assert seen["shown"] == (10.0 if count else 0.0)
        assert seen["kept"]
        ranks = {f"of {rank}": 1 for rank in range(job.size)}
        last = f"[{mean}, 1.0]"
        assert seen["copies"] == [[count, job.size], count, mean, mean, last]
        assert seen["entries"] == {"all": count, **ranks, "missing": 1}
        assert seen["table"] == 2


def test_broadcast_gives_every_rank_the_object_of_rank_0(job: Job) -> None:
    assert job["objects"] == [["True", [1, 2]]] * job.size


def test_the_training_sampler_deals_every_sample_once_but_for_the_announced_repeats(
    job: Job,
) -> None:
    orders = []
    for epoch in range(2):
        shares = [seen["epochs"][epoch] for seen in job["sampling"]]
        order = [index for step in zip(*shares, strict=True) for index in step]
        assert sorted(order[:10]) == list(range(10))
        assert order[10:] == order[: len(order) - 10]
        orders.append(order)
    assert orders[0] != orders[1]
    repeats = len(orders[0]) - 10
    text = (
        f"10 samples do not divide by {job.size} ranks: the last batch of each epoch "
        f"repeats {repeats} of them"
    )
    warned = [seen["warnings"] for seen in job["sampling"]]
    assert warned == [[text] if repeats and rank == 0 else [] for rank in range(job.size)]


def test_each_pass_that_begins_within_an_epoch_has_an_order_of_its_own(job: Job) -> None:
    orders = [seen["epochs"][-1] for seen in job["sampling"]], *(
        [seen["again"][number] for seen in job["sampling"]] for number in range(2)
    )
    assert all(one != other for i, one in enumerate(orders) for other in orders[:i])
    for shares in orders:
        assert {index for share in shares for index in share} == set(range(10))


def test_two_loaders_in_step_do_not_pair_the_same_samples(job: Job) -> None:
    for seen in job["sampling"]:
        assert seen["beside"] != seen["epochs"][-1]


def test_the_training_sampler_in_order_and_with_drop_last(job: Job) -> None:
    for rank, seen in enumerate(job["sampling"]):
        assert seen["in order"] == list(range(rank, 6, job.size))
        assert seen["dropped"] == list(range(rank, 10 - 10 % job.size, job.size))


def test_data_sets_of_unequal_length_are_an_error_that_names_the_rank(job: Job) -> None:
    for rank, seen in enumerate(job["sampling"][1:], start=1):
        expected = f"ValueError: rank {rank} has {6 + rank} samples but rank 0 has 6"
        assert seen["unequal"].startswith(expected)


def test_the_order_of_a_sampler_is_rank_0s_and_shared(job: Job) -> None:
    size = job.size
    for rank, seen in enumerate(job["orders"]):
        for length in (1, 7, 12):
            padded = [i % length for i in range(-(-length // size) * size)]
            cut = list(range(length // size * size))
            for name, order in ((f"{length} False", padded), (f"{length} True", cut)):
                assert seen["shares"][name] == [order[rank::size], len(order) // size]
        assert seen["endless"] == [-(-(10**10) // size), 2]
    drawn = RandomSampler(range(50), generator=torch.Generator().manual_seed(0))
    for number in range(2):  # each pass draws anew, as in one process
        order = list(drawn)
        order += order[: -50 % size]
        for rank, seen in enumerate(job["orders"]):
            assert seen["passes"][number] == order[rank::size]


def test_each_rank_gets_its_part_of_every_batch_of_rank_0(job: Job) -> None:
    alone = DataLoader(range(31), 12, shuffle=True, generator=torch.Generator().manual_seed(0))
    for number in range(2):
        for index, batch in enumerate(b.tolist() for b in alone):
            batch += batch[: -len(batch) % job.size]
            for rank, seen in enumerate(job["orders"]):
                assert seen["batches"][number][index] == batch[rank :: job.size]
    assert all(seen["told"] == [3, 12, 31] for seen in job["orders"])
    for index, batch in enumerate((list(range(12)), list(range(12, 24)), [24, 25, 26])):
        batch += batch[: -len(batch) % job.size]
        for rank, seen in enumerate(job["orders"]):
            assert seen["given"][0][index] == batch[rank :: job.size]


def test_a_loader_that_is_no_share_stays_whole(job: Job) -> None:
    whole = [[0, 1], [2, 3], [4, 5], [6]]
    assert [seen["other"] for seen in job["evaluation"]] == [whole] * job.size


def test_the_evaluation_sampler_deals_every_sample_once(job: Job) -> None:
    shares = [seen["shard"] for seen in job["evaluation"]]
    assert sorted(index for share in shares for index in share) == list(range(7))
    assert [seen["batches"] for seen in job["evaluation"]] == [-(-len(s) // 2) for s in shares]
    assert [seen["older"] for seen in job["evaluation"]] == shares
    size = 2 * len(shares)
    whole = [list(range(start, min(start + size, 7))) for start in range(0, 7, size)]
    assert all(seen["whole"] == whole for seen in job["evaluation"])


def test_the_evaluation_sampler_deals_whole_batches(job: Job) -> None:
    for size in (1, 2, 3, 7, 10):
        batches = [list(range(start, min(start + size, 7))) for start in range(0, 7, size)]
        for rank, seen in enumerate(job["evaluation"]):
            mine = batches[rank :: job.size]
            assert seen["dealt"][str(size)] == [mine, len(batches), batches[0]]


def test_ranks_without_a_batch_add_nothing(job: Job) -> None:
    for seen in job["missing"]:
        assert seen == {
            "torch": [[1, 1, 0, 0, 2], "torch.int64", 4.5, 9.0],
            "numpy": [[1, 1, 0, 0, 2], "int64", 4.5, 9.0],
            "flags": [[[1, 0]], "torch.int64"],
            "number": [2.5, job.size],
            "zero": 0.5,
            "nobody": [None, job.size],
        }


BATCHES = {1: ["12", "24"], 2: ["6", "12"], 3: ["4", "8"]}


def test_batch_sizes_are_split(job: Job) -> None:
    assert job["batch_sizes"] == [BATCHES[job.size]] * job.size


def test_every_rank_takes_its_part_of_the_batch_that_rank_0_made(job: Job) -> None:
    size = 6 // job.size
    for rank, seen in enumerate(job["shares_of_one_batch"]):
        rows = range(rank * size, (rank + 1) * size)
        assert seen["rows"] == [[2 * row, 2 * row + 1] for row in rows]
        assert seen["flags"] == [[True, False]] * size
        assert seen["columns"] == ["ndarray", [2 * row for row in rows]]
        assert seen["labels"] == list(rows)
        assert seen["kept"]


def test_a_stream_becomes_a_list(job: Job) -> None:
    assert job["listed"] == [[0, 1, 2]] * job.size


def test_what_cannot_be_divided_alike_stops_every_rank(job: Job) -> None:
    for rank, seen in enumerate(job["shares_of_one_batch"]):
        sentence = f"a batch of {job.size + 1} samples cannot be split evenly over {job.size} ranks"
        assert seen["uneven"] == (1 if rank else sentence)
        assert [seen[name] for name in ("other", "axes", "number", "flat")] == [
            "ValueError",
            "ValueError",
            "TypeError",
            "TypeError",
        ]
        assert (
            seen["computed"]
            == "ValueError: divide what a model is given, not what one has computed"
        )


def test_turns_rank_0_then_other_nodes_then_the_rest(job: Job) -> None:
    order = {1: ["0"], 2: ["0", "1"], 3: ["0", "2", "1"]}[job.size]
    assert job["turns"] == [order] * job.size


def test_a_failure_before_others_is_theirs_too_and_collectives_stay_in_step(job: Job) -> None:
    errors = [error for error, _ in job["failed_turn"]]
    other = "RuntimeError: another rank failed where this one waited: its traceback says why"
    assert errors == ["OSError: disk full"] + [other] * (job.size - 1)
    assert [total for _, total in job["failed_turn"]] == [job.size] * job.size


def test_saving_writes_one_whole_file_of_rank_0_that_all_can_read(job: Job) -> None:
    for rank, seen in enumerate(job["saving"]):
        assert seen["loaded"] == [[0, 1, 2], 0]
        assert seen["files"] == ["model.pt"]
        assert seen["failed"] == ("RuntimeError" if rank else "FileNotFoundError")
        assert seen["in step"] == job.size


def test_ranks_train_what_one_process_trains(job: Job) -> None:
    for seen in job["training"]:
        assert seen["difference"] < 1e-6
        assert seen["wrapper"] == "DistributedDataParallel"
        assert seen["keys"]
        assert seen["prefixed"]


def test_a_count_of_all_ranks_is_shared_out(job: Job) -> None:
    total = sum(range(job.size))
    for rank, seen in enumerate(job["rank_counts"]):
        share = total / job.size
        assert seen["numbers"] == [share, max(total, 2.5) / job.size, 9 / job.size]
        assert [value for value, _ in seen["tensors"]] == pytest.approx([share, 9 / job.size])
        assert seen["tensors"][1][1] == "torch.float64"
        assert seen["evaluating"] == [rank, max(rank, 2)]


def test_means_are_weighed_so_that_their_mean_is_that_of_all_terms(job: Job) -> None:
    for rank, seen in enumerate(job["global_means"]):
        for case in ("none ignored", "few", *(["rank without"] if job.size > 1 else [])):
            ours, whole = seen[case]["value"]
            assert ours == pytest.approx(whole, rel=1e-12), case
            assert seen[case]["gradient"] < 1e-15, case
            assert seen[case]["dtype"]
        if job.size > 1:
            assert (seen["rank without"]["own"] == [0.0, 0.0]) is (rank == 0)
        assert seen["all"] == "[nan, 0.0]", "as in one process"
        for ours, whole in seen["asked"]:
            assert ours == pytest.approx(whole, rel=1e-12)
        assert (seen["half"], seen["evaluating"]) == (True, True)


def test_the_rows_of_a_whole_batch_are_those_of_all_ranks(job: Job) -> None:
    ranks = range(job.size)
    for rank, seen in enumerate(job["whole_batches"]):
        assert seen["rows"] == [float(one) for one in ranks for _ in range(2)]
        assert seen["fixed"]
        assert seen["gradient"] == [float(sum(one + 1 for one in ranks))] * 2
        assert seen["labels"] == [list(ranks)]
        if job.size > 1:
            assert "not all of the samples" in seen["wrong"][0]
            assert rank == 0 or "other ranks have others" in seen["wrong"][1]
            assert "not str" in seen["wrong"][2]


def test_wrapper_options_are_spelled_for_the_installed_torch(job: Job) -> None:
    for seen in job["wrapping"]:
        assert (seen["buffers"], seen["new name"]) == ([True, False], False)
        assert seen["batch norm on the CPU"] == "BatchNorm1d"
        assert seen["frozen"] == 0  # rank 0's weights, without a wrapper


def test_gradients_are_averaged_on_the_last_micro_batch_only(job: Job) -> None:
    inputs = [rank + 1.0 for rank in range(job.size)]
    mean = sum(inputs) / job.size
    assert job["accumulation"] == [[x, pytest.approx(2 * mean)] for x in inputs]


def test_a_second_backward_adds_what_a_rank_has_until_it_is_averaged(job: Job) -> None:
    inputs = [rank + 1.0 for rank in range(job.size)]
    mean = sum(inputs) / job.size
    rest = [pytest.approx(2 * mean), pytest.approx(1 / job.size), None]
    rest.append(pytest.approx([(job.size - 1) / 2]))  # the mean of their numbers
    assert job["kept_graphs"] == [[mean, pytest.approx(mean + x), *rest] for x in inputs]


def test_forked_streams_differ_and_rank_0_keeps_its_own(job: Job) -> None:
    assert job["forked"][0]["kept"]
    for stream in range(3):
        assert len({str(seen["draws"][stream]) for seen in job["forked"]}) == job.size


def test_ranks_draw_alike_for_a_while_and_then_go_on_apart(job: Job) -> None:
    first, *others = job["forked"]
    assert all(seen["alike"] == first["alike"] for seen in others)
    assert all(seen["own again"] for seen in others)
    assert not first["own again"], "rank 0 has drawn"


def test_an_epoch_draws_the_same_whatever_was_drawn_before_it(job: Job) -> None:
    first, *others = job["streams"]
    assert first["kept"], "rank 0 goes on with its own stream"
    for seen in others:
        begin, third, again = seen["epochs"]
        assert third == again
        assert begin != third
        assert not seen["kept"]
    for epoch in range(3):
        assert len({str(seen["epochs"][epoch]) for seen in job["streams"]}) == job.size


def test_a_checkpoint_has_the_streams_of_all_ranks(job: Job) -> None:
    for part in ("then", "other"):
        assert len({str(seen[part]) for seen in job["streams_of_ranks"]}) == job.size
    for seen in job["streams_of_ranks"]:
        assert seen["then"] == seen["again"]
        assert seen["silent"]
    told = " and ".join(job["streams_of_ranks"][0]["told"])
    assert f"was written by 7 ranks and is read by {job.size}" in told
    assert "batch size is [70]" in told


def test_a_rank_that_raises_ends_the_job_with_its_traceback(tmp_path: Path) -> None:
    folder = project(tmp_path)
    script = SCRIPTS / "one_rank_raises.py"
    done = torchrun(script, 2, cwd=folder, env={"PYTHONPATH": str(folder)}, timeout=60)
    assert done.returncode != 0
    assert "ValueError: bad sample" in done.rank_stderr[1]


def test_models_that_divide_whole_batches_train_as_one_process_does(job: Job) -> None:
    for seen in job["whole_models"]:
        assert all(seen["one process"])
        assert seen["draws"] == [2 * 12 * 4, True]  # each row its own; all go on as before
        assert seen["rows"] == seen["array"] == "(12, 4)"
        assert seen["table"] == "(6, 4)"  # which is the same for all samples
        assert seen["placed"] == [True] * 8
        assert seen["evaluated"] == [5, 4]


def test_what_is_not_of_the_samples_is_not_divided(job: Job) -> None:
    told = {
        "number": "does not compute its samples one by one",
        "neighbours": "does not compute its samples one by one",
        "two lengths": "which of [5, 12] is the number of samples",
        "own batch": "given different batches",
        "own order": "given different batches",
    }
    for seen in job["whole_models"]:
        for check, sentence in told.items():
            assert sentence in seen[check], check


def test_ranks_load_whole_batches_together(job: Job) -> None:
    first, *others = job["whole_loading"]
    assert first["first"]
    assert first["length"] == [3, 4, True]
    assert sum(rank["loaded"] for rank in job["whole_loading"]) == 2 * 11
    for batches in (first["batches"][:3], first["batches"][3:]):
        assert sorted(at for ats, _, _ in batches for at in ats) == [*range(11)]
        assert all(words == [f"w{at}" for at in ats] for ats, words, _ in batches)
    for rank in (first, *others):
        assert rank["batches"] == first["batches"]  # and all draw alike between them
        assert rank["draws"] == 11


def test_a_sharded_model_trains_as_a_whole_one(job: Job) -> None:
    for rank, seen in enumerate(job["sharding"]):
        assert seen["norms"][::2] == seen["norms"][1::2], "a norm is of all shards"
        assert seen["trained"] < 1e-12
        assert seen["moments"] < 1e-12
        assert seen["loaded"] == [0.0, 0.0]
        assert set(seen["kept"]) == {rank > 0}, "a file is rank 0's"
        assert seen["versions"]
        assert seen["class"] == "Sequential"
        assert all(seen["pickled"]), seen["pickled"]


def test_ranks_without_a_backward_are_waited_for(job: Job) -> None:
    for seen in job["sharding"]:
        nobody, *others = seen["idle"]
        assert all(nobody[0]), "no gradient where nobody had a backward"
        assert not any(any(none) for none, _ in others)
        assert max(distance for _, distance in seen["idle"]) < 1e-12


def test_a_model_that_rank_0_builds_is_dealt_out(job: Job) -> None:
    for rank, seen in enumerate(job["building"]):
        assert set(seen["shapes"]) == {rank > 0}
        assert len(seen["same"]) == 7
        assert all(seen["same"])
        assert seen["tied"]
        assert seen["drawn"], "random streams go on as rank 0's"
        assert ("loose" in str(seen["loose"])) == (rank > 0)


def test_what_rank_0_has_found_all_have(job: Job) -> None:
    assert job["handed"] == [{"found by": 0}] * job.size


def test_what_is_infinite_in_one_shard_makes_all_ranks_skip_the_step(job: Job) -> None:
    for seen in job["scaling"]:
        assert seen == [[1024.0, True], [512.0, False], [512.0, True]]


def test_each_rank_keeps_a_share_of_the_weights(job: Job) -> None:
    shares = [seen["share"] for seen in job["sharding"]]
    assert sum(shares) == 4 * 6 + 6 + 2 * 6 + 6 * 2 + 2
    assert max(shares) < 0.7 * sum(shares)


def test_an_uneven_evaluation_of_a_sharded_model_ends_on_all_ranks(job: Job) -> None:
    """Two forwards in each batch; of one that is left all ranks make the same, once."""
    batches = {
        "uneven": [3, *[2] * (job.size - 1)],
        "few": [*[1] * (job.size - 1), 0],
        "one": [1, *[0] * (job.size - 1)],
    }
    for name, numbers in batches.items():
        evaluated = [seen["evaluated"][name] for seen in job["sharding"]]
        assert [each[0] for each in evaluated] == numbers
        assert {each[1] for each in evaluated} == {2 * max(numbers)}
        assert all(each[2] < 1e-12 for each in evaluated), "each sample counts once"


def test_loaders_of_a_trainer_are_dealt_by_us_alone(job: Job) -> None:
    """Whole batches of an evaluation; parts of its samples where there are fewer than ranks."""
    ranks = job["given_to_a_trainer"]
    for size in (2, 3, 7, 40):
        shares = [seen[f"evaluated {size}"] for seen in ranks]
        assert all(length == len(batches) for batches, length, _ in shares)
        whole = [list(range(start, min(start + size, 40))) for start in range(0, 40, size)]
        said = [f"{len(whole)} batches, {job.size} ranks: each rank has a part of the samples"]
        told = [[text.partition(";")[0] for text in texts] for *_, texts in shares]
        assert told == [said * (len(whole) < job.size), *[[]] * (job.size - 1)]
        if len(whole) >= job.size:
            assert all(
                batches == whole[rank :: job.size] for rank, (batches, *_) in enumerate(shares)
            )
        else:
            assert [sample for ((batch,), *_) in shares for sample in batch] == list(range(40))
    assert sorted(i for seen in ranks for batch in seen["drawn"] for i in batch) == list(range(40))
    parts = [seen["trained"] for seen in ranks]
    assert {(length, size) for _, length, size in parts} == {(7, 6)}
    assert sorted(i for batches, *_ in parts for batch in batches for i in batch) == list(range(42))
    for seen in ranks:
        assert seen["left alone"] == [job.size > 1] * 2
        assert seen["epochs"] == ([3] if job.size > 1 else [])
        if job.size > 1:
            assert "1 samples cannot be shared out" in seen["too few"]
            assert "without batches" in seen["no batches"]
