"""The tri-role protocol: pure functions, no I/O, no clock."""
