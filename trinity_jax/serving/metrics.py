"""What Prometheus reads: a registry of the server's own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from trinity_jax.serving.trace import Trace

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counters of one server; none of their labels is a client's to choose."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"trinity_{name}", what, labels, registry=self.registry)

        self.requests = counter(
            "requests", "Requests by route and HTTP status (499: the client has gone)", "route", "status"
        )
        self.calls = counter("calls", "Calls by model, role and outcome", "model", "role", "outcome")
        self.tokens = counter("tokens", "Tokens by model and direction", "model", "direction")
        self.cost = counter("cost", "Money by model, in the prices' currency", "model")
        self.ends = counter("ends", "Requests by how they ended", "end")
        self.fallbacks = counter("fallbacks", "Requests that another model answered than the coordinator chose")
        self.reloads = counter("reloads", "Coordinators loaded anew")
        self.in_flight = Gauge("trinity_in_flight", "Requests being answered", registry=self.registry)
        self.seconds = Histogram(
            "trinity_request_seconds", "From arrival to answer", buckets=_SECONDS, registry=self.registry
        )
        self.forward = Histogram(
            "trinity_forward_seconds", "Coordinator's forward passes per request", registry=self.registry
        )

    def count(self, trace: Trace) -> None:
        """Add a finished request."""
        self.ends.labels(trace.end or "none").inc()
        self.seconds.observe(trace.ms / 1e3)
        self.forward.observe(sum(turn.forward_ms for turn in trace.turns) / 1e3)
        if trace.fallback is not None and trace.would is None:
            self.fallbacks.inc()
        for turn in trace.turns:
            self.calls.labels(turn.model, turn.role, turn.outcome or "none").inc()
            self.tokens.labels(turn.model, "in").inc(turn.input_tokens)
            self.tokens.labels(turn.model, "out").inc(turn.output_tokens)
            self.cost.labels(turn.model).inc(turn.cost)

    def page(self) -> bytes:
        """The text that is scraped."""
        return generate_latest(self.registry)
