"""The generation loop: metrics, alarms, checkpoints, resume."""
