"""How many paid calls it takes to reach most of what a pool has to give."""
