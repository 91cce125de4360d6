"""A vLLM-style engine simulation: pure core, offline driver and live loop."""
