"""PATTERNS B1.1 to B1.4: some gradients are never averaged, or ranks start apart."""

from __future__ import annotations

from tests.verify.hazards.base import Change, define, hazard, step

APART = ("gradients", "trajectory", "ranks-identical")  # some gradient is that of one rank

WRAP = "    model = DistributedDataParallel(net) if world > 1 else net\n"
OPTIMIZER = "torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)"
BOTH_PARAMETERS: Change = (
    OPTIMIZER,
    "torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=args.lr)",
)
NEW = "    model = Net()\n"  # of the original
CRITERION = "    criterion = nn.CrossEntropyLoss()\n"
NET = "    def forward(self, x):\n        return self.head(self.encoder(x))\n"

BYPASSED = (
    hazard(
        "B1.1",
        "the loss is computed by a method of the inner module",
        "DDP403",
        APART,
        step("""\
            loss = net.compute_loss(inputs, labels)
            loss.backward()
        """),
        program=(
            (
                NET,
                NET
                + "\n    def compute_loss(self, x, labels):\n"
                + "        return nn.functional.cross_entropy(self(x), labels)\n",
            ),
        ),
        alone=(
            step("""\
                loss = model.compute_loss(inputs, labels)
                loss.backward()
            """),
        ),
    ),
    hazard(
        "B1.1b",
        "the parts of the inner module are called one by one",
        "DDP403",
        APART,
        step("""\
            features = net.encoder(inputs)
            loss = criterion(net.head(features), labels)
            loss.backward()
        """),
        alone=(
            step("""\
                features = model.encoder(inputs)
                loss = criterion(model.head(features), labels)
                loss.backward()
            """),
        ),
    ),
)

TWO_BACKWARDS = (
    hazard(
        "B1.2",
        "two forwards, then two backwards",
        "DDP412",
        APART,
        program=(
            step("""\
                loss = criterion(model(inputs), labels)
                mirrored = criterion(model(inputs.flip(1)), labels)
                loss.backward()
                mirrored.backward()
            """),
        ),
        right=(
            ("            loss.backward()\n", ""),
            ("mirrored.backward()", "(loss + mirrored).backward()"),
        ),
    ),
    hazard(
        "B1.2b",
        "a second backward over a graph that was kept",
        "DDP412",
        APART,
        program=(
            step("""\
                logits = model(inputs)
                loss = criterion(logits, labels)
                loss.backward(retain_graph=True)
                penalty = 0.1 * logits.pow(2).mean()
                penalty.backward()
            """),
        ),
        right=(
            ("            loss.backward(retain_graph=True)\n", ""),
            ("penalty.backward()", "(loss + penalty).backward()"),
        ),
    ),
)

OUTSIDE = (
    hazard(
        "B1.3",
        "the criterion has parameters, and only the model is wrapped",
        "DDP312",
        APART,
        program=(
            define("""\
                class ScaledLoss(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.scale = nn.Parameter(torch.ones(1, 4))

                    def forward(self, logits, labels):
                        return nn.functional.cross_entropy(logits * self.scale, labels)
            """),
            (CRITERION, ""),
            ("    model = ", "    criterion = ScaledLoss()\n    model = "),
            BOTH_PARAMETERS,
        ),
        right=((WRAP, WRAP + WRAP.replace("model", "criterion").replace("net", "criterion")),),
    ),
    hazard(
        "B1.3b",
        "a layer is added after the model was wrapped",
        "DDP301",
        APART,
        (WRAP, WRAP + "    net.encoder.append(nn.Linear(16, 16))\n"),
        alone=((NEW, NEW + "    model.encoder.append(nn.Linear(16, 16))\n"),),
        right=((WRAP, "    net.encoder.append(nn.Linear(16, 16))\n" + WRAP),),
    ),
    hazard(
        "B1.3c",
        "the model is not wrapped at all",
        "DDP301",
        APART,
        (WRAP, "    model = net\n"),
    ),
)

INITIALISE = define("""\
    def weights_init(module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0.0, 0.2)
            nn.init.zeros_(module.bias)
""")
PRETRAINED = define("""\
    def pretrained(net):
        generator = torch.Generator().manual_seed(7)
        state = net.state_dict().items()
        return {name: 0.3 * torch.randn(w.shape, generator=generator) for name, w in state}
""")

AFTER_THE_WRAP = (
    hazard(
        "B1.4",
        "weights are initialised after the wrap, from each rank's own stream",
        "DDP314",
        ("trajectory", "ranks-identical"),
        (
            WRAP,
            WRAP + "    torch.manual_seed(2 + rank)\n    net.apply(weights_init)\n",
        ),
        program=(INITIALISE,),
        alone=(
            (
                "    model = Net()\n",
                "    model = Net()\n    torch.manual_seed(2)\n    model.apply(weights_init)\n",
            ),
        ),
        right=((WRAP, "    torch.manual_seed(2 + rank)\n    net.apply(weights_init)\n" + WRAP),),
    ),
    hazard(
        "B1.4b",
        "rank 0 alone loads the weights to start from, after the wrap",
        "DDP815",
        ("trajectory", "ranks-identical"),
        (
            WRAP,
            WRAP + "    if rank == 0:\n        net.load_state_dict(pretrained(net))\n",
        ),
        program=(PRETRAINED,),
        alone=(
            (
                "    model = Net()\n",
                "    model = Net()\n    model.load_state_dict(pretrained(model))\n",
            ),
        ),
        right=((WRAP, "    net.load_state_dict(pretrained(net))\n" + WRAP),),
    ),
)

HAZARDS = (*BYPASSED, *TWO_BACKWARDS, *OUTSIDE, *AFTER_THE_WRAP)
