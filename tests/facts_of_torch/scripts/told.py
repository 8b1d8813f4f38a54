"""Started by torchrun: what this process is told, draws and shows. One line of JSON."""

import argparse
import json
import os
import random
import sys

import numpy as np
import torch
from tqdm import tqdm

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    words = [f"word{number}" for number in range(50)]
    for _ in tqdm(range(3)):
        pass
    print(
        json.dumps(
            {
                "local rank": os.environ["LOCAL_RANK"],
                "rank": os.environ["RANK"],
                "rank is": [number for number in (0, 1, "0", "1") if os.environ["RANK"] == number],
                "option": parser.parse_args().local_rank,
                "arguments": sys.argv[1:],
                "seed of hashes": os.environ.get("PYTHONHASHSEED"),
                "order": list(set(words)),
                "draws": [random.random(), np.random.rand(), torch.rand(1).item()],
            }
        )
    )
