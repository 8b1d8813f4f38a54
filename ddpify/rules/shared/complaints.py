"""What parts of a rule say, of which it makes a finding."""

from __future__ import annotations

from dataclasses import dataclass

from ddpify.site import Site


@dataclass(frozen=True)
class Complaint:
    """Where something is wrong, what, and what to do about it."""

    site: Site
    message: str
    advice: str
    because: tuple[tuple[Site, str], ...] = ()
