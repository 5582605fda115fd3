"""Settings that every test shares: CPU, no hub, Flax modules as plain pytrees."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NNX_GRAPH_MODE", "false")
os.environ.setdefault("NNX_GRAPH_UPDATES", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
