"""Renderings of one ``Verification``: they add nothing to it and decide nothing."""
