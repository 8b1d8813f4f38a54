"""How programs in Lightning's Trainer come to several processes: what is set outside of hooks."""
