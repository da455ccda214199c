"""One HyperQueue process of the wheel: `server FOLDER`, or `worker FOLDER CORES NUMBER`.

The wheel has no `hq` program, only a LocalCluster that is server and workers in one process. To have them
apart, a worker's process starts an idle server of its own, whose access file is then replaced by the real
one's: its worker connects to the real server over loopback.
"""

import os
import shutil
import sys
import time

from hyperqueue.ffi.cluster import Cluster

role, folder = sys.argv[1:3]
if role == "server":
    cluster = Cluster(folder)
else:
    own = f"{folder}-worker{sys.argv[4]}"
    os.makedirs(own)
    cluster = Cluster(own)
    shutil.copy(f"{folder}/hq-current/access.json", f"{own}/hq-current/access.json")
    cluster.add_worker(int(sys.argv[3]))
print("ready", flush=True)
parent = os.getppid()
while os.getppid() == parent:  # ends with whoever started it
    time.sleep(0.5)
