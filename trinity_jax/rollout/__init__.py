"""Many episodes at once: decisions batched into one jitted call, calls run concurrently."""
