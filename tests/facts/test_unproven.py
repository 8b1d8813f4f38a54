"""What a refusal says of a loss: at which expression it begins not to be followed, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.roles import backwards
from ddpify.facts.unproven import unproven
from tests.facts.marks import facts_of

PROGRAM = """import torch.nn.functional as F
from mining import hardest
class Inner(nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        return F.mse_loss(out, x, reduction="sum"), 1
def penalty(out, weight):
    pairs = out.cummax(0)[0]
    return weight, torch.bernoulli(pairs).sum()
net, inner = nn.Linear(4, 4), Inner(4, 4)
optimizer = torch.optim.SGD([*net.parameters(), *inner.parameters()], lr=0.1)
loader = DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 4)), 2)
for x, y in loader:
    out, parts = net(x), []
    mean = F.mse_loss(out, y)
    {}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "first", "why"),
    [
        ("loss = mean + hardest(out, y)", "hardest(out, y)", "not read"),
        ("loss = mean + 0.1 * penalty(out, 3)[1]", "out.cummax(0)", "a model's output"),
        ("weight, loss = penalty(out, 3)", "out.cummax(0)", "a model's output"),
        ("parts.append(out.cummax(0)[0])\n    loss = mean + parts[0].sum()", "out.cummax(0)", ""),
        ("loss, _ = inner(x)", "inner(x)", "in a model"),
        ("loss = mean + out.t()[0].sum(1)", "out.t()[0]", ""),
    ],
)
def test_the_first_expression_that_is_not_followed(
    loss: str, first: str, why: str, tmp_path: Path
) -> None:
    facts = facts_of(PROGRAM.format(loss), tmp_path)
    (site,) = {call.receiver_site for call in backwards(facts.calls)}
    assert site is not None
    (where, reason), *more = unproven(facts, site)
    assert not more
    assert (facts.text(where), reason.startswith(f"`{first}` ")) == (first, True)
    assert why in reason
