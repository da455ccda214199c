"""For what asks whether this server still leads, in tests where nobody else could."""


def leads() -> None:
    """Nobody is beside this server."""
