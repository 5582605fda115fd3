"""Labels and features by the names they have in the table."""

KIND, BEST, FIRST, DRAWN = "kind", "best model of the kind", "chosen model, largest logit", "chosen model, drawn"
STATES, RANDOM, LOGITS = "states", "states, random weights", "head logits"
WORDS, CHARACTERS = "TF-IDF of words", "TF-IDF of characters"
