"""Separability: how well task kind and chosen model can be told from hidden states and from head logits."""
