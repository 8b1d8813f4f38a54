"""B3: what was counted, sized or averaged over the whole is taken over a share."""

from __future__ import annotations

from tests.verify.hazards.base import ORIGINAL, Change, Hazard, changed, hazard

TRAIN = "    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)\n"
MAIN_TRAIN = "    train_loader = DataLoader(train_set, batch_size=batch_size, sampler=sampler)\n"
SHARE = "    val_share = Subset(val_set, range(rank, len(val_set), world))\n"
MAIN_VAL = "    val_loader = DataLoader(val_share, batch_size=batch_size)\n"
SPLIT = "    train_set, val_set = random_split(TensorDataset(x, y), [96, 32])\n"
SAMPLER = "    sampler = DistributedSampler(train_set, world, rank, shuffle=True)\n"
SET_EPOCH = "        sampler.set_epoch(epoch)\n"
EPOCHS = "    for epoch in range(args.epochs):\n"
RETURN = "    return correct / count\n"
MAIN_RETURN = "    return reduce_sum(correct) / reduce_sum(count)\n"
CORRECTLY = "        correct += (model(inputs).argmax(1) == labels).sum().item()\n"
SAVE = '        torch.save(model.state_dict(), "last.pt")\n'
DESTROY = "    if world > 1:\n        dist.destroy_process_group()\n"

DIVISOR = hazard(
    "B3.25",
    "the loss of a share is divided by the size of the whole data set",
    "DDP701",
    ("metrics",),
    ("reduce_sum(total) / len(train_set)", "total / len(train_loader.dataset)"),
)

BATCH_MEANS: tuple[Change, ...] = (
    ("    for inputs, labels in loader:\n", "    for i, (inputs, labels) in enumerate(loader):\n"),
    (CORRECTLY, CORRECTLY.replace(").sum()", ").double().mean()")),
)
BATCH_INDEX = hazard(
    "B3.25b",
    "the last batch's index is the divisor, and a share has one batch",
    "DDP701",
    ("completed",),
    *BATCH_MEANS,
    (MAIN_RETURN, "    return reduce_sum(correct / i) / dist.get_world_size()\n"),
    (MAIN_VAL, MAIN_VAL.replace("=batch_size", "=args.batch_size")),
    original=changed(ORIGINAL, *BATCH_MEANS, (RETURN, "    return correct / i\n")),
    right=(
        *BATCH_MEANS,
        (MAIN_RETURN, "    return reduce_sum(correct / i) / dist.get_world_size()\n"),
    ),
)

INDICES: Change = (
    SPLIT,
    "    data = TensorDataset(x, y)\n"
    "    order = torch.randperm(128).tolist()\n"
    "    train_set = order[:96]\n",
)
SPLIT_REPLACED = hazard(
    "B3.29",
    "a distributed sampler replaces the one that was the train/val split",
    "DDP202",
    ("samples", "steps", "trajectory"),
    INDICES,
    (SAMPLER, SAMPLER.replace("train_set", "data")),
    (MAIN_TRAIN, MAIN_TRAIN.replace("train_set", "data")),
    (SHARE, ""),
    (MAIN_VAL, MAIN_VAL.replace("val_share", "data, sampler=order[96:][rank::world]")),
    original=changed(
        ORIGINAL,
        INDICES,
        (TRAIN, TRAIN.replace("train_set", "data").replace("shuffle=True", "sampler=train_set")),
        ("DataLoader(val_set,", "DataLoader(data, sampler=order[96:],"),
    ),
    right=(
        INDICES,
        (SAMPLER, "    sampler = train_set[rank::world]\n"),
        (SET_EPOCH, ""),
        (MAIN_TRAIN, MAIN_TRAIN.replace("train_set", "data")),
        (SHARE, ""),
        (MAIN_VAL, MAIN_VAL.replace("val_share", "data, sampler=order[96:][rank::world]")),
    ),
)

OPTIONS = '    options = {"batch_size": batch_size, "shuffle": True}\n'
WITH_OPTIONS = "    train_loader = DataLoader(train_set, sampler=sampler, **options)\n"
HIDDEN_SHUFFLE = hazard(
    "B3.30",
    "shuffle=True is left in the keywords beside the new sampler",
    "DDP208",
    ("completed",),
    (MAIN_TRAIN, OPTIONS + WITH_OPTIONS),
    original=changed(
        ORIGINAL,
        (
            TRAIN,
            OPTIONS.replace(": batch", ": args.batch")
            + WITH_OPTIONS.replace("sampler=sampler, ", ""),
        ),
    ),
    right=((MAIN_TRAIN, OPTIONS.replace(', "shuffle": True', "") + WITH_OPTIONS),),
)

