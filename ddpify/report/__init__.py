"""Renderings of one ``Outcome``: they add nothing to it and decide nothing."""
