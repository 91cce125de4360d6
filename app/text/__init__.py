"""Text, pure and synchronous: tokens, planned answers, templates, schemas.

Owns everything between strings and token ids. Must not know HTTP, asyncio or the
scheduler. Start reading at `tokenizer`, then `generator`.
"""
