"""Prompt to reply: endpoints and simulated models, the journal and the ledger."""
