"""The /admin routes: event streams, settings that change while the server runs, handoff commands."""
