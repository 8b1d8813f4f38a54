"""Programs migrated wrongly, one for each hazard: ``ddpify verify`` must fail and say why."""
