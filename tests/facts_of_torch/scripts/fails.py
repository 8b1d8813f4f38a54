"""Rank 1 ends as it is told, while rank 0 has a minute of work left."""

import os
import sys
import time

if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        if sys.argv[1] == "raises":
            raise ValueError("a bad row")
        sys.exit(int(sys.argv[1]))
    time.sleep(float(sys.argv[2]))
    print("all done", flush=True)
