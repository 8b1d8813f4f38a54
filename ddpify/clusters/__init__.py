"""Start files: one program on several nodes, under torchrun, Slurm, TorchX or Kubernetes."""
