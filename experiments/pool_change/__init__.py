"""What to do when the pool changes: mask, a new row, a profile head, or a full retraining."""
