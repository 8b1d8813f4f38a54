"""Started on two nodes of one process each: its ranks, and its share of 8 samples by both."""

import json
import os
import sys
from pathlib import Path

from torch.utils.data import DistributedSampler

if __name__ == "__main__":
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    seen = {
        "local rank": local,
        "by rank": [*DistributedSampler(range(8), 2, rank, shuffle=False)],
        "by local rank": [*DistributedSampler(range(8), 2, local, shuffle=False)],
    }
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(seen))
