"""Compiled programs, kept in the user's cache folder and counted: a second start compiles nothing.

JAX's own variables rule: ``JAX_COMPILATION_CACHE_DIR`` names another folder, and with
``JAX_ENABLE_COMPILATION_CACHE=false`` nothing is kept.
"""

from collections import Counter

import jax

from trinity_jax.encoder.cache import cache_folder

_COMPILE, _READ = "/jax/core/compile/backend_compile_duration", "/jax/compilation_cache/cache_hits"


_counts = Counter[str]()


def keep_compiled() -> None:
    """Keep and count from now on, small programs too."""
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if not _counts:
        _counts[_COMPILE] = 0
        jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **rest: _counts.update([event]))
        jax.monitoring.register_event_listener(lambda event, **rest: _counts.update([event]))


def compiled() -> int | None:
    """Programs that this process had to compile since `keep_compiled`; None where nobody counts."""
    return _counts[_COMPILE] - _counts[_READ] if _counts else None
