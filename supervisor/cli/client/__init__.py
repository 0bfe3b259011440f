"""How the commands reach a relay: standard library only, so that a command starts at once."""