STREAM: tuple[Change, ...] = (
    (
        "def main():\n",
        """class Stream(IterableDataset):
    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        for index in range(len(self.samples)):
            yield self.samples[index]


def main():
""",
    ),
    ("DataLoader, ", "DataLoader, IterableDataset, "),
)
STREAM_SAMPLER = hazard(
    "B3.30b",
    "a sampler is given to the loader of a stream",
    "DDP202",
    ("completed",),
    *STREAM,
    (MAIN_TRAIN, MAIN_TRAIN.replace("(train_set", "(Stream(train_set)")),
    original=changed(
        ORIGINAL,
        *STREAM,
        (TRAIN, TRAIN.replace("(train_set", "(Stream(train_set)").replace(", shuffle=True", "")),
    ),
    right=(
        *STREAM,
        (SAMPLER, "    share = Subset(train_set, range(rank, len(train_set), world))\n"),
        (SET_EPOCH, ""),
        (
            MAIN_TRAIN,
            "    train_loader = DataLoader(Stream(share), batch_size=batch_size)\n",
        ),
    ),
)

PADDED = hazard(
    "B3.32",
    "the evaluation's sampler pads 31 samples to 32",
    "DDP209",
    ("evaluation", "metrics"),
    (SHARE, "    shares = DistributedSampler(val_set, world, rank, shuffle=False)\n"),
    (MAIN_VAL, MAIN_VAL.replace("val_share", "val_set, sampler=shares")),
    program=(("randn(128, 8,", "randn(127, 8,"), ("[96, 32]", "[96, 31]")),
)

PREDICT = """    with torch.no_grad():
        guesses = torch.cat([model(inputs).argmax(1) for inputs, _ in val_loader])
    with open("guesses.txt", "w") as file:
        file.writelines(f"{guess}\\n" for guess in guesses.tolist())
"""
GATHER = PREDICT.replace("model(", "net(").replace(
    '    with open("guesses.txt", "w") as file:\n        ',
    """    parts = [torch.empty_like(guesses) for _ in range(world)]
    dist.all_gather(parts, guesses)
    guesses = torch.cat(parts)
    if rank == 0:
        with open("guesses.txt", "w") as file:
            """,
)
OTHER_ORDER = hazard(
    "B3.32b",
    "predictions of interleaved shares are joined rank after rank",
    "DDP701",
    ("metrics",),
    (DESTROY, GATHER + DESTROY),
    original=changed(ORIGINAL, (SAVE, SAVE + PREDICT)),
    right=(
        (DESTROY, GATHER.replace("torch.cat(parts)", "torch.stack(parts, 1).flatten()") + DESTROY),
    ),
)

DECIBELS: Change = (
    CORRECTLY + "        count += len(labels)\n",
    """        error = (model(inputs).softmax(1) - nn.functional.one_hot(labels, 4)).square().mean()
        correct += -10 * error.log10().item()
        count += 1
""",
)
PSNR = hazard(
    "B3.33",
    "logarithms of each share's error are averaged",
    "DDP701",
    ("metrics",),
    program=(DECIBELS,),
    right=(
        (
            "        correct += -10 * error.log10().item()\n",
            "        dist.all_reduce(error)\n"
            "        correct += -10 * (error / dist.get_world_size()).log10().item()\n",
        ),
    ),
)

NO_SET_EPOCH = hazard(
    "B3.36", "set_epoch is missing", "DDP201", ("samples", "trajectory"), (SET_EPOCH, "")
)

INSIDE = "".join(f"    {line}\n" for line in (SAMPLER + MAIN_TRAIN).splitlines())
REBUILT = hazard(
    "B3.36b",
    "sampler and loader are made anew in each epoch, without set_epoch",
    "DDP201",
    ("samples", "trajectory"),
    (SAMPLER + MAIN_TRAIN, ""),
    (SET_EPOCH, INSIDE),
    original=changed(ORIGINAL, (TRAIN, ""), (EPOCHS, EPOCHS + "    " + TRAIN)),
    right=((SAMPLER + MAIN_TRAIN, ""), (SET_EPOCH, INSIDE + SET_EPOCH)),
)

HAZARDS: tuple[Hazard, ...] = (
    DIVISOR,
    BATCH_INDEX,
    SPLIT_REPLACED,
    HIDDEN_SHUFFLE,
    STREAM_SAMPLER,
    PADDED,
    OTHER_ORDER,
    PSNR,
    NO_SET_EPOCH,
    REBUILT,
)
