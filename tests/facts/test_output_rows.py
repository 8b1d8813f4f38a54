"""One of several outputs is gathered only where each is made of the input, sample by sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.test_pooled import fixes

HEAD = """drop, norm, table = nn.Dropout(), nn.BatchNorm1d(3), torch.rand(3, 3)
def apart(rows):
    alike, n = torch.matmul(rows, rows.transpose(1, 0)), rows.size(0)
    return (torch.sum(alike) - n) / (n * (n - 1))
"""
BODY = "scores, rows = net(x)\nloss = F.cross_entropy(scores, y) + apart({})"
PROVEN = {
    "layers": "return self.a(x), self.b(x)",
    "in-a-name": "x = self.a(x)\nx = F.relu(x)\nreturn x, x * 2",
    "flattened": "h = x.view(x.size(0), -1)\nreturn self.a(h), self.b(h.flatten(1))",
    "its-length-in-a-name": "n = x.shape[0]\nreturn self.a(x), self.b(x).reshape(n, -1)",
    "noise": "m = self.a(x)\nz = m + torch.exp(m) * torch.randn_like(m)\nreturn z, m",
    "side-by-side": "h = torch.cat((self.a(x), self.b(x)), dim=1)\nreturn self.a(x), h",
}
OPEN = {
    "weight": "return self.a(x), self.b.weight",
    "parameter-bound-again": "s = self.a(x)\nx = self.b.weight\nreturn s, x",
    "mean": "h = self.b(x)\nreturn self.a(x), h.mean(0)",
    "product": "h = self.b(x)\nreturn self.a(x), torch.mm(h.t(), h)",
    "other-length": "return self.a(x), self.b(x).view(-1, 1)",
    "turned-in-place": "h = self.b(x)\nh.t_()\nreturn self.a(x), h",
    "in-a-loop": "h = x\nfor h in [self.a(x), self.b.weight]:\n    pass\nreturn self.a(x), h",
    "in-one-branch": "h = self.b(x)\nif x.size(1) > 9:\n    h = self.b.weight\nreturn self.a(x), h",
    "end-to-end": "h = torch.cat((self.a(x), self.b(x)), 0)\nreturn self.a(x), h",
    "table-like-it": "return self.a(x), table.type_as(x)",
    "of-itself": "n = n = x\nm = m\nreturn self.a(x), self.b(x).view(m, -1)",
    "criterion": "return self.a(x), nn.MSELoss()(self.a(x), x)",
}


@pytest.mark.parametrize("forward", PROVEN.values(), ids=PROVEN)
def test_outputs_of_layers_have_rows(forward: str, tmp_path: Path) -> None:
    found = fixes(BODY.format("rows"), tmp_path, forward, head=HEAD)
    assert found == ["whole_batch(rows)"]


@pytest.mark.parametrize("forward", OPEN.values(), ids=OPEN)
def test_what_may_have_no_rows_is_refused(forward: str, tmp_path: Path) -> None:
    assert fixes(BODY.format("rows"), tmp_path, forward, head=HEAD) == ["note"]


OWN = {
    "drawn": "F.dropout(rows)",
    "by-a-layer": "drop(rows)",
    "noise": "rows + torch.randn_like(rows)",
    "learnt": "norm(rows)",
}


@pytest.mark.parametrize("made", OWN.values(), ids=OWN)
def test_what_each_rank_would_draw_or_learn_of_all_is_refused(made: str, tmp_path: Path) -> None:
    head = HEAD.replace("    alike", f"    rows = {made}\n    alike")
    body = "loss = F.cross_entropy(net(x), y) + apart(net(x))"
    assert fixes(body, tmp_path, head=head) == ["note"]
