"""Metrics of conversations: of our own sessions and of recordings that never went through us. `docs/metrics.md` defines each."""
