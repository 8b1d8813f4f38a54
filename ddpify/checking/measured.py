"""What `check` says of a rule besides what the rule does: measured on its examples, which the tests
hold against this.

A rule's severity is that of the program it would be under several processes as it stands, which is
what `migrate` reports; a program that is distributed already is read otherwise.
"""

from __future__ import annotations

IN_CHECK = {
    "DDP003": ("warning", "note"),
    "DDP004": ("warning",),
    "DDP101": ("note",),
    "DDP104": ("warning",),
    "DDP116": ("error", "note"),
    "DDP206": ("warning",),
    "DDP209": ("warning", "note"),
    "DDP303": ("error", "warning"),
    "DDP305": ("warning",),
    "DDP310": ("warning",),
    "DDP311": ("error", "warning"),
    "DDP401": ("warning", "note"),
    "DDP415": ("error", "warning"),
    "DDP419": ("error", "warning"),
    "DDP501": ("warning", "note"),
    "DDP502": ("error", "warning"),
    "DDP508": ("warning",),
    "DDP601": ("error", "warning"),
    "DDP702": ("note",),
    "DDP812": ("error", "warning", "note"),
    "DDP951": ("warning",),
    "DDP955": ("error", "warning"),
    "DDP956": ("error", "note"),
    "DDP970": ("error", "warning"),
    "DDP978": ("error", "warning", "note"),
    "DDP979": ("error", "warning"),
}
_BY_CHECK = """
DDP002 DDP003 DDP005 DDP107 DDP114 DDP201 DDP208 DDP303 DDP313 DDP421 DDP606 DDP823 DDP824
DDP908 DDP951 DDP952 DDP965 DDP966 DDP967 DDP968 DDP969 DDP978
"""
_BY_MIGRATE = """
DDP002 DDP101 DDP102 DDP103 DDP104 DDP111 DDP114 DDP115 DDP201 DDP202 DDP203 DDP204 DDP205
DDP206 DDP217 DDP218 DDP220 DDP301 DDP302 DDP303 DDP304 DDP305 DDP309 DDP315 DDP401 DDP402
DDP403 DDP404 DDP405 DDP406 DDP419 DDP501 DDP502 DDP503 DDP504 DDP505 DDP506 DDP507 DDP601
DDP602 DDP603 DDP604 DDP608 DDP609 DDP701 DDP702 DDP703 DDP960 DDP961 DDP964
"""


def severities(code: str, own: str) -> str:
    """The words for how bad it is; ``own``: the rule's."""
    told = IN_CHECK.get(code)
    if told is None or set(told) == {own}:
        return own
    said = " or ".join(told)
    return f"{said}, by what is proven" if own in told else f"{own}; in `check`: {said}"


def fixed_by(code: str, safe: bool) -> str:
    """What makes the fix; not every place has one that is certain."""
    flags = "--fix" if safe else "--fix --unsafe-fixes"
    ways = [f"`check {flags}`"] if code in _BY_CHECK.split() else []
    ways += ["`migrate`"] if code in _BY_MIGRATE.split() else []
    return f"{' and '.join(ways)}, where it is certain" if ways else "by hand"
