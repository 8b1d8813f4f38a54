"""DDP421: names of automatic mixed precision that torch has moved."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.ranks.words import canonical
from ddpify.rules.base import Edit, Finding, How, Import, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.syntax import spelled
from ddpify.rules.shared.written import given_texts

_OLD = {
    f"torch.{device}.amp.{prefix}{name}": (device, name)
    for device in ("cuda", "cpu")
    for prefix, name in (
        ("", "autocast"),
        ("autocast_mode.", "autocast"),
        ("", "GradScaler"),
        ("grad_scaler.", "GradScaler"),
    )
}


def lint(run: Run) -> Iterable[Finding]:
    """Yield a note per call of a deprecated name; a variable may hold another one as well."""
    for call in run.named(*_OLD):
        if canonical(spelled(call.module, call.node.func) or "") != call.name:
            continue
        device, name = _OLD[call.name]
        yield Finding(
            "DDP421",
            call.site,
            f"torch.{device}.amp.{name} is deprecated: torch prints a FutureWarning on every rank",
            Severity.NOTE,
            _fix(call, device, name),
            f'use torch.amp.{name}("{device}", …)',
        )


def _fix(call: RankCall, device: str, name: str) -> tuple[Edit, ...]:
    """The new call; ``autocast`` took its arguments in another order."""
    text = call.module.text(call.node)
    if "{" in text or "#" in text or (name == "autocast" and call.node.args) or call.star:
        return ()
    code = f"{name}({', '.join([repr(device).replace(chr(39), chr(34)), *given_texts(call)])})"
    return (Edit(How.REPLACE, call.site, code, imports=(Import("torch.amp", name),)),)


_LOOP = """
for x, y in loader:
    optimizer.zero_grad()
    with torch.cuda.amp.autocast():  # DDP421
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""

RULE = Rule(
    "DDP421",
    "deprecated-amp",
    "torch.cuda.amp and torch.cpu.amp were merged into torch.amp in 2.4. The old names still work"
    " and print a FutureWarning, once per rank. That is no matter of distribution: the rule is off"
    " unless it is selected (`--extend-select DDP421`).",
    "TorchFix TOR101; torch.amp docs; BUGS L14",
    lint=lint,
    words=("autocast", "GradScaler"),
    severity=Severity.NOTE,
    safe=False,  # torch.amp.GradScaler needs torch 2.3
    bad=(trained(loop=_LOOP),),
    good=(
        trained(
            loop=_LOOP.replace("torch.cuda.amp.autocast():  # DDP421", 'torch.autocast("cuda"):')
        ),
    ),
)
