"""A small P/D router: sends each request to a prefill server, then to a decode server.

Owns: choosing servers, passing bytes, errors and cancellations on. Never: engine, tokens, timing.
Start reading at `proxy.py`; `demo.py` starts a whole disaggregated set-up with one command.
"""
