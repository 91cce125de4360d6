"""GET /metrics: vLLM's Prometheus families and the mocker's own."""
