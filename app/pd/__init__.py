"""vLLM's P/D contract over HTTP: `kv_transfer_params` out of a prefill server and into a decode server.

Owns holds and their leases, the peer client and the way of a request with transfer parameters into the
engine. Never: scheduling, or how answers look. Start reading at `submitter.py`, then `decode.py`.
"""
