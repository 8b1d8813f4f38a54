"""Family 9: FSDP, Lightning."""
