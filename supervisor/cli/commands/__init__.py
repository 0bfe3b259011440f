"""The commands that call a relay, in groups. Each module maps the words to its commands."""
