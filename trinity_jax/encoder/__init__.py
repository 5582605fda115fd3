"""Text to the hidden vector h: tokenizer, decoder, checkpoints, singular-value fine-tuning."""
