"""The manifest for Kubernetes: an Indexed Job and the Service by which its pods find each other.

Both are part of every cluster. Kubeflow's PyTorchJob is its version 1, which is no longer
developed, and TrainJob, its successor, wants a runtime that the cluster's operator has set up.
"""

from __future__ import annotations

import json
import posixpath
import shlex

from ddpify.clusters.model import GPUS, PATIENCE, PORT, ClusterJob, StartText, comment
from ddpify.clusters.torchrun import not_taken

SUFFIX = ".yaml"
_TEXT = StartText("""\
#
# Starts @@entry on @@size with @@gpus GPUs each, once `image` says where it is:
#
#     kubectl apply -f @@path
#     kubectl logs -f job/@@stem
#     kubectl delete -f @@path    # before it is started again: a Job cannot be changed
#
# Gives each pod a name that the others can look up. Without it they do not find each other.
apiVersion: v1
kind: Service
metadata:
  name: @@stem
spec:
  clusterIP: None # no address of its own: a name stands for a pod, not for any of them
  publishNotReadyAddresses: true # the names are there as soon as the pods are
  selector:
    job-name: @@stem # which Kubernetes writes on the pods of the Job
---
apiVersion: batch/v1
kind: Job
metadata:
  name: @@stem
spec:
  completionMode: Indexed # pods are called @@stem-0, @@stem-1, ..., and know their number
  completions: @@nodes
  parallelism: @@nodes # all at once: torchrun begins when the last one is there
  # Pods that may fail before the Job is given up. One that fails takes the others along, so that
  # a restart of all costs @@nodes. More than 0 only if the program goes on from its last
  # checkpoint by itself, on a volume that outlives the pod: else it begins anew each time.
  backoffLimit: 0
  template:
    spec:
      subdomain: @@stem # the name of the Service
      restartPolicy: Never # a failed pod stays, and with it what it has printed
      containers:
        - name: train
          image: your/image:latest # with torch and the project; write yours
          workingDir: @@folder # where the project is in it
          command:
            - bash
            - -c
            - |
              # Pod 0 opens the meeting place. torchrun would have to guess that from names, which
              # may not be known yet when a pod is new: all would wait, and nobody opens it.
              host=$([ "$JOB_COMPLETION_INDEX" = 0 ] && echo true || echo false)
              # read and join: how long a pod waits for the first to answer (60 s by default) and
              # for all others to come (600 s), in seconds; nodes and images may take minutes.
              # local-addr: pods do not know each other by the bare name that a pod has for itself.
              exec torchrun \\
@@options
                @@program "$@"
            - torchrun
@@arguments
          env:
            # CPU threads of one process. More than there are cores for all of them together makes
            # each slow.
            - name: OMP_NUM_THREADS
              value: "1"
            # INFO says which network NCCL takes, and why it fails.
            - name: NCCL_DEBUG
              value: @@debug
@@environment          resources:
            limits:
              nvidia.com/gpu: @@gpus # one process per GPU
          volumeMounts:
            - name: shm
              mountPath: /dev/shm
      volumes:
        # Workers of a DataLoader, and NCCL, hand data on in shared memory, of which a container
        # has 64 MB: "bus error" is what its end is called.
        - name: shm
          emptyDir:
            medium: Memory
""")


def text(job: ClusterJob, path: str) -> str:
    """The whole file."""
    gpus = job.gpus_per_node or GPUS
    return _TEXT.filled(
        job,
        path,
        folder=json.dumps(posixpath.join("/workspace", job.taken.folder)),
        options="\n".join(f"                {one} \\" for one in _options(job, gpus)),
        program=_literal(shlex.join(job.program)),
        arguments=_arguments(job),
        debug=json.dumps(_literal(dict(job.taken.variables).get("NCCL_DEBUG", "WARN"))),
        environment=_environment(job),
    )


def _options(job: ClusterJob, gpus: int) -> list[str]:
    conf = f"is_host=$host,read_timeout={PATIENCE},join_timeout={PATIENCE}"
    return [
        f"--nnodes={job.nodes}",
        f"--nproc-per-node={gpus}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={job.stem}-0.{job.stem}:{PORT}",
        f"--rdzv-id={job.stem}",
        f'--rdzv-conf="{conf}"',
        f'--local-addr="{job.stem}-$JOB_COMPLETION_INDEX.{job.stem}"',
        "--max-restarts=0",
        "--tee=3",
    ]


def _arguments(job: ClusterJob) -> str:
    lines = not_taken(job)
    if job.taken.arguments:
        lines += comment(f"The arguments of {job.taken.place}.")
    lines = [*lines, "args:"] if job.taken.arguments else [*lines, "args: []"]
    lines += [f"  - {json.dumps(_literal(word))}" for word in job.taken.arguments]
    return "\n".join(f"          {line}" for line in lines)


def _environment(job: ClusterJob) -> str:
    others = [(name, value) for name, value in job.taken.variables if name != "NCCL_DEBUG"]
    lines = comment(f"What {job.taken.place} has in its environment.") if others else []
    for name, value in others:
        lines += [f"- name: {name}", f"  value: {json.dumps(_literal(value))}"]
    return "".join(f"            {line}\n" for line in lines)


def _literal(word: str) -> str:
    """For a command or an argument, where Kubernetes fills in ``$(NAME)`` and halves ``$$``."""
    return word.replace("$", "$$")
