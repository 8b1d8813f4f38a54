"""Family 4: the training step and its gradients."""
