"""`awe-server` as if on a machine of its own: nobody can look up whether its process still lives."""

import uuid

from awe_server.cli import main
from awe_server.store import owner

if __name__ == "__main__":
    PLACE = f"machine {uuid.uuid4()}"
    owner._place = lambda: PLACE
    main()
