"""DDP303: something other than a forward is asked of the wrapper."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddpify.facts.copies import DEEPCOPY
from ddpify.facts.model import Facts
from ddpify.facts.through import goes_through
from ddpify.facts.values import Kind, Thing, Value
from ddpify.facts.wrapping import unwrapped_model
from ddpify.ranks import words
from ddpify.ranks.events import Read
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Import, Rule, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import CORRECT, LEGACY, PROJECT, SCRIPT, SINGLE, TRAINER, changed
from ddpify.rules.model.asking import ASKED_FIRST, asks_what_it_is
from ddpify.rules.model.overrides import OVERRIDDEN, asked_of_inner, has, of_parallel
from ddpify.rules.shared.fields import layers
from ddpify.rules.shared.parameters import LAYERS
from ddpify.rules.shared.shards import Shards
from ddpify.rules.shared.wrapped import parts_of
from ddpify.settings import Settings
from ddpify.source import Site
from ddpify.strategies import of

# What DistributedDataParallel answers as the inner module would.
SAME = frozenset(
    """train eval parameters zero_grad requires_grad_ to cuda cpu float double half bfloat16 type
    no_sync forward training apply share_memory""".split()
)
ELSEWHERE = frozenset({"state_dict", "load_state_dict", "module"})
# What any module answers, the wrapper for itself.
_MODULE = frozenset(
    """children named_children modules named_modules named_parameters buffers named_buffers
    add_module register_buffer register_module register_parameter get_submodule
    get_parameter extra_repr compile register_forward_hook register_forward_pre_hook
    register_comm_hook join require_forward_param_sync require_backward_grad_sync
    find_unused_parameters static_graph device device_ids reducer logger process_group dim
    bucket_bytes_cap broadcast_buffers gradient_as_bucket_view scatter gather
    forward_sync_buffers output_device device_type will_sync_module_buffers join_device
    join_process_group join_hook""".split()
)
GIVEN_WHOLE = ("builtins.", "torch.nn.utils.", "ddpify.runtime.", "torch.save", "torch.optim.")
# What runs a model to show what is in it.
RUNS = frozenset(
    {"torch.onnx.export", "torch.jit.trace", "torchinfo.summary", "torchsummary.summary"}
)
COPIES = frozenset({DEEPCOPY, "torch.optim.swa_utils.AveragedModel"})
LOOKS_INSIDE = frozenset({"builtins.print", "builtins.str", "builtins.repr"})


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per attribute, method or hand-over that needs the inner module."""
    yield from of_parallel(facts)
    yield from _module_attribute(facts)
    if of(settings).inner:
        yield from _attributes(facts)
        yield from _handed_over(facts)
    else:
        yield from _classes(facts)


def _classes(facts: Facts) -> Iterable[Finding]:
    """``type(net).__name__``: to shard a model is to give it a class of its own, `FSDPNet`."""
    shards = Shards.of(facts)
    asked = [
        (c.callee, c.args[0], c.order, "class_of") for c in facts.named("builtins.type") if c.args
    ]
    for access in facts.accesses:
        node = facts.tree(access.base_site).expression(access.base_site)
        outer = facts.tree(access.base_site).parent(node) if node is not None else None
        if access.attribute == "__class__" and outer is not None:
            code = f"class_of({facts.text(access.base_site)})"
            asked.append(
                (facts.tree(access.base_site).site(outer), access.base, access.order, code)
            )
    for site, value, order, code in dict.fromkeys(asked):
        if any(shards.is_sharded(t, order) for t in value.of(Kind.WRAPPED, Kind.MODEL)):
            yield Finding(
                "DDP303",
                site,
                "a sharded model is of another class, which is made for it",
                Severity.WARNING,
                (edit(facts, How.REPLACE, site, code),),
            )


def _attributes(facts: Facts) -> Iterable[Finding]:
    done = {call.receiver_site for call in facts.calls if goes_through(call)}  # see DDP403
    done |= {call.receiver_site for call in facts.calls if call.site in facts.routes}
    done |= {site for model in facts.models for site in model.listed}
    for access in facts.accesses:
        wrapped = access.base.of(Kind.WRAPPED)
        same = access.attribute in SAME | ELSEWHERE and not asked_of_inner(facts, access)
        if not wrapped or same or access.base_site in done:
            continue
        done.add(access.base_site)
        yield Finding(
            "DDP303",
            access.base_site,
            f"`{access.attribute}` is the inner module's, not the wrapper's",
            Severity.ERROR,
            (_unwrap(facts, access.base_site),),
        )


