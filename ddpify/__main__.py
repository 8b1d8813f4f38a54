"""``python -m ddpify``: the same as the command, where scripts are not on the path."""

from __future__ import annotations

import sys

from ddpify.cli import main

if __name__ == "__main__":
    sys.exit(main())
