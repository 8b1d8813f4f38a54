"""ddpify: take a PyTorch training project from one GPU to several, correctly.

Kept free of imports: `ddpify --help` must not load libcst, black or torch.
"""

__version__ = "0.1.0"
