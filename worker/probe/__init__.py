"""What the relay keeps inside the debugged program. `core` says how it lives there."""
