"""What `mocker serve` can be told: declared once, read from flags, environment and YAML, and documented.

    declared   ServeSettings, every setting with default, range and help
    values     what one setting is, and how its value is read from text
    flags      argv in vLLM's dialect; vllm_flags: those that are accepted and ignored
    load       the sources over one another; the only reader of files and of the environment
    doc        --help and docs/configuration.md

Must not know what a setting does to the server.
"""

from app.settings.declared import ServeSettings, settings_by_name

__all__ = ["ServeSettings", "settings_by_name"]