def _module_attribute(facts: Facts) -> Iterable[Finding]:
    """``model.module`` exists only while the model is wrapped."""
    done: set[Site] = set()
    for access in facts.accesses:
        if access.attribute != "module" or not access.base.of(Kind.WRAPPED, Kind.MODEL):
            continue
        if any(map(_keeps_module, access.base.of(Kind.MODEL))):
            continue
        tree = facts.tree(access.base_site)
        inner = tree.expression(access.base_site)
        outer = tree.parent(inner) if inner is not None else None
        above = tree.parent(outer) if outer is not None else None
        if unwrapped_model(above) is inner:  # the script's own way to unwrap, whole
            outer = above
        if outer is None or tree.site(outer) in done:
            continue
        done.add(tree.site(outer))
        code = f"unwrap({facts.text(access.base_site)})"
        yield Finding(
            "DDP303",
            access.base_site,
            "`.module` is there only while the model is wrapped",
            Severity.ERROR,
            (edit(facts, How.REPLACE, tree.site(outer), code),),
        )


def _keeps_module(model: Thing) -> bool:
    """Whether a model has a part of that name, and not only was asked for one."""
    kept = model.attrs.get("module")
    asked = kept is not None and kept.things and all(p.born == model.born for p in kept.things)
    return kept is not None and not asked


def _handed_over(facts: Facts) -> Iterable[Finding]:
    """``print(model)``, ``writer.add_graph(model)``: the wrapper would be shown instead."""
    for calls in once(facts.calls).values():
        call = calls[0]
        if call.target is not None or (call.where.one_rank() and call.name in LOOKS_INSIDE):
            continue
        asks = asks_what_it_is(facts, call)
        inside = asks or call.name in LOOKS_INSIDE
        copied = call.name in COPIES
        made = not copied and call.result.of(Kind.INSTANCE, Kind.MODEL, Kind.WRAPPED)
        if made or (call.name.startswith(GIVEN_WHOLE) and not (inside or copied)):
            continue
        named = ((call.kwargs[k], s) for k, s in call.kwarg_sites.items())
        given = [*zip(call.args, call.arg_sites, strict=False), *named]
        for value, site in given[:1] if call.name in ASKED_FIRST else given:
            if _only_wrapped(value) or (asks and value.of(Kind.WRAPPED)):
                yield Finding(
                    "DDP303",
                    site,
                    "a library is given the wrapper where it was given the model",
                    Severity.WARNING,
                    (_unwrap(facts, site),),
                )


def _only_wrapped(value: Value) -> bool:
    return bool(value.things) and all(t.kind is Kind.WRAPPED for t in value.things)


