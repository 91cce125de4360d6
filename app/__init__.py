"""The edge of the mocker: command line, settings, HTTP. What is simulated lives in `mocker_core`."""

__version__ = "0.1.0"
