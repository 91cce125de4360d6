"""KV events over ZMQ in vLLM's wire format, for KV-aware routers made for vLLM (docs/kv-events.md)."""
