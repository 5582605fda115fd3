"""Questions to prompts, replies to grades."""
