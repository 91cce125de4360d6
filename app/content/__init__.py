"""Where canned answers come from: datasets and fixtures, as pure modules.

Must not know HTTP or asyncio; a caller asks, an answer or None comes back.
"""
