"""A program as two of its ranks run it: what each calls, in which order, and where they part.

The reading of code that is distributed already, for ``ddpify check``. Modules are parsed once with
the standard library; functions that cannot matter are not entered.
"""
