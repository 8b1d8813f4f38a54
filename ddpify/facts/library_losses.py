"""The loss that a model of `transformers` computes where it is given labels.

    outputs = model(input_ids, attention_mask=mask, labels=labels)
    outputs.loss.backward()

A classifier of whole samples gives the mean over them. A language model gives the mean over the
labels that count, which are not as many on each rank: those that are not -100, of a causal one
all but the first, which nothing comes before.
https://huggingface.co/docs/transformers/main_classes/output and, for what is divided by,
https://github.com/huggingface/transformers/blob/main/src/transformers/loss/loss_utils.py
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Final

from ddpify.facts import counts
from ddpify.facts.details import CountMean
from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Detail, Kind, Measure, Thing, Value

_LIBRARY: Final = "transformers."
_GIVEN: Final = "labels"
_OF_SAMPLES: Final = re.compile(
    r"\w+For(Sequence|Image|Audio|Video)Classification(\.from_\w+)?|\w+ForMultipleChoice(\.from_\w+)?"
)
_OF_LABELS: Final = re.compile(
    r"\w+ForMaskedLM(\.from_\w+)?"
    r"|(Auto\w+ForSeq2SeqLM|(M?T5|M?Bart|Pegasus)ForConditionalGeneration)(\.from_\w+)?"
)
_OF_NEXT: Final = re.compile(
    r"(GPT2|OpenAIGPT|Bert)LMHeadModel(\.from_\w+)?"
    r"|(Auto\w+|GPTNeoX?|GPTJ|OPT|Bloom|Llama|Mistral|Qwen2|Gemma|Phi|Falcon)ForCausalLM(\.from_\w+)?"
)
# Losses that divide by the labels that count: what is written in the place of `{}`.
_TERMS: Final = ((_OF_LABELS, "({} != -100).sum()"), (_OF_NEXT, "({}[..., 1:] != -100).sum()"))


@dataclass(frozen=True, eq=False)
class WithLoss(Detail):
    """What such a model gave: its loss first, of as many ``terms``, "" of all samples alike."""

    call: Call
    terms: str
    rest: Value


def makes_number(model: Thing, call: Call) -> bool:
    """Whether a library's model, of which nothing is read, may give one number for all samples."""
    inner = model.stands_for[0] if model.stands_for else model
    if inner.ref is not None or inner.name.startswith(("torch.nn.", "torchvision.")):
        return False
    if inner.name.startswith(_LIBRARY):
        return any(name.endswith(_GIVEN) for name in call.kwargs) or call.star
    return len(call.args) + len(call.kwargs) > 1


def with_loss(m: Machine, model: Thing, whole: Value, event: Call) -> Value:
    """``whole``, the output of a model, as one that has a loss where it is known to compute one."""
    inner = model.stands_for[0] if model.stands_for else model
    site = event.kwarg_sites.get(_GIVEN)
    name = inner.name.removeprefix(_LIBRARY).rpartition("models.")[2]
    if not inner.name.startswith(_LIBRARY) or site is None or event.star or event.bound:
        return whole
    tree = m.tree(site.path)
    labels = tree.expression(site)
    terms = [text for kinds, text in _TERMS if kinds.fullmatch(name)]
    if not terms and not _OF_SAMPLES.fullmatch(name):
        return whole
    if terms and not isinstance(labels, (ast.Name, ast.Attribute)):
        return whole
    made = Thing(Kind.UNKNOWN, event.site, name)
    text = terms[0].format(tree.text(labels)) if terms and labels is not None else ""
    made.describe(WithLoss(event, text, whole))
    return whole.but(things=(made,), rows=False)


def entry(m: Machine, f: Frame, thing: Thing, which: object, node: ast.AST) -> Value | None:
    """``outputs.loss``, ``outputs["loss"]``, ``outputs[0]``, or another part; None of others."""
    given = thing.detail(WithLoss)
    if given is None:
        return None
    if which not in ("loss", 0):
        return given.rest
    loss = Value((), given.rest.deps, Measure.MEAN)
    if not given.terms:
        return loss
    site = m.site(f, node)
    mean = CountMean(m.where(f), call=given.call, terms=given.terms)
    return counts.over(m, f, loss, site, mean)
