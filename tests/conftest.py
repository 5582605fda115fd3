"""Settings that every test shares: CPU, no hub, Flax modules as plain pytrees."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NNX_GRAPH_MODE", "false")
os.environ.setdefault("NNX_GRAPH_UPDATES", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Nearly all of the suite's time is compilation of small programs that run once: a third less without LLVM's best.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
