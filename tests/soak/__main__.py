"""`python -m tests.soak --seconds 1800 --clients 50 --seed 1`, as `make soak` runs it."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.run import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=1800.0, help="how long there is trouble (default: 1800)"
    )
    parser.add_argument("--clients", type=int, default=50, help="fake clients (default: 50)")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is random (default: 1)")
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="awe-soak-"))
    print(f"soak: logs and data are in {home}, until the end if all promises hold", flush=True)
    outcome = soak(home, args.seconds, args.clients, args.seed)
    print(outcome)
    if not outcome.problems:
        shutil.rmtree(home, ignore_errors=True)
    return 0 if not outcome.problems else 1


if __name__ == "__main__":
    sys.exit(main())