def _unwrap(facts: Facts, site: Site) -> Edit:
    return edit(facts, How.REPLACE, site, "unwrap({})")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per attribute of the user's model that the wrapper does not have.

    A migrated program starts in one process, too, and has no wrapper then.
    """
    if run.helpers:
        yield from _only_while_wrapped(run, run.helpers)
    yield from _given_whole(run)
    own = {s.key for s in run.stores if words.DDP in s.base.names()}
    asked = {call.args[1].constant for call in run.named("builtins.hasattr") if len(call.args) > 1}
    given = (call.args[0] for call in run.named("builtins.setattr") if _sets_any(call))
    named = {thing for value in given for thing in value.things}
    for read in run.reads:
        name = read.attribute
        if (
            not named.isdisjoint(read.base.things)
            or name in own | asked | SAME | ELSEWHERE | _MODULE
            or not _all_wrappers(read.base)
        ):
            continue
        if (name != "__getitem__" and not _of_inner(read)) or not _is_wrapped(run, read):
            continue
        yield Finding(
            "DDP303",
            read.site,
            f"`{name}` is the inner module's: DistributedDataParallel has no such attribute",
            Severity.ERROR,
            *_asked_inside(run, read),
        )


def _sets_any(call: RankCall) -> bool:
    """``setattr(model, name, getattr(model.module, name))``, for names that are not followed."""
    return len(call.args) > 1 and not call.args[1].known


def _asked_inside(run: Run, read: Read) -> tuple[tuple[Edit, ...], str]:
    """The edit that asks the model inside, or the advice where a framework wraps only some runs."""
    if any(t.call is not None and t.call.name != words.DDP for t in read.base.things):
        return (), "ask accelerator.unwrap_model(model), which is right in one process, too"
    inner = Edit(How.REPLACE, read.module.site(read.node.value), "{}.module")
    if run.helpers:
        wanted = (Import(run.helpers, "unwrap"),)
        inner = replace(inner, code="unwrap({})", imports=wanted)
    return (inner,), ""


def _only_while_wrapped(run: Run, helpers: str) -> Iterable[Finding]:
    """``model.module`` that no condition on the wrapper, known on both ranks, precedes."""
    for read in run.reads:
        asked = any(g.test.constant and not g.starts_script for g in read.guards)
        if read.attribute == "module" and not read.module.ours and not asked:
            code = f"unwrap({read.module.text(read.node.value)})"
            wanted = (Import(helpers, "unwrap"),)
            yield Finding(
                "DDP303",
                read.site,
                "`.module` is there only while the model is wrapped: one process has no wrapper",
                Severity.ERROR,
                (Edit(How.REPLACE, read.site, code, imports=wanted),),
            )


def _given_whole(run: Run) -> Iterable[Finding]:
    """``writer.add_graph(model)``: rank 0 would run the wrapper, and wait for the others in it."""
    for call in run.calls:
        runs = call.name in RUNS or call.method == "add_graph"
        for value in call.given if runs else ():
            if _all_wrappers(value):
                yield Finding(
                    "DDP303",
                    call.site,
                    "the wrapper is run and shown here where the model inside is meant",
                    Severity.WARNING,
                    advice="give it the model inside the wrapper",
                )


def _all_wrappers(value: RankValue) -> bool:
    things = value.things
    return bool(things) and all(t.kind == "result" and t.name == words.DDP for t in things)


def _is_wrapped(run: Run, read: Read) -> bool:
    """Whether it surely has a wrapper: Accelerate leaves alone what has nothing to train."""
    made = [t for t in read.base.things if t.call is not None and t.call.name != words.DDP]
    inner = [i for t in made if "module" in t.attrs for i in t.attrs["module"].things]
    return all(i.cls is None or layers(run, i.cls) or _holds_layers(i) for i in inner)


def _holds_layers(module: RankThing) -> bool:
    """Whether layers with parameters are in it, those that it was given included."""
    return any(part.name in LAYERS for part in parts_of(module))


def _of_inner(read: Read) -> bool:
    """Whether the class inside the wrapper has the attribute, and the wrapper does not."""
    things = read.base.things
    inner = [i for t in things if "module" in t.attrs for i in t.attrs["module"].things]
    return bool(inner) and all(has(thing, read.attribute) for thing in inner)


_ASKED = (
    "    kind = type(judge).__name__  # DDP303\n",
    "    judge.module.train()  # DDP303\n",
    '    kept = getattr(judge, "head", None)  # DDP303\n',
    "    linear = isinstance(judge, (nn.Sequential, nn.Linear))  # DDP303\n",
    '    headed = hasattr(judge, "head") or type(judge) in (nn.Linear, nn.Bilinear)  # DDP303\n',
    "    known = vars(judge)  # DDP303\n",
    "    mean = torch.optim.swa_utils.AveragedModel(judge)  # DDP303\n",
)

RULE = Rule(
    "DDP303",
    "attribute-of-wrapper",
    "DistributedDataParallel is another module around yours: your attributes and methods are not"
    " on it (AttributeError), `children()` and `named_parameters()` change silently, and an"
    " assignment lands on the wrapper only.",
    "yolov5#90; BUGS L15, G01; PATTERNS B4.38-41",
    check,
    lint=lint,
    words=("add_graph", "onnx.export", "jit.trace"),
    bad=(
        changed(
            SCRIPT,
            (
                "    running = reduce",
                "    edge = net[0].weight.norm()  # DDP303\n    running = reduce",
            ),
        ),
        changed(
            PROJECT,
            (
                "        plan.step()\n",
                "        plan.step()\n        brain.head.reset_parameters()  # DDP303\n",
            ),
        ),
        changed(
            TRAINER,
            (
                "gap / count, number)\n",
                "gap / count, number)\n        self.board.add_graph(self.pupil)  # DDP303\n",
            ),
        ),
        *(
            changed(LEGACY, ("    torch.save(judge.state", f"{asked}    torch.save(judge.state"))
            for asked in _ASKED
        ),
        changed(  # before the place where it is wrapped now
            SINGLE,
            (
                "    adam = torch.optim.Adam(net.parameters())\n",
                "    if torch.cuda.device_count() > 1:\n        net = nn.DataParallel(net)\n"
                "        fitted = list(net.module[0].parameters())  # DDP303\n"
                "    else:\n        fitted = list(net[0].parameters())\n"
                "    adam = torch.optim.Adam(fitted)\n",
            ),
        ),
        OVERRIDDEN,
    ),
    good=(
        *CORRECT,
        changed(
            PROJECT,
            (
                "        plan.step()\n",
                "        plan.step()\n        unwrap(brain).head.reset_parameters()\n",
            ),
        ),
        changed(
            SCRIPT, ("    running = reduce", "    net.requires_grad_(True)\n    running = reduce")
        ),
        changed(  # a model with a part of that name
            SINGLE,
            (
                "def accuracy",
                "class Held(nn.Module):\n    def __init__(self, module):\n"
                "        super().__init__()\n        self.module = module\n\n"
                "    def forward(self, x):\n        return self.module(x)\n\n\ndef accuracy",
            ),
            (
                "nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))",
                "Held(nn.Linear(16, 4))",
            ),
        ),
    ),
)
